#include "threads.h"

enum { EACH = 50000, LIMIT = 3 };

static thiscpu_budget *places;
static int inside;

// Never more than the limit are inside.
static void *come_and_go(void *with) {
    (void)with;
    for (int i = 0; i < EACH; i++) {
        if (thiscpu_budget_try_acquire(places, 1) == THISCPU_STATUS_OK) {
            CHECK(__atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST) <= LIMIT);
            __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
            OK(thiscpu_budget_release(places, 1));
        }
    }
    return NULL;
}

static void *wait_for_all(void *with) {
    (void)with;
    OK(thiscpu_budget_acquire(places, LIMIT));
    OK(thiscpu_budget_release(places, LIMIT));
    return NULL;
}

int main(void) {
    uint64_t n;
    OK(thiscpu_budget_create(LIMIT, &places));
    on_threads(come_and_go, NULL);
    on_threads(wait_for_all, NULL);
    OK(thiscpu_budget_available(places, &n));
    CHECK(n == LIMIT);

    OK(thiscpu_budget_try_acquire_up_to(places, 10, &n));
    CHECK(n == LIMIT);
    SAYS(THISCPU_STATUS_EXHAUSTED, thiscpu_budget_try_acquire(places, 1));
    SAYS(THISCPU_STATUS_EXHAUSTED, thiscpu_budget_acquire_timeout(places, 1, 1000000));
    SAYS(THISCPU_STATUS_EXHAUSTED, thiscpu_budget_try_acquire(places, UINT64_MAX));
    OK(thiscpu_budget_set_limit(places, LIMIT + 1));
    OK(thiscpu_budget_acquire_timeout(places, 1, 1000000000));
    OK(thiscpu_budget_acquired(places, &n));
    CHECK(n == LIMIT + 1);
    OK(thiscpu_budget_limit(places, &n));
    CHECK(n == LIMIT + 1);
    OK(thiscpu_budget_release(places, LIMIT + 1));

    SAYS(THISCPU_STATUS_OUT_OF_RANGE, thiscpu_budget_set_limit(places, THISCPU_BUDGET_LIMIT_MAX + 1));
    OK(thiscpu_budget_set_limit(places, THISCPU_BUDGET_LIMIT_MAX));
    OK(thiscpu_budget_set_limit(places, LIMIT));

    // Too much is found now or later, and then it is right again.
    thiscpu_status now = thiscpu_budget_release(places, 1);
    thiscpu_status later = thiscpu_budget_available(places, &n);
    CHECK((now == THISCPU_STATUS_OVER_RELEASED) + (later == THISCPU_STATUS_OVER_RELEASED) == 1);
    OK(thiscpu_budget_available(places, &n));
    CHECK(n == LIMIT);
    // The limit is changed all the same.
    now = thiscpu_budget_release(places, 1);
    later = thiscpu_budget_set_limit(places, LIMIT + 5);
    CHECK((now == THISCPU_STATUS_OVER_RELEASED) + (later == THISCPU_STATUS_OVER_RELEASED) == 1);
    OK(thiscpu_budget_available(places, &n));
    CHECK(n == LIMIT + 5);
    OK(thiscpu_budget_destroy(places));
    return 0;
}
