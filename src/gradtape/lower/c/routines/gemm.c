/* A product of matrices that are stored by columns: c = a b + beta c, each as it is ('N') or transposed ('T').
 * Rows of a are copied in panels, and a tile of c stays in registers while the terms are summed. */
static void gemm_$dtype(const $T *restrict a, const $T *restrict b, $T *restrict c, char first, char second,
                        int64_t rows, int64_t columns, int64_t terms, int64_t ld_a, int64_t ld_b, $T beta,
                        int64_t ld_c)
{
    enum { ROWS = 8, COLUMNS = 4, TERMS = 256 };
    $T panel[TERMS][ROWS], factors[TERMS][COLUMNS];
    for (int64_t j = 0; j < columns; j++)
        for (int64_t i = 0; i < rows; i++)
            c[j * ld_c + i] = beta == 0 ? 0 : beta * c[j * ld_c + i];
    for (int64_t k0 = 0; k0 < terms; k0 += TERMS) {
        const int64_t deep = terms - k0 < TERMS ? terms - k0 : TERMS;
        for (int64_t j0 = 0; j0 < columns; j0 += COLUMNS) {
            const int64_t high = columns - j0 < COLUMNS ? columns - j0 : COLUMNS;
            memset(factors, 0, sizeof factors);
            for (int64_t j = 0; j < high; j++)
                for (int64_t k = 0; k < deep; k++)
                    factors[k][j] = second == 'N' ? b[(j0 + j) * ld_b + k0 + k] : b[(k0 + k) * ld_b + j0 + j];
            for (int64_t i0 = 0; i0 < rows; i0 += ROWS) {
                const int64_t wide = rows - i0 < ROWS ? rows - i0 : ROWS;
                $T tile[COLUMNS][ROWS] = {{0}};
                if (first != 'N' || wide < ROWS) {
                    memset(panel, 0, sizeof panel);
                    for (int64_t i = 0; i < wide; i++)
                        for (int64_t k = 0; k < deep; k++)
                            panel[k][i] = first == 'N' ? a[(k0 + k) * ld_a + i0 + i] : a[(i0 + i) * ld_a + k0 + k];
                } else {
                    for (int64_t k = 0; k < deep; k++)
                        memcpy(panel[k], a + (k0 + k) * ld_a + i0, sizeof panel[k]);
                }
                for (int64_t k = 0; k < deep; k++)
                    for (int j = 0; j < COLUMNS; j++)
                        for (int i = 0; i < ROWS; i++)
                            tile[j][i] += panel[k][i] * factors[k][j];
                for (int64_t j = 0; j < high; j++)
                    for (int64_t i = 0; i < wide; i++)
                        c[(j0 + j) * ld_c + i0 + i] += tile[j][i];
            }
        }
    }
}
