#include "threads.h"

enum { EACH = 50000, LIMIT = 3 };

static thiscpu_budget *budget;
static int held;

// Checks that the limit is never exceeded.
static void *acquire_and_release(void *with) {
    (void)with;
    for (int i = 0; i < EACH; i++) {
        if (thiscpu_budget_try_acquire(budget, 1) == THISCPU_STATUS_OK) {
            CHECK(__atomic_add_fetch(&held, 1, __ATOMIC_SEQ_CST) <= LIMIT);
            __atomic_sub_fetch(&held, 1, __ATOMIC_SEQ_CST);
            OK(thiscpu_budget_release(budget, 1));
        }
    }
    return NULL;
}

static void *acquire_all(void *with) {
    (void)with;
    OK(thiscpu_budget_acquire(budget, LIMIT));
    OK(thiscpu_budget_release(budget, LIMIT));
    return NULL;
}

int main(void) {
    uint64_t n;
    OK(thiscpu_budget_create(LIMIT, &budget));
    on_threads(acquire_and_release, NULL);
    on_threads(acquire_all, NULL);
    OK(thiscpu_budget_available(budget, &n));
    CHECK(n == LIMIT);

    OK(thiscpu_budget_try_acquire_up_to(budget, 10, &n));
    CHECK(n == LIMIT);
    RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_budget_try_acquire(budget, 1));
    RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_budget_acquire_timeout(budget, 1, 1000000));
    RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_budget_try_acquire(budget, UINT64_MAX));
    OK(thiscpu_budget_set_limit(budget, LIMIT + 1));
    OK(thiscpu_budget_acquire_timeout(budget, 1, 1000000000));
    OK(thiscpu_budget_acquired(budget, &n));
    CHECK(n == LIMIT + 1);
    OK(thiscpu_budget_limit(budget, &n));
    CHECK(n == LIMIT + 1);
    OK(thiscpu_budget_release(budget, LIMIT + 1));

    RETURNS(THISCPU_STATUS_OUT_OF_RANGE,
            thiscpu_budget_set_limit(budget, THISCPU_BUDGET_LIMIT_MAX + 1));
    OK(thiscpu_budget_set_limit(budget, THISCPU_BUDGET_LIMIT_MAX));
    OK(thiscpu_budget_set_limit(budget, LIMIT));

    // Exactly one call reports an over-release; then the budget is consistent again.
    thiscpu_status now = thiscpu_budget_release(budget, 1);
    thiscpu_status later = thiscpu_budget_available(budget, &n);
    CHECK((now == THISCPU_STATUS_OVER_RELEASED) + (later == THISCPU_STATUS_OVER_RELEASED) == 1);
    OK(thiscpu_budget_available(budget, &n));
    CHECK(n == LIMIT);
    // The limit is changed even if this call reports an over-release.
    now = thiscpu_budget_release(budget, 1);
    later = thiscpu_budget_set_limit(budget, LIMIT + 5);
    CHECK((now == THISCPU_STATUS_OVER_RELEASED) + (later == THISCPU_STATUS_OVER_RELEASED) == 1);
    OK(thiscpu_budget_available(budget, &n));
    CHECK(n == LIMIT + 5);
    OK(thiscpu_budget_destroy(budget));
    return 0;
}
