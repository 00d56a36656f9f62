/* Make room for so many more bytes, where there is so much memory: a tape that grows is copied. */
static inline void tape_extend(struct tape *tape, int64_t bytes)
{
    const size_t room = tape->used + (size_t)bytes;
    char *start = room > tape->room ? realloc(tape->start, room) : NULL;
    if (start != NULL) {
        tape->start = start;
        tape->room = room;
    }
}
