/* Vectors of doubles, and the exponential of one without a call. */
#include <math.h>
#include <stdint.h>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { VECTOR = 8 };
#elif defined(__AVX__)
enum { VECTOR = 4 };
#else
enum { VECTOR = 2 };
#endif
typedef double lanes __attribute__((vector_size(8 * VECTOR)));
typedef int64_t whole_lanes __attribute__((vector_size(8 * VECTOR)));

#define UNROLL _Pragma("GCC unroll 8")
#define ALWAYS static inline __attribute__((always_inline))

/* Hides a value from the compiler, which would otherwise take apart sums that are in this order for their rounding. */
#if defined(__x86_64__)
#define HOLD(value) __asm__("" : "+v"(value))
#elif defined(__aarch64__)
#define HOLD(value) __asm__("" : "+w"(value))
#else
#define HOLD(value) __asm__("" : "+m"(value))
#endif

ALWAYS lanes same(double x)
{
    return x - (lanes){0.0};
}

ALWAYS double total(lanes v)
{
    double sum = 0.0;
    for (int j = 0; j < VECTOR; j++)
        sum += v[j];
    return sum;
}

ALWAYS lanes greater(lanes a, lanes b)
{
    lanes result;
    for (int j = 0; j < VECTOR; j++)
        result[j] = a[j] > b[j] ? a[j] : b[j];
    return result;
}

ALWAYS lanes lesser(lanes a, lanes b)
{
    lanes result;
    for (int j = 0; j < VECTOR; j++)
        result[j] = a[j] < b[j] ? a[j] : b[j];
    return result;
}

/* Right to 1e-16, for arguments below a million. */
ALWAYS lanes exponential(lanes x)
{
#if defined(__AVX512F__)
    lanes whole = _mm512_roundscale_pd(x * 1.4426950408889634, 8);
#else
    x = greater(lesser(x, same(709.0)), same(-708.0));
    lanes shifted = x * 1.4426950408889634 + 0x1.8p52;
    HOLD(shifted);
    lanes whole = shifted - 0x1.8p52;
    HOLD(whole);
#endif
    lanes r = x - whole * 0x1.62e42fefa39efp-1;
    HOLD(r);
    r -= whole * 0x1.abc9e3b39803fp-56;
    lanes r2 = r * r, r4 = r2 * r2;
    lanes low = (0.5 + 0.16666666666666667 * r) + (0.041666666666623821 + 0.00833333333333003 * r) * r2;
    lanes middle = (0.0013888888917367081 + 1.9841269863171556e-4 * r) +
                   (2.4801521057868205e-5 + 2.7557268276905696e-6 * r) * r2;
    lanes high = 2.7620201591031549e-7 + 2.5100472505694996e-8 * r;
    lanes result = (1.0 + r) + r2 * (low + r4 * (middle + r4 * high));
#if defined(__AVX512F__)
    return _mm512_scalef_pd(result, whole);
#else
    return result * (lanes)(((whole_lanes)shifted + 1023) << 52);
#endif
}
