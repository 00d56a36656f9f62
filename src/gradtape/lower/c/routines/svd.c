/* Left singular vectors as columns, singular values in descending order, right singular vectors as columns, by Jacobi's rotations of one
 * side; returns whether they do not converge. */
static int svd_$dtype(const $T *restrict a, $T *restrict left, $T *restrict numbers, $T *restrict right,
                      $T *restrict spare, int64_t m, int64_t n)
{
    enum { SWEEPS = 64 };
    const int64_t count = m < n ? m : n, wide = m < n ? n : m;
    const double eps = sizeof *a == 4 ? 1.1920929e-7 : 2.220446049250313e-16;
    $T *const moved = spare, *const turned = spare + m * n, *const sizes = turned + count * count;
    $T *const long_side = m < n ? right : left, *const short_side = m < n ? left : right;
    double largest = 0, size = 0;
    int rotated = 1;
    for (int64_t i = 0; i < m * n; i++) {
        largest = fmax(largest, fabs((double)a[i]));
        size += 0 * (double)a[i];
    }
    if (!(size == 0))
        return 1;
    const double scale = largest > 0 ? ldexp(1.0, -ilogb(largest)) : 1;
    for (int64_t i = 0; i < count; i++) {
        for (int64_t j = 0; j < wide; j++) {
            moved[i * wide + j] = ($T)(scale * (m < n ? a[i * n + j] : a[j * n + i]));
            size += (double)moved[i * wide + j] * (double)moved[i * wide + j];
        }
        for (int64_t j = 0; j < count; j++)
            turned[i * count + j] = i == j;
    }
    const double least = size * eps * eps;
    for (int sweep = 0; rotated && sweep < SWEEPS; sweep++) {
        rotated = 0;
        for (int64_t p = 0; p < count; p++)
            for (int64_t q = p + 1; q < count; q++) {
                double first = 0, second = 0, both = 0;
                for (int64_t i = 0; i < wide; i++) {
                    const double x = moved[p * wide + i], y = moved[q * wide + i];
                    first += x * x;
                    second += y * y;
                    both += x * y;
                }
                if (fabs(both) <= 4 * eps * sqrt(first * second) || (first <= least && second <= least))
                    continue;
                rotated = 1;
                const double theta = (second - first) / (2 * both);
                const double t = copysign(1 / (fabs(theta) + sqrt(theta * theta + 1)), theta);
                const double c = 1 / sqrt(t * t + 1), s = t * c;
                for (int64_t i = 0; i < wide; i++) {
                    const double x = moved[p * wide + i], y = moved[q * wide + i];
                    moved[p * wide + i] = ($T)(c * x - s * y);
                    moved[q * wide + i] = ($T)(s * x + c * y);
                }
                for (int64_t i = 0; i < count; i++) {
                    const double x = turned[p * count + i], y = turned[q * count + i];
                    turned[p * count + i] = ($T)(c * x - s * y);
                    turned[q * count + i] = ($T)(s * x + c * y);
                }
            }
    }
    for (int64_t i = 0; i < count; i++) {
        double square = 0;
        for (int64_t j = 0; j < wide; j++)
            square += (double)moved[i * wide + j] * (double)moved[i * wide + j];
        sizes[i] = ($T)sqrt(square);
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t place = 0;
        for (int64_t j = 0; j < count; j++)
            place += sizes[j] > sizes[i] || (sizes[j] == sizes[i] && j < i);
        numbers[place] = ($T)(sizes[i] / scale);
        for (int64_t j = 0; j < count; j++)
            short_side[j * count + place] = turned[i * count + j];
        for (int64_t j = 0; j < wide; j++)
            long_side[j * count + place] = (double)sizes[i] * sizes[i] > least ? moved[i * wide + j] / sizes[i] : 0;
    }
    /* What is left of a unit vector completes the basis, where a singular value is zero. */
    for (int64_t i = 0; i < count; i++) {
        if (numbers[i] * scale * (numbers[i] * scale) > least)
            continue;
        for (int64_t unit = 0; unit < wide; unit++) {
            double square = 0;
            for (int64_t j = 0; j < wide; j++)
                long_side[j * count + i] = j == unit;
            for (int again = 0; again < 2; again++)
                for (int64_t other = 0; other < i; other++) {
                    double along = 0;
                    for (int64_t j = 0; j < wide; j++)
                        along += (double)long_side[j * count + i] * long_side[j * count + other];
                    for (int64_t j = 0; j < wide; j++)
                        long_side[j * count + i] -= ($T)(along * long_side[j * count + other]);
                }
            for (int64_t j = 0; j < wide; j++)
                square += (double)long_side[j * count + i] * long_side[j * count + i];
            if (2 * square * (double)wide < 1)
                continue;
            for (int64_t j = 0; j < wide; j++)
                long_side[j * count + i] = ($T)(long_side[j * count + i] / sqrt(square));
            break;
        }
    }
    return rotated;
}
