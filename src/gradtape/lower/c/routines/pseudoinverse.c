/* A copy of the pseudoinverse, which is known. */
static int pseudoinverse_$dtype(const $T *from, $T *to, void *spare, int64_t m, int64_t n)
{
    (void)spare;
    memcpy(to, from, (size_t)(m * n) * sizeof *to);
    return 0;
}
