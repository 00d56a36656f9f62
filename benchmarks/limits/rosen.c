/* Rosenbrock's function: sum of 100 (x[i+1] - x[i]^2)^2 + (1 - x[i])^2. */
#include <stdint.h>

/* Four vectors of eight: one accumulator would wait for its own addition and cost more than the memory. */
enum { LANES = 32, VECTOR = 8, CACHE_LINE = 64, AHEAD = 512 };

static inline double miss(const double *x)
{
    return x[1] - x[0] * x[0];
}

static inline double square(double v)
{
    return v * v;
}

/* d/dx[0] of the two terms that hold x[0]: each gradient is written once and nothing is carried along. */
static inline double slope(const double *x)
{
    return 200.0 * (miss(x - 1) - 2.0 * x[0] * miss(x)) - 2.0 * (1.0 - x[0]);
}

double rosen_value(int64_t n, const double *restrict x)
{
    double curved[LANES] = {0.0}, flat[LANES] = {0.0}, curve = 0.0, rest = 0.0;
    int64_t i = 0;
    for (; i + LANES < n; i += LANES)
#pragma omp simd
        for (int j = 0; j < LANES; j++) {
            curved[j] += square(miss(x + i + j));
            flat[j] += square(1.0 - x[i + j]);
        }
    for (; i + 1 < n; i++) {
        curve += square(miss(x + i));
        rest += square(1.0 - x[i]);
    }
    for (int j = 0; j < LANES; j++) {
        curve += curved[j];
        rest += flat[j];
    }
    return 100.0 * curve + rest;
}

double rosen_gradient(int64_t n, const double *restrict x, double *restrict g)
{
    if (n < 2) {
        for (int64_t i = 0; i < n; i++)
            g[i] = 0.0;
        return 0.0;
    }
    double curved[LANES] = {0.0}, flat[LANES] = {0.0};
    double curve = square(miss(x)), rest = square(1.0 - x[0]);
    g[0] = -400.0 * x[0] * miss(x) - 2.0 * (1.0 - x[0]);
    int64_t i = 1;
    /* Stores that straddle cache lines cost a third of the whole. */
    for (; i + 1 < n && (uintptr_t)(g + i) % CACHE_LINE; i++) {
        g[i] = slope(x + i);
        curve += square(miss(x + i));
        rest += square(1.0 - x[i]);
    }
    for (; i + LANES < n; i += LANES) {
        double *restrict out = __builtin_assume_aligned(g + i, CACHE_LINE);
        /* Beyond the second cache the hardware's own prefetching is a quarter slower. */
        for (int j = 0; j < LANES; j += VECTOR)
            __builtin_prefetch(x + i + j + AHEAD);
#pragma omp simd
        for (int j = 0; j < LANES; j++) {
            out[j] = slope(x + i + j);
            curved[j] += square(miss(x + i + j));
            flat[j] += square(1.0 - x[i + j]);
        }
    }
    for (; i + 1 < n; i++) {
        g[i] = slope(x + i);
        curve += square(miss(x + i));
        rest += square(1.0 - x[i]);
    }
    g[n - 1] = 200.0 * miss(x + n - 2);
    for (int j = 0; j < LANES; j++) {
        curve += curved[j];
        rest += flat[j];
    }
    return 100.0 * curve + rest;
}
