#include "threads.h"
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static uint64_t available(thiscpu_budget *budget) {
    uint64_t units;
    OK(thiscpu_budget_available(budget, &units));
    return units;
}

static uint64_t left(thiscpu_reserve *reserve) {
    uint64_t units;
    OK(thiscpu_reserve_available(reserve, &units));
    return units;
}

static void reserves(void) {
    thiscpu_budget *budget;
    thiscpu_reserve *reserve = NULL;
    thiscpu_lease *first, *second;
    uint64_t units;
    OK(thiscpu_budget_create(100, &budget));
    RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_budget_try_reserve(budget, 101, &reserve));
    CHECK(reserve == NULL);
    OK(thiscpu_budget_try_reserve(budget, 10, &reserve));
    OK(thiscpu_reserve_units(reserve, &units));
    CHECK(units == 10 && left(reserve) == 10 && available(budget) == 90);

    // The reserve has units although the budget is exhausted, and they return to it.
    OK(thiscpu_budget_try_acquire(budget, 90));
    RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_reserve_try_lease(reserve, 11, &first));
    OK(thiscpu_reserve_try_lease(reserve, 3, &first));
    CHECK(left(reserve) == 7 && available(budget) == 0);
    OK(thiscpu_lease_destroy(first));
    CHECK(left(reserve) == 10 && available(budget) == 0);

    // Leases outlive the reserve; their units are released with the last.
    OK(thiscpu_reserve_try_lease(reserve, 3, &first));
    OK(thiscpu_lease_split(first, 1, &second));
    OK(thiscpu_reserve_destroy(reserve));
    CHECK(available(budget) == 7);
    OK(thiscpu_lease_destroy(first));
    OK(thiscpu_lease_destroy(second));
    CHECK(available(budget) == 10);

    // Units that were forgotten stay acquired.
    OK(thiscpu_budget_try_reserve(budget, 10, &reserve));
    OK(thiscpu_reserve_try_lease(reserve, 4, &first));
    OK(thiscpu_lease_forget(first, &units));
    OK(thiscpu_reserve_destroy(reserve));
    CHECK(units == 4 && available(budget) == 6);
    OK(thiscpu_budget_release(budget, 94));
    CHECK(available(budget) == 100);
    OK(thiscpu_budget_over_released(budget, &units));
    CHECK(units == 0);

    // A reserve keeps its budget alive, and a lease of it both.
    OK(thiscpu_budget_try_reserve(budget, 10, &reserve));
    OK(thiscpu_reserve_try_lease(reserve, 10, &first));
    OK(thiscpu_budget_destroy(budget));
    OK(thiscpu_reserve_destroy(reserve));
    OK(thiscpu_lease_destroy(first));
    OK(thiscpu_reserve_destroy(NULL));
    RETURNS(THISCPU_STATUS_NULL_POINTER, thiscpu_budget_try_reserve(NULL, 1, &reserve));
    RETURNS(THISCPU_STATUS_NULL_POINTER, thiscpu_reserve_try_lease(NULL, 1, &first));
    RETURNS(THISCPU_STATUS_NULL_POINTER, thiscpu_reserve_available(NULL, &units));
    RETURNS(THISCPU_STATUS_NULL_POINTER, thiscpu_reserve_units(NULL, &units));
}

// Reserves and leases of no units, of all, and of more than there are.
static void reserves_at_the_edges(void) {
    thiscpu_budget *budget;
    thiscpu_reserve *none, *all, *more = NULL;
    thiscpu_lease *empty, *whole, *another = NULL;
    uint64_t units = 7;
    OK(thiscpu_budget_create(100, &budget));
    OK(thiscpu_budget_try_reserve(budget, 0, &none));
    OK(thiscpu_reserve_units(none, &units));
    CHECK(units == 0 && left(none) == 0 && available(budget) == 100);
    RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_reserve_try_lease(none, 1, &another));
    RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_budget_try_reserve(budget, UINT64_MAX, &more));
    OK(thiscpu_budget_try_reserve(budget, 100, &all));
    CHECK(left(all) == 100 && available(budget) == 0);
    RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_budget_try_reserve(budget, 1, &more));
    CHECK(strstr(thiscpu_last_error(), "only 0 units") != NULL);
    RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_reserve_try_lease(all, UINT64_MAX, &another));
    CHECK(strstr(thiscpu_last_error(), "only 100 units") != NULL);
    OK(thiscpu_reserve_try_lease(all, 100, &whole));
    OK(thiscpu_reserve_try_lease(all, 0, &empty));
    OK(thiscpu_lease_units(empty, &units));
    CHECK(units == 0 && left(all) == 0);
    RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_reserve_try_lease(all, 1, &another));
    CHECK(more == NULL && another == NULL);
    OK(thiscpu_lease_destroy(empty));
    CHECK(left(all) == 0 && available(budget) == 0);
    OK(thiscpu_lease_destroy(whole));
    OK(thiscpu_reserve_destroy(none));
    CHECK(left(all) == 100 && available(budget) == 0);

    // A budget that is closed hands out no reserve; those that exist keep their units.
    OK(thiscpu_budget_close(budget));
    RETURNS(THISCPU_STATUS_CLOSED, thiscpu_budget_try_reserve(budget, 0, &more));
    OK(thiscpu_reserve_try_lease(all, 60, &whole));
    OK(thiscpu_reserve_destroy(all));
    OK(thiscpu_budget_acquired(budget, &units));
    CHECK(units == 60);
    OK(thiscpu_lease_destroy(whole));
    OK(thiscpu_budget_acquired(budget, &units));
    CHECK(units == 0 && more == NULL);
    OK(thiscpu_budget_over_released(budget, &units));
    CHECK(units == 0);
    OK(thiscpu_budget_destroy(budget));
}

