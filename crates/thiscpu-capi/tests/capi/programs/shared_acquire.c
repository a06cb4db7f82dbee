// Leases of budgets that processes share, and acquires that wait without a thread.
#include "shared.h"
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t units_of(thiscpu_shared_lease *lease) {
    uint64_t n;
    OK(thiscpu_shared_lease_units(lease, &n));
    return n;
}

static void leases(void) {
    uint64_t n;
    thiscpu_shared_budget *budget = budget_of("leases"), *another = budget_of("another");
    thiscpu_shared_lease *lease, *part, *stranger = NULL;
    OK(thiscpu_shared_budget_try_lease(budget, 60, &lease));
    RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_shared_budget_try_lease(budget, 41, &stranger));
    RETURNS(THISCPU_STATUS_EXHAUSTED,
            thiscpu_shared_budget_lease_timeout(budget, 41, 1000000, &stranger));
    RETURNS(THISCPU_STATUS_EXHAUSTED,
            thiscpu_shared_budget_lease_deadline(budget, 41, 0, &stranger));
    CHECK(stranger == NULL);
    OK(thiscpu_shared_lease_split(lease, 20, &part));
    RETURNS(THISCPU_STATUS_OUT_OF_RANGE, thiscpu_shared_lease_split(lease, 41, &stranger));
    CHECK(units_of(lease) == 40 && units_of(part) == 20 && held(budget) == 60);
    OK(thiscpu_shared_budget_lease(another, 5, &stranger));
    RETURNS(THISCPU_STATUS_WRONG_BUDGET, thiscpu_shared_lease_merge(lease, stranger));
    RETURNS(THISCPU_STATUS_WRONG_BUDGET, thiscpu_shared_lease_merge(lease, lease));
    OK(thiscpu_shared_lease_merge(lease, part));
    CHECK(units_of(lease) == 60 && units_of(stranger) == 5 && held(budget) == 60);
    OK(thiscpu_shared_budget_try_acquire_up_to(budget, LIMIT, &n));
    CHECK(n == 40 && held(budget) == LIMIT);
    OK(thiscpu_shared_budget_try_acquire_up_to(budget, 1, &n));
    CHECK(n == 0);
    OK(thiscpu_shared_budget_release(budget, 40));

    // A child has no part in a lease of its parent.
    pid_t child = fork();
    if (child == 0) {
        OK(thiscpu_shared_lease_destroy(lease));
        CHECK(held(budget) == 60);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);

    // A lease keeps the segment attached.
    OK(thiscpu_shared_budget_destroy(another));
    OK(thiscpu_shared_lease_forget(stranger, &n));
    CHECK(n == 5);
    OK(thiscpu_shared_lease_destroy(lease));
    OK(thiscpu_shared_lease_destroy(NULL));
    CHECK(held(budget) == 0);
    OK(thiscpu_shared_budget_try_lease(budget, 1, &lease));
    OK(thiscpu_shared_lease_forget(lease, NULL));
    OK(thiscpu_shared_budget_release(budget, 1));
    OK(thiscpu_shared_budget_over_released(budget, &n));
    CHECK(held(budget) == 0 && n == 0);
    OK(thiscpu_shared_budget_release(budget, 3));
    CHECK(held(budget) == 0);
    OK(thiscpu_shared_budget_over_released(budget, &n));
    CHECK(n == 3);
    OK(thiscpu_shared_budget_destroy(budget));
}

static void count(void *calls) {
    __atomic_add_fetch((int *)calls, 1, __ATOMIC_SEQ_CST);
}

static void until_called(int *calls) {
    while (__atomic_load_n(calls, __ATOMIC_SEQ_CST) == 0) {
        usleep(1000);
    }
}

static thiscpu_shared_acquire *start(thiscpu_shared_budget *budget, uint64_t n, int *calls) {
    thiscpu_shared_acquire *acquire;
    OK(thiscpu_shared_budget_acquire_async(budget, n, count, calls, &acquire));
    return acquire;
}

