/* The forward algorithm of a hidden Markov model, in log space, and its gradient in the log-probabilities.
 *
 * In log space as the wordings are: an exponential for each pair of states and time. The algorithm that scales
 * probabilities instead needs none, but is another one, which loses transitions that are less likely than 1e-308. */
#include "vector.h"
#include <string.h>

typedef struct {
    int64_t n;
    lanes *transition;  /* [K][V]: from a state to all others */
    lanes *seen;        /* [symbols][V]: log-probabilities of a symbol in all states */
    lanes *forward;     /* [V] */
    lanes *kept;        /* [n - 1][K][V]: exponentials of what comes from each state */
    lanes *sums;        /* [n - 1][V]: over the states that they come from */
    lanes *by_seen;     /* [symbols][V] */
    lanes *by_transition;
} scratch;

/* Far below all logarithms, for the places after the last state: their exponentials are zero. */
static const double NEVER = -1e5;

ALWAYS void pad(int V, int64_t count, int64_t rows, int64_t row_stride, int64_t stride, const double *from,
                lanes *to)
{
    for (int64_t r = 0; r < rows; r++) {
        double *row = (double *)(to + r * V);
        for (int64_t j = 0; j < V * VECTOR; j++)
            row[j] = j < count ? from[r * row_stride + j * stride] : NEVER;
    }
}

ALWAYS void logarithms(int V, const lanes *top, const lanes *sum, const lanes *seen, double *restrict to)
{
    const double *tops = (const double *)top, *sums = (const double *)sum, *logs = (const double *)seen;
#pragma omp simd
    for (int j = 0; j < V * VECTOR; j++)
        to[j] = tops[j] + log(sums[j]) + logs[j];
}

/* log-sum-exp of all states. Leaves their shares in `shares` if that is not NULL. */
ALWAYS double finish(int K, const double *forward, double *shares)
{
    double top = forward[0], sum = 0.0;
    for (int i = 1; i < K; i++)
        top = forward[i] > top ? forward[i] : top;
    for (int i = 0; i < K; i++)
        sum += exp(forward[i] - top);
    if (shares)
        for (int i = 0; i < K; i++)
            shares[i] = exp(forward[i] - top) / sum;
    return top + log(sum);
}

ALWAYS void step(int K, int V, const scratch *s, lanes *kept, lanes *sums, int64_t symbol)
{
    const double *forward = (const double *)s->forward;
    lanes top[V], sum[V];
    UNROLL for (int v = 0; v < V; v++)
        top[v] = forward[0] + s->transition[v];
    UNROLL for (int i = 1; i < K; i++)
        UNROLL for (int v = 0; v < V; v++)
            top[v] = greater(top[v], forward[i] + s->transition[i * V + v]);
    UNROLL for (int v = 0; v < V; v++)
        sum[v] = (lanes){0.0};
    UNROLL for (int i = 0; i < K; i++)
        UNROLL for (int v = 0; v < V; v++) {
            lanes power = exponential((forward[i] + s->transition[i * V + v]) - top[v]);
            if (kept)
                kept[i * V + v] = power;
            sum[v] += power;
        }
    if (kept)
        for (int v = 0; v < V; v++)
            sums[v] = sum[v];
    logarithms(V, top, sum, s->seen + symbol * V, (double *)s->forward);
}

