/* Whether x stands before y in sorted order. */
static inline int before_$dtype($T x, $T y)
{
    return x < y;
}
