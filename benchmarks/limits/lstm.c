/* ADBench's character LSTM with diagonal weights: the loss and its gradient in the main and the extra parameters.
 *
 * Each layer is one time behind the one below it: none waits for another within a step, and their latencies overlap.
 * Going forward keeps what was squashed, so that going back has no exponentials. */
#include "vector.h"
#include <string.h>

enum { FORGET, ENTER, LEAVE, CHANGE, GATES };
enum { C = GATES, SQUASHED, KEPT };

typedef struct {
    int64_t n;
    lanes *weights;   /* [layers][2][GATES][V] */
    lanes *extra;     /* [3][V] */
    lanes *state;     /* [layers][2][V]: h and c */
    lanes *sequence;  /* [n + 1][V] */
    lanes *kept;      /* [n][layers][KEPT][V] */
    lanes *raised;    /* [n][V]: exponentials of the guess */
    double *totals;   /* [n]: 2 + their sum */
    double *counts;   /* [n]: the sum of what was wanted */
    lanes *gradient;  /* [layers][2][GATES][V], then [3][V] */
} scratch;

ALWAYS lanes sigmoid(lanes x)
{
    return 1.0 / (1.0 + exponential(-x));
}

ALWAYS lanes hyperbolic_tangent(lanes x)
{
    return 1.0 - 2.0 / (1.0 + exponential(2.0 * x));
}

/* Rows of b numbers each into vectors, with zeros after the end. */
ALWAYS void pad(int V, int64_t b, int64_t rows, const double *restrict from, lanes *to)
{
    for (int64_t r = 0; r < rows; r++) {
        double *row = (double *)(to + r * V);
        for (int v = 0; v < V; v++)
            to[r * V + v] = (lanes){0.0};
        memcpy(row, from + r * b, b * sizeof *row);
    }
}

ALWAYS void unpad(int V, int64_t b, int64_t rows, const lanes *from, double *restrict to)
{
    for (int64_t r = 0; r < rows; r++)
        memcpy(to + r * b, from + r * V, b * sizeof *to);
}

/* Zeros in the places after b: their exponentials must not count. */
ALWAYS lanes mask(int v, int64_t b)
{
    lanes result;
    for (int j = 0; j < VECTOR; j++)
        result[j] = v * VECTOR + j < b ? 1.0 : 0.0;
    return result;
}

ALWAYS double forward(int layers, int V, int64_t b, int keep, const scratch *s)
{
    lanes h[layers][V], c[layers][V], valid[V];
    lanes guessed = {0.0};
    double logs = 0.0;
    for (int v = 0; v < V; v++)
        valid[v] = mask(v, b);
    for (int layer = 0; layer < layers; layer++)
        for (int v = 0; v < V; v++) {
            h[layer][v] = s->state[2 * layer * V + v];
            c[layer][v] = s->state[(2 * layer + 1) * V + v];
        }
    for (int64_t step = 0; step < s->n + layers - 1; step++) {
        UNROLL for (int layer = layers - 1; layer >= 0; layer--) {
            int64_t t = step - layer;
            if (t < 0 || t >= s->n)
                continue;
            const lanes *weight = s->weights + layer * 2 * GATES * V, *bias = weight + GATES * V;
            lanes *kept = s->kept + (t * layers + layer) * KEPT * V;
            UNROLL for (int v = 0; v < V; v++) {
                lanes x = layer ? h[layer - 1][v] : s->sequence[t * V + v] * s->extra[v];
                lanes enter = sigmoid(h[layer][v] * weight[ENTER * V + v] + bias[ENTER * V + v]);
                lanes change = hyperbolic_tangent(h[layer][v] * weight[CHANGE * V + v] + bias[CHANGE * V + v]);
                lanes forget = sigmoid(x * weight[FORGET * V + v] + bias[FORGET * V + v]);
                lanes leave = sigmoid(x * weight[LEAVE * V + v] + bias[LEAVE * V + v]);
                if (keep) {
                    kept[FORGET * V + v] = forget;
                    kept[ENTER * V + v] = enter;
                    kept[LEAVE * V + v] = leave;
                    kept[CHANGE * V + v] = change;
                    kept[C * V + v] = c[layer][v];
                }
                c[layer][v] = c[layer][v] * forget + enter * change;
                lanes squashed = hyperbolic_tangent(c[layer][v]);
                if (keep)
                    kept[SQUASHED * V + v] = squashed;
                h[layer][v] = leave * squashed;
            }
        }
        int64_t t = step - (layers - 1);
        if (t < 0)
            continue;
        lanes raised = {0.0}, count = {0.0};
        for (int v = 0; v < V; v++) {
            lanes wanted = s->sequence[(t + 1) * V + v];
            lanes guess = h[layers - 1][v] * s->extra[V + v] + s->extra[2 * V + v];
            lanes power = exponential(guess) * valid[v];
            if (keep)
                s->raised[t * V + v] = power;
            raised += power;
            count += wanted;
            guessed += wanted * guess;
        }
        s->totals[t] = 2.0 + total(raised);
        s->counts[t] = total(count);
    }
#pragma omp simd reduction(+ : logs)
    for (int64_t t = 0; t < s->n; t++)
        logs += s->counts[t] * log(s->totals[t]);
    return (logs - total(guessed)) / (s->n * b);
}

