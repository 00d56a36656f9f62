/* Make room for so many bytes; return whether there is none. */
static int reserve(void *block, size_t *room, int64_t bytes)
{
    void *memory;
    size_t wanted = bytes > 0 ? (size_t)bytes : 1;
    if (wanted <= *room)
        return 0;
    if (wanted < 2 * *room)
        wanted = 2 * *room;
    memcpy(&memory, block, sizeof memory);
    memory = realloc(memory, wanted);
    if (!memory)
        return 1;
    memcpy(block, &memory, sizeof memory);
    *room = wanted;
    return 0;
}
