/* log-sum-exp with the maximum subtracted. */
#include <math.h>
#include <stdint.h>

/* A block stays in L1 between the search for its maximum and the exponentials. */
enum { BLOCK = 1024 };

static inline double largest(int64_t n, const double *restrict x)
{
    double top = x[0];
#pragma omp simd reduction(max : top)
    for (int64_t i = 0; i < n; i++)
        top = x[i] > top ? x[i] : top;
    return top;
}

static inline int64_t block_size(int64_t n, int64_t start)
{
    return n - start < BLOCK ? n - start : BLOCK;
}

double lse_value(int64_t n, const double *restrict x)
{
    double top = x[0], sum = 0.0;
    for (int64_t start = 0; start < n; start += BLOCK) {
        const double *restrict part = x + start;
        int64_t size = block_size(n, start);
        double here = largest(size, part), partial = 0.0;
        if (here > top) {
            sum *= exp(top - here);
            top = here;
        }
#pragma omp simd reduction(+ : partial)
        for (int64_t i = 0; i < size; i++)
            partial += exp(part[i] - top);
        sum += partial;
    }
    return top + log(sum);
}

/* The exponentials are taken relative to the maximum so far, once; the last pass puts each block right. `tops`
   holds the maximum that each block has seen: (n + 1023) / 1024 values. */
double lse_gradient(int64_t n, const double *restrict x, double *restrict g, double *restrict tops)
{
    double top = x[0], sum = 0.0;
    for (int64_t start = 0; start < n; start += BLOCK) {
        const double *restrict part = x + start;
        double *restrict out = g + start;
        int64_t size = block_size(n, start);
        double here = largest(size, part), partial = 0.0;
        if (here > top) {
            sum *= exp(top - here);
            top = here;
        }
        tops[start / BLOCK] = top;
#pragma omp simd reduction(+ : partial)
        for (int64_t i = 0; i < size; i++) {
            out[i] = exp(part[i] - top);
            partial += out[i];
        }
        sum += partial;
    }
    for (int64_t start = 0; start < n; start += BLOCK) {
        double *restrict out = g + start;
        int64_t size = block_size(n, start);
        double share = exp(tops[start / BLOCK] - top) / sum;
#pragma omp simd
        for (int64_t i = 0; i < size; i++)
            out[i] *= share;
    }
    return top + log(sum);
}
