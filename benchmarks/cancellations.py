"""100 programs that lose digits, and 60 that look as if they did, for `benchmarks/digits.py`.

Each takes a namespace m of functions, which is NumPy's or mpmath's, and its arguments. The line at which digits are lost ends with a
comment that says so. A program that loses them at several lines, such as in the numerator and in the denominator, says so at each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np


class Program(NamedTuple):
    """A function, the trade it is from, and the arguments at which it is looked at."""

    function: Callable[..., Any]
    trade: str
    arguments: tuple[Any, ...]


ILL: Final[dict[str, Program]] = {}
WELL: Final[dict[str, Program]] = {}

STATISTICS: Final = "statistics"
FINANCE: Final = "finance"
GEOMETRY: Final = "geometry"
PHYSICS: Final = "physics"
ANALYSIS: Final = "numerical analysis"
ALGEBRA: Final = "linear algebra"
CHEMISTRY: Final = "chemistry, signals, learning"

Function = Callable[..., Any]


def ill(trade: str, *arguments: Any) -> Callable[[Function], Function]:
    """Enter a program that loses digits at its arguments."""

    def enter(function: Function) -> Function:
        assert function.__name__ not in ILL
        ILL[function.__name__] = Program(function, trade, arguments)
        return function

    return enter


def well(trade: str, *arguments: Any) -> Callable[[Function], Function]:
    """Enter a program that loses none on which its result depends."""

    def enter(function: Function) -> Function:
        assert function.__name__ not in WELL
        WELL[function.__name__] = Program(function, trade, arguments)
        return function

    return enter


HEIGHTS: Final = 1e6 + np.array([0.37, 1.91, 2.23, 3.57, 4.19]) / 3
WEIGHTS: Final = 1e5 + np.array([1.3, 2.9, 2.1, 3.7, 4.4]) / 7
SMALL: Final = np.array([0.37, 1.91, 2.23, 3.57, 4.19])


# Statistics


@ill(STATISTICS, HEIGHTS)
def textbook_variance(m: Any, x: Any) -> Any:
    """The mean of the squares less the square of the mean."""
    mean = np.sum(x) / 5
    squares = np.sum(x * x) / 5  # loses in the derivative
    return squares - mean * mean  # loses


@ill(STATISTICS, HEIGHTS, WEIGHTS)
def textbook_covariance(m: Any, x: Any, y: Any) -> Any:
    """The mean of the products less the product of the means."""
    products = np.sum(x * y)  # loses in the derivative
    return (products - np.sum(x) * np.sum(y) / 5) / 4  # loses


@ill(STATISTICS, 1e-2 * HEIGHTS, SMALL)
def slope_by_sums(m: Any, x: Any, y: Any) -> Any:
    """A line through points, by the formula of the textbook."""
    above = 5 * np.sum(x * y) - np.sum(x) * np.sum(y)  # loses
    below = 5 * np.sum(x * x) - np.sum(x) ** 2  # loses
    return above / below


@ill(STATISTICS, 1e3 + SMALL)
def raw_skewness(m: Any, x: Any) -> Any:
    """The third central moment of raw moments."""
    one = np.sum(x) / 5
    two = np.sum(x**2) / 5
    three = np.sum(x**3) / 5  # loses in the derivative
    return three - 3 * one * two + 2 * one**3  # loses


@ill(STATISTICS, 7.3)
def normal_tail(m: Any, z: Any) -> Any:
    """The chance of more than z standard deviations."""
    below = m.ndtr(z)
    return 1 - below  # loses


@ill(STATISTICS, 0.4, 1e-9 / 3)
def thin_interval(m: Any, z: Any, width: Any) -> Any:
    """The chance of a thin interval."""
    upper = z + width  # loses in the derivative
    return m.ndtr(upper) - m.ndtr(z)  # loses


@ill(STATISTICS, 3e-8 / 7)
def cloglog(m: Any, hazard: Any) -> Any:
    """The complementary log-log link."""
    survival = m.exp(-hazard)
    failure = 1 - survival  # loses
    return m.log(failure)


@ill(STATISTICS, 21.3)
def log_failure(m: Any, score: Any) -> Any:
    """The logarithm of the chance of failure in a logistic regression."""
    success = 1 / (1 + m.exp(-score))
    failure = 1 - success  # loses
    return m.log(failure)


@ill(STATISTICS, np.array([1e-8, -2e-8, 1e-8]) / 3)
def divergence(m: Any, shift: Any) -> Any:
    """The Kullback-Leibler divergence of two nearly equal distributions."""
    p = np.array([0.2, 0.3, 0.5])
    q = p + shift
    terms = p * m.log(p / q)
    return np.sum(terms)  # loses


@ill(STATISTICS, 1e8 + 1e3 / 3)
def poisson_log_likelihood(m: Any, rate: Any) -> Any:
    """Of a large count."""
    count = 1e8
    return count * m.log(rate) - rate - m.gammaln(count + 1)  # loses


@ill(STATISTICS, 0.5 + 1e-10 / 3)
def likelihood_ratio(m: Any, p: Any) -> Any:
    """The logarithms of the likelihoods of two nearly equal chances."""
    ours = 6 * m.log(p) + 4 * m.log(1 - p)
    theirs = 10 * np.log(0.5)
    return ours - theirs  # loses


@ill(STATISTICS, 1e-7 * SMALL, SMALL)
def unexplained(m: Any, noise: Any, y: Any) -> Any:
    """What a nearly perfect fit leaves, as one less what it explains."""
    total = np.sum(y * y)
    explained = total - np.sum(noise * noise)  # loses in the derivative
    return 1 - explained / total  # loses


@ill(STATISTICS, 1e4 + SMALL)
def weighted_variance(m: Any, x: Any) -> Any:
    """With weights that decrease, as of a moving average."""
    weight = 0.9 ** np.arange(5.0)
    weight = weight / np.sum(weight)
    mean = np.sum(weight * x)
    return m.sqrt(np.sum(weight * x**2) - mean**2)  # loses


@ill(STATISTICS, 1.7)
def student_of_many(m: Any, t: Any) -> Any:
    """A density of Student with many degrees of freedom."""
    many = 3e9
    base = 1 + t * t / many  # loses
    return base ** (-(many + 1) / 2)  # loses


# Finance


@ill(FINANCE, 1e-9 / 3)
def annuity(m: Any, rate: Any) -> Any:
    """The present value of 30 payments."""
    discount = (1 + rate) ** -30.0  # loses in the derivative
    return (1 - discount) / rate  # loses


@ill(FINANCE, 1e-7 / 3)
def effective_rate(m: Any, rate: Any) -> Any:
    """A rate compounded daily."""
    grown = (1 + rate / 365) ** 365
    return grown - 1  # loses


@ill(FINANCE, 1.7, 1 + 1e-8 / 3)
def crra_utility(m: Any, consumption: Any, aversion: Any) -> Any:
    """Near logarithmic utility."""
    exponent = 1 - aversion
    return (consumption**exponent - 1) / exponent  # loses


@ill(FINANCE, 100.0000012)
def log_return(m: Any, price: Any) -> Any:
    """Of a price that hardly moved."""
    ratio = price / 100.0000003
    return m.log(ratio)  # loses


@ill(FINANCE, 180.3, 0.2)
def put_by_parity(m: Any, spot: Any, volatility: Any) -> Any:
    """A put far out of the money, from the call."""
    strike = 80.0
    d = m.log(spot / strike) / volatility + volatility / 2
    call = spot * m.ndtr(d) - strike * m.ndtr(d - volatility)
    return call - spot + strike  # loses


@ill(FINANCE, 100.3, 1e-5)
def bumped_delta(m: Any, spot: Any, bump: Any) -> Any:
    """A delta by a bump of the price."""

    def price(s: Any) -> Any:
        d = m.log(s / 100.0) / 0.2 + 0.1
        return s * m.ndtr(d) - 100.0 * m.ndtr(d - 0.2)

    return (price(spot + bump) - price(spot)) / bump  # loses


@ill(FINANCE, 0.05 / 3)
def bumped_convexity(m: Any, rate: Any) -> Any:
    """A convexity by second differences."""
    h = 1e-5

    def bond(y: Any) -> Any:
        return 100 * m.exp(-10 * y)

    above, here, below = bond(rate + h), bond(rate), bond(rate - h)  # loses in the derivative
    return (above - 2 * here + below) / h**2  # loses


@ill(FINANCE, 0.98, 0.98 - 1e-9 / 3)
def forward_rate(m: Any, near: Any, far: Any) -> Any:
    """Of two discount factors a second apart."""
    ratio = near / far
    return (ratio - 1) / 3e-8  # loses


@ill(FINANCE, 1e-9 / 3)
def vasicek_loading(m: Any, reversion: Any) -> Any:
    """For slow mean reversion."""
    decay = m.exp(-reversion * 5.0)  # loses in the derivative
    return (1 - decay) / reversion  # loses


@ill(FINANCE, 1e-4 / 3)
def nelson_siegel(m: Any, ratio: Any) -> Any:
    """The curvature at the short end of a yield curve."""
    level = (1 - m.exp(-ratio)) / ratio  # loses
    return level - m.exp(-ratio)  # loses


@ill(FINANCE, 1e-5 / 3)
def log_contract(m: Any, gain: Any) -> Any:
    """A return less its logarithm, as in a variance swap."""
    grown = m.log1p(gain)  # loses in the derivative
    return gain - grown  # loses


@ill(FINANCE, 1e-7 / 3)
def sabr_ratio(m: Any, z: Any) -> Any:
    """A factor of the SABR formula, near the money."""
    rho = -0.3
    root = m.sqrt(1 - 2 * rho * z + z * z)  # loses in the derivative
    inner = (root + z - rho) / (1 - rho)  # loses
    return m.log(inner) / z  # loses


@ill(FINANCE, 0.031 + 1e-9 / 3)
def compound_difference(m: Any, rate: Any) -> Any:
    """Thirty years at two nearly equal rates."""
    ours = (1 + rate) ** 30
    theirs = (1 + 0.031) ** 30
    return ours - theirs  # loses


@ill(FINANCE, 1e6 / 3)
def time_value(m: Any, spot: Any) -> Any:
    """A call deep in the money, less what it is worth today."""
    call = m.sqrt((spot - 100.0) ** 2 + 4.0)  # loses in the derivative
    return call - (spot - 100.0)  # loses


# Geometry


@ill(GEOMETRY, 1e-5 / 3)
def law_of_cosines(m: Any, angle: Any) -> Any:
    """The third side of a thin triangle."""
    a, b = 3.0, 3.0
    square = a * a + b * b - 2 * a * b * m.cos(angle)  # loses
    return m.sqrt(square)


@ill(GEOMETRY, np.array([0.3, 0.7, 0.2 + 1e-6 / 3]))
def angle_between(m: Any, u: Any) -> Any:
    """Two nearly parallel vectors."""
    v = np.array([0.3, 0.7, 0.2])
    cosine = np.sum(u * v) / (m.sqrt(np.sum(u * u)) * m.sqrt(np.sum(v * v)))  # loses
    return m.arccos(cosine)  # loses


@ill(GEOMETRY, 0.7, 0.7 + 1e-6 / 3)
def great_circle(m: Any, north: Any, other: Any) -> Any:
    """The distance of two near places, by the law of cosines."""
    cosine = m.sin(north) * m.sin(other) + m.cos(north) * m.cos(other)  # loses
    return m.arccos(cosine)  # loses


@ill(GEOMETRY, np.array([3e5, 4e5 + 1 / 3]))
def distance_from_line(m: Any, p: Any) -> Any:
    """By Pythagoras, of a point nearly on the line."""
    along = p[0] * 0.6 + p[1] * 0.8
    return m.sqrt(p[0] ** 2 + p[1] ** 2 - along**2)  # loses


@ill(GEOMETRY, 1e-3 / 3)
def circular_segment(m: Any, angle: Any) -> Any:
    """The area between a short arc and its chord."""
    sine = m.sin(angle)  # loses in the derivative
    return (angle - sine) / 2  # loses


@ill(GEOMETRY, 1e4 / 3)
def sagitta(m: Any, radius: Any) -> Any:
    """The height of a flat arc."""
    half = 0.7
    root = m.sqrt(radius * radius - half * half)  # loses in the derivative
    return radius - root  # loses


@ill(GEOMETRY, 0.4 + 1e-9 / 3)
def nearly_parallel(m: Any, slope: Any) -> Any:
    """Where two lines meet."""
    determinant = slope * 3.0 - 1.2  # loses
    return (2.0 - 0.5) / determinant


@ill(GEOMETRY, 1e7 + np.array([0.1, 1.2, 0.7]) / 3, 1e7 + np.array([0.3, 0.2, 1.4]) / 3)
def far_polygon(m: Any, x: Any, y: Any) -> Any:
    """The shoelace formula, far from the origin."""
    after = [1, 2, 0]
    products = x * y[after] - x[after] * y  # loses
    return np.sum(products) / 2  # loses


@ill(GEOMETRY, 1e6 / 3)
def orientation(m: Any, y: Any) -> Any:
    """On which side of a line a point is."""
    left = 1e6 * y
    right = 2e6 * (y / 2 - 1e-7)
    return left - right  # loses


@ill(GEOMETRY, 2e7 / 3)
def ray_and_sphere(m: Any, b: Any) -> Any:
    """The near hit of a ray that starts close to a sphere."""
    c = 0.37
    root = m.sqrt(b * b - c)  # loses in the derivative
    return b - root  # loses


@ill(GEOMETRY, 1e4 + SMALL)
def gram_distance(m: Any, x: Any) -> Any:
    """The square of a distance from three products."""
    y = 1e4 + np.array([0.4, 1.9, 2.2, 3.6, 4.2])
    return np.sum(x * x) - 2 * np.sum(x * y) + np.sum(y * y)  # loses


@ill(GEOMETRY, 0.7 + 1e-9 / 3)
def bearing_change(m: Any, y: Any) -> Any:
    """The difference of two nearly equal bearings."""
    here, there = m.arctan(y / 1.3), np.arctan(0.7 / 1.3)
    return here - there  # loses


@ill(GEOMETRY, 1 - 1e-11 / 3)
def eccentricity(m: Any, minor: Any) -> Any:
    """Of a nearly round ellipse."""
    square = 1 - minor * minor  # loses
    return m.sqrt(square)


@ill(GEOMETRY, 1.7e-3)
def horizon(m: Any, height: Any) -> Any:
    """How far an eye sees that is little above the sea."""
    radius = 6.371e6
    square = (radius + height) ** 2 - radius**2  # loses
    return m.sqrt(square)


@ill(GEOMETRY, 2.0, 2.0 + 1e-8 / 3)
def frustum(m: Any, lower: Any, upper: Any) -> Any:
    """A nearly cylindrical one, as the difference of two cones."""
    above = upper**3 - lower**3  # loses
    below = upper - lower
    return above / below


@ill(GEOMETRY, 1e6 / 3)
def solid_angle(m: Any, distance: Any) -> Any:
    """Of a disc that is far away."""
    cosine = distance / m.sqrt(distance * distance + 1)  # loses in the derivative
    return 2 * np.pi * (1 - cosine)  # loses


# Physics


@ill(PHYSICS, 3e-5 / 7)
def kinetic_energy(m: Any, speed: Any) -> Any:
    """Of a slow relativistic particle."""
    gamma = 1 / m.sqrt(1 - speed * speed)
    return gamma - 1  # loses


@ill(PHYSICS, 1 - 1e-12 / 3)
def lorentz_factor(m: Any, speed: Any) -> Any:
    """Of a fast particle."""
    square = 1 - speed * speed  # loses
    return 1 / m.sqrt(square)


@ill(PHYSICS, 1e-6 / 3)
def pendulum(m: Any, angle: Any) -> Any:
    """The potential energy of a pendulum that hardly swings."""
    height = 1 - m.cos(angle)  # loses
    return 9.81 * height


@ill(PHYSICS, 1.7e-6)
def tide(m: Any, radius: Any) -> Any:
    """The difference of two attractions."""
    near = 1 / (1 - radius) ** 2
    far = 1 / (1 + radius) ** 2
    return near - far  # loses


@ill(PHYSICS, 1e7 / 3)
def dipole(m: Any, distance: Any) -> Any:
    """The potential of two opposite charges."""
    first = 1 / distance  # loses in the derivative
    second = 1 / (distance + 0.3)
    return first - second  # loses


@ill(PHYSICS, 1e-9 / 3)
def planck(m: Any, ratio: Any) -> Any:
    """The occupation of a mode of low frequency."""
    excess = m.exp(ratio) - 1  # loses
    return 1 / excess


@ill(PHYSICS, 1e-4 / 3)
def langevin(m: Any, field: Any) -> Any:
    """The magnetisation in a weak field."""
    cotangent = m.cosh(field) / m.sinh(field)  # loses in the derivative
    return cotangent - 1 / field  # loses


@ill(PHYSICS, 1 + 1e-9 / 3)
def lennard_jones(m: Any, distance: Any) -> Any:
    """Near the distance of no potential."""
    sixth = distance**-6
    return 4 * (sixth**2 - sixth)  # loses


@ill(PHYSICS, 1e-4 / 3)
def kepler(m: Any, anomaly: Any) -> Any:
    """The mean anomaly near the turning point of a parabolic orbit."""
    turned = (1 - 1e-13) * m.sin(anomaly)  # loses in the derivative
    return anomaly - turned  # loses


@ill(PHYSICS, 1e-10 / 3)
def doppler(m: Any, speed: Any) -> Any:
    """The shift of a slow source."""
    factor = m.sqrt((1 + speed) / (1 - speed))
    return factor - 1  # loses


@ill(PHYSICS, 1e4 / 3)
def interference(m: Any, path: Any) -> Any:
    """A phase of many turns."""
    wavelength = 5.5e-7
    phase = 2 * np.pi * path / wavelength
    return m.sin(phase)  # loses


@ill(PHYSICS, 1.7)
def climb(m: Any, height: Any) -> Any:
    """The energy of a climb, from two potentials of the Earth."""
    earth, radius = 3.986e14, 6.371e6
    below = earth / radius
    above = earth / (radius + height)
    return below - above  # loses


@ill(PHYSICS, 1e-5 / 3)
def small_level(m: Any, coupling: Any) -> Any:
    """The energy of a weakly coupled level."""
    root = m.sqrt(1 + coupling * coupling)
    return 1 - root  # loses


@ill(PHYSICS, 1e6 / 3)
def neutrino(m: Any, momentum: Any) -> Any:
    """What a light particle has more energy than momentum."""
    energy = m.sqrt(momentum * momentum + 0.01)  # loses in the derivative
    return energy - momentum  # loses


@ill(PHYSICS, 1e-7 / 3)
def expansion(m: Any, warmth: Any) -> Any:
    """The growth of a volume."""
    length = 1 + 1.2e-5 * warmth
    return length**3 - 1  # loses


# Numerical analysis


@ill(ANALYSIS, 1e7 / 3)
def smaller_root(m: Any, b: Any) -> Any:
    """Of a quadratic equation."""
    root = m.sqrt(b * b - 4 * 0.7)
    return (-b + root) / 2  # loses


@ill(ANALYSIS, 17.3)
def alternating_series(m: Any, x: Any) -> Any:
    """exp(-x) by its Taylor series."""
    total, term = 1.0 + 0 * x, 1.0 + 0 * x
    for k in range(1, 90):
        term = -term * x / k  # loses in the derivative
        total = total + term  # loses
    return total


@ill(ANALYSIS, 1 + 1e-2 / 3)
def seventh_power(m: Any, x: Any) -> Any:
    """(x - 1)**7, expanded, by Horner's rule."""
    total = 0 * x
    for c in (1.0, -7.0, 21.0, -35.0, 35.0, -21.0, 7.0, -1.0):
        total = total * x + c  # loses
    return total


