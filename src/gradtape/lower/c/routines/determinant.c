/* The determinant, from the factors and pivots. The product is kept near 1, so that only the result may leave the range. */
static int determinant_$dtype(const $T *a, const int32_t *pivots, $T *out, void *spare, int64_t n)
{
    double product = 1;
    int64_t exponent = 0;
    (void)spare;
    for (int64_t i = 0; i < n; i++) {
        int own = 0, both = 0;
        product = frexp(product * frexp((double)a[i * (n + 1)], &own), &both);
        product = pivots[i] == i + 1 ? product : -product;
        exponent += (int64_t)own + both;
    }
    *out = ($T)ldexp(product, exponent > 9999 ? 9999 : exponent < -9999 ? -9999 : (int)exponent);
    return 0;
}
