#include "threads.h"
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 100, EACH = 20000 };

static void *add(void *with) {
    for (size_t i = 0; i < EACH; i++) {
        OK(thiscpu_counters_add(with, i % COUNT, (int64_t)(i % COUNT)));
        OK(thiscpu_counters_add(with, COUNT - 1, -1));
    }
    return NULL;
}

static void *move(void *with) {
    for (int i = 0; i < EACH; i++) {
        OK(thiscpu_counters_add(with, 1, -1));
        OK(thiscpu_counters_add(with, 0, 1));
    }
    return NULL;
}

static int64_t expected(size_t index) {
    int64_t sum = (int64_t)index * (EACH / COUNT) * THREADS;
    return index == COUNT - 1 ? sum - (int64_t)EACH * THREADS : sum;
}

// A snapshot stores no more than the counters, and nothing if there is no room for them.
static void check_snapshot(thiscpu_counters *counters) {
    int64_t values[COUNT + 2] = {0};
    values[COUNT] = -77;
    RETURNS(THISCPU_STATUS_INVALID_SIZE, thiscpu_counters_snapshot(counters, values, COUNT - 1));
    RETURNS(THISCPU_STATUS_INVALID_SIZE, thiscpu_counters_snapshot(counters, NULL, 0));
    RETURNS(THISCPU_STATUS_NULL_POINTER, thiscpu_counters_snapshot(counters, NULL, COUNT));
    CHECK(values[0] == 0 && values[COUNT - 2] == 0);
    for (size_t capacity = COUNT; capacity <= COUNT + 1; capacity++) {
        OK(thiscpu_counters_snapshot(counters, values, capacity));
        for (size_t i = 0; i < COUNT; i++) {
            CHECK(values[i] == expected(i));
        }
        CHECK(values[COUNT] == -77);
    }
}

static void check_bounds_of_index(thiscpu_counters *counters) {
    int64_t value = -77;
    RETURNS(THISCPU_STATUS_OUT_OF_RANGE, thiscpu_counters_add(counters, COUNT, 1));
    RETURNS(THISCPU_STATUS_OUT_OF_RANGE, (thiscpu_counters_add)(counters, COUNT, 1));
    RETURNS(THISCPU_STATUS_OUT_OF_RANGE, (thiscpu_counters_add)(counters, SIZE_MAX, 1));
    RETURNS(THISCPU_STATUS_OUT_OF_RANGE, thiscpu_counters_read(counters, COUNT, &value));
    RETURNS(THISCPU_STATUS_OUT_OF_RANGE, thiscpu_counters_sum(counters, COUNT, &value));
    CHECK(value == -77);
}

// A thread moves units from one counter to another. A snapshot finds all of them, or one less.
static void check_instants(void) {
    thiscpu_counters *counters;
    int64_t values[2];
    pthread_t mover;
    OK(thiscpu_counters_create(2, &counters));
    CHECK(pthread_create(&mover, NULL, move, counters) == 0);
    do {
        OK(thiscpu_counters_snapshot(counters, values, 2));
        CHECK(values[0] + values[1] == 0 || values[0] + values[1] == -1);
    } while (values[0] < EACH);
    CHECK(pthread_join(mover, NULL) == 0);
    OK(thiscpu_counters_destroy(counters));
}

static void check_sum_all(thiscpu_counters *counters) {
    thiscpu_counter *first, *last;
    OK(thiscpu_counter_create(&first));
    OK(thiscpu_counter_create_with_batch(1 << 20, &last));
    OK(thiscpu_counter_add(first, 3));
    OK(thiscpu_counter_add(last, 5));
    thiscpu_summable all[] = {{first, NULL}, {NULL, counters}, {last, NULL}, {first, counters}};
    int64_t values[2 * COUNT + 4];
    values[COUNT + 2] = -77;
    RETURNS(THISCPU_STATUS_INVALID_SIZE, thiscpu_sum_all(all, 3, values, COUNT + 1));
    OK(thiscpu_sum_all(all, 3, values, COUNT + 3));
    CHECK(values[0] == 3 && values[COUNT + 1] == 5 && values[COUNT + 2] == -77);
    for (size_t i = 0; i < COUNT; i++) {
        CHECK(values[i + 1] == expected(i));
    }
    OK(thiscpu_sum_all(all, 4, values, 2 * COUNT + 4));
    CHECK(values[COUNT + 2] == 3 && values[2 * COUNT + 2] == expected(COUNT - 1));
    OK(thiscpu_sum_all(NULL, 0, NULL, 0));
    thiscpu_summable none = {NULL, NULL};
    RETURNS(THISCPU_STATUS_NULL_POINTER, thiscpu_sum_all(&none, 1, values, 1));
    RETURNS(THISCPU_STATUS_NULL_POINTER, thiscpu_sum_all(NULL, 1, values, 1));
    RETURNS(THISCPU_STATUS_NULL_POINTER, thiscpu_sum_all(all, 1, NULL, 1));
    OK(thiscpu_counter_destroy(first));
    OK(thiscpu_counter_destroy(last));
}

// Each add of a counter without a batch is published at once.
static void check_batch(void) {
    thiscpu_counter *exact;
    thiscpu_bounds bounds;
    OK(thiscpu_counter_create_with_batch(0, &exact));
    for (int i = 0; i < 1000; i++) {
        OK(thiscpu_counter_add(exact, 1));
        OK(thiscpu_counter_bounds(exact, &bounds));
        CHECK(bounds.low == i + 1 && bounds.high == i + 1);
    }
    OK(thiscpu_counter_destroy(exact));
}

int main(void) {
    thiscpu_counters *counters;
    RETURNS(THISCPU_STATUS_INVALID_SIZE, thiscpu_counters_create(0, &counters));
    RETURNS(THISCPU_STATUS_INVALID_SIZE,
            thiscpu_counters_create(THISCPU_COUNTERS_MAX + 1, &counters));
    OK(thiscpu_counters_create(THISCPU_COUNTERS_MAX, &counters));
    OK(thiscpu_counters_add(counters, THISCPU_COUNTERS_MAX - 1, 7));
    int64_t value;
    OK(thiscpu_counters_sum(counters, THISCPU_COUNTERS_MAX - 1, &value));
    CHECK(value == 7);
    OK(thiscpu_counters_destroy(counters));
    OK(thiscpu_counters_destroy(NULL));

    // One alone starts as a word that all CPUs share.
    OK(thiscpu_counters_create(1, &counters));
    OK(thiscpu_counters_add(counters, 0, 7));
    OK(thiscpu_counters_snapshot(counters, &value, 1));
    CHECK(value == 7);
    OK(thiscpu_counters_destroy(counters));

    size_t count;
    OK(thiscpu_counters_create(COUNT, &counters));
    OK(thiscpu_counters_len(counters, &count));
    CHECK(count == COUNT);
    on_threads(add, counters);
    check_snapshot(counters);
    check_bounds_of_index(counters);
    check_sum_all(counters);
    check_instants();
    check_batch();
    OK(thiscpu_counters_read(counters, 5, &value));
    CHECK(value >= expected(5) - 100000000 && value <= expected(5) + 100000000);

    // A child's counters are its own.
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        OK(thiscpu_counters_add(counters, 5, 1));
        OK(thiscpu_counters_sum(counters, 5, &value));
        CHECK(value == expected(5) + 1);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    OK(thiscpu_counters_sum(counters, 5, &value));
    CHECK(value == expected(5));
    OK(thiscpu_counters_destroy(counters));
    return 0;
}
