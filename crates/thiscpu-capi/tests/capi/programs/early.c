// Inlined calls before the library is started, which can only be given null, leave this thread alone: sections store to an area, and there is none
// yet whose place is known. What would be stored to in its place is what the C library keeps first in a thread.
#include "check.h"

// Stored to in place of `rseq_cs`, if the thread pointer was taken for the area, or for its cpu_id.
enum { AT_MOST = 4 };

static const uint64_t *thread(void) {
    uint64_t *pointer;
#if defined(__x86_64__)
    __asm__("movq %%fs:0, %0" : "=r"(pointer));
#else
    pointer = __builtin_thread_pointer();
#endif
    return pointer;
}

static int is_changed = -1;

static void early(void) {
    uint64_t before[AT_MOST];
    for (int i = 0; i < AT_MOST; i++) {
        before[i] = thread()[i];
    }
    thiscpu_counter_add(NULL, 1);
    thiscpu_word_add(NULL, 1);
    thiscpu_budget_release(NULL, 1);
    is_changed = 0;
    for (int i = 0; i < AT_MOST; i++) {
        is_changed |= thread()[i] != before[i];
    }
}

__attribute__((used, section(".preinit_array"))) static void (*const first)(void) = early;

int main(void) {
    CHECK(is_changed == 0);
    SAYS(THISCPU_STATUS_NULL_POINTER, thiscpu_word_add(NULL, 1));
    return 0;
}
