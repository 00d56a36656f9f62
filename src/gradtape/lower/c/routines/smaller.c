static inline $T smaller_$dtype($T x, $T y)
{
    return x < y ? x : y;
}
