/* A product of matrices that are stored by columns: c = a b + beta c, each as it is ('N') or transposed ('T').
 * Blocks of a are copied so that the innermost loop runs along the columns of c. */
static void gemm_$dtype(const $T *restrict a, const $T *restrict b, $T *restrict c, char first, char second,
                        int64_t rows, int64_t columns, int64_t terms, int64_t ld_a, int64_t ld_b, $T beta,
                        int64_t ld_c)
{
    enum { ROWS = 64, TERMS = 64 };
    $T block[TERMS][ROWS];
    for (int64_t j = 0; j < columns; j++)
        for (int64_t i = 0; i < rows; i++)
            c[j * ld_c + i] = beta == 0 ? 0 : beta * c[j * ld_c + i];
    for (int64_t k0 = 0; k0 < terms; k0 += TERMS) {
        const int64_t deep = terms - k0 < TERMS ? terms - k0 : TERMS;
        for (int64_t i0 = 0; i0 < rows; i0 += ROWS) {
            const int64_t wide = rows - i0 < ROWS ? rows - i0 : ROWS;
            for (int64_t k = 0; k < deep; k++)
                for (int64_t i = 0; i < wide; i++)
                    block[k][i] = first == 'N' ? a[(k0 + k) * ld_a + i0 + i] : a[(i0 + i) * ld_a + k0 + k];
            for (int64_t j = 0; j < columns; j++) {
                $T *restrict column = c + j * ld_c + i0;
                for (int64_t k = 0; k < deep; k++) {
                    const $T factor = second == 'N' ? b[j * ld_b + k0 + k] : b[(k0 + k) * ld_b + j];
                    for (int64_t i = 0; i < wide; i++)
                        column[i] += block[k][i] * factor;
                }
            }
        }
    }
}
