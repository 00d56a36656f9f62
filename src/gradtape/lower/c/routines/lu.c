/* The factors L and U in one matrix, by columns, and the pivots, counted from 1. */
static int lu_$dtype(const $T *a, $T *restrict factors, int32_t *restrict pivots, void *spare, int64_t n)
{
    (void)spare;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            factors[j * n + i] = a[i * n + j];
    for (int64_t k = 0; k < n; k++) {
        int64_t pivot = k;
        for (int64_t i = k + 1; i < n; i++)
            if (fabs(factors[k * n + i]) > fabs(factors[k * n + pivot]))
                pivot = i;
        pivots[k] = (int32_t)(pivot + 1);
        if (factors[k * n + pivot] == 0)
            continue;
        if (pivot != k)
            for (int64_t j = 0; j < n; j++) {
                const $T swap = factors[j * n + k];
                factors[j * n + k] = factors[j * n + pivot];
                factors[j * n + pivot] = swap;
            }
        for (int64_t i = k + 1; i < n; i++)
            factors[k * n + i] /= factors[k * n + k];
        for (int64_t j = k + 1; j < n; j++)
            for (int64_t i = k + 1; i < n; i++)
                factors[j * n + i] -= factors[k * n + i] * factors[j * n + k];
    }
    return 0;
}
