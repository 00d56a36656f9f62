/* Square roots by Newton's iteration until no element moves by more than the tolerance; their sum, and its gradient
 * through the iterations.
 *
 * All elements make as many iterations as the slowest one, and one that has come to rest stays at rest. So each strip
 * makes all its iterations at once, without leaving the first cache: as many as the slowest strip before it. If a later
 * one has wanted more, all is done once more with that number. */
#include "vector.h"
#include <string.h>

/* From the largest number each iteration halves, and there are 512 halvings down to its root. */
enum { STRIP = 4, MOST = 600 };

typedef struct {
    lanes x[STRIP], move[STRIP];
} iterate;

ALWAYS void begin(const lanes *a, iterate *now)
{
    UNROLL for (int v = 0; v < STRIP; v++) {
        now->x[v] = 0.5 * (1.0 + a[v]);
        now->move[v] = now->x[v] - 1.0;
    }
}

ALWAYS int moves(const iterate *now, double tolerance)
{
    lanes most = (lanes){0.0};
    UNROLL for (int v = 0; v < STRIP; v++)
        most = greater(most, greater(now->move[v], -now->move[v]));
    double largest = most[0];
    for (int j = 1; j < VECTOR; j++)
        largest = most[j] > largest ? most[j] : largest;
    return largest > tolerance;
}

/* Leaves 1 / x, of which the way back needs no more. */
ALWAYS void improve(const lanes *a, iterate *now, lanes *inverse)
{
    UNROLL for (int v = 0; v < STRIP; v++) {
        inverse[v] = 1.0 / now->x[v];
        now->move[v] = 0.5 * (a[v] * inverse[v] - now->x[v]);
        now->x[v] += now->move[v];
    }
}

/* Both at least `least` iterations and until at rest; the number of them. */
ALWAYS int iterate_strip(const lanes *a, double tolerance, int least, iterate *now, lanes (*inverses)[STRIP])
{
    int count = 0;
    begin(a, now);
    while (count < least)
        improve(a, now, inverses[count++]);
    while (count < MOST && moves(now, tolerance))
        improve(a, now, inverses[count++]);
    return count;
}

ALWAYS void go_back(const lanes *a, int count, lanes (*inverses)[STRIP], lanes *by_a)
{
    lanes by_x[STRIP];
    UNROLL for (int v = 0; v < STRIP; v++) {
        by_x[v] = same(1.0);
        by_a[v] = (lanes){0.0};
    }
    while (count--)
        UNROLL for (int v = 0; v < STRIP; v++) {
            lanes by_ratio = 0.5 * by_x[v], by_one = by_ratio * inverses[count][v];
            by_a[v] += by_one;
            by_x[v] = by_ratio - by_one * (a[v] * inverses[count][v]);
        }
    UNROLL for (int v = 0; v < STRIP; v++)
        by_a[v] += 0.5 * by_x[v];
}

/* The strip from `start` on; its last element stands in for those after the end. */
ALWAYS int64_t load(int64_t n, const double *a, int64_t start, lanes *strip)
{
    int64_t count = n - start < STRIP * VECTOR ? n - start : STRIP * VECTOR;
    if (count == STRIP * VECTOR)
        memcpy(strip, a + start, STRIP * sizeof(lanes));
    else
        for (int64_t i = 0; i < STRIP * VECTOR; i++)
            ((double *)strip)[i] = a[start + (i < count ? i : count - 1)];
    return count;
}

ALWAYS double run(int64_t n, const double *a, double tolerance, double *by_a)
{
    int most = 0, made;
    double value;
    do {
        lanes sum = {0.0};
        made = most;
        value = 0.0;
        for (int64_t start = 0; start < n; start += STRIP * VECTOR) {
            lanes strip[STRIP], by[STRIP], inverses[MOST][STRIP];
            iterate now;
            int64_t count = load(n, a, start, strip);
            most = iterate_strip(strip, tolerance, most, &now, inverses);
            if (made == 0)
                made = most;
            if (by_a) {
                go_back(strip, most, inverses, by);
                memcpy(by_a + start, by, count * sizeof *by_a);
            }
            if (count == STRIP * VECTOR)
                UNROLL for (int v = 0; v < STRIP; v++)
                    sum += now.x[v];
            else
                for (int64_t i = 0; i < count; i++)
                    value += ((double *)now.x)[i];
        }
        value += total(sum);
    } while (most > made);
    return value;
}

/* One number needs no vectors. */
ALWAYS double run_one(double a, double tolerance, double *by_a)
{
    double inverses[MOST], x = 0.5 * (1.0 + a), move = x - 1.0;
    int count = 0;
    while (count < MOST && fabs(move) > tolerance) {
        inverses[count] = 1.0 / x;
        move = 0.5 * (a * inverses[count++] - x);
        x += move;
    }
    if (by_a) {
        double by_x = 1.0, sum = 0.0;
        while (count--) {
            double by_ratio = 0.5 * by_x, by_one = by_ratio * inverses[count];
            sum += by_one;
            by_x = by_ratio - by_one * (a * inverses[count]);
        }
        *by_a = sum + 0.5 * by_x;
    }
    return x;
}

double newton_value(int64_t n, const double *a, double tolerance)
{
    return n == 1 ? run_one(*a, tolerance, NULL) : run(n, a, tolerance, NULL);
}

double newton_gradient(int64_t n, const double *a, double tolerance, double *by_a)
{
    return n == 1 ? run_one(*a, tolerance, by_a) : run(n, a, tolerance, by_a);
}
