/* A last-in, first-out memory of values of any size. */
struct tape {
    char *start;
    size_t used, room;
};

static inline int tape_push(struct tape *tape, const void *value, size_t bytes)
{
    if (tape->room - tape->used < bytes) {
        const size_t room = 2 * tape->room + 1024;
        char *start = realloc(tape->start, room);
        if (start == NULL)
            return 1;
        tape->start = start;
        tape->room = room;
    }
    memcpy(tape->start + tape->used, value, bytes);
    tape->used += bytes;
    return 0;
}

static inline void tape_pop(struct tape *tape, void *value, size_t bytes)
{
    tape->used -= bytes;
    memcpy(value, tape->start + tape->used, bytes);
}
