/* Helpers of all programs. */
#pragma once
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                         \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno);    \
            abort();                                                                             \
        }                                                                                        \
    } while (0)

/* Fills a block depending on its address, so that a check detects overlapping blocks. */
static inline void fill(void *block, size_t size) {
    memset(block, (int)(((uintptr_t)block >> 4) & 0xff), size);
}

static inline int is_filled(const void *block, size_t size, const void *as_filled_at) {
    const unsigned char *bytes = (const unsigned char *)block;
    unsigned char expected = (unsigned char)(((uintptr_t)as_filled_at >> 4) & 0xff);
    /* Each byte is the expected one if the first is, and each other is like the one before. */
    return size == 0 || (bytes[0] == expected && memcmp(bytes, bytes + 1, size - 1) == 0);
}

static inline int is_zero(const void *block, size_t size) {
    const unsigned char *bytes = (const unsigned char *)block;
    for (size_t at = 0; at < size; at++)
        if (bytes[at] != 0) return 0;
    return 1;
}
