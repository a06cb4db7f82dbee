/* A program whose malloc family wraps glibc's internal names. */
#define _GNU_SOURCE
#include <malloc.h>

#include "check.h"

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void *__libc_valloc(size_t);
void *__libc_pvalloc(size_t);
void __libc_free(void *);

static __thread int depth;
static int calls;

/* Checks that a wrapped function does not call a wrapper. */
#define ONCE(call)             \
    do {                       \
        calls++;               \
        if (depth++) abort();  \
        call;                  \
        depth--;               \
    } while (0)
#define WRAPPED(function)      \
    void *block;               \
    ONCE(block = function);    \
    return block

void *malloc(size_t size) { WRAPPED(__libc_malloc(size)); }
void *calloc(size_t count, size_t size) { WRAPPED(__libc_calloc(count, size)); }
void *realloc(void *old, size_t size) { WRAPPED(__libc_realloc(old, size)); }
void *memalign(size_t align, size_t size) { WRAPPED(__libc_memalign(align, size)); }
void *valloc(size_t size) { WRAPPED(__libc_valloc(size)); }
void *pvalloc(size_t size) { WRAPPED(__libc_pvalloc(size)); }
void free(void *block) { ONCE(__libc_free(block)); }

int main(void) {
    int before = calls;
    /* Small sizes, and sizes without a class. */
    for (size_t size = 1; size < 1 << 22; size = 3 * size + 1) {
        char *block = malloc(size);
        CHECK(block != NULL);
        block = realloc(block, 2 * size);
        CHECK(block != NULL);
        free(block);
        block = calloc(size, 1);
        CHECK(block != NULL && block[size - 1] == 0);
        free(block);
        void *aligned[] = {memalign(64, size), valloc(size), pvalloc(size)};
        for (int i = 0; i < 3; i++) {
            CHECK(aligned[i] != NULL && (size_t)aligned[i] % 64 == 0);
            free(aligned[i]);
        }
    }
    CHECK(calls - before > 100);
    puts("done");
    return 0;
}
