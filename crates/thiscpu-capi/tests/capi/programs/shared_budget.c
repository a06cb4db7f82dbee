// Processes that share a limit.
#include "shared.h"
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 3000 };

static uint64_t available(thiscpu_shared_budget *budget) {
    uint64_t units;
    OK(thiscpu_shared_budget_available(budget, &units));
    return units;
}

static void passes(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void limit_is_kept(void) {
    thiscpu_shared_budget *budget = budget_of("kept");
    OK(thiscpu_shared_budget_try_acquire(budget, 60));
    RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_shared_budget_try_acquire(budget, 41));
    CHECK(strstr(thiscpu_last_error(), "40") != NULL);
    OK(thiscpu_shared_budget_try_acquire(budget, 40));
    CHECK(available(budget) == 0 && held(budget) == 100);
    OK(thiscpu_shared_budget_release(budget, 100));
    CHECK(available(budget) == LIMIT);
    // The budget exists, so it keeps its limit.
    thiscpu_shared_budget *again;
    uint64_t limit;
    OK(thiscpu_shared_budget_open(segment, "kept", 7, &again));
    OK(thiscpu_shared_budget_limit(again, &limit));
    CHECK(limit == LIMIT);
    OK(thiscpu_shared_budget_set_limit(again, 10));
    RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_shared_budget_try_acquire(budget, 11));
    OK(thiscpu_shared_budget_destroy(again));
    OK(thiscpu_shared_budget_destroy(budget));
}

// Each process holds the unit for a moment; the word shows that it is alone.
static void use_the_only_unit(thiscpu_shared_budget *budget, volatile int *inside) {
    for (int i = 0; i < ROUNDS; i++) {
        OK(thiscpu_shared_budget_acquire(budget, LIMIT));
        CHECK(__atomic_fetch_add(inside, 1, __ATOMIC_SEQ_CST) == 0);
        CHECK(__atomic_fetch_sub(inside, 1, __ATOMIC_SEQ_CST) == 1);
        OK(thiscpu_shared_budget_release(budget, LIMIT));
    }
}

static void processes_wait_for_each_other(void) {
    thiscpu_shared_budget *budget = budget_of("waits");
    volatile int *inside =
        mmap(NULL, sizeof *inside, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(inside != MAP_FAILED);
    pid_t children[2];
    for (int i = 0; i < 2; i++) {
        children[i] = fork();
        CHECK(children[i] >= 0);
        if (children[i] == 0) {
            use_the_only_unit(budget, inside);
            _exit(0);
        }
    }
    use_the_only_unit(budget, inside);
    passes(children[0]);
    passes(children[1]);
    CHECK(available(budget) == LIMIT);
    OK(thiscpu_shared_budget_destroy(budget));
}

static void units_of_killed_processes_come_back(void) {
    thiscpu_shared_budget *budget = budget_of("killed");
    for (int i = 0; i < 20; i++) {
        int ready[2], status;
        char byte;
        CHECK(pipe(ready) == 0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            OK(thiscpu_shared_budget_try_acquire(budget, 30));
            CHECK(write(ready[1], "", 1) == 1);
            for (;;) {
                pause();
            }
        }
        CHECK(read(ready[0], &byte, 1) == 1);
        close(ready[0]);
        close(ready[1]);
        CHECK(held(budget) == 30);
        RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_shared_budget_try_acquire(budget, 71));
        CHECK(kill(child, SIGKILL) == 0);
        if (i % 2 == 0) {
            // A wait ends although nobody releases the units.
            OK(thiscpu_shared_budget_acquire_timeout(budget, LIMIT, UINT64_MAX));
            OK(thiscpu_shared_budget_release(budget, LIMIT));
        }
        CHECK(waitpid(child, &status, 0) == child && WTERMSIG(status) == SIGKILL);
        CHECK(available(budget) == LIMIT);
    }
    OK(thiscpu_shared_budget_destroy(budget));
}

static void waits_end_in_time(void) {
    thiscpu_shared_budget *budget = budget_of("timed");
    OK(thiscpu_shared_budget_try_acquire(budget, LIMIT));
    RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_shared_budget_acquire_timeout(budget, 1, 1000000));
    RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_shared_budget_acquire_timeout(budget, 1, 0));
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    uint64_t soon = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec + 2000000;
    RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_shared_budget_acquire_deadline(budget, 1, soon));
    RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_shared_budget_acquire_deadline(budget, 1, 0));
    size_t waiters;
    OK(thiscpu_shared_budget_waiters(budget, &waiters));
    CHECK(waiters == 0);
    OK(thiscpu_shared_budget_destroy(budget));
}

