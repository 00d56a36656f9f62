"""The sum of Black-Scholes call prices."""

import math

import numpy as np
from scipy.special import erf


def normal_cdf(z):
    return 0.5 * (1.0 + erf(z / math.sqrt(2.0)))


def bs(spot, strike, time, rate, vol):
    width = vol * np.sqrt(time)
    d1 = (np.log(spot / strike) + (rate + 0.5 * vol**2) * time) / width
    d2 = d1 - width
    return np.sum(spot * normal_cdf(d1) - strike * np.exp(-rate * time) * normal_cdf(d2))
