/* Functions that the loader knows by name, so that reports can name them. Each calls its argument,
   and is on the stack meanwhile.

   Built without frame pointers, and again with frame pointers but without unwind tables, like
   generated code. */

typedef unsigned long word;
typedef word (*step)(word);

#define NAMED(name)                  \
    word name(step call, word with)  \
    {                                \
        volatile word room[5];       \
        room[with % 5] = call(with); \
        return room[with % 5];       \
    }

NAMED(helper_allocates)
NAMED(helper_frees)
NAMED(helper_errs)
