/* The logarithm of the absolute value of a determinant, from the factors. */
static int log_det_$dtype(const $T *a, $T *out, void *spare, int64_t n)
{
    double sum = 0;
    (void)spare;
    for (int64_t i = 0; i < n; i++)
        sum += log(fabs(a[i * (n + 1)]));
    *out = ($T)sum;
    return 0;
}
