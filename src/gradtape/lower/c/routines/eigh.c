/* Eigenvalues in ascending order, and eigenvectors as columns, of a symmetric matrix of which one triangle is read, by Jacobi's rotations;
 * returns whether they do not converge. */
static int eigh_$triangle_$dtype(const $T *restrict a, $T *restrict numbers, $T *restrict vectors, $T *restrict spare,
                                 int64_t n)
{
    enum { LOWER = '$triangle' == 'L', SWEEPS = 64 };
    $T *const work = spare, *const rows = spare + n * n;
    double size = 0, largest = 0;
    int rotated = 1;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            work[i * n + j] = (LOWER ? j <= i : j >= i) ? a[i * n + j] : a[j * n + i];
            rows[i * n + j] = i == j;
            largest = fmax(largest, fabs((double)work[i * n + j]));
            size += 0 * (double)work[i * n + j];
        }
    if (!(size == 0))
        return 1;
    const double scale = largest > 0 ? ldexp(1.0, -ilogb(largest)) : 1;
    for (int64_t i = 0; i < n * n; i++) {
        work[i] = ($T)(work[i] * scale);
        size += (double)work[i] * (double)work[i];
    }
    const double least = sqrt(size) * (sizeof *a == 4 ? 1e-8 : 1e-17);
    for (int sweep = 0; rotated && sweep < SWEEPS; sweep++) {
        rotated = 0;
        for (int64_t p = 0; p < n; p++)
            for (int64_t q = p + 1; q < n; q++) {
                const double beside = work[p * n + q];
                if (fabs(beside) <= least)
                    continue;
                rotated = 1;
                const double theta = ((double)work[q * n + q] - (double)work[p * n + p]) / (2 * beside);
                const double t = copysign(1 / (fabs(theta) + sqrt(theta * theta + 1)), theta);
                const double c = 1 / sqrt(t * t + 1), s = t * c;
                work[p * n + p] = ($T)(work[p * n + p] - t * beside);
                work[q * n + q] = ($T)(work[q * n + q] + t * beside);
                work[p * n + q] = work[q * n + p] = 0;
                for (int64_t i = 0; i < n; i++) {
                    const double first = rows[p * n + i], second = rows[q * n + i];
                    rows[p * n + i] = ($T)(c * first - s * second);
                    rows[q * n + i] = ($T)(s * first + c * second);
                    if (i == p || i == q)
                        continue;
                    const double upper = work[p * n + i], under = work[q * n + i];
                    work[p * n + i] = work[i * n + p] = ($T)(c * upper - s * under);
                    work[q * n + i] = work[i * n + q] = ($T)(s * upper + c * under);
                }
            }
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t place = 0;
        for (int64_t j = 0; j < n; j++)
            place += work[j * n + j] < work[i * n + i] || (work[j * n + j] == work[i * n + i] && j < i);
        numbers[place] = ($T)(work[i * n + i] / scale);
        for (int64_t j = 0; j < n; j++)
            vectors[j * n + place] = rows[i * n + j];
    }
    return rotated;
}
