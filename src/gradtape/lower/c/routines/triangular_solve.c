/* x of t x = b, where t is one triangle of a, or its transpose; returns whether t is singular. */
static int triangular_solve_$form_$dtype(const $T *restrict a, const $T *b, $T *restrict out, void *spare, int64_t n,
                                         int64_t k)
{
    enum { LOWER = '$triangle' == 'U', TRANSPOSED = '$transposed' == 'T', UNIT = '$unit' == 'U' };
    int bad = 0;
    (void)spare;
    memcpy(out, b, (size_t)(n * k) * sizeof *out);
    for (int64_t step = 0; step < n; step++) {
        const int64_t i = LOWER != TRANSPOSED ? step : n - 1 - step;
        for (int64_t before = 0; before < step; before++) {
            const int64_t j = LOWER != TRANSPOSED ? before : n - 1 - before;
            const $T factor = TRANSPOSED ? a[j * n + i] : a[i * n + j];
            for (int64_t c = 0; c < k; c++)
                out[i * k + c] -= factor * out[j * k + c];
        }
        bad |= !UNIT && a[i * n + i] == 0;
        for (int64_t c = 0; c < k && !UNIT; c++)
            out[i * k + c] /= a[i * n + i];
    }
    return bad;
}