@ill(ANALYSIS, 5 + 1e-4 / 3)
def wilkinson(m: Any, x: Any) -> Any:
    """A polynomial with the roots 1, ..., 10, by its coefficients, near one of them."""
    total = 0 * x
    for c in np.poly(np.arange(1.0, 11.0)):
        total = total * x + c  # loses
    return total


@ill(ANALYSIS, 1e-9 / 3)
def forward_difference(m: Any, h: Any) -> Any:
    """Of a sine."""
    there, here = m.sin(1 + h), np.sin(1.0)  # loses in the derivative
    return (there - here) / h  # loses


@ill(ANALYSIS, 1e-4 / 3)
def second_difference(m: Any, h: Any) -> Any:
    """Of an exponential."""
    before, after = m.exp(1 - h), m.exp(1 + h)  # loses in the derivative
    return (before - 2 * np.exp(1.0) + after) / h**2  # loses


@ill(ANALYSIS, 1.3 + 1e-8 / 3)
def divided_difference(m: Any, x: Any) -> Any:
    """Of a tangent."""
    above = m.tan(x) - np.tan(1.3)  # loses
    return above / (x - 1.3)


@ill(ANALYSIS, 1.1)
def forward_recurrence(m: Any, a: Any) -> Any:
    """Integrals of x**n exp(a (x - 1)), in the direction that amplifies errors."""
    value = (1 - m.exp(-a)) / a  # loses in the derivative
    for n in range(1, 16):
        value = (1 - n * value) / a  # loses
    return value


