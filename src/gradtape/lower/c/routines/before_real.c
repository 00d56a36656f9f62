/* Whether x stands before y in sorted order: NaN is last. */
static inline int before_$dtype($T x, $T y)
{
    return x < y || (y != y && x == x);
}
