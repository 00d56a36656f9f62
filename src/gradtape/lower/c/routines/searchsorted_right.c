/* Where elements belong among sorted ones: behind equal ones. */
static void searchsorted_right_$dtype(const $T *a, const $T *v, int64_t *out, int64_t count, int64_t wanted)
{
    for (int64_t k = 0; k < wanted; k++) {
        int64_t low = 0, high = count;
        while (low < high) {
            const int64_t middle = low + (high - low) / 2;
            if (!before_$dtype(v[k], a[middle]))
                low = middle + 1;
            else
                high = middle;
        }
        out[k] = low;
    }
}
