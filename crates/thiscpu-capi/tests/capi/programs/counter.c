#include "threads.h"
#include <sys/wait.h>
#include <unistd.h>

enum { EACH = 100000 };

static void *add(void *with) {
    for (int i = 0; i < EACH; i++) {
        OK(thiscpu_counter_add(with, 3));
        OK(thiscpu_counter_add(with, -1));
    }
    return NULL;
}

int main(void) {
    thiscpu_counter *counter;
    int64_t value;
    int32_t ordering;
    OK(thiscpu_counter_create(&counter));
    on_threads(add, counter);
    OK(thiscpu_counter_sum(counter, &value));
    CHECK(value == 2L * EACH * THREADS);

    thiscpu_bounds bounds;
    OK(thiscpu_counter_bounds(counter, &bounds));
    CHECK(bounds.low <= value && value <= bounds.high);
    int64_t estimate;
    OK(thiscpu_counter_read(counter, &estimate));
    CHECK(bounds.low <= estimate && estimate <= bounds.high);
    CHECK(bounds.low <= bounds.estimate && bounds.estimate <= bounds.high);

    OK(thiscpu_counter_compare(counter, value, &ordering));
    CHECK(ordering == 0);
    OK(thiscpu_counter_compare(counter, value + 1, &ordering));
    CHECK(ordering == -1);
    OK(thiscpu_counter_compare(counter, INT64_MIN, &ordering));
    CHECK(ordering == 1);

    int64_t taken;
    OK(thiscpu_counter_take(counter, &taken));
    CHECK(taken == value);
    OK(thiscpu_counter_set(counter, INT64_MAX));
    OK(thiscpu_counter_add(counter, 1));
    OK(thiscpu_counter_sum(counter, &value));
    CHECK(value == INT64_MIN);

    // A child's counter is its own.
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        OK(thiscpu_counter_add(counter, 1));
        OK(thiscpu_counter_sum(counter, &value));
        CHECK(value == INT64_MIN + 1);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    OK(thiscpu_counter_sum(counter, &value));
    CHECK(value == INT64_MIN);
    OK(thiscpu_counter_destroy(counter));
    return 0;
}
