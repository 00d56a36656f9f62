/* The larger number; NaN if one is NaN. */
static inline $T maximum_$dtype($T x, $T y)
{
    return x > y || x != x ? x : y;
}
