// Objects are constructed once, stay constructed while they are free, and are destroyed once.
#include "threads.h"
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EACH = 20000, HELD = 50, LARGE = 4000, MANY = 16000 };

static thiscpu_constructed_cache *cache;
// The number of objects that are constructed.
static atomic_int alive;
// Counts constructors down: the one that makes it 0 fails, and returns the number.
static atomic_int until_failure, failure;

// An object that owns memory, as one that is worth a cache does.
struct object {
    int *uses;
    char filler[96];
};

static int construct(void *memory, void *context) {
    struct object *object = memory;
    CHECK(context == &alive);
    if (atomic_load(&until_failure) > 0 && atomic_fetch_sub(&until_failure, 1) == 1) {
        return failure;
    }
    object->uses = calloc(1, sizeof(int));
    CHECK(object->uses != NULL);
    memset(object->filler, 7, sizeof object->filler);
    atomic_fetch_add(&alive, 1);
    return 0;
}

static void destroy(void *memory, void *context) {
    struct object *object = memory;
    CHECK(context == &alive && object->filler[0] == 7);
    free(object->uses);
    memset(object, 0, sizeof *object);
    atomic_fetch_sub(&alive, 1);
}

// The CPUs that this process may use.
static cpu_set_t cpus;

// Keeps this thread on one CPU, where it finds the object that it freed last.
static void stay(void) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
}

static void roam(void) { CHECK(sched_setaffinity(0, sizeof cpus, &cpus) == 0); }

static void make(size_t bytes) {
    OK(thiscpu_constructed_cache_create(bytes, 8, construct, destroy, &alive, &cache));
}

static struct object *alloc(void) {
    struct object *object = thiscpu_constructed_cache_alloc(cache);
    CHECK(object != NULL && object->uses != NULL && object->filler[95] == 7);
    return object;
}

static void close_empty(void) {
    size_t left = 7;
    OK(thiscpu_constructed_cache_close(cache, &left));
    CHECK(left == 0 && alive == 0);
}

// Checks that an allocated object belongs to one thread only.
static void *hold(void *with) {
    struct object *held[HELD] = {NULL};
    (void)with;
    for (int i = 0; i < EACH; i++) {
        struct object **place = &held[i * 7 % HELD];
        if (*place != NULL) {
            CHECK(*(*place)->uses < 0);
            *(*place)->uses *= -1;
            OK(thiscpu_constructed_cache_free(cache, *place));
        }
        *place = alloc();
        CHECK(*(*place)->uses >= 0);
        *(*place)->uses = -*(*place)->uses - 1;
    }
    for (int i = 0; i < HELD; i++) {
        *held[i]->uses *= -1;
        OK(thiscpu_constructed_cache_free(cache, held[i]));
    }
    return NULL;
}

static void lifecycle(void) {
    make(sizeof(struct object));
    struct object *object = alloc();
    CHECK(alive == 1);
    *object->uses = 41;
    OK(thiscpu_constructed_cache_free(cache, object));
    // The next user finds the object as it was left.
    CHECK(alive == 1 && alloc() == object && *object->uses == 41);
    size_t left = 0;
    RETURNS(THISCPU_STATUS_IN_USE, thiscpu_constructed_cache_close(cache, &left));
    CHECK(left == 1 && alive == 1);
    *object->uses = 0;
    OK(thiscpu_constructed_cache_free(cache, object));
    OK(thiscpu_constructed_cache_free(cache, NULL));

    roam();
    on_threads(hold, NULL);
    stay();
    CHECK(alive > 0);
    size_t bytes = 0;
    thiscpu_cache_statistics statistics;
    OK(thiscpu_constructed_cache_stats(cache, &statistics));
    CHECK(statistics.object_bytes == sizeof(struct object) + 8 && statistics.slabs > 0);
    OK(thiscpu_constructed_cache_shrink(cache, &bytes));
    OK(thiscpu_constructed_cache_stats(cache, &statistics));
    CHECK(bytes > 0 && alive == 0 && statistics.slabs == 0);
    OK(thiscpu_constructed_cache_free(cache, alloc()));
    OK(thiscpu_constructed_cache_shrink(cache, NULL));
    OK(thiscpu_constructed_cache_free(cache, alloc()));
    CHECK(alive == 1);
    close_empty();
    OK(thiscpu_constructed_cache_close(NULL, &left));
    CHECK(left == 0);

    // Destroying a cache destroys its free objects, and leaves those in use.
    make(LARGE);
    object = alloc();
    OK(thiscpu_constructed_cache_free(cache, alloc()));
    OK(thiscpu_constructed_cache_free(cache, object));
    OK(thiscpu_constructed_cache_destroy(cache));
    CHECK(alive == 0);
    make(LARGE);
    object = alloc();
    OK(thiscpu_constructed_cache_destroy(cache));
    CHECK(alive == 1 && *object->uses == 0);
    destroy(object, &alive);
}

// Slabs whose objects are all free go while objects are freed, with their objects.
static void frees_destroy(void) {
    static struct object *objects[MANY];
    make(LARGE);
    for (int i = 0; i < MANY; i++) {
        objects[i] = alloc();
    }
    CHECK(alive >= MANY);
    for (int i = 0; i < MANY; i++) {
        OK(thiscpu_constructed_cache_free(cache, objects[i]));
    }
    CHECK(alive < MANY);
    close_empty();
}

