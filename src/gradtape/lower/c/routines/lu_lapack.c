/* The factors L and U in one matrix, by columns, and the pivots, counted from 1, by LAPACK. */
extern void ${letter}getrf_(const int *, const int *, $T *, const int *, int *, int *);

static int lu_$dtype(const $T *a, $T *restrict factors, int32_t *restrict pivots, void *spare, int64_t n)
{
    const int size = (int)n;
    int info = 0;
    (void)spare;
    if (n == 0)
        return 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            factors[j * n + i] = a[i * n + j];
    ${letter}getrf_(&size, &size, factors, &size, pivots, &info);
    return info < 0;
}