@ill(ANALYSIS, 4.0)
def muller(m: Any, first: Any) -> Any:
    """A recurrence whose limit is another one in every precision."""
    before, now = first, 4.25 + 0 * first
    for _ in range(10):
        before, now = now, 108 - (815 - 1500 / before) / now  # loses
    return now


@ill(ANALYSIS, 1.3)
def bessel_upwards(m: Any, x: Any) -> Any:
    """Bessel functions in the direction that amplifies errors."""
    before, now = m.j0(x), m.j1(x)
    for n in range(1, 9):
        before, now = now, 2 * n / x * now - before  # loses
    return now


@ill(ANALYSIS, -30.7)
def softplus(m: Any, x: Any) -> Any:
    """Of a large negative number."""
    grown = 1 + m.exp(x)  # loses
    return m.log(grown)  # loses


@ill(ANALYSIS, 1e10 / 3)
def euler(m: Any, n: Any) -> Any:
    """Compound interest at many moments."""
    base = 1 + 1 / n  # loses
    return base**n  # loses


@ill(ANALYSIS, 1e-6 / 3)
def aitken(m: Any, q: Any) -> Any:
    """The limit of a sequence that has nearly converged."""
    x0, x1, x2 = 1.7 + q, 1.7 + q / 3, 1.7 + q / 10
    bend = x2 - 2 * x1 + x0  # loses
    return (x1 - x0) ** 2 / bend  # loses


