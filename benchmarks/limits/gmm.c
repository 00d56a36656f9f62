/* ADBench's Gaussian mixture: log posterior and its gradient in alpha, mu, q and l.
 *
 * Points lie in the lanes of vectors, in panels that stay in the second cache. The forward pass leaves the log
 * densities of a panel, [K][points], which become responsibilities w in place. Of the backward pass only
 *     weight_k = sum_i w,   first_k = sum_i w (x_i - mu_k),   second_k = sum_i w (x_i - mu_k)(x_i - mu_k)'
 * goes over the points: with y = Q (x - mu), sum_i w y (x - mu)' = Q second_k and sum_i w Q'y = Q'Q first_k are
 * products of d x d matrices, one for each component, and nothing of size d is stored for a point. */
#include "vector.h"
#include <string.h>

enum { TILE = 4, STRIP = TILE * VECTOR, PANEL = 1024, BLOCK = 64 };

/* libmvec's exp leaves its vector path, five times slower, where the result is no normal number. */
#define LOWEST_EXPONENT (-708.0)

typedef struct {
    int64_t n, K;
    const double *alpha, *mu, *q, *l, *x;
    double gamma, wishart_m, constant;
} problem;

typedef struct {
    double *points;  /* [d][PANEL] */
    double *logs;    /* [K][PANEL]: log densities, then exponentials relative to the largest */
    double *tops;    /* [PANEL] */
    double *sums;    /* [PANEL] */
    double *factor;  /* [K][d][d]: Q by rows */
    double *base;    /* [K]: alpha + sum(q) */
    lanes *weight;   /* [K] */
    lanes *first;    /* [K][d] */
    lanes *second;   /* [K][tiles][TILE][TILE], the lower triangle of tiles by rows */
} scratch;

typedef struct {
    double *alpha, *mu, *q, *l;
} gradient;

ALWAYS int tiles_of(int d)
{
    int rows = (d + TILE - 1) / TILE;
    return rows * (rows + 1) / 2;
}

ALWAYS int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* Q of all components, and the part of the log density that no point changes. */
ALWAYS void unpack(int d, const problem *p, scratch *s)
{
    for (int64_t k = 0; k < p->K; k++) {
        const double *q = p->q + k * d, *l = p->l + k * d * (d - 1) / 2;
        double *Q = s->factor + k * d * d, sum = p->alpha[k];
        for (int c = 0; c < d; c++) {
            Q[c * d + c] = exp(q[c]);
            sum += q[c];
            for (int r = c + 1; r < d; r++)
                Q[r * d + c] = *l++;
        }
        s->base[k] = sum;
    }
}

/* The points from `start` on, transposed; the places after the last one repeat it. */
ALWAYS int load_panel(int d, const problem *p, int64_t start, scratch *s)
{
    int count = p->n - start < PANEL ? (int)(p->n - start) : PANEL;
    int padded = (count + STRIP - 1) / STRIP * STRIP;
    for (int i = 0; i < padded; i++) {
        const double *x = p->x + (start + smaller(i, count - 1)) * d;
        for (int c = 0; c < d; c++)
            s->points[c * PANEL + i] = x[c];
    }
    return count;
}

/* y += column c of Q times the offsets in it, for the rows r0 + from, ..., r0 + height - 1. */
ALWAYS void add_column(int d, int from, int height, const double *Q, const lanes *offsets, lanes y[][TILE])
{
    lanes offset[TILE];
    UNROLL for (int v = 0; v < TILE; v++) {
        offset[v] = offsets[v];
        HOLD(offset[v]);
    }
    UNROLL for (int r = from; r < height; r++)
        UNROLL for (int v = 0; v < TILE; v++)
            y[r][v] += Q[r * d] * offset[v];
}

