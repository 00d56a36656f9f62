/* The place of an index: negative ones count from the end. One that is out of bounds is noted. */
static inline int64_t wrapped(int64_t index, int64_t extent, int *failed)
{
    const int64_t place = index < 0 ? index + extent : index;
    if (place < 0 || place >= extent) {
        *failed = 1;
        return 0;
    }
    return place;
}
