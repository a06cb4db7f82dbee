/* The statistics as C programs see them: mallinfo2, malloc_info and thiscpu_malloc.h. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../include/thiscpu_malloc.h"
#include "check.h"

enum { COUNT = 20000, SIZE = 208 };
static void *blocks[COUNT];

static const thiscpu_malloc_class *class_of(const thiscpu_malloc_class *classes, size_t count) {
    for (size_t at = 0; at < count; at++)
        if (classes[at].size == SIZE) return &classes[at];
    return NULL;
}

static void blocks_are_counted(void) {
    struct mallinfo2 before = mallinfo2();
    for (int at = 0; at < COUNT; at++) blocks[at] = malloc(SIZE);
    struct mallinfo2 full = mallinfo2();
    CHECK(full.uordblks - before.uordblks == COUNT * SIZE);
    CHECK(full.uordblks + full.fordblks == full.arena);
    void *large = malloc(10 << 20);
    CHECK(mallinfo2().hblks == full.hblks + 1 && mallinfo2().hblkhd >= full.hblkhd + (10 << 20));
    CHECK(mallinfo2().uordblks == full.uordblks);
    free(large);
    for (int at = 0; at < COUNT; at++) free(blocks[at]);
    /* They lie in lanes and barns now. */
    struct mallinfo2 empty = mallinfo2();
    CHECK(empty.uordblks == before.uordblks);
    CHECK(empty.ordblks >= COUNT);
    malloc_trim(0);
    CHECK(mallinfo2().uordblks == before.uordblks);
    CHECK(mallinfo2().keepcost == 0);
}

static void structures_are_filled(void) {
    size_t (*totals_of)(thiscpu_malloc_totals *, size_t) =
        (size_t(*)(thiscpu_malloc_totals *, size_t))dlsym(RTLD_DEFAULT, "thiscpu_malloc_stats");
    size_t (*classes_of)(thiscpu_malloc_class *, size_t, size_t) =
        (size_t(*)(thiscpu_malloc_class *, size_t, size_t))dlsym(
            RTLD_DEFAULT, "thiscpu_malloc_class_stats");
    CHECK(totals_of != NULL && classes_of != NULL);
    for (int at = 0; at < COUNT; at++) blocks[at] = malloc(SIZE);
    thiscpu_malloc_totals totals;
    memset(&totals, 0xff, sizeof totals);
    CHECK(totals_of(&totals, sizeof totals) == sizeof totals);
    CHECK(totals.allocated_bytes >= COUNT * SIZE && totals.allocated_bytes < 2 * COUNT * SIZE);
    CHECK(totals.mapped_bytes == totals.resident_bytes + totals.retained_bytes);
    CHECK(totals.is_counting == 0 && totals.trades > 0);
    /* A program that knows fewer fields, and one that knows more. */
    uint64_t one = 0, many[64];
    CHECK(totals_of((thiscpu_malloc_totals *)&one, sizeof one) == sizeof totals);
    CHECK(one == totals.allocated_bytes);
    memset(many, 0xff, sizeof many);
    CHECK(totals_of((thiscpu_malloc_totals *)many, sizeof many) == sizeof totals);
    CHECK(many[0] == one && many[63] == 0);
    static thiscpu_malloc_class classes[200];
    size_t count = classes_of(classes, sizeof classes[0], 200);
    CHECK(count > 10 && count < 200 && classes_of(NULL, 0, 0) == count);
    const thiscpu_malloc_class *known = class_of(classes, count);
    CHECK(known != NULL && known->slabs > 0 && known->allocated_bytes >= COUNT * SIZE);
    for (int at = 0; at < COUNT; at++) free(blocks[at]);
}

/* Prints the JSON, so that the test can read it. */
static void json_is_cut(void) {
    size_t (*json)(char *, size_t) =
        (size_t(*)(char *, size_t))dlsym(RTLD_DEFAULT, "thiscpu_malloc_stats_json");
    CHECK(json != NULL);
    size_t length = json(NULL, 0);
    CHECK(length > 100);
    char few[8];
    CHECK(json(few, sizeof few) > 100 && strcmp(few, "{\"versi") == 0);
    char *text = malloc(2 * length);
    CHECK(json(text, 2 * length) == strlen(text));
    puts(text);
    free(text);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "xml") == 0) {
        free(malloc(SIZE));
        errno = 7;
        CHECK(malloc_info(1, stdout) == EINVAL && errno == 7);
        CHECK(malloc_info(0, stdout) == 0);
        return 0;
    }
    blocks_are_counted();
    structures_are_filled();
    if (argc > 1 && strcmp(argv[1], "json") == 0) json_is_cut();
    else puts("done");
    return 0;
}
