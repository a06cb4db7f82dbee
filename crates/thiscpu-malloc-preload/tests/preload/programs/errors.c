/* Makes the error that the first argument names. It must not reach its end. */
#include <malloc.h>

#include "check.h"

static void twice(size_t size) {
    char *block = malloc(size);
    free(block);
    free(block);
}

/* Frees a block twice whose page, with the mark of the first free, went back in between. */
static void twice_after_trim(size_t size) {
    enum { COUNT = 4000, KEPT = 400 };
    static char *volatile blocks[COUNT];
    for (int at = 0; at < COUNT; at++) memset(blocks[at] = malloc(size), 1, size);
    for (int at = 0; at < COUNT; at++)
        if (at % KEPT) free(blocks[at]);
    malloc_trim(0);
    for (int at = 0; at < COUNT; at++) {
        if (at % KEPT && *(volatile long *)blocks[at] == 0) {
            free(blocks[at]);
            return;
        }
    }
}

/* Writes to a freed block that a lane holds for the next call. */
static void written_to(size_t size) {
    char *block = malloc(size);
    free(block);
    *(volatile char *)block ^= 1;
    /* Soon, an allocation on some CPU gets the block. */
    for (int count = 0; count < 100000 && block; count++) block = malloc(size);
}

static void inside(size_t size) {
    char *block = malloc(size);
    free(block + 16);
    /* Small blocks are checked when they return to their slab. */
    malloc_trim(0);
}

/* Uses an address in a block that no block can begin at. */
static void misaligned(const char *how) {
    char *small = malloc(100), *tiny = malloc(8), *large = malloc(300000), *aligned;
    if (posix_memalign((void **)&aligned, 64, 100) != 0) return;
    if (strcmp(how, "free") == 0) free(small + 1);
    if (strcmp(how, "free by 8") == 0) free(small + 8);
    if (strcmp(how, "free of last byte") == 0) free(small + 111);
    if (strcmp(how, "free of tiny") == 0) free(tiny + 4);
    if (strcmp(how, "free of large") == 0) free(large + 1);
    if (strcmp(how, "free of aligned") == 0) free(aligned + 8);
    if (strcmp(how, "realloc") == 0) realloc(small + 2, 50);
    if (strcmp(how, "realloc to 0") == 0) realloc(small + 2, 0);
    if (strcmp(how, "usable size") == 0) malloc_usable_size(small + 8);
}

/* Returns a guarded block: only those have exactly the requested size. */
static char *guarded(void) {
    enum { SIZE = 50, MOST = 10 << 20 };
    for (int count = 0; count < MOST; count++) {
        char *block = malloc(SIZE);
        if (malloc_usable_size(block) == SIZE) return block;
    }
    return NULL;
}

int main(int count, char **arguments) {
    const char *error = arguments[1];
    char local[64];
    volatile char *block = NULL;
    if (strcmp(error, "small twice") == 0) twice(100);
    if (strcmp(error, "small twice after trim") == 0) twice_after_trim(100);
    if (strcmp(error, "large twice") == 0) twice(300000);
    if (strcmp(error, "huge twice") == 0) twice((size_t)4 << 30);
    if (strcmp(error, "small written to") == 0) written_to(100);
    if (strcmp(error, "stack") == 0) free(local);
    if (strcmp(error, "inside small") == 0) inside(100);
    if (strcmp(error, "inside large") == 0) inside(300000);
    if (strncmp(error, "misaligned ", 11) == 0) misaligned(error + 11);
    if (strncmp(error, "guarded", 7) == 0) CHECK((block = guarded()) != NULL);
    if (strcmp(error, "guarded twice") == 0) {
        free((void *)block);
        free((void *)block);
    }
    if (strcmp(error, "guarded use after free") == 0) {
        free((void *)block);
        block[3] = 1;
    }
    if (strcmp(error, "guarded overflow") == 0) {
        block[50] = 1;
        free((void *)block);
    }
    puts("not detected");
    return 0;
}
