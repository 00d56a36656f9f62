/* Orthonormal columns and the upper triangle of a matrix with at least as many rows as columns, by LAPACK. */
extern void ${letter}geqrf_(const int *, const int *, $T *, const int *, $T *, $T *, const int *, int *);
extern void ${letter}orgqr_(const int *, const int *, const int *, $T *, const int *, const $T *, $T *, const int *, int *);

static int qr_$dtype(const $T *restrict a, $T *restrict columns, $T *restrict triangle, $T *restrict spare, int64_t m,
                     int64_t n)
{
    const int rows = (int)m, wide = (int)n, work = 64 * wide;
    $T *const copy = spare, *const factors = spare + m * n, *const rest = factors + n;
    int info = 0;
    if (n == 0)
        return 0;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            copy[j * m + i] = a[i * n + j];
    ${letter}geqrf_(&rows, &wide, copy, &rows, factors, rest, &work, &info);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            triangle[i * n + j] = j < i ? 0 : copy[j * m + i];
    ${letter}orgqr_(&rows, &wide, &wide, copy, &rows, factors, rest, &work, &info);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            columns[i * n + j] = copy[j * m + i];
    return info != 0;
}
