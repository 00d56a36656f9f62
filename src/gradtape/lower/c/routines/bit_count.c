/* How many bits are set. */
static inline $T bit_count_$dtype($T x)
{
    int count = 0;
    for (uint64_t rest = (uint64_t)x & (~UINT64_C(0) >> (64 - 8 * sizeof x)); rest; rest &= rest - 1)
        count++;
    return ($T)count;
}