@ill(ANALYSIS, 1.0)
def archimedes(m: Any, side: Any) -> Any:
    """The circle by polygons with twice as many sides."""
    count = 6.0
    for _ in range(12):
        side = m.sqrt(2 - m.sqrt(4 - side * side))  # loses
        count = 2 * count
    return count * side / 2


@ill(ANALYSIS, 1e-4 / 3)
def slope_of_sinc(m: Any, x: Any) -> Any:
    """By the quotient rule, near zero."""
    above = x * m.cos(x) - m.sin(x)  # loses
    return above / x**2


@ill(ANALYSIS, 33096.0, 77617.0)
def rump(m: Any, b: Any, a: Any) -> Any:
    """An expression that is wrong in every precision of the hardware."""
    first = 333.75 * b**6
    second = a**2 * (11 * a**2 * b**2 - b**6 - 121 * b**4 - 2)
    third = 5.5 * b**8
    return first + second + third + a / (2 * b)  # loses


@ill(ANALYSIS, 1e9 / 3)
def gamma_ratio(m: Any, x: Any) -> Any:
    """A ratio of factorials by logarithms."""
    above, below = m.gammaln(x + 0.5), m.gammaln(x)  # loses in the derivative
    return above - below  # loses


@ill(ANALYSIS, 0.7 + 1e-9 / 3)
def error_function_step(m: Any, x: Any) -> Any:
    """A small difference of error functions."""
    there, here = m.erf(x), m.erf(0 * x + 0.7)
    return there - here  # loses


