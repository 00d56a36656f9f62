/* Memory that is freed as a whole: a list of blocks, the latest first. */
struct arena_block {
    struct arena_block *before;
    double start[];
};

static inline void *arena_take(struct arena_block **arena, int64_t bytes)
{
    struct arena_block *block = malloc(sizeof(struct arena_block) + (bytes > 0 ? (size_t)bytes : 0));
    if (block == NULL)
        return NULL;
    block->before = *arena;
    *arena = block;
    return block->start;
}

static inline void arena_free(struct arena_block **arena, struct arena_block *until)
{
    while (*arena != until) {
        struct arena_block *before = (*arena)->before;
        free(*arena);
        *arena = before;
    }
}
