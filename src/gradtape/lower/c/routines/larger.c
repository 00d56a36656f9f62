static inline $T larger_$dtype($T x, $T y)
{
    return x > y ? x : y;
}
