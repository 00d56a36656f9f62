/* Black-Scholes: the sum of call prices, and its gradient in spot, strike, time, rate and volatility. */
#include <math.h>
#include <stdint.h>

#define ROOT_HALF 0.70710678118654752440
#define ROOT_TWO_PI_INVERSE 0.39894228040143267794

static inline double normal_cdf(double z)
{
    return 0.5 + 0.5 * erf(z * ROOT_HALF);
}

double bs_value(int64_t n, const double *restrict spot, const double *restrict strike,
                const double *restrict time, const double *restrict rate, const double *restrict vol)
{
    double total = 0.0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < n; i++) {
        double width = vol[i] * sqrt(time[i]);
        double d1 = (log(spot[i] / strike[i]) + (rate[i] + 0.5 * vol[i] * vol[i]) * time[i]) / width;
        double present = strike[i] * exp(-rate[i] * time[i]);
        total += spot[i] * normal_cdf(d1) - present * normal_cdf(d1 - width);
    }
    return total;
}

/* The terms through d1 and d2 cancel but for spot * density(d1) = present * density(d2). */
double bs_gradient(int64_t n, const double *restrict spot, const double *restrict strike,
                   const double *restrict time, const double *restrict rate, const double *restrict vol,
                   double *restrict by_spot, double *restrict by_strike, double *restrict by_time,
                   double *restrict by_rate, double *restrict by_vol)
{
    double total = 0.0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < n; i++) {
        double root = sqrt(time[i]);
        double width = vol[i] * root;
        double d1 = (log(spot[i] / strike[i]) + (rate[i] + 0.5 * vol[i] * vol[i]) * time[i]) / width;
        double discount = exp(-rate[i] * time[i]);
        double hit = normal_cdf(d1);
        double paid = discount * normal_cdf(d1 - width);
        double density = spot[i] * ROOT_TWO_PI_INVERSE * exp(-0.5 * d1 * d1);
        double owed = strike[i] * paid;
        by_spot[i] = hit;
        by_strike[i] = -paid;
        by_time[i] = 0.5 * density * vol[i] / root + rate[i] * owed;
        by_rate[i] = time[i] * owed;
        by_vol[i] = density * root;
        total += spot[i] * hit - owed;
    }
    return total;
}