@ill(ANALYSIS, -1e5 / 3)
def area_sine(m: Any, x: Any) -> Any:
    """arcsinh of a negative number, by its logarithm."""
    inner = x + m.sqrt(x * x + 1)  # loses
    return m.log(inner)


@ill(ANALYSIS, 1e-9 / 3)
def area_tangent(m: Any, x: Any) -> Any:
    """arctanh of a small number, by its logarithm."""
    ratio = (1 + x) / (1 - x)
    return m.log(ratio) / 2  # loses


@ill(ANALYSIS, 1e-3 / 3)
def quadrature_error(m: Any, h: Any) -> Any:
    """What the trapezoidal rule is wrong by, on a small interval."""
    rule = h * (1 + m.exp(h)) / 2  # loses in the derivative
    exact = m.expm1(h)
    return rule - exact  # loses


# Linear algebra


@ill(ALGEBRA, np.array([1.0, 0.5, -0.3, 0.2, 0.7, -0.1]))
def hilbert(m: Any, b: Any) -> Any:
    """A linear system with the matrix of Hilbert."""
    matrix = 1 / (np.arange(6.0)[:, None] + np.arange(6.0) + 1)
    return np.sum(m.solve(matrix, b))  # loses


@ill(ALGEBRA, np.array([1.0, 1.001, 1.0023, 1.0031]))
def vandermonde(m: Any, nodes: Any) -> Any:
    """A polynomial through points that are close to each other."""
    matrix = nodes[:, None] ** np.arange(4)
    found = m.solve(matrix, np.array([1.0, -1.0, 2.0, 0.3]))  # loses
    return found[3]


@ill(ALGEBRA, np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0 + 1e-9 / 3]]))
def nearly_singular_determinant(m: Any, a: Any) -> Any:
    """By elimination."""
    return m.det(a)  # loses


@ill(ALGEBRA, 1 + 1e-9 / 3)
def inverse_of_nearly_singular(m: Any, x: Any) -> Any:
    """A sum of the inverse."""
    matrix = np.array([[0.0, 1.0], [1.0, 1.0]]) + x * np.array([[1.0, 0.0], [0.0, 0.0]])
    inverse = m.inv(matrix)  # loses
    return inverse[0, 0] + 0.5 * inverse[0, 1]


@ill(ALGEBRA, SMALL)
def normal_equations(m: Any, y: Any) -> Any:
    """A fit with two columns that are nearly the same."""
    first = np.array([1.0, 1.1, 0.9, 1.2, 1.3])
    design = np.stack([first, first + 1e-5 * np.array([0.3, -0.1, 0.2, 0.4, -0.5])], axis=1)
    gram = design.T @ design
    return m.solve(gram, design.T @ y)[0]  # loses


@ill(ALGEBRA, np.array([0.3, 0.5, 0.7 + 1e-8 / 3]))
def gram_schmidt(m: Any, v: Any) -> Any:
    """What is left of a vector that is nearly parallel to another one."""
    u = np.array([0.3, 0.5, 0.7])
    u = u / np.sqrt(np.sum(u * u))
    rest = v - u * np.sum(u * v)  # loses
    return m.sqrt(np.sum(rest * rest))


@ill(ALGEBRA, 1e-7 / 3)
def smaller_eigenvalue(m: Any, coupling: Any) -> Any:
    """Of a matrix of two rows, by its characteristic polynomial."""
    trace, determinant = 3.0, 2.0 * coupling
    root = m.sqrt(trace * trace - 4 * determinant)
    return (trace - root) / 2  # loses


@ill(ALGEBRA, 1e8 / 3)
def two_by_two_determinant(m: Any, x: Any) -> Any:
    """Of large numbers."""
    return (x + 1) * (x - 1.3) - x * x  # loses


@ill(ALGEBRA, np.array([1 / 3, 2 / 3, 1 / 7]))
def residual(m: Any, x: Any) -> Any:
    """Of a nearly exact solution."""
    matrix = np.array([[3.0, 1.0, 0.5], [1.0, 4.0, 0.2], [0.5, 0.2, 5.0]])
    b = np.array([1.738095238, 3.028571428, 1.0142857])
    rest = b - matrix @ x  # loses
    return np.sum(rest * rest)


@ill(ALGEBRA, np.array([1e8 / 3, 1e8 / 3 + 0.3]))
def indefinite_form(m: Any, x: Any) -> Any:
    """A quadratic form that nearly vanishes."""
    turned = np.array([[1.0, 0.0], [0.0, -1.0]]) @ x
    return np.sum(x * turned)  # loses


@ill(ALGEBRA, 1e-9 / 3)
def difference_of_log_determinants(m: Any, x: Any) -> Any:
    """Of two nearly equal matrices."""
    matrix = np.array([[3.0, 1.0], [1.0, 2.0]])
    moved = matrix + x * np.array([[1.0, 0.0], [0.0, 2.0]])
    return m.log(m.det(moved)) - np.log(5.0)  # loses


