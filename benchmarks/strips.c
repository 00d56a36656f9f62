/* Values and gradients of the loops of strips.py, as one writes them by hand: all steps of a few elements at a time, forward and back.
 *
 * `work` is scratch memory; each function returns the value and writes the gradient. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define B 64
#define LANES for (int64_t i = 0; i < B; i++)

/* n: a multiple of B; work: steps * B. */
double sines(int64_t n, int64_t steps, const double *restrict x, double *restrict xb, double *restrict work)
{
    double total = 0.0;
    for (int64_t first = 0; first < n; first += B) {
        double y[B], yb[B], sum[B];
        LANES y[i] = x[first + i];
        for (int64_t k = 0; k < steps; k++)
            LANES {
                work[k * B + i] = y[i];
                y[i] = sin(y[i]) + x[first + i];
            }
        LANES {
            total += y[i];
            yb[i] = 1.0;
            sum[i] = 0.0;
        }
        for (int64_t k = steps; k-- > 0;)
            LANES {
                sum[i] += yb[i];
                yb[i] *= cos(work[k * B + i]);
            }
        LANES xb[first + i] = sum[i] + yb[i];
    }
    return total;
}

/* p: spot, variance, kappa, theta, xi, rho, rate; work: 2 * steps * B. */
double heston(int64_t n, int64_t steps, const double *restrict p, const double *restrict z1, const double *restrict z2, double *restrict pb, double *restrict work)
{
    const double dt = 1.0 / 252.0, kappa = p[2], theta = p[3], xi = p[4], rho = p[5], rate = p[6], root = sqrt(1.0 - rho * rho);
    const double discount = exp(-rate * steps * dt);
    double total = 0.0, b[7] = {0}, rootb = 0.0, *vs = work, *qs = work + steps * B;
    for (int64_t first = 0; first < n; first += B) {
        double x[B], v[B], xb[B], vb[B], s2[B] = {0}, s3[B] = {0}, s4[B] = {0}, s5[B] = {0}, s7[B] = {0};
        LANES {
            x[i] = log(p[0]);
            v[i] = p[1];
        }
        for (int64_t k = 0; k < steps; k++)
            LANES {
                double plus = fmax(v[i], 0.0), q = sqrt(plus * dt), a = z1[k * n + first + i], c = z2[k * n + first + i];
                vs[k * B + i] = v[i];
                qs[k * B + i] = q;
                x[i] += (rate - 0.5 * plus) * dt + q * a;
                v[i] += kappa * (theta - plus) * dt + xi * q * (rho * a + root * c);
            }
        LANES {
            double s = exp(x[i]);
            total += fmax(s - 100.0, 0.0);
            xb[i] = s > 100.0 ? s * discount / n : 0.0;
            vb[i] = 0.0;
        }
        for (int64_t k = steps; k-- > 0;)
            LANES {
                double a = z1[k * n + first + i], c = z2[k * n + first + i], old = vs[k * B + i], q = qs[k * B + i];
                double plus = fmax(old, 0.0), noise = rho * a + root * c;
                double qb = a * xb[i] + xi * noise * vb[i];
                s2[i] += (theta - plus) * dt * vb[i];
                s3[i] += kappa * dt * vb[i];
                s4[i] += q * noise * vb[i];
                s5[i] += xi * q * a * vb[i];
                s7[i] += xi * q * c * vb[i];
                double plusb = -0.5 * dt * xb[i] - kappa * dt * vb[i] + (q > 0.0 ? 0.5 * dt / q * qb : 0.0);
                vb[i] += old > 0.0 ? plusb : 0.0;
            }
        LANES {
            b[0] += xb[i] / p[0];
            b[1] += vb[i];
            b[2] += s2[i];
            b[3] += s3[i];
            b[4] += s4[i];
            b[5] += s5[i];
            b[6] += xb[i] * dt * steps;
            rootb += s7[i];
        }
    }
    double value = discount * total / n;
    b[5] -= rho / root * rootb;
    b[6] -= dt * steps * value;
    memcpy(pb, b, sizeof b);
    return value;
}

/* p: omega, alpha, beta of each of n series, which is a multiple of 40; r: the returns, steps by n; work: steps * 40. */
double garch(int64_t n, int64_t steps, const double *restrict p, const double *restrict r, double *restrict pb, double *restrict work)
{
    enum { W = 40 };
    double total = 0.0;
    for (int64_t first = 0; first < n; first += W) {
        double h[W], hb[W], ob[W] = {0}, ab[W] = {0}, bb[W] = {0};
        const double *restrict omega = p + first, *alpha = p + n + first, *beta = p + 2 * n + first;
        for (int64_t i = 0; i < W; i++) {
            h[i] = 1.0;
            hb[i] = 0.0;
        }
        for (int64_t k = 0; k < steps; k++)
            for (int64_t i = 0; i < W; i++) {
                double square = r[k * n + first + i] * r[k * n + first + i];
                work[k * W + i] = h[i];
                total += 0.5 * (log(h[i]) + square / h[i]);
                h[i] = omega[i] + alpha[i] * square + beta[i] * h[i];
            }
        for (int64_t k = steps; k-- > 0;)
            for (int64_t i = 0; i < W; i++) {
                double square = r[k * n + first + i] * r[k * n + first + i], old = work[k * W + i], inverse = 1.0 / old;
                ob[i] += hb[i];
                ab[i] += square * hb[i];
                bb[i] += old * hb[i];
                hb[i] = beta[i] * hb[i] + 0.5 * inverse * (1.0 - square * inverse);
            }
        for (int64_t i = 0; i < W; i++) {
            pb[first + i] = ob[i];
            pb[n + first + i] = ab[i];
            pb[2 * n + first + i] = bb[i];
        }
    }
    return total;
}