ALWAYS void backward(int layers, int V, int64_t b, const scratch *s)
{
    lanes by_h[layers][V], by_c[layers][V];
    lanes *by_extra = s->gradient + layers * 2 * GATES * V;
    double scale = -1.0 / (s->n * b);
    memset(by_h, 0, sizeof by_h);
    memset(by_c, 0, sizeof by_c);
    memset(s->gradient, 0, (layers * 2 * GATES + 3) * V * sizeof(lanes));
    for (int64_t t = s->n - 1; t >= 0; t--) {
        const lanes *now = s->kept + t * layers * KEPT * V, *before = now - layers * KEPT * V;
        const lanes *top = now + (layers - 1) * KEPT * V;
        double share = s->counts[t] / s->totals[t];
        lanes by_x[V];
        UNROLL for (int v = 0; v < V; v++) {
            lanes by_guess = scale * (s->sequence[(t + 1) * V + v] - share * s->raised[t * V + v]);
            by_extra[V + v] += by_guess * top[LEAVE * V + v] * top[SQUASHED * V + v];
            by_extra[2 * V + v] += by_guess;
            by_x[v] = by_guess * s->extra[V + v];
        }
        UNROLL for (int layer = layers - 1; layer >= 0; layer--) {
            const lanes *weight = s->weights + layer * 2 * GATES * V;
            const lanes *kept = now + layer * KEPT * V, *last = before + layer * KEPT * V, *below = kept - KEPT * V;
            lanes *by_weight = s->gradient + layer * 2 * GATES * V, *by_bias = by_weight + GATES * V;
            UNROLL for (int v = 0; v < V; v++) {
                lanes forget = kept[FORGET * V + v], enter = kept[ENTER * V + v], leave = kept[LEAVE * V + v];
                lanes change = kept[CHANGE * V + v], squashed = kept[SQUASHED * V + v];
                lanes h = t ? last[LEAVE * V + v] * last[SQUASHED * V + v] : s->state[2 * layer * V + v];
                lanes x = layer ? below[LEAVE * V + v] * below[SQUASHED * V + v]
                                : s->sequence[t * V + v] * s->extra[v];
                lanes to_h = by_h[layer][v] + by_x[v], shown = to_h * leave;
                lanes to_c = by_c[layer][v] + shown - shown * squashed * squashed;
                lanes by[GATES];
                by[LEAVE] = squashed * (shown - shown * leave);
                by[FORGET] = kept[C * V + v] * (to_c * forget) * (1.0 - forget);
                by[ENTER] = change * (to_c * enter) * (1.0 - enter);
                by[CHANGE] = to_c * enter * (1.0 - change * change);
                by_c[layer][v] = to_c * forget;
                by_h[layer][v] = by[ENTER] * weight[ENTER * V + v] + by[CHANGE] * weight[CHANGE * V + v];
                by_x[v] = by[FORGET] * weight[FORGET * V + v] + by[LEAVE] * weight[LEAVE * V + v];
                UNROLL for (int gate = 0; gate < GATES; gate++) {
                    by_weight[gate * V + v] += by[gate] * (gate == FORGET || gate == LEAVE ? x : h);
                    by_bias[gate * V + v] += by[gate];
                }
            }
        }
        for (int v = 0; v < V; v++)
            by_extra[v] += by_x[v] * s->sequence[t * V + v];
    }
}

