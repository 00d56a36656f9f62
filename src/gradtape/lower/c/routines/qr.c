/* Orthonormal columns and the upper triangle of a matrix with at least as many rows as columns, by Householder's reflections, with the signs
 * of LAPACK. */
static int qr_$dtype(const $T *restrict a, $T *restrict columns, $T *restrict triangle, $T *restrict spare, int64_t m,
                     int64_t n)
{
    $T *const work = spare, *const factors = spare + m * n;
    memcpy(work, a, (size_t)(m * n) * sizeof *work);
    for (int64_t k = 0; k < n; k++) {
        double norm = 0;
        const double head = work[k * n + k];
        for (int64_t i = k + 1; i < m; i++)
            norm = hypot(norm, (double)work[i * n + k]);
        factors[k] = 0;
        if (norm == 0)
            continue;
        const double first = -copysign(hypot(head, norm), head);
        factors[k] = ($T)((first - head) / first);
        work[k * n + k] = ($T)first;
        for (int64_t i = k + 1; i < m; i++)
            work[i * n + k] = ($T)(work[i * n + k] / (head - first));
        for (int64_t j = k + 1; j < n; j++) {
            double sum = work[k * n + j];
            for (int64_t i = k + 1; i < m; i++)
                sum += (double)work[i * n + k] * work[i * n + j];
            sum *= factors[k];
            work[k * n + j] = ($T)(work[k * n + j] - sum);
            for (int64_t i = k + 1; i < m; i++)
                work[i * n + j] = ($T)(work[i * n + j] - sum * work[i * n + k]);
        }
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            triangle[i * n + j] = j < i ? 0 : work[i * n + j];
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            columns[i * n + j] = i == j;
    for (int64_t k = n - 1; k >= 0; k--)
        for (int64_t j = k; j < n; j++) {
            double sum = columns[k * n + j];
            for (int64_t i = k + 1; i < m; i++)
                sum += (double)work[i * n + k] * columns[i * n + j];
            sum *= factors[k];
            columns[k * n + j] = ($T)(columns[k * n + j] - sum);
            for (int64_t i = k + 1; i < m; i++)
                columns[i * n + j] = ($T)(columns[i * n + j] - sum * work[i * n + k]);
        }
    return 0;
}
