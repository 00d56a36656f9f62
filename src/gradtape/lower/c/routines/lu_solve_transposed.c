/* x of a.T x = b with the factors of a, by columns, and its pivots; returns whether a is singular. */
static int lu_solve_transposed_$dtype(const $T *restrict a, const int32_t *restrict pivots, const $T *b,
                                      $T *restrict out, void *spare, int64_t n, int64_t k)
{
    int bad = 0;
    (void)spare;
    memcpy(out, b, (size_t)(n * k) * sizeof *out);
    for (int64_t i = 0; i < n; i++) {
        bad |= a[i * n + i] == 0;
        for (int64_t j = 0; j < i; j++)
            for (int64_t c = 0; c < k; c++)
                out[i * k + c] -= a[i * n + j] * out[j * k + c];
        for (int64_t c = 0; c < k; c++)
            out[i * k + c] /= a[i * n + i];
    }
    for (int64_t i = n - 1; i >= 0; i--)
        for (int64_t j = i + 1; j < n; j++)
            for (int64_t c = 0; c < k; c++)
                out[i * k + c] -= a[i * n + j] * out[j * k + c];
    for (int64_t i = n - 1; i >= 0; i--)
        for (int64_t c = 0; c < k && pivots[i] != i + 1; c++) {
            const $T swap = out[i * k + c];
            out[i * k + c] = out[(pivots[i] - 1) * k + c];
            out[(pivots[i] - 1) * k + c] = swap;
        }
    return bad;
}