static int vectors(int64_t b)
{
    return (int)((b + VECTOR - 1) / VECTOR);
}

static lanes *take(lanes **memory, int64_t count)
{
    lanes *start = *memory;
    *memory = start + count;
    return start;
}

static int64_t divide(int64_t layers, int64_t n, int V, lanes *memory, scratch *s)
{
    lanes *start = memory;
    int64_t parameters = layers * 2 * GATES * V;
    s->n = n;
    s->weights = take(&memory, parameters);
    s->extra = take(&memory, 3 * V);
    s->state = take(&memory, layers * 2 * V);
    s->sequence = take(&memory, (n + 1) * V);
    s->kept = take(&memory, n * layers * KEPT * V);
    s->raised = take(&memory, n * V);
    s->totals = (double *)take(&memory, n / VECTOR + 1);
    s->counts = (double *)take(&memory, n / VECTOR + 1);
    s->gradient = take(&memory, parameters + 3 * V);
    return (memory - start) * (int64_t)sizeof(lanes);
}

/* Bytes of workspace, which has to start at a multiple of 64. */
int64_t lstm_workspace(int64_t layers, int64_t length, int64_t b)
{
    scratch s;
    return divide(layers, length - 1, vectors(b), NULL, &s);
}

ALWAYS double run(int layers, int V, int64_t b, const scratch *s, int differentiate)
{
    double value = forward(layers, V, b, differentiate, s);
    if (differentiate)
        backward(layers, V, b, s);
    return value;
}

/* The shape that is measured gets code of its own, as a compiler that knows the shape would make it. */
static double choose(int layers, int64_t b, const scratch *s, int differentiate)
{
    int V = vectors(b);
    if (layers == 2 && V * VECTOR == 16)
        return differentiate ? run(2, 16 / VECTOR, b, s, 1) : run(2, 16 / VECTOR, b, s, 0);
    return run(layers, V, b, s, differentiate);
}

static int64_t load(int64_t layers, int64_t length, int64_t b, const double *main, const double *extra,
                    const double *state, const double *sequence, void *workspace, scratch *s)
{
    int V = vectors(b);
    divide(layers, length - 1, V, workspace, s);
    pad(V, b, layers * 2 * GATES, main, s->weights);
    pad(V, b, 3, extra, s->extra);
    pad(V, b, layers * 2, state, s->state);
    pad(V, b, length, sequence, s->sequence);
    return V;
}

double lstm_value(int64_t layers, int64_t length, int64_t b, const double *main, const double *extra,
                  const double *state, const double *sequence, void *workspace)
{
    scratch s;
    load(layers, length, b, main, extra, state, sequence, workspace, &s);
    return choose((int)layers, b, &s, 0);
}

double lstm_gradient(int64_t layers, int64_t length, int64_t b, const double *main, const double *extra,
                     const double *state, const double *sequence, void *workspace, double *by_main,
                     double *by_extra)
{
    scratch s;
    int V = (int)load(layers, length, b, main, extra, state, sequence, workspace, &s);
    double value = choose((int)layers, b, &s, 1);
    unpad(V, b, layers * 2 * GATES, s.gradient, by_main);
    unpad(V, b, 3, s.gradient + layers * 2 * GATES * V, by_extra);
    return value;
}