static void close_ends_waits_of_others(void) {
    thiscpu_shared_budget *budget = budget_of("closed");
    OK(thiscpu_shared_budget_try_acquire(budget, LIMIT));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        RETURNS(THISCPU_STATUS_CLOSED, thiscpu_shared_budget_acquire(budget, 1));
        _exit(0);
    }
    for (size_t waiters = 0; waiters == 0;) {
        OK(thiscpu_shared_budget_waiters(budget, &waiters));
    }
    bool closed;
    OK(thiscpu_shared_budget_is_closed(budget, &closed));
    CHECK(!closed);
    OK(thiscpu_shared_budget_close(budget));
    passes(child);
    OK(thiscpu_shared_budget_is_closed(budget, &closed));
    CHECK(closed);
    RETURNS(THISCPU_STATUS_CLOSED, thiscpu_shared_budget_try_acquire(budget, 0));
    OK(thiscpu_shared_budget_release(budget, LIMIT));
    CHECK(held(budget) == 0);
    OK(thiscpu_shared_budget_destroy(budget));
}

static void bad_requests_are_refused(void) {
    thiscpu_shared_budget *budget;
    thiscpu_segment *small;
    uint64_t units;
    RETURNS(THISCPU_STATUS_OUT_OF_RANGE,
            thiscpu_shared_budget_open(segment, "large", THISCPU_SHARED_BUDGET_LIMIT_MAX + 1,
                                       &budget));
    RETURNS(THISCPU_STATUS_INVALID_NAME, thiscpu_shared_budget_open(segment, "", 1, &budget));
    RETURNS(THISCPU_STATUS_NULL_POINTER, thiscpu_shared_budget_open(NULL, "a", 1, &budget));
    RETURNS(THISCPU_STATUS_NULL_POINTER, thiscpu_shared_budget_open(segment, NULL, 1, &budget));
    RETURNS(THISCPU_STATUS_NULL_POINTER, thiscpu_shared_budget_open(segment, "a", 1, NULL));
    RETURNS(THISCPU_STATUS_NULL_POINTER, thiscpu_shared_budget_try_acquire(NULL, 1));
    RETURNS(THISCPU_STATUS_NULL_POINTER, thiscpu_shared_budget_release(NULL, 1));
    RETURNS(THISCPU_STATUS_NULL_POINTER, thiscpu_shared_budget_available(NULL, &units));
    OK(thiscpu_shared_budget_destroy(NULL));
    budget = budget_of("edges");
    RETURNS(THISCPU_STATUS_NULL_POINTER, thiscpu_shared_budget_available(budget, NULL));
    RETURNS(THISCPU_STATUS_OUT_OF_RANGE,
            thiscpu_shared_budget_set_limit(budget, THISCPU_SHARED_BUDGET_LIMIT_MAX + 1));
    RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_shared_budget_try_acquire(budget, UINT64_MAX));
    OK(thiscpu_shared_budget_destroy(budget));
    // Eight processes at a time, and this one is the first.
    thiscpu_segment_options options = {.participants = 8};
    OK(thiscpu_segment_anonymous(&options, &small));
    OK(thiscpu_shared_budget_open(small, "a", 10, &budget));
    pid_t children[7];
    int ready[2], end[2];
    char byte;
    CHECK(pipe(ready) == 0 && pipe(end) == 0);
    for (int i = 0; i < 7; i++) {
        children[i] = fork();
        CHECK(children[i] >= 0);
        if (children[i] == 0) {
            close(end[1]);
            OK(thiscpu_shared_budget_try_acquire(budget, 1));
            CHECK(write(ready[1], "", 1) == 1);
            CHECK(read(end[0], &byte, 1) == 0);
            _exit(0);
        }
        CHECK(read(ready[0], &byte, 1) == 1);
    }
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        RETURNS(THISCPU_STATUS_NO_SLOT, thiscpu_shared_budget_try_acquire(budget, 1));
        CHECK(strstr(thiscpu_last_error(), "participants") != NULL);
        _exit(0);
    }
    passes(child);
    CHECK(held(budget) == 7);
    close(end[1]);
    for (int i = 0; i < 7; i++) {
        passes(children[i]);
    }
    CHECK(held(budget) == 0);
    OK(thiscpu_shared_budget_destroy(budget));
    OK(thiscpu_segment_close(small));
    options.participants = 1000000;
    RETURNS(THISCPU_STATUS_OUT_OF_RANGE, thiscpu_segment_anonymous(&options, &small));
}

int main(void) {
    OK(thiscpu_segment_anonymous(NULL, &segment));
    limit_is_kept();
    processes_wait_for_each_other();
    units_of_killed_processes_come_back();
    waits_end_in_time();
    close_ends_waits_of_others();
    bad_requests_are_refused();
    OK(thiscpu_segment_close(segment));
    return 0;
}