static uint64_t now(void) {
    struct timespec time;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void *release_to_waiter(void *budget) {
    for (size_t waiters = 0; waiters == 0; sched_yield()) {
        OK(thiscpu_budget_waiters(budget, &waiters));
    }
    OK(thiscpu_budget_release(budget, 4));
    return NULL;
}

static void deadlines(void) {
    const uint64_t hour = UINT64_C(3600000000000);
    thiscpu_budget *budget;
    thiscpu_lease *lease = NULL;
    pthread_t thread;
    OK(thiscpu_budget_create(4, &budget));
    // Available units need no time.
    OK(thiscpu_budget_acquire_deadline(budget, 4, 0));
    RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_budget_acquire_deadline(budget, 1, now() + 1000000));
    RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_budget_acquire_deadline(budget, 1, now() - 1));
    RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_budget_lease_deadline(budget, 1, now(), &lease));
    CHECK(lease == NULL);
    // Before the deadline, a caller waits.
    CHECK(pthread_create(&thread, NULL, release_to_waiter, budget) == 0);
    OK(thiscpu_budget_acquire_deadline(budget, 4, now() + hour));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, release_to_waiter, budget) == 0);
    OK(thiscpu_budget_lease_deadline(budget, 4, UINT64_MAX, &lease));
    CHECK(pthread_join(thread, NULL) == 0);
    OK(thiscpu_lease_destroy(lease));
    OK(thiscpu_budget_destroy(budget));
}

// Deadlines in the past, for no units, for more than the limit, and for a budget that is closed.
static void deadlines_at_the_edges(void) {
    thiscpu_budget *budget;
    thiscpu_lease *lease = NULL, *empty;
    uint64_t units = 7;
    const uint64_t past[] = {0, 1, now() - 1, now()}, soon = now() + 1000000;
    OK(thiscpu_budget_create(4, &budget));
    for (size_t i = 0; i < sizeof past / sizeof *past; i++) {
        // Units that are available need no time; others are refused at once.
        OK(thiscpu_budget_acquire_deadline(budget, 1, past[i]));
        OK(thiscpu_budget_lease_deadline(budget, 3, past[i], &lease));
        RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_budget_acquire_deadline(budget, 1, past[i]));
        OK(thiscpu_budget_acquire_deadline(budget, 0, past[i]));
        OK(thiscpu_budget_lease_deadline(budget, 0, past[i], &empty));
        OK(thiscpu_lease_units(empty, &units));
        CHECK(units == 0 && available(budget) == 0);
        OK(thiscpu_lease_destroy(empty));
        OK(thiscpu_lease_destroy(lease));
        OK(thiscpu_budget_release(budget, 1));
        CHECK(available(budget) == 4);
    }
    lease = NULL;
    RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_budget_acquire_deadline(budget, 5, soon));
    CHECK(now() >= soon);
    RETURNS(THISCPU_STATUS_EXHAUSTED,
            thiscpu_budget_lease_deadline(budget, UINT64_MAX, now() + 1000000, &lease));
    RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_budget_lease_deadline(budget, 5, 0, &lease));
    // No refused call has left a waiter or taken a unit.
    size_t waiters = 7;
    OK(thiscpu_budget_waiters(budget, &waiters));
    CHECK(lease == NULL && waiters == 0 && available(budget) == 4);
    OK(thiscpu_budget_close(budget));
    RETURNS(THISCPU_STATUS_CLOSED, thiscpu_budget_acquire_deadline(budget, 1, 0));
    RETURNS(THISCPU_STATUS_CLOSED, thiscpu_budget_acquire_deadline(budget, 1, UINT64_MAX));
    RETURNS(THISCPU_STATUS_CLOSED, thiscpu_budget_lease_deadline(budget, 1, UINT64_MAX, &lease));
    CHECK(lease == NULL);
    OK(thiscpu_budget_destroy(budget));
}

int main(void) {
    // A wait that should end, and does not, ends the program.
    alarm(60);
    reserves();
    reserves_at_the_edges();
    deadlines();
    deadlines_at_the_edges();
    CHECK(strcmp(thiscpu_tier_name(THISCPU_TIER_RSEQ_CID), "rseq-cid") == 0);
    CHECK(strcmp(thiscpu_tier_name(THISCPU_TIER_RSEQ_CPU), "rseq-cpu") == 0);
    CHECK(strcmp(thiscpu_tier_name(THISCPU_TIER_ATOMIC), "atomic") == 0);
    CHECK(strcmp(thiscpu_tier_name(77), "not a tier") == 0);
    return 0;
}
