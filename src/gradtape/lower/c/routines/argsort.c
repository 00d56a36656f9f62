/* Positions sorted by their keys: a stable merge sort. */
static void argsort_$dtype(const $T *restrict keys, int64_t *out, int64_t *spare, int64_t count)
{
    int64_t *from = out, *to = spare;
    for (int64_t i = 0; i < count; i++)
        from[i] = i;
    for (int64_t width = 1; width < count; width *= 2) {
        for (int64_t low = 0; low < count; low += 2 * width) {
            const int64_t middle = low + width < count ? low + width : count;
            const int64_t high = middle + width < count ? middle + width : count;
            int64_t left = low, right = middle;
            for (int64_t place = low; place < high; place++) {
                const int take_right =
                    left == middle || (right < high && before_$dtype(keys[from[right]], keys[from[left]]));
                to[place] = take_right ? from[right++] : from[left++];
            }
        }
        int64_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != out)
        memcpy(out, from, (size_t)count * sizeof *out);
}
