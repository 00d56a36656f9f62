/* The place of an index without a sign. One that is out of bounds is noted. */
static inline int64_t inside(uint64_t index, uint64_t extent, int *failed)
{
    if (index >= extent) {
        *failed = 1;
        return 0;
    }
    return (int64_t)index;
}
