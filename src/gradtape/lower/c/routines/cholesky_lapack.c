/* The lower triangle of a Cholesky decomposition, by LAPACK; returns whether the matrix is not positive definite. */
extern void ${letter}potrf_(const char *, const int *, $T *, const int *, int *);

static int cholesky_$dtype(const $T *a, $T *restrict out, void *spare, int64_t n)
{
    const char upper = 'U'; /* rows are columns there */
    const int size = (int)n;
    int info = 0;
    (void)spare;
    if (n == 0)
        return 0;
    memcpy(out, a, (size_t)(n * n) * sizeof *out);
    ${letter}potrf_(&upper, &size, out, &size, &info);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i + 1; j < n; j++)
            out[i * n + j] = 0;
    return info != 0;
}
