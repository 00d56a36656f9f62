/* Values and gradients of three of the programs in tests/programs/loops, with adjoints as one writes them by hand.
 *
 * Each function returns the value and adds to nothing: the gradients are written. `work` is scratch memory. */
#include <math.h>
#include <stdint.h>
#include <string.h>

/* work: 2 n^2. */
double cholesky(int64_t n, const double *a, double *ab, double *work)
{
    double *l = work, *lb = work + n * n, total = 0.0;
    memset(work, 0, 2 * n * n * sizeof(double));
    memset(ab, 0, n * n * sizeof(double));
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) {
            double s = a[i * n + j];
            for (int64_t k = 0; k < j; k++)
                s -= l[i * n + k] * l[j * n + k];
            l[i * n + j] = i == j ? sqrt(s) : s / l[j * n + j];
        }
    for (int64_t i = 0; i < n; i++)
        total += 2.0 * log(l[i * n + i]) + 0.1 * l[(n - 1) * n + i];
    for (int64_t i = 0; i < n; i++) {
        lb[i * n + i] += 2.0 / l[i * n + i];
        lb[(n - 1) * n + i] += 0.1;
    }
    for (int64_t i = n - 1; i >= 0; i--)
        for (int64_t j = i; j >= 0; j--) {
            double sb;
            if (i == j)
                sb = 0.5 * lb[i * n + i] / l[i * n + i];
            else {
                sb = lb[i * n + j] / l[j * n + j];
                lb[j * n + j] -= sb * l[i * n + j];
            }
            ab[i * n + j] = sb;
            if (i == j)
                for (int64_t k = 0; k < j; k++)
                    lb[i * n + k] -= 2.0 * sb * l[i * n + k];
            else
                for (int64_t k = 0; k < j; k++) {
                    lb[i * n + k] -= sb * l[j * n + k];
                    lb[j * n + k] -= sb * l[i * n + k];
                }
        }
    return total;
}

/* work: 4 n. */
double thomas(int64_t n, const double *lower, const double *diagonal, const double *upper, const double *right,
              double *lower_b, double *diagonal_b, double *upper_b, double *right_b, double *work)
{
    double *c = work, *d = work + n, *m = work + 2 * n, *x = work + 3 * n, total = 0.0;
    m[0] = 1.0 / diagonal[0];
    c[0] = upper[0] * m[0];
    d[0] = right[0] * m[0];
    for (int64_t i = 1; i < n; i++) {
        m[i] = 1.0 / (diagonal[i] - lower[i] * c[i - 1]);
        c[i] = upper[i] * m[i];
        d[i] = (right[i] - lower[i] * d[i - 1]) * m[i];
    }
    x[n - 1] = d[n - 1];
    for (int64_t i = n - 2; i >= 0; i--)
        x[i] = d[i] - c[i] * x[i + 1];
    for (int64_t i = 0; i < n; i++)
        total += x[i] * x[i];
    /* Backwards through the substitution: db is kept in right_b, cb in upper_b. */
    double xb = 0.0;
    for (int64_t i = 0; i < n - 1; i++) {
        xb += 2.0 * x[i];
        right_b[i] = xb;
        upper_b[i] = -xb * x[i + 1];
        xb *= -c[i];
    }
    right_b[n - 1] = xb + 2.0 * x[n - 1];
    upper_b[n - 1] = 0.0;
    for (int64_t i = n - 1; i >= 1; i--) {
        double db = right_b[i] * m[i], cb = upper_b[i] * m[i], mb = -(db * d[i] + cb * c[i]);
        right_b[i] = db;
        upper_b[i] = cb;
        diagonal_b[i] = mb;
        lower_b[i] = -db * d[i - 1] - mb * c[i - 1];
        right_b[i - 1] -= db * lower[i];
        upper_b[i - 1] -= mb * lower[i];
    }
    right_b[0] *= m[0];
    upper_b[0] *= m[0];
    diagonal_b[0] = -(right_b[0] * d[0] + upper_b[0] * c[0]);
    lower_b[0] = 0.0;
    return total;
}

