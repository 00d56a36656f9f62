/* The adjugate adj(U) L^-1 P.T, up to the sign of P, from the factors, by columns, and pivots. Nothing is divided: U may be singular.
   Rows of U are scaled by powers of two meanwhile, whose exponents are in spare. */
static int adjugate_$dtype(const $T *restrict a, const int32_t *restrict pivots, $T *restrict out, $T *restrict spare, int64_t n)
{
    int64_t total = 0;
    int odd = 0;
    double product = 1;
    memset(out, 0, (size_t)(n * n) * sizeof *out);
    for (int64_t i = 0; i < n; i++) {
        double most = 0;
        int exponent = 0;
        for (int64_t j = i; j < n; j++)
            most = fmax(most, fabs((double)a[j * n + i]));
        if (isfinite(most))
            frexp(most, &exponent);
        spare[i] = ($T)exponent;
        total += exponent;
    }
    for (int64_t j = 0; j < n; j++) {
        const double corner = ldexp((double)a[j * n + j], -(int)spare[j]);
        for (int64_t i = 0; i < j; i++) {
            double sum = 0;
            for (int64_t k = i; k < j; k++) {
                sum += (double)out[i * n + k] * ldexp((double)a[j * n + k], -(int)spare[k]);
                out[i * n + k] = ($T)(out[i * n + k] * corner);
            }
            out[i * n + j] = ($T)-sum;
        }
        out[j * n + j] = ($T)product;
        product *= corner;
    }
    for (int64_t j = 0; j < n; j++) {
        const int64_t others = total - (int64_t)spare[j];
        for (int64_t i = 0; i <= j; i++)
            out[i * n + j] = ($T)ldexp((double)out[i * n + j], others > 9999 ? 9999 : others < -9999 ? -9999 : (int)others);
    }
    for (int64_t j = n - 1; j >= 0; j--)
        for (int64_t k = j + 1; k < n; k++)
            for (int64_t i = 0; i < n; i++)
                out[i * n + j] -= out[i * n + k] * a[j * n + k];
    for (int64_t i = n - 1; i >= 0; i--) {
        const int64_t other = pivots[i] - 1;
        odd ^= other != i;
        for (int64_t r = 0; r < n && other != i; r++) {
            const $T swap = out[r * n + i];
            out[r * n + i] = out[r * n + other];
            out[r * n + other] = swap;
        }
    }
    for (int64_t e = 0; e < n * n && odd; e++)
        out[e] = -out[e];
    return 0;
}