@ill(ALGEBRA, 9.3)
def matrix_exponential(m: Any, scale: Any) -> Any:
    """By its Taylor series, of a matrix with negative eigenvalues."""
    matrix = scale * np.array([[-1.9, 0.3], [0.4, -2.1]])
    total, term = np.eye(2) + 0 * matrix, np.eye(2) + 0 * matrix
    for k in range(1, 110):
        term = term @ matrix / k  # loses in the derivative
        total = total + term  # loses
    return np.sum(total)


@ill(ALGEBRA, np.array([0.6, 0.8 - 1e-10 / 3]))
def downdate(m: Any, v: Any) -> Any:
    """The denominator of a downdate, of a point that decides alone."""
    rest = 1 - np.sum(v * v)  # loses
    return np.sum(v) / rest


# Chemistry, signals, learning


@ill(CHEMISTRY, 1e-9 / 3)
def weak_acid(m: Any, concentration: Any) -> Any:
    """The ions of a strongly diluted acid."""
    k = 1.8
    root = m.sqrt(k * k + 4 * k * concentration)
    return (root - k) / 2  # loses


@ill(CHEMISTRY, 0.1 + 1e-10 / 3)
def nernst(m: Any, inside: Any) -> Any:
    """The voltage between nearly equal concentrations."""
    ratio = inside / 0.1
    return 25.7 * m.log(ratio)  # loses


@ill(CHEMISTRY, 1.3 + 1e-9 / 3)
def bateman(m: Any, rate: Any) -> Any:
    """A chain of two decays with nearly equal rates."""
    above = m.exp(-1.3) - m.exp(-rate)  # loses
    return above / (rate - 1.3)


@ill(CHEMISTRY, 1e-8 / 3)
def flux(m: Any, voltage: Any) -> Any:
    """The equation of Goldman, Hodgkin and Katz, near zero volts."""
    below = 1 - m.exp(-voltage)  # loses
    return voltage / below


@ill(CHEMISTRY, 1e6 / 3)
def layer_norm(m: Any, offset: Any) -> Any:
    """The variance of activations with a large mean."""
    x = offset + SMALL  # loses in the derivative
    variance = np.sum(x * x) / 5 - (np.sum(x) / 5) ** 2  # loses
    return (x[0] - np.sum(x) / 5) / m.sqrt(variance)  # loses


@ill(CHEMISTRY, 1e-10 / 3)
def decibels(m: Any, ripple: Any) -> Any:
    """A small ripple in decibels."""
    gain = 1 + ripple  # loses
    return 20 * m.log(gain) / np.log(10.0)  # loses


@ill(CHEMISTRY, 1e-8 / 3)
def bound_ligand(m: Any, ligand: Any) -> Any:
    """The equation of Morrison at a low concentration."""
    total = 1 + ligand + 0.3
    return (total - m.sqrt(total * total - 4 * ligand)) / 2  # loses


# Without losses: remedies, what looks dangerous and is not, and programs as they are written every day


@well(STATISTICS, HEIGHTS)
def centred_variance(m: Any, x: Any) -> Any:
    """Of numbers whose mean has been subtracted."""
    apart = x - x[0]
    mean = np.sum(apart) / 5
    return np.sum((apart - mean) ** 2) / 5


@well(STATISTICS, 7.3)
def upper_tail(m: Any, z: Any) -> Any:
    """The chance of more than z, by symmetry."""
    return m.ndtr(-z)


@well(STATISTICS, 3e-8 / 7)
def stable_cloglog(m: Any, hazard: Any) -> Any:
    """By expm1."""
    return m.log(-m.expm1(-hazard))


@well(STATISTICS, 21.3)
def stable_log_failure(m: Any, score: Any) -> Any:
    """By log1p."""
    return -(score + m.log1p(m.exp(-score)))


@well(STATISTICS, SMALL)
def normal_log_likelihood(m: Any, x: Any) -> Any:
    """Of five numbers."""
    mean = np.sum(x) / 5
    variance = np.sum((x - mean) ** 2) / 5
    return -0.5 * np.sum((x - mean) ** 2) / variance - 2.5 * m.log(variance)


@well(STATISTICS, 1e-11 / 3)
def stable_at_least_one(m: Any, p: Any) -> Any:
    """By expm1 and log1p."""
    return -m.expm1(10 * m.log1p(-p))


@well(STATISTICS, np.array([0.3, -0.2, 0.5]))
def softmax_entropy(m: Any, scores: Any) -> Any:
    """Of three scores."""
    weights = m.exp(scores)
    p = weights / np.sum(weights)
    return -np.sum(p * m.log(p))


@well(STATISTICS, 3.7)
def poisson_of_few(m: Any, rate: Any) -> Any:
    """The likelihood of a small count."""
    return 5 * m.log(rate) - rate - m.gammaln(6.0)


@well(STATISTICS, 0.37)
def beta_density(m: Any, p: Any) -> Any:
    """Its logarithm."""
    return 2.5 * m.log(p) + 1.5 * m.log(1 - p)


@well(FINANCE, 0.04 / 3)
def annuity_of_usual_rate(m: Any, rate: Any) -> Any:
    """By expm1 and log1p."""
    return -m.expm1(-30 * m.log1p(rate)) / rate


@well(FINANCE, 103.0, 0.2)
def black_scholes(m: Any, spot: Any, volatility: Any) -> Any:
    """A call near the money."""
    d = m.log(spot / 100.0) / volatility + volatility / 2
    return spot * m.ndtr(d) - 100.0 * m.ndtr(d - volatility)


@well(FINANCE, 0.043)
def bond_price(m: Any, rate: Any) -> Any:
    """Ten coupons and the principal."""
    times = np.arange(1.0, 11.0)
    return np.sum(4.0 * m.exp(-rate * times)) + 100 * m.exp(-10 * rate)


@well(FINANCE, np.array([0.2, 0.5, 0.3]))
def portfolio_risk(m: Any, weights: Any) -> Any:
    """The standard deviation of three assets."""
    covariance = np.array([[0.04, 0.01, 0.0], [0.01, 0.09, 0.02], [0.0, 0.02, 0.01]])
    return m.sqrt(np.sum(weights * (covariance @ weights)))


