/* The smaller number; NaN if one is NaN. */
static inline $T minimum_$dtype($T x, $T y)
{
    return x < y || x != x ? x : y;
}