ALWAYS double run(int K, int V, const double *start, const int64_t *symbols, const scratch *s, double *by_start)
{
    double *forward = (double *)s->forward;
    for (int i = 0; i < K; i++)
        forward[i] = start[i] + ((double *)(s->seen + symbols[0] * V))[i];
    for (int64_t t = 0; t + 1 < s->n; t++)
        step(K, V, s, by_start ? s->kept + t * K * V : NULL, s->sums + t * V, symbols[t + 1]);
    if (!by_start)
        return finish(K, forward, NULL);

    lanes by[V];
    for (int v = 0; v < V; v++)
        by[v] = (lanes){0.0};
    double value = finish(K, forward, (double *)by);
    for (int64_t t = s->n - 2; t >= 0; t--) {
        const lanes *kept = s->kept + t * K * V;
        double before[V * VECTOR];
        UNROLL for (int v = 0; v < V; v++) {
            s->by_seen[symbols[t + 1] * V + v] += by[v];
            by[v] /= s->sums[t * V + v];
        }
        UNROLL for (int i = 0; i < K; i++) {
            lanes out = {0.0};
            UNROLL for (int v = 0; v < V; v++) {
                lanes flow = kept[i * V + v] * by[v];
                s->by_transition[i * V + v] += flow;
                out += flow;
            }
            before[i] = total(out);
        }
        memcpy(by, before, K * sizeof *before);
    }
    for (int v = 0; v < V; v++)
        s->by_seen[symbols[0] * V + v] += by[v];
    memcpy(by_start, by, K * sizeof *by_start);
    return value;
}

static lanes *take(lanes **memory, int64_t count)
{
    lanes *start = *memory;
    *memory = start + count;
    return start;
}

static int64_t divide(int64_t K, int64_t symbols, int64_t n, int V, lanes *memory, scratch *s)
{
    lanes *start = memory;
    s->n = n;
    s->transition = take(&memory, K * V);
    s->seen = take(&memory, symbols * V);
    s->forward = take(&memory, V);
    s->by_seen = take(&memory, symbols * V);
    s->by_transition = take(&memory, K * V);
    s->kept = take(&memory, n * K * V);
    s->sums = take(&memory, n * V);
    return (memory - start) * (int64_t)sizeof(lanes);
}

static int vectors(int64_t K)
{
    return (int)((K + VECTOR - 1) / VECTOR);
}

/* Bytes of workspace, which has to start at a multiple of 64. */
int64_t hmm_workspace(int64_t K, int64_t symbols, int64_t n)
{
    scratch s;
    return divide(K, symbols, n, vectors(K), NULL, &s);
}

/* The shape that is measured gets code of its own, as a compiler that knows the shape would make it. */
static double choose(int K, const double *start, const int64_t *symbols, const scratch *s, double *by_start)
{
    if (K == 16)
        return by_start ? run(16, 16 / VECTOR, start, symbols, s, by_start)
                        : run(16, 16 / VECTOR, start, symbols, s, NULL);
    return run(K, vectors(K), start, symbols, s, by_start);
}

static void load(int64_t K, int64_t symbols, int64_t n, const double *transition, const double *emission,
                 void *workspace, scratch *s)
{
    int V = vectors(K);
    divide(K, symbols, n, V, workspace, s);
    pad(V, K, K, K, 1, transition, s->transition);
    pad(V, K, symbols, 1, symbols, emission, s->seen);
}

double hmm_value(int64_t K, int64_t symbols, int64_t n, const double *start, const double *transition,
                 const double *emission, const int64_t *seen, void *workspace)
{
    scratch s;
    load(K, symbols, n, transition, emission, workspace, &s);
    return choose((int)K, start, seen, &s, NULL);
}

double hmm_gradient(int64_t K, int64_t symbols, int64_t n, const double *start, const double *transition,
                    const double *emission, const int64_t *seen, void *workspace, double *by_start,
                    double *by_transition, double *by_emission)
{
    scratch s;
    int V = vectors(K);
    load(K, symbols, n, transition, emission, workspace, &s);
    memset(s.by_seen, 0, symbols * V * sizeof(lanes));
    memset(s.by_transition, 0, K * V * sizeof(lanes));
    double value = choose((int)K, start, seen, &s, by_start);
    for (int64_t i = 0; i < K; i++) {
        memcpy(by_transition + i * K, s.by_transition + i * V, K * sizeof *by_transition);
        for (int64_t symbol = 0; symbol < symbols; symbol++)
            by_emission[i * symbols + symbol] = ((double *)(s.by_seen + symbol * V))[i];
    }
    return value;
}