/* work: 3 n (steps + 3). The positions at the beginning of each step are kept; all else is computed again. */
double nbody(int64_t n, int64_t steps, const double *position, const double *velocity, const double *mass,
             double *xb, double *vb, double *mb, double *work)
{
    const double h = 0.01;
    double *kept = work, *x = work + 3 * n * steps, *v = x + 3 * n, *forces = v + 3 * n, energy = 0.0;
    memcpy(x, position, 3 * n * sizeof(double));
    memcpy(v, velocity, 3 * n * sizeof(double));
    for (int64_t t = 0; t < steps; t++) {
        memcpy(kept + 3 * n * t, x, 3 * n * sizeof(double));
        for (int64_t i = 0; i < n; i++) {
            double a[3] = {0.0, 0.0, 0.0};
            for (int64_t j = 0; j < n; j++) {
                double dx = x[3 * j] - x[3 * i], dy = x[3 * j + 1] - x[3 * i + 1], dz = x[3 * j + 2] - x[3 * i + 2];
                double d2 = dx * dx + dy * dy + dz * dz + 0.01, f = mass[j] / (d2 * sqrt(d2));
                a[0] += f * dx;
                a[1] += f * dy;
                a[2] += f * dz;
            }
            for (int k = 0; k < 3; k++)
                v[3 * i + k] += h * a[k];
        }
        for (int64_t i = 0; i < 3 * n; i++)
            x[i] += h * v[i];
    }
    memset(xb, 0, 3 * n * sizeof(double));
    for (int64_t i = 0; i < n; i++) {
        double square = 0.0;
        mb[i] = 0.0;
        for (int k = 0; k < 3; k++) {
            square += v[3 * i + k] * v[3 * i + k];
            vb[3 * i + k] = mass[i] * v[3 * i + k];
        }
        energy += 0.5 * mass[i] * square;
        mb[i] += 0.5 * square;
        for (int64_t j = 0; j < i; j++) {
            double d[3], d2 = 0.01;
            for (int k = 0; k < 3; k++) {
                d[k] = x[3 * i + k] - x[3 * j + k];
                d2 += d[k] * d[k];
            }
            double inverse = 1.0 / sqrt(d2), slope = mass[i] * mass[j] * inverse / d2;
            energy -= mass[i] * mass[j] * inverse;
            mb[i] -= mass[j] * inverse;
            mb[j] -= mass[i] * inverse;
            for (int k = 0; k < 3; k++) {
                xb[3 * i + k] += slope * d[k];
                xb[3 * j + k] -= slope * d[k];
            }
        }
    }
    for (int64_t t = steps - 1; t >= 0; t--) {
        const double *at = kept + 3 * n * t;
        for (int64_t i = 0; i < 3 * n; i++) {
            vb[i] += h * xb[i];
            forces[i] = 0.0;
        }
        for (int64_t i = 0; i < n; i++) {
            double g[3] = {h * vb[3 * i], h * vb[3 * i + 1], h * vb[3 * i + 2]}, own[3] = {0.0, 0.0, 0.0};
            for (int64_t j = 0; j < n; j++) {
                double d[3] = {at[3 * j] - at[3 * i], at[3 * j + 1] - at[3 * i + 1], at[3 * j + 2] - at[3 * i + 2]};
                double d2 = d[0] * d[0] + d[1] * d[1] + d[2] * d[2] + 0.01, cube = 1.0 / (d2 * sqrt(d2));
                double dot = g[0] * d[0] + g[1] * d[1] + g[2] * d[2], f = mass[j] * cube;
                mb[j] += cube * dot;
                double common = -3.0 * f * dot / d2;
                for (int k = 0; k < 3; k++) {
                    double db = f * g[k] + common * d[k];
                    forces[3 * j + k] += db;
                    own[k] -= db;
                }
            }
            for (int k = 0; k < 3; k++)
                forces[3 * i + k] += own[k];
        }
        for (int64_t i = 0; i < 3 * n; i++)
            xb[i] += forces[i];
    }
    return energy;
}