/* Adds the squares of `height` rows of Q (x - mu) from row r0 on, for a strip of points. */
ALWAYS void add_rows(int d, int height, int r0, const double *Q, lanes offsets[][TILE], lanes *square)
{
    lanes y[TILE][TILE];
    const double *rows = Q + r0 * d;
    UNROLL for (int r = 0; r < height; r++)
        UNROLL for (int v = 0; v < TILE; v++)
            y[r][v] = rows[r * d + r0] * offsets[r0][v];
    UNROLL for (int c = 1; c < height; c++)
        add_column(d, c, height, rows + r0 + c, offsets[r0 + c], y);
    for (int c = 0; c < r0; c++)
        add_column(d, 0, height, rows + c, offsets[c], y);
    UNROLL for (int r = 0; r < height; r++)
        UNROLL for (int v = 0; v < TILE; v++)
            square[v] += y[r][v] * y[r][v];
}

ALWAYS void log_densities(int d, const problem *p, int count, scratch *s)
{
    lanes offsets[d][TILE];
    for (int64_t k = 0; k < p->K; k++) {
        const double *mu = p->mu + k * d, *Q = s->factor + k * d * d;
        for (int start = 0; start < count; start += STRIP) {
            lanes square[TILE] = {{0.0}};
            for (int c = 0; c < d; c++)
                for (int v = 0; v < TILE; v++)
                    offsets[c][v] = *(lanes *)(s->points + c * PANEL + start + v * VECTOR) - mu[c];
            int r0 = 0;
            for (; r0 + TILE <= d; r0 += TILE)
                add_rows(d, TILE, r0, Q, offsets, square);
            if (d % TILE)
                add_rows(d, d % TILE, r0, Q, offsets, square);
            for (int v = 0; v < TILE; v++)
                *(lanes *)(s->logs + k * PANEL + start + v * VECTOR) = s->base[k] - 0.5 * square[v];
        }
    }
}

/* The sum of log-sum-exps over the panel. Leaves the exponentials in `logs` and their sums in `sums`. */
static double soften(int count, const problem *p, scratch *s)
{
    double *restrict tops = s->tops, *restrict sums = s->sums, value = 0.0;
    memcpy(tops, s->logs, count * sizeof *tops);
    memset(sums, 0, count * sizeof *sums);
    for (int64_t k = 1; k < p->K; k++) {
        const double *restrict logs = s->logs + k * PANEL;
#pragma omp simd
        for (int i = 0; i < count; i++)
            tops[i] = logs[i] > tops[i] ? logs[i] : tops[i];
    }
    for (int64_t k = 0; k < p->K; k++) {
        double *restrict logs = s->logs + k * PANEL;
#pragma omp simd
        for (int i = 0; i < count; i++) {
            double below = logs[i] - tops[i];
            logs[i] = exp(below > LOWEST_EXPONENT ? below : LOWEST_EXPONENT);
            sums[i] += logs[i];
        }
    }
#pragma omp simd reduction(+ : value)
    for (int i = 0; i < count; i++)
        value += tops[i] + log(sums[i]);
    return value;
}

/* One tile of second moments, `height` rows by `width` columns, over a block of offsets scaled by sqrt(w). */
ALWAYS void add_tile(int height, int width, int size, const lanes *rows, const lanes *columns, lanes *tile)
{
    lanes sum[TILE][TILE];
    for (int r = 0; r < height; r++)
        for (int c = 0; c < width; c++)
            sum[r][c] = tile[r * TILE + c];
    for (int v = 0; v < size; v++) {
        lanes row[TILE], column[TILE];
        for (int r = 0; r < height; r++) {
            row[r] = rows[r * (BLOCK / VECTOR) + v];
            HOLD(row[r]);
        }
        for (int c = 0; c < width; c++) {
            column[c] = columns[c * (BLOCK / VECTOR) + v];
            HOLD(column[c]);
        }
        for (int r = 0; r < height; r++)
            for (int c = 0; c < width; c++)
                sum[r][c] += row[r] * column[c];
    }
    for (int r = 0; r < height; r++)
        for (int c = 0; c < width; c++)
            tile[r * TILE + c] = sum[r][c];
}

ALWAYS void add_tiles(int d, int size, const lanes *scaled, lanes *tile)
{
    enum { ROW = TILE * (BLOCK / VECTOR) };
    int whole = d / TILE, rest = d % TILE;
    for (int R = 0; R < whole; R++)
        for (int C = 0; C <= R; C++, tile += TILE * TILE)
            add_tile(TILE, TILE, size, scaled + R * ROW, scaled + C * ROW, tile);
    if (rest) {
        for (int C = 0; C < whole; C++, tile += TILE * TILE)
            add_tile(rest, TILE, size, scaled + whole * ROW, scaled + C * ROW, tile);
        add_tile(rest, rest, size, scaled + whole * ROW, scaled + whole * ROW, tile);
    }
}

