/* With -DGRADTAPE_VECTORS -fopenmp-simd -fno-math-errno, loops run in the lanes of vectors, sums among them, and glibc's
 * functions of vectors compute in place of those of numbers, with errors of up to 4 units in the last place. */
#ifdef GRADTAPE_VECTORS
#define GRADTAPE_PRAGMA(text) _Pragma(#text)
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#define GRADTAPE_VECTOR __attribute__((__simd__("notinbranch")))
#if __GLIBC_PREREQ(2, 22)
GRADTAPE_VECTOR double exp(double);
GRADTAPE_VECTOR double log(double);
GRADTAPE_VECTOR double sin(double);
GRADTAPE_VECTOR double cos(double);
GRADTAPE_VECTOR double pow(double, double);
GRADTAPE_VECTOR float expf(float);
GRADTAPE_VECTOR float logf(float);
GRADTAPE_VECTOR float sinf(float);
GRADTAPE_VECTOR float cosf(float);
GRADTAPE_VECTOR float powf(float, float);
#endif
#if __GLIBC_PREREQ(2, 35)
GRADTAPE_VECTOR double exp2(double);
GRADTAPE_VECTOR double expm1(double);
GRADTAPE_VECTOR double log1p(double);
GRADTAPE_VECTOR double log2(double);
GRADTAPE_VECTOR double log10(double);
GRADTAPE_VECTOR double tan(double);
GRADTAPE_VECTOR double asin(double);
GRADTAPE_VECTOR double acos(double);
GRADTAPE_VECTOR double atan(double);
GRADTAPE_VECTOR double atan2(double, double);
GRADTAPE_VECTOR double sinh(double);
GRADTAPE_VECTOR double cosh(double);
GRADTAPE_VECTOR double tanh(double);
GRADTAPE_VECTOR double erf(double);
GRADTAPE_VECTOR double erfc(double);
GRADTAPE_VECTOR double cbrt(double);
GRADTAPE_VECTOR double hypot(double, double);
#endif
#endif
#else
#define GRADTAPE_PRAGMA(text)
#endif
#define LANES GRADTAPE_PRAGMA(omp simd)
#define SUM_LANES(...) GRADTAPE_PRAGMA(omp simd reduction(+ : __VA_ARGS__))
