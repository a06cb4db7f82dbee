/* Functions whose names the loader knows, so that reports can name them: each calls what it is given, and is on the stack meanwhile.
   Built without frame pointers; a second time with them and without unwinding tables, as generated code has it. */

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
