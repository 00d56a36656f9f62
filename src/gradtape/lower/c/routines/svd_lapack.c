/* Left singular vectors as columns, singular values in descending order, right singular vectors as columns, by LAPACK; returns whether they do
 * not converge. */
extern void ${letter}gesdd_(const char *, const int *, const int *, $T *, const int *, $T *, $T *, const int *, $T *,
                            const int *, $T *, const int *, int *, int *);

static int svd_$dtype(const $T *restrict a, $T *restrict left, $T *restrict numbers, $T *restrict right,
                      $T *restrict spare, int64_t m, int64_t n)
{
    const char some = 'S';
    const int64_t count = m < n ? m : n;
    const int rows = (int)m, columns = (int)n, least = (int)count;
    const int work = 4 * least * least + 64 * (rows + columns);
    $T *const copy = spare, *const vectors = spare + m * n, *const rest = vectors + m * count;
    int info = 0;
    if (count == 0)
        return 0;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            copy[j * m + i] = a[i * n + j];
    ${letter}gesdd_(&some, &rows, &columns, copy, &rows, numbers, vectors, &rows, right, &least, rest, &work,
                    (int *)(void *)(rest + work), &info);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < count; j++)
            left[i * count + j] = vectors[j * m + i];
    return info != 0;
}
