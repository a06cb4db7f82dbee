#include "threads.h"
#include <string.h>

enum { EACH = 20000, HELD = 50, SIZE = 72 };

static thiscpu_cache *cache;

// Checks that an allocated object belongs to one thread only.
static void *hold(void *with) {
    unsigned char *held[HELD] = {NULL};
    (void)with;
    for (int i = 0; i < EACH; i++) {
        unsigned char **place = &held[i * 7 % HELD];
        unsigned char mark = (unsigned char)(i * 7 % HELD + 1);
        if (*place != NULL) {
            for (int at = 0; at < SIZE; at++) {
                CHECK((*place)[at] == mark);
            }
            OK(thiscpu_cache_free(cache, *place));
        }
        *place = thiscpu_cache_alloc(cache);
        CHECK(*place != NULL && (uintptr_t)*place % 8 == 0);
        memset(*place, mark, SIZE);
    }
    for (int i = 0; i < HELD; i++) {
        OK(thiscpu_cache_free(cache, held[i]));
    }
    return NULL;
}

// Prefilled objects are allocated, zeroed and distinct, and those left are freed.
static void prefill(void) {
    enum { COUNT = 100 };
    thiscpu_prefilled *prefilled;
    size_t left;
    uint64_t *objects[COUNT];
    OK(thiscpu_cache_create(SIZE, 8, &cache));
    OK(thiscpu_cache_prefill(cache, COUNT + 1, &prefilled));
    RETURNS(THISCPU_STATUS_IN_USE, thiscpu_cache_close(cache, &left));
    CHECK(left == COUNT + 1);
    for (uint64_t i = 0; i < COUNT; i++) {
        objects[i] = thiscpu_prefilled_alloc(prefilled);
        CHECK(objects[i] != NULL && *objects[i] == 0);
        *objects[i] = i + 1;
    }
    OK(thiscpu_prefilled_len(prefilled, &left));
    CHECK(left == 1);
    OK(thiscpu_prefilled_destroy(prefilled));
    for (uint64_t i = 0; i < COUNT; i++) {
        CHECK(*objects[i] == i + 1);
        OK(thiscpu_cache_free(cache, objects[i]));
    }
    OK(thiscpu_cache_prefill(cache, 0, &prefilled));
    CHECK(thiscpu_prefilled_alloc(prefilled) == NULL && thiscpu_prefilled_alloc(NULL) == NULL);
    OK(thiscpu_prefilled_destroy(prefilled));
    OK(thiscpu_prefilled_destroy(NULL));
    RETURNS(THISCPU_STATUS_NULL_POINTER, thiscpu_cache_prefill(NULL, 1, &prefilled));
    RETURNS(THISCPU_STATUS_NULL_POINTER, thiscpu_cache_prefill(cache, 1, NULL));
    RETURNS(THISCPU_STATUS_NULL_POINTER, thiscpu_prefilled_len(NULL, &left));
    OK(thiscpu_cache_close(cache, &left));
    CHECK(left == 0);
}

int main(void) {
    prefill();
    OK(thiscpu_cache_create(SIZE, 8, &cache));
    on_threads(hold, NULL);

    thiscpu_cache_statistics statistics;
    OK(thiscpu_cache_stats(cache, &statistics));
    CHECK(statistics.object_bytes == SIZE && statistics.slabs > 0);
    CHECK(statistics.objects_outside_slabs >= statistics.objects_in_barns);
    void *object = thiscpu_cache_alloc(cache);
    CHECK(object != NULL && *(uint64_t *)object == 0);
    size_t count = 0;
    RETURNS(THISCPU_STATUS_IN_USE, thiscpu_cache_close(cache, &count));
    CHECK(count == 1);
    RETURNS(THISCPU_STATUS_IN_USE, thiscpu_cache_close(cache, NULL));
    // The cache is still usable.
    void *another = thiscpu_cache_alloc(cache);
    CHECK(another != NULL && another != object);
    OK(thiscpu_cache_free(cache, another));
    OK(thiscpu_cache_free(cache, object));
    size_t bytes;
    OK(thiscpu_cache_shrink(cache, &bytes));
    OK(thiscpu_cache_shrink(cache, NULL));
    count = 7;
    OK(thiscpu_cache_close(cache, &count));
    CHECK(count == 0);
    count = 7;
    OK(thiscpu_cache_close(NULL, &count));
    CHECK(count == 0);

    OK(thiscpu_cache_create(1 << 20, 1 << 16, &cache));
    object = thiscpu_cache_alloc(cache);
    CHECK(object != NULL && (uintptr_t)object % (1 << 16) == 0);
    memset(object, 1, 1 << 20);
    OK(thiscpu_cache_destroy(cache));
    ((char *)object)[0] = 2;
    return 0;
}