/* Weight, first and second moments of each component over the panel. */
ALWAYS void moments(int d, const problem *p, int count, scratch *s)
{
    lanes scaled[d][BLOCK / VECTOR], root[BLOCK / VECTOR];
    for (int i = 0; i < count; i++)
        s->sums[i] = 1.0 / s->sums[i];
    for (int i = count; i % VECTOR; i++)
        s->sums[i] = 0.0;
    for (int64_t k = 0; k < p->K; k++)
        for (int start = 0; start < count; start += BLOCK) {
            double *restrict w = s->logs + k * PANEL + start;
            const double *mu = p->mu + k * d;
            int here = smaller(count - start, BLOCK), size = (here + VECTOR - 1) / VECTOR;
            for (int i = here; i < size * VECTOR; i++)
                w[i] = 0.0;
            for (int v = 0; v < size; v++) {
                lanes share = *(lanes *)(w + v * VECTOR) * *(lanes *)(s->sums + start + v * VECTOR);
                s->weight[k] += share;
                for (int j = 0; j < VECTOR; j++)
                    root[v][j] = sqrt(share[j]);
            }
            for (int c = 0; c < d; c++) {
                lanes sum = {0.0};
                for (int v = 0; v < size; v++) {
                    scaled[c][v] = root[v] * (*(lanes *)(s->points + c * PANEL + start + v * VECTOR) - mu[c]);
                    sum += root[v] * scaled[c][v];
                }
                s->first[k * d + c] += sum;
            }
            if (size == BLOCK / VECTOR)
                add_tiles(d, BLOCK / VECTOR, &scaled[0][0], s->second + k * tiles_of(d) * TILE * TILE);
            else
                add_tiles(d, size, &scaled[0][0], s->second + k * tiles_of(d) * TILE * TILE);
        }
}

/* From the moments of component k to its gradients. */
ALWAYS void finish(int d, const problem *p, int64_t k, double share, const scratch *s, gradient g)
{
    double full[d][d], first[d], once[d];
    const double *Q = s->factor + k * d * d;
    const lanes *tile = s->second + k * tiles_of(d) * TILE * TILE;
    double weight = total(s->weight[k]), squared_gamma = p->gamma * p->gamma;
    for (int R = 0; R < d; R += TILE)
        for (int C = 0; C <= R; C += TILE, tile += TILE * TILE)
            for (int r = R; r < smaller(R + TILE, d); r++)
                for (int c = C; c < smaller(C + TILE, d); c++)
                    full[c][r] = full[r][c] = total(tile[(r - R) * TILE + c - C]);
    for (int c = 0; c < d; c++)
        first[c] = total(s->first[k * d + c]);
    memset(g.mu + k * d, 0, d * sizeof(double));
    for (int r = 0; r < d; r++) {
        double row[d];
        memset(row, 0, sizeof row);
        once[r] = 0.0;
        for (int j = 0; j <= r; j++) {
            once[r] += Q[r * d + j] * first[j];
            for (int c = 0; c <= r; c++)
                row[c] += Q[r * d + j] * full[j][c];
        }
        for (int c = 0; c <= r; c++)
            g.mu[k * d + c] += Q[r * d + c] * once[r];
        double diagonal = Q[r * d + r];
        g.q[k * d + r] = weight - row[r] * diagonal - squared_gamma * diagonal * diagonal + p->wishart_m;
        for (int c = 0; c < r; c++)
            g.l[k * d * (d - 1) / 2 + c * (2 * d - c - 1) / 2 + r - c - 1] =
                -row[c] - squared_gamma * Q[r * d + c];
    }
    g.alpha[k] = weight - p->n * share;
}

static double sum_of_squares(int64_t n, const double *values)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += values[i] * values[i];
    return sum;
}

