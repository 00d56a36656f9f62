/* The lower triangle of a Cholesky decomposition; returns whether the matrix is not positive definite. */
static int cholesky_$dtype(const $T *a, $T *restrict out, void *spare, int64_t n)
{
    int bad = 0;
    (void)spare;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j <= i; j++) {
            $T sum = a[i * n + j];
            for (int64_t k = 0; k < j; k++)
                sum -= out[i * n + k] * out[j * n + k];
            if (i == j) {
                bad |= !(sum > 0);
                out[i * n + i] = ($T)sqrt(sum);
            } else {
                out[i * n + j] = sum / out[j * n + j];
            }
        }
        for (int64_t j = i + 1; j < n; j++)
            out[i * n + j] = 0;
    }
    return bad;
}
