#include "threads.h"

enum { LIMIT = 100, EACH = 2000 };

static uint64_t held(thiscpu_budget *budget) {
    uint64_t n;
    OK(thiscpu_budget_acquired(budget, &n));
    return n;
}

static uint64_t units(thiscpu_lease *lease) {
    uint64_t n;
    OK(thiscpu_lease_units(lease, &n));
    return n;
}

static void split_merge_forget(void) {
    uint64_t n;
    thiscpu_budget *budget, *other;
    thiscpu_lease *lease, *part = NULL, *foreign;
    OK(thiscpu_budget_create(LIMIT, &budget));
    OK(thiscpu_budget_create(1, &other));
    OK(thiscpu_budget_try_lease(budget, 60, &lease));
    RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_budget_try_lease(budget, 41, &part));
    RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_budget_lease_timeout(budget, 41, 1000, &part));
    RETURNS(THISCPU_STATUS_OUT_OF_RANGE, thiscpu_lease_split(lease, 61, &part));
    CHECK(part == NULL && units(lease) == 60);
    OK(thiscpu_lease_split(lease, 20, &part));
    CHECK(units(lease) == 40 && units(part) == 20 && held(budget) == 60);
    OK(thiscpu_lease_destroy(part));
    CHECK(held(budget) == 40);
    OK(thiscpu_budget_lease_timeout(budget, 5, 1000, &part));
    OK(thiscpu_lease_merge(lease, part));
    CHECK(units(lease) == 45 && held(budget) == 45);

    OK(thiscpu_budget_lease(other, 1, &foreign));
    RETURNS(THISCPU_STATUS_WRONG_BUDGET, thiscpu_lease_merge(lease, foreign));
    RETURNS(THISCPU_STATUS_WRONG_BUDGET, thiscpu_lease_merge(lease, lease));
    CHECK(units(foreign) == 1 && units(lease) == 45);
    OK(thiscpu_lease_forget(foreign, NULL));
    CHECK(held(other) == 1);

    OK(thiscpu_lease_forget(lease, &n));
    CHECK(n == 45 && held(budget) == 45);
    OK(thiscpu_budget_release(budget, n));
    OK(thiscpu_budget_over_released(budget, &n));
    CHECK(n == 0 && held(budget) == 0);
    OK(thiscpu_lease_destroy(NULL));
    OK(thiscpu_budget_destroy(other));
    OK(thiscpu_budget_destroy(budget));
}

// Leases outlive the handle of their budget, which frees its memory with the last of them.
static void outlive(void) {
    for (int i = 0; i < 1000; i++) {
        thiscpu_budget *budget;
        thiscpu_lease *lease, *part;
        OK(thiscpu_budget_create(1 << 20, &budget));
        for (int call = 0; call < 40; call++) {
            OK(thiscpu_budget_try_acquire(budget, 1));
        }
        OK(thiscpu_budget_lease(budget, 100, &lease));
        OK(thiscpu_budget_close(budget));
        RETURNS(THISCPU_STATUS_CLOSED, thiscpu_budget_lease(budget, 1, &part));
        RETURNS(THISCPU_STATUS_CLOSED, thiscpu_budget_try_lease(budget, 1, &part));
        OK(thiscpu_budget_destroy(budget));
        OK(thiscpu_lease_split(lease, 30, &part));
        CHECK(units(lease) == 70 && units(part) == 30);
        OK(thiscpu_lease_destroy(lease));
        OK(thiscpu_lease_destroy(part));
    }
}

static void *lease_and_destroy(void *with) {
    for (int i = 0; i < EACH; i++) {
        thiscpu_lease *lease, *part;
        OK(thiscpu_budget_lease(with, 60, &lease));
        OK(thiscpu_lease_split(lease, 10, &part));
        OK(thiscpu_lease_destroy(lease));
        OK(thiscpu_lease_destroy(part));
    }
    return NULL;
}

int main(void) {
    thiscpu_budget *budget;
    split_merge_forget();
    outlive();
    OK(thiscpu_budget_create(LIMIT, &budget));
    on_threads(lease_and_destroy, budget);
    CHECK(held(budget) == 0);
    OK(thiscpu_budget_destroy(budget));
    return 0;
}