@well(FINANCE, 100.3)
def log_return_of_a_year(m: Any, price: Any) -> Any:
    """Of prices that differ."""
    return m.log(price / 87.0)


@well(FINANCE, 0.07)
def net_present_value(m: Any, rate: Any) -> Any:
    """An investment and five returns."""
    value = -100.0 + 0 * rate
    for year in range(1, 6):
        value = value + 40.0 / (1 + rate) ** year
    return value


@well(FINANCE, 1.7)
def crra(m: Any, consumption: Any) -> Any:
    """The utility of an aversion of three."""
    return (consumption**-2.0 - 1) / -2.0


@well(GEOMETRY, 3.7)
def triangle(m: Any, c: Any) -> Any:
    """Heron's formula, of a plump triangle."""
    s = (3.0 + 4.0 + c) / 2
    return m.sqrt(s * (s - 3.0) * (s - 4.0) * (s - c))


@well(GEOMETRY, 1e-5 / 3)
def chord(m: Any, angle: Any) -> Any:
    """The third side of a thin triangle, by half the angle."""
    return 6.0 * m.sin(angle / 2)


@well(GEOMETRY, 1e-6 / 3)
def angle_by_both_sides(m: Any, side: Any) -> Any:
    """Two nearly parallel vectors."""
    return m.arctan2(side, 0.7)


@well(GEOMETRY, 1e-6 / 3)
def haversine(m: Any, apart: Any) -> Any:
    """The distance of two near places."""
    return 2 * m.arcsin(m.sin(apart / 2))


@well(GEOMETRY, 1.7e-3)
def stable_horizon(m: Any, height: Any) -> Any:
    """By a product."""
    return m.sqrt(height * (2 * 6.371e6 + height))


@well(GEOMETRY, 1 - 1e-11 / 3)
def stable_eccentricity(m: Any, minor: Any) -> Any:
    """By a product; the difference of the argument and 1 is exact."""
    return m.sqrt((1 - minor) * (1 + minor))


@well(GEOMETRY, 0.4, 1.9)
def rotation(m: Any, angle: Any, x: Any) -> Any:
    """Of a point."""
    return x * m.cos(angle) - 0.3 * m.sin(angle)


@well(GEOMETRY, np.array([0.1, 1.2, 0.7]), np.array([0.3, 0.2, 1.4]))
def near_polygon(m: Any, x: Any, y: Any) -> Any:
    """The shoelace formula near the origin."""
    after = [1, 2, 0]
    return np.sum(x * y[after] - x[after] * y) / 2


@well(PHYSICS, 1e-6 / 3)
def stable_pendulum(m: Any, angle: Any) -> Any:
    """By half the angle."""
    return 9.81 * 2 * m.sin(angle / 2) ** 2


@well(PHYSICS, 0.6)
def gamma_factor(m: Any, speed: Any) -> Any:
    """Of a moderate speed."""
    return 1 / m.sqrt(1 - speed * speed)


@well(PHYSICS, 1e-9 / 3)
def stable_planck(m: Any, ratio: Any) -> Any:
    """By expm1."""
    return 1 / m.expm1(ratio)


@well(PHYSICS, 1.3)
def lennard_jones_far(m: Any, distance: Any) -> Any:
    """At a moderate distance."""
    sixth = distance**-6
    return 4 * (sixth**2 - sixth)


@well(PHYSICS, 1.7)
def stable_climb(m: Any, height: Any) -> Any:
    """The energy of a climb."""
    radius = 6.371e6
    return 3.986e14 * height / (radius * (radius + height))


@well(PHYSICS, 1.1, 0.4)
def kepler_equation(m: Any, anomaly: Any, eccentric: Any) -> Any:
    """By Newton's method: residuals cancel, and the solution does not."""
    e = anomaly
    for _ in range(8):
        e = e - (e - eccentric * m.sin(e) - anomaly) / (1 - eccentric * m.cos(e))
    return e


@well(PHYSICS, 0.3)
def oscillator(m: Any, damping: Any) -> Any:
    """Thirty steps of a symplectic method."""
    x, v = 1.0, 0.0
    for _ in range(30):
        v = v - 0.1 * (x + damping * v)
        x = x + 0.1 * v
    return x * x + v * v


@well(PHYSICS, 0.7)
def planets(m: Any, mass: Any) -> Any:
    """The field of two masses."""
    x = np.array([0.3, 1.1])
    r = m.sqrt(np.sum(x * x))
    return mass / r**3 + (1 - mass) / (2 + r) ** 3


@well(PHYSICS, 1e6 / 3)
def stable_neutrino(m: Any, momentum: Any) -> Any:
    """By the conjugate."""
    return 0.01 / (m.sqrt(momentum * momentum + 0.01) + momentum)


@well(ANALYSIS, 1e7 / 3)
def stable_root(m: Any, b: Any) -> Any:
    """The smaller root by the larger one."""
    return -1.4 / (b + m.sqrt(b * b - 2.8))


@well(ANALYSIS, 1.7)
def taylor_series(m: Any, x: Any) -> Any:
    """exp(x), of positive terms."""
    total, term = 1.0 + 0 * x, 1.0 + 0 * x
    for k in range(1, 30):
        term = term * x / k
        total = total + term
    return total


@well(ANALYSIS, 0.37)
def horner(m: Any, x: Any) -> Any:
    """A polynomial with positive coefficients."""
    total = 0 * x
    for c in (0.1, 0.7, 0.3, 1.1, 0.9):
        total = total * x + c
    return total


@well(ANALYSIS, 1.9)
def newton_root(m: Any, a: Any) -> Any:
    """A square root by Newton's method, whose residuals cancel."""
    x = a
    for _ in range(8):
        x = x - (x * x - a) / (2 * x)
    return x


@well(ANALYSIS, np.array([0.3, 0.9, -0.4]))
def log_sum_exp(m: Any, x: Any) -> Any:
    """With the largest one taken out."""
    top = x[1]
    return top + m.log(np.sum(m.exp(x - top)))


