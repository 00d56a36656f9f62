/* A product of matrices that are stored by columns, by BLAS: c = a b + beta c. */
extern void ${letter}gemm_(const char *, const char *, const int *, const int *, const int *, const $T *, const $T *,
                           const int *, const $T *, const int *, const $T *, $T *, const int *);

static void gemm_$dtype(const $T *a, const $T *b, $T *c, char first, char second, int rows, int columns, int terms,
                        int ld_a, int ld_b, $T beta, int ld_c)
{
    const $T one = 1;
    ${letter}gemm_(&first, &second, &rows, &columns, &terms, &one, a, &ld_a, b, &ld_b, &beta, c, &ld_c);
}
