// Inlined calls before the library has started can only be given NULL. They must not write to the
// thread's memory: a section stores to its rseq area, whose address is not known yet. A wrong
// address would lead to the C library's fields at the thread pointer.
#include "check.h"

// Words that a store to `rseq_cs` may hit, if the thread pointer is taken for the area or for its
// `cpu_id`.
enum { WORDS = 4 };

static const uint64_t *thread_pointer(void) {
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
    uint64_t before[WORDS];
    for (int i = 0; i < WORDS; i++) {
        before[i] = thread_pointer()[i];
    }
    thiscpu_counter_add(NULL, 1);
    thiscpu_word_add(NULL, 1);
    thiscpu_budget_release(NULL, 1);
    is_changed = 0;
    for (int i = 0; i < WORDS; i++) {
        is_changed |= thread_pointer()[i] != before[i];
    }
}

__attribute__((used, section(".preinit_array"))) static void (*const first)(void) = early;

int main(void) {
    CHECK(is_changed == 0);
    RETURNS(THISCPU_STATUS_NULL_POINTER, thiscpu_word_add(NULL, 1));
    return 0;
}