// An object whose constructor failed is constructed by a later call.
static void failing_constructors(void) {
    thiscpu_prefilled *prefilled = NULL;
    make(LARGE);
    until_failure = 1;
    failure = 5;
    CHECK(thiscpu_constructed_cache_alloc(cache) == NULL && alive == 0);
    CHECK(strstr(thiscpu_last_error(), "returned 5") != NULL);
    struct object *object = alloc();
    CHECK(alive == 1);
    OK(thiscpu_constructed_cache_free(cache, object));
    // None of the objects of a prefill that failed is kept.
    until_failure = 3;
    failure = -6;
    RETURNS(THISCPU_STATUS_CONSTRUCT_FAILED,
            thiscpu_constructed_cache_prefill(cache, 9, &prefilled));
    CHECK(strstr(thiscpu_last_error(), "returned -6") != NULL);
    CHECK(prefilled == NULL && alive > 0 && until_failure == 0);
    close_empty();
}

// Prefilled objects are constructed, and those left are freed.
static void prefill(void) {
    enum { COUNT = 100 };
    struct object *objects[COUNT];
    thiscpu_prefilled *prefilled;
    size_t left;
    make(sizeof(struct object));
    OK(thiscpu_constructed_cache_prefill(cache, COUNT + 1, &prefilled));
    CHECK(alive >= COUNT + 1);
    RETURNS(THISCPU_STATUS_IN_USE, thiscpu_constructed_cache_close(cache, &left));
    CHECK(left == COUNT + 1);
    for (int i = 0; i < COUNT; i++) {
        objects[i] = thiscpu_prefilled_alloc(prefilled);
        CHECK(objects[i] != NULL && *objects[i]->uses == 0 && objects[i]->filler[95] == 7);
        *objects[i]->uses = i + 1;
    }
    OK(thiscpu_prefilled_len(prefilled, &left));
    CHECK(left == 1);
    OK(thiscpu_prefilled_destroy(prefilled));
    for (int i = 0; i < COUNT; i++) {
        CHECK(*objects[i]->uses == i + 1);
        OK(thiscpu_constructed_cache_free(cache, objects[i]));
    }
    close_empty();
}

// Callbacks may use a cache, even their own, and fail without an effect on the call around them.
static int construct_nested(void *memory, void *depth) {
    *(int *)memory = 1;
    RETURNS(THISCPU_STATUS_NULL_POINTER, thiscpu_constructed_cache_free(NULL, memory));
    if (*(int *)depth > 0) {
        --*(int *)depth;
        int *other = thiscpu_constructed_cache_alloc(cache);
        CHECK(other != NULL && other != memory && *other == 1);
        OK(thiscpu_constructed_cache_free(cache, other));
    }
    return 0;
}

static void destroy_nested(void *memory, void *depth) {
    (void)depth;
    CHECK(*(int *)memory == 1);
    RETURNS(THISCPU_STATUS_NULL_POINTER, thiscpu_constructed_cache_free(NULL, memory));
}

static void nested_calls(void) {
    int depth = 3;
    void (*none)(void *, void *) = NULL;
    OK(thiscpu_constructed_cache_create(4, 4, construct_nested, destroy_nested, &depth, &cache));
    int *object = thiscpu_constructed_cache_alloc(cache);
    CHECK(object != NULL && *object == 1 && depth == 0);
    OK(thiscpu_constructed_cache_free(cache, object));
    close_empty();
    OK(thiscpu_constructed_cache_create(4, 4, construct_nested, none, &depth, &cache));
    OK(thiscpu_constructed_cache_free(cache, thiscpu_constructed_cache_alloc(cache)));
    close_empty();
}

// A child has objects of its own.
static void forks(void) {
    make(LARGE);
    struct object *object = alloc();
    *object->uses = 3;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(*object->uses == 3);
        *object->uses = 4;
        OK(thiscpu_constructed_cache_free(cache, object));
        close_empty();
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(*object->uses == 3 && alive == 1);
    OK(thiscpu_constructed_cache_free(cache, object));
    close_empty();
}

// The object and the word behind it fit into the largest size.
static void sizes(void) {
    size_t largest = THISCPU_CACHE_SIZE_MAX - 8;
    OK(thiscpu_constructed_cache_create(largest, THISCPU_CACHE_ALIGN_MAX, construct, destroy,
                                        &alive, &cache));
    struct object *object = alloc();
    CHECK((uintptr_t)object % THISCPU_CACHE_ALIGN_MAX == 0);
    ((char *)object)[largest - 1] = 1;
    OK(thiscpu_constructed_cache_free(cache, object));
    CHECK(alloc() == object && ((char *)object)[largest - 1] == 1);
    OK(thiscpu_constructed_cache_free(cache, object));
    close_empty();
}

int main(void) {
    CHECK(sched_getaffinity(0, sizeof cpus, &cpus) == 0);
    stay();
    lifecycle();
    frees_destroy();
    failing_constructors();
    prefill();
    nested_calls();
    forks();
    sizes();
    return 0;
}
