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

static void *wait_for_close(void *with) {
    RETURNS(THISCPU_STATUS_CLOSED, thiscpu_budget_acquire(with, LIMIT + 1));
    RETURNS(THISCPU_STATUS_CLOSED, thiscpu_budget_acquire_timeout(with, 1, UINT64_MAX));
    return NULL;
}

// Closing wakes all waiters and refuses every acquire; units that are held can be released.
static void closing(void) {
    uint64_t n;
    size_t waiters = 0;
    bool closed = true;
    thiscpu_budget *closing;
    OK(thiscpu_budget_create(LIMIT, &closing));
    OK(thiscpu_budget_try_acquire(closing, 1));
    OK(thiscpu_budget_is_closed(closing, &closed));
    CHECK(!closed);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&threads[i], NULL, wait_for_close, closing) == 0);
    }
    while (waiters < 2) {
        OK(thiscpu_budget_waiters(closing, &waiters));
    }
    OK(thiscpu_budget_close(closing));
    OK(thiscpu_budget_close(closing));
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    OK(thiscpu_budget_is_closed(closing, &closed));
    OK(thiscpu_budget_waiters(closing, &waiters));
    CHECK(closed && waiters == 0);
    RETURNS(THISCPU_STATUS_CLOSED, thiscpu_budget_try_acquire(closing, 1));
    OK(thiscpu_budget_try_acquire_up_to(closing, 1, &n));
    CHECK(n == 0);
    OK(thiscpu_budget_acquired(closing, &n));
    CHECK(n == 1);
    OK(thiscpu_budget_release(closing, 1));
    OK(thiscpu_budget_available(closing, &n));
    CHECK(n == LIMIT);
    OK(thiscpu_budget_destroy(closing));
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

    // A release of too much is counted, and fails no call.
    OK(thiscpu_budget_over_released(budget, &n));
    CHECK(n == 0);
    OK(thiscpu_budget_release(budget, 1));
    OK(thiscpu_budget_available(budget, &n));
    CHECK(n == LIMIT);
    OK(thiscpu_budget_release(budget, LIMIT + 1));
    OK(thiscpu_budget_set_limit(budget, LIMIT + 5));
    OK(thiscpu_budget_available(budget, &n));
    CHECK(n == LIMIT + 5);
    OK(thiscpu_budget_over_released(budget, &n));
    CHECK(n == LIMIT + 2);
    OK(thiscpu_budget_release(budget, UINT64_MAX));
    OK(thiscpu_budget_over_released(budget, &n));
    CHECK(n == UINT64_MAX);
    OK(thiscpu_budget_destroy(budget));
    closing();
    return 0;
}