/* All that does not depend on the points. */
ALWAYS double prior(int d, const problem *p, const scratch *s, double log_sum_alpha)
{
    double sum_q = 0.0, squares = 0.0;
    for (int64_t i = 0; i < p->K * d; i++)
        sum_q += p->q[i];
    squares = sum_of_squares(p->K * d * d, s->factor);
    return -p->n * (log_sum_alpha + 0.5 * d * log(2.0 * M_PI)) - 0.5 * p->gamma * p->gamma * squares +
           p->wishart_m * sum_q + p->constant;
}

ALWAYS double run(int d, const problem *p, scratch *s, const gradient *g)
{
    double top = p->alpha[0], sum = 0.0, value = 0.0;
    for (int64_t k = 0; k < p->K; k++)
        top = p->alpha[k] > top ? p->alpha[k] : top;
    for (int64_t k = 0; k < p->K; k++)
        sum += exp(p->alpha[k] - top);
    unpack(d, p, s);
    if (g) {
        memset(s->weight, 0, p->K * sizeof(lanes));
        memset(s->first, 0, p->K * d * sizeof(lanes));
        memset(s->second, 0, p->K * tiles_of(d) * TILE * TILE * sizeof(lanes));
    }
    for (int64_t start = 0; start < p->n; start += PANEL) {
        int count = load_panel(d, p, start, s);
        log_densities(d, p, count, s);
        value += soften(count, p, s);
        if (g)
            moments(d, p, count, s);
    }
    if (g)
        for (int64_t k = 0; k < p->K; k++)
            finish(d, p, k, exp(p->alpha[k] - top) / sum, s, *g);
    return value + prior(d, p, s, top + log(sum));
}

static int64_t round_up(int64_t bytes)
{
    return (bytes + sizeof(lanes) - 1) / sizeof(lanes) * sizeof(lanes);
}

static void *take(char **memory, int64_t bytes)
{
    char *start = *memory;
    *memory = start + round_up(bytes);
    return start;
}

static int64_t divide(int d, int64_t K, char *memory, scratch *s)
{
    char *start = memory;
    s->points = take(&memory, d * PANEL * sizeof(double));
    s->logs = take(&memory, K * PANEL * sizeof(double));
    s->tops = take(&memory, PANEL * sizeof(double));
    s->sums = take(&memory, PANEL * sizeof(double));
    s->factor = take(&memory, K * d * d * sizeof(double));
    s->base = take(&memory, K * sizeof(double));
    s->weight = take(&memory, K * sizeof(lanes));
    s->first = take(&memory, K * d * sizeof(lanes));
    s->second = take(&memory, K * tiles_of(d) * TILE * TILE * sizeof(lanes));
    return memory - start;
}

/* Bytes of workspace, which has to start at a multiple of 64. */
int64_t gmm_workspace(int64_t d, int64_t K)
{
    scratch s;
    return divide((int)d, K, NULL, &s);
}

/* The shapes that are measured get code of their own, as a compiler that knows the shapes would make it. */
static double choose(int d, const problem *p, void *workspace, const gradient *g)
{
    scratch s;
    divide(d, p->K, workspace, &s);
    memset(s.factor, 0, p->K * d * d * sizeof(double));
    switch (d) {
    case 2: return run(2, p, &s, g);
    case 10: return run(10, p, &s, g);
    case 64: return run(64, p, &s, g);
    default: return run(d, p, &s, g);
    }
}

double gmm_value(int64_t d, int64_t K, int64_t n, const double *alpha, const double *mu, const double *q,
                 const double *l, const double *x, double gamma, double m, double constant, void *workspace)
{
    problem p = {n, K, alpha, mu, q, l, x, gamma, m, constant};
    return choose((int)d, &p, workspace, NULL);
}

double gmm_gradient(int64_t d, int64_t K, int64_t n, const double *alpha, const double *mu, const double *q,
                    const double *l, const double *x, double gamma, double m, double constant, void *workspace,
                    double *by_alpha, double *by_mu, double *by_q, double *by_l)
{
    problem p = {n, K, alpha, mu, q, l, x, gamma, m, constant};
    gradient g = {by_alpha, by_mu, by_q, by_l};
    return choose((int)d, &p, workspace, &g);
}