@well(ANALYSIS, 1.3)
def simpson(m: Any, a: Any) -> Any:
    """The integral of a Gaussian."""
    t = np.arange(9.0) / 8
    weights = np.array([1.0, 4.0, 2.0, 4.0, 2.0, 4.0, 2.0, 4.0, 1.0]) / 24
    return np.sum(weights * m.exp(-a * t * t))


@well(ANALYSIS, -30.7)
def stable_softplus(m: Any, x: Any) -> Any:
    """By log1p."""
    return m.log1p(m.exp(x))


@well(ANALYSIS, 1.3)
def bessel(m: Any, x: Any) -> Any:
    """A sum of two of them."""
    return m.j0(x) + 0.5 * m.j1(x)


@well(ANALYSIS, 0.7)
def irrelevant_loss(m: Any, x: Any) -> Any:
    """Digits that are lost in a small part."""
    small = 1 - m.cos(1e-6 * x)
    return m.exp(x) + small


@well(ANALYSIS, 1 + 1e-9)
def exact_difference(m: Any, x: Any) -> Any:
    """Of the argument and a number."""
    return (x - 1) * 3.7 + 0.0 * x


@well(ANALYSIS, 5.7)
def gamma_of_moderate(m: Any, x: Any) -> Any:
    """The logarithm of the gamma function."""
    return m.gammaln(x) + 0.5 * m.log(x)


@well(ANALYSIS, 0.3)
def continued_fraction(m: Any, x: Any) -> Any:
    """Of a tangent of hyperbola."""
    value = 11.0 + 0 * x
    for k in (9.0, 7.0, 5.0, 3.0, 1.0):
        value = k + x * x / value
    return x / value


@well(ALGEBRA, SMALL[:3])
def well_conditioned_solve(m: Any, b: Any) -> Any:
    """A diagonally dominant system."""
    matrix = np.array([[4.0, 1.0, 0.5], [1.0, 5.0, 0.2], [0.5, 0.2, 6.0]])
    return np.sum(m.solve(matrix, b))


@well(ALGEBRA, np.array([[2.0, 0.3], [0.4, 1.7]]))
def determinant(m: Any, a: Any) -> Any:
    """Of a matrix that is far from singular."""
    return m.log(m.det(a))


@well(ALGEBRA, np.array([[2.0, 0.3], [0.4, 1.7]]))
def inverse(m: Any, a: Any) -> Any:
    """A sum of its elements."""
    return np.sum(m.inv(a))


@well(ALGEBRA, SMALL)
def least_squares(m: Any, y: Any) -> Any:
    """By normal equations of two columns that differ."""
    design = np.stack([np.ones(5), np.array([-1.0, -0.4, 0.1, 0.6, 1.1])], axis=1)
    return np.sum(m.solve(design.T @ design, design.T @ y))


@well(ALGEBRA, np.array([0.3, 0.5, -0.2]))
def quadratic_form(m: Any, x: Any) -> Any:
    """A positive one."""
    matrix = np.array([[4.0, 1.0, 0.5], [1.0, 5.0, 0.2], [0.5, 0.2, 6.0]])
    return np.sum(x * (matrix @ x))


@well(ALGEBRA, 0.3)
def power_iteration(m: Any, x: Any) -> Any:
    """The largest eigenvalue of a matrix of two rows."""
    matrix = np.array([[2.0, 1.0], [1.0, 1.0]]) + x * np.array([[1.0, 0.0], [0.0, 0.0]])
    v = np.array([0.6, 0.8])
    for _ in range(12):
        v = matrix @ v
        v = v / m.sqrt(np.sum(v * v))
    return np.sum(v * (matrix @ v))


@well(ALGEBRA, 0.3)
def correlation_pivot(m: Any, correlation: Any) -> Any:
    """Of two variables that differ."""
    return m.sqrt(1 - correlation**2)


@well(CHEMISTRY, 0.7)
def buffer(m: Any, concentration: Any) -> Any:
    """The ions of an acid that is not diluted."""
    k = 0.3
    return (m.sqrt(k * k + 4 * k * concentration) - k) / 2


@well(CHEMISTRY, np.array([0.2, -0.3, 0.5]))
def neural_layer(m: Any, x: Any) -> Any:
    """Two layers."""
    first = np.array([[0.5, -0.2, 0.1], [0.3, 0.8, -0.6]])
    hidden = m.tanh(first @ x + np.array([0.1, -0.2]))
    return np.sum(hidden * np.array([1.2, -0.7]))


@well(CHEMISTRY, SMALL)
def normalised(m: Any, x: Any) -> Any:
    """Activations, less their mean, by their deviation."""
    apart = x - np.sum(x) / 5
    out = apart / m.sqrt(np.sum(apart * apart) / 5 + 1e-5)
    return np.sum(out * np.array([1.0, 0.5, -0.3, 0.2, 0.1]))


@well(CHEMISTRY, 0.7)
def cross_entropy(m: Any, score: Any) -> Any:
    """Of two scores."""
    return m.log(1 + m.exp(-score))


@well(CHEMISTRY, 0.01)
def decay(m: Any, rate: Any) -> Any:
    """Of a chain of two decays with different rates."""
    return (m.exp(-rate * 10) - m.exp(-3.0)) / (0.3 - rate)


@well(CHEMISTRY, 1e-10 / 3)
def stable_decibels(m: Any, ripple: Any) -> Any:
    """By log1p."""
    return 20 * m.log1p(ripple) / np.log(10.0)


@well(CHEMISTRY, 17.3)
def stable_saturated(m: Any, x: Any) -> Any:
    """What a saturated neuron is below one, by an exponential."""
    return 2 / (m.exp(2 * x) + 1)


@well(CHEMISTRY, 0.9)
def filter_gain(m: Any, frequency: Any) -> Any:
    """Of a filter of the first order."""
    return 1 / m.sqrt(1 + (frequency / 0.7) ** 2)