// Granted at once, later, closed, and canceled in each state.
static void states(void) {
    int calls[4] = {0};
    size_t waiters;
    thiscpu_shared_budget *budget = budget_of("states");
    thiscpu_shared_lease *lease = NULL, *none = NULL;
    thiscpu_shared_acquire *first = start(budget, 60, &calls[0]);
    CHECK(calls[0] == 1 && held(budget) == 60);
    thiscpu_shared_acquire *second = start(budget, 50, &calls[1]);
    thiscpu_shared_acquire *third = start(budget, 30, &calls[2]);
    thiscpu_shared_acquire *fourth = start(budget, 90, &calls[3]);
    RETURNS(THISCPU_STATUS_PENDING, thiscpu_shared_acquire_take(second, &lease));
    OK(thiscpu_shared_budget_waiters(budget, &waiters));
    CHECK(waiters == 3 && lease == NULL);

    // Granted and not taken: its units are the next waiters'.
    OK(thiscpu_shared_acquire_destroy(first));
    until_called(&calls[1]);
    until_called(&calls[2]);
    CHECK(held(budget) == 80);
    OK(thiscpu_shared_acquire_take(second, &lease));
    RETURNS(THISCPU_STATUS_EMPTY, thiscpu_shared_acquire_take(second, &none));
    OK(thiscpu_shared_acquire_destroy(second));
    CHECK(held(budget) == 80 && units_of(lease) == 50);
    // Granted, without a call that has seen that.
    OK(thiscpu_shared_acquire_destroy(third));
    CHECK(held(budget) == 50);
    // Canceled while it waits.
    OK(thiscpu_shared_acquire_destroy(fourth));
    OK(thiscpu_shared_budget_waiters(budget, &waiters));
    CHECK(waiters == 0 && calls[3] == 0);
    fourth = start(budget, 90, &calls[3]);
    OK(thiscpu_shared_budget_close(budget));
    until_called(&calls[3]);
    RETURNS(THISCPU_STATUS_CLOSED, thiscpu_shared_acquire_take(fourth, &none));
    RETURNS(THISCPU_STATUS_CLOSED, thiscpu_shared_acquire_take(fourth, &none));
    CHECK(none == NULL);
    OK(thiscpu_shared_acquire_destroy(fourth));
    OK(thiscpu_shared_budget_destroy(budget));
    OK(thiscpu_shared_lease_destroy(lease));
    OK(thiscpu_shared_acquire_destroy(NULL));
    RETURNS(THISCPU_STATUS_NULL_POINTER,
            thiscpu_shared_budget_acquire_async(NULL, 1, count, NULL, &fourth));
    RETURNS(THISCPU_STATUS_NULL_POINTER, thiscpu_shared_acquire_take(NULL, &none));
}

static void write_event(void *with) {
    uint64_t one = 1;
    CHECK(write(*(int *)with, &one, sizeof one) == sizeof one);
}

// An event loop waits for units that another process holds.
static void with_eventfd(void) {
    thiscpu_shared_budget *budget = budget_of("events");
    thiscpu_shared_lease *lease;
    thiscpu_shared_acquire *acquire;
    int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), held_by_child[2], end_child[2];
    char byte = 0;
    CHECK(event >= 0 && pipe(held_by_child) == 0 && pipe(end_child) == 0);
    pid_t child = fork();
    if (child == 0) {
        OK(thiscpu_shared_budget_try_lease(budget, LIMIT, &lease));
        CHECK(write(held_by_child[1], &byte, 1) == 1 && read(end_child[0], &byte, 1) == 1);
        OK(thiscpu_shared_lease_destroy(lease));
        _exit(0);
    }
    CHECK(read(held_by_child[0], &byte, 1) == 1);
    OK(thiscpu_shared_budget_acquire_async(budget, 7, write_event, &event, &acquire));
    struct pollfd on = {event, POLLIN, 0};
    CHECK(poll(&on, 1, 0) == 0);
    CHECK(write(end_child[1], &byte, 1) == 1);
    CHECK(poll(&on, 1, -1) == 1);
    OK(thiscpu_shared_acquire_take(acquire, &lease));
    OK(thiscpu_shared_acquire_destroy(acquire));
    CHECK(units_of(lease) == 7);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(held(budget) == 7);
    OK(thiscpu_shared_lease_destroy(lease));
    CHECK(held(budget) == 0);
    OK(thiscpu_shared_budget_destroy(budget));
    CHECK(close(event) == 0);
}

int main(void) {
    OK(thiscpu_segment_anonymous(NULL, &segment));
    leases();
    states();
    with_eventfd();
    OK(thiscpu_segment_close(segment));
    return 0;
}
