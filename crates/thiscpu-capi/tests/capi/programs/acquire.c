// Acquires that wait without a thread.
#include "threads.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { LIMIT = 100, EACH = 2000 };

static uint64_t held(thiscpu_budget *budget) {
    uint64_t n;
    OK(thiscpu_budget_acquired(budget, &n));
    return n;
}

static void count(void *calls) {
    __atomic_add_fetch((int *)calls, 1, __ATOMIC_SEQ_CST);
}

static thiscpu_acquire *start(thiscpu_budget *budget, uint64_t n, int *calls) {
    thiscpu_acquire *acquire;
    OK(thiscpu_budget_acquire_async(budget, n, count, calls, &acquire));
    return acquire;
}

// Granted at once, later, closed, and canceled in each state.
static void states(void) {
    int calls[5] = {0};
    size_t waiters;
    thiscpu_budget *budget;
    thiscpu_lease *lease = NULL;
    OK(thiscpu_budget_create(LIMIT, &budget));
    thiscpu_acquire *first = start(budget, 60, &calls[0]);
    CHECK(calls[0] == 1 && held(budget) == 60);
    thiscpu_acquire *second = start(budget, 50, &calls[1]);
    thiscpu_acquire *third = start(budget, 30, &calls[2]);
    thiscpu_acquire *fourth = start(budget, 90, &calls[3]);
    RETURNS(THISCPU_STATUS_PENDING, thiscpu_acquire_take(second, &lease));
    OK(thiscpu_budget_waiters(budget, &waiters));
    CHECK(waiters == 3 && calls[1] == 0 && lease == NULL);

    // Granted and not taken: its units are the next waiters'.
    OK(thiscpu_acquire_destroy(first));
    CHECK(calls[1] == 1 && calls[2] == 1 && calls[3] == 0 && held(budget) == 80);
    OK(thiscpu_acquire_take(second, &lease));
    RETURNS(THISCPU_STATUS_EMPTY, thiscpu_acquire_take(second, &lease));
    OK(thiscpu_acquire_destroy(second));
    CHECK(held(budget) == 80);
    // Granted, without a call that has seen that.
    OK(thiscpu_acquire_destroy(third));
    CHECK(held(budget) == 50);

    // Canceled while it waits: its callback is never called.
    thiscpu_acquire *fifth = start(budget, 1, &calls[4]);
    OK(thiscpu_acquire_destroy(fourth));
    CHECK(calls[3] == 0 && calls[4] == 1);
    OK(thiscpu_acquire_destroy(fifth));
    fourth = start(budget, 90, &calls[3]);
    OK(thiscpu_budget_close(budget));
    CHECK(calls[3] == 1);
    thiscpu_lease *none = NULL;
    RETURNS(THISCPU_STATUS_CLOSED, thiscpu_acquire_take(fourth, &none));
    RETURNS(THISCPU_STATUS_CLOSED, thiscpu_acquire_take(fourth, &none));
    CHECK(none == NULL);
    OK(thiscpu_acquire_destroy(fourth));
    // The lease keeps the budget.
    CHECK(held(budget) == 50);
    OK(thiscpu_budget_destroy(budget));
    OK(thiscpu_lease_destroy(lease));
    OK(thiscpu_acquire_destroy(NULL));
}

static void write_event(void *with) {
    uint64_t one = 1;
    CHECK(write(*(int *)with, &one, sizeof one) == sizeof one);
}

// An event loop waits for units and for other events alike.
static void with_eventfd(void) {
    thiscpu_budget *budget;
    thiscpu_lease *all, *lease;
    thiscpu_acquire *acquire;
    int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct pollfd on = {event, POLLIN, 0};
    CHECK(event >= 0);
    OK(thiscpu_budget_create(LIMIT, &budget));
    OK(thiscpu_budget_lease(budget, LIMIT, &all));
    OK(thiscpu_budget_acquire_async(budget, 7, write_event, &event, &acquire));
    CHECK(poll(&on, 1, 0) == 0);
    OK(thiscpu_lease_destroy(all));
    CHECK(poll(&on, 1, -1) == 1);
    OK(thiscpu_acquire_take(acquire, &lease));
    OK(thiscpu_acquire_destroy(acquire));
    CHECK(held(budget) == 7);
    OK(thiscpu_lease_destroy(lease));
    CHECK(held(budget) == 0);
    OK(thiscpu_budget_destroy(budget));
    CHECK(close(event) == 0);
}

// Threads request units, cancel at random, and use what they got.
static void *request_and_cancel(void *with) {
    unsigned random = (unsigned)(uintptr_t)&random;
    for (int i = 0; i < EACH; i++) {
        // On the heap, so that a callback after the destroy is a use after free.
        int *calls = calloc(1, sizeof *calls);
        thiscpu_acquire *acquire = start(with, 60, calls);
        thiscpu_lease *lease;
        random = random * 1664525 + 1013904223;
        for (unsigned turns = random >> 24; turns > 0; turns--) {
            if (thiscpu_acquire_take(acquire, &lease) == THISCPU_STATUS_OK) {
                OK(thiscpu_lease_destroy(lease));
                break;
            }
        }
        OK(thiscpu_acquire_destroy(acquire));
        CHECK(*calls <= 1);
        memset(calls, -1, sizeof *calls);
        free(calls);
    }
    return NULL;
}

int main(void) {
    thiscpu_budget *budget;
    states();
    with_eventfd();
    OK(thiscpu_budget_create(LIMIT, &budget));
    on_threads(request_and_cancel, budget);
    CHECK(held(budget) == 0);
    uint64_t n;
    OK(thiscpu_budget_over_released(budget, &n));
    CHECK(n == 0);
    OK(thiscpu_budget_destroy(budget));
    return 0;
}
