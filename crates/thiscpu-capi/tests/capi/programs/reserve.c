#include "threads.h"
#include <sched.h>
#include <string.h>
#include <time.h>

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

int main(void) {
    reserves();
    deadlines();
    CHECK(strcmp(thiscpu_tier_name(THISCPU_TIER_RSEQ_CID), "rseq-cid") == 0);
    CHECK(strcmp(thiscpu_tier_name(THISCPU_TIER_RSEQ_CPU), "rseq-cpu") == 0);
    CHECK(strcmp(thiscpu_tier_name(THISCPU_TIER_ATOMIC), "atomic") == 0);
    CHECK(strcmp(thiscpu_tier_name(77), "not a tier") == 0);
    return 0;
}
