/* Eigenvalues in ascending order, and eigenvectors as columns, of a symmetric matrix of which one triangle is read, by LAPACK; returns whether
 * they do not converge. */
extern void ${letter}syevd_(const char *, const char *, const int *, $T *, const int *, $T *, $T *, const int *, int *,
                            const int *, int *);

static int eigh_$triangle_$dtype(const $T *restrict a, $T *restrict numbers, $T *restrict vectors, $T *restrict spare,
                                 int64_t n)
{
    const char vector = 'V', triangle = '$triangle' == 'L' ? 'U' : 'L'; /* rows are columns there */
    const int size = (int)n, work = 2 * size * size + 6 * size + 1, counts = 5 * size + 3;
    int info = 0;
    if (n == 0)
        return 0;
    memcpy(spare, a, (size_t)(n * n) * sizeof *spare);
    ${letter}syevd_(&vector, &triangle, &size, spare, &size, numbers, spare + n * n, &work,
                    (int *)(void *)(spare + n * n + work), &counts, &info);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            vectors[i * n + j] = spare[j * n + i];
    return info != 0;
}
