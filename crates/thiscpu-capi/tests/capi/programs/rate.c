/* Rates and windows: bursts, refusals with a time, new terms, waiting, and wrong numbers. */

#include <string.h>

#include "check.h"
#include "threads.h"

#define HOUR_NS (3600ull * 1000 * 1000 * 1000)

static thiscpu_rate *shared;

static void *wait_for_close(void *argument) {
    (void)argument;
    CHECK(thiscpu_rate_acquire(shared, 1) == THISCPU_STATUS_CLOSED);
    return NULL;
}

static void check_rate(void) {
    thiscpu_rate *rate = NULL;
    uint64_t retry = 0, number = 0;
    OK(thiscpu_rate_create(1, HOUR_NS, 1000, &rate));
    OK(thiscpu_rate_try_acquire(rate, 990, NULL));
    CHECK(thiscpu_rate_try_acquire(rate, 11, &retry) == THISCPU_STATUS_EXHAUSTED);
    CHECK(retry > 0 && retry <= HOUR_NS);
    CHECK(strstr(thiscpu_last_error(), "only 10 units") != NULL);
    CHECK(strstr(thiscpu_last_error(), "rate exceeded") != NULL);
    OK(thiscpu_rate_available(rate, &number));
    CHECK(number == 10);
    OK(thiscpu_rate_try_acquire_up_to(rate, 100, &number));
    CHECK(number == 10);
    CHECK(thiscpu_rate_acquire_timeout(rate, 1, 1000) == THISCPU_STATUS_EXHAUSTED);
    CHECK(thiscpu_rate_acquire_deadline(rate, 1, 1) == THISCPU_STATUS_EXHAUSTED);

    retry = 7;
    CHECK(thiscpu_rate_try_acquire(rate, 0, &retry) == THISCPU_STATUS_OUT_OF_RANGE);
    CHECK(thiscpu_rate_try_acquire(rate, 1001, &retry) == THISCPU_STATUS_OUT_OF_RANGE);
    CHECK(retry == 7 && strstr(thiscpu_last_error(), "1000") != NULL);
    CHECK(thiscpu_rate_set_pace(rate, 0, 1) == THISCPU_STATUS_OUT_OF_RANGE);
    CHECK(thiscpu_rate_set_pace(rate, 1, 0) == THISCPU_STATUS_OUT_OF_RANGE);
    CHECK(thiscpu_rate_set_burst(rate, THISCPU_RATE_BURST_MAX + 1) == THISCPU_STATUS_OUT_OF_RANGE);
    CHECK(thiscpu_rate_set_share(rate, 126) == THISCPU_STATUS_OUT_OF_RANGE);
    OK(thiscpu_rate_burst(rate, &number));
    CHECK(number == 1000);

    OK(thiscpu_rate_set_burst(rate, 500));
    OK(thiscpu_rate_set_share(rate, 0));
    OK(thiscpu_rate_share(rate, &number));
    CHECK(number == 0);
    /* A unit in a microsecond. */
    OK(thiscpu_rate_set_pace(rate, 1, 1000));
    OK(thiscpu_rate_acquire(rate, 2));
    OK(thiscpu_rate_set_pace(rate, 1, HOUR_NS));
    OK(thiscpu_rate_try_acquire_up_to(rate, 500, &number));

    pthread_t waiter;
    size_t waiters = 0;
    bool closed = true;
    OK(thiscpu_rate_is_closed(rate, &closed));
    CHECK(!closed);
    shared = rate;
    CHECK(pthread_create(&waiter, NULL, wait_for_close, NULL) == 0);
    while (waiters == 0) { OK(thiscpu_rate_waiters(rate, &waiters)); }
    OK(thiscpu_rate_close(rate));
    CHECK(pthread_join(waiter, NULL) == 0);
    OK(thiscpu_rate_is_closed(rate, &closed));
    CHECK(closed);
    OK(thiscpu_rate_destroy(rate));
    OK(thiscpu_rate_destroy(NULL));
}

static void check_window(void) {
    thiscpu_rate_window *window = NULL;
    uint64_t retry = 0, number = 0;
    CHECK(thiscpu_rate_window_create(10, 63, &window) == THISCPU_STATUS_OUT_OF_RANGE);
    CHECK(thiscpu_rate_window_create(0, HOUR_NS, &window) == THISCPU_STATUS_OUT_OF_RANGE);
    OK(thiscpu_rate_window_create(10, HOUR_NS, &window));
    OK(thiscpu_rate_window_try_acquire(window, 4, NULL));
    CHECK(thiscpu_rate_window_try_acquire(window, 7, &retry) == THISCPU_STATUS_EXHAUSTED);
    CHECK(retry > HOUR_NS && retry <= HOUR_NS + HOUR_NS / 64);
    CHECK(thiscpu_rate_window_try_acquire(window, 11, NULL) == THISCPU_STATUS_OUT_OF_RANGE);
    OK(thiscpu_rate_window_available(window, &number));
    CHECK(number == 6);
    OK(thiscpu_rate_window_try_acquire_up_to(window, 100, &number));
    CHECK(number == 6);
    OK(thiscpu_rate_window_limit(window, &number));
    CHECK(number == 10);
    OK(thiscpu_rate_window_period(window, &number));
    CHECK(number == HOUR_NS);
    OK(thiscpu_rate_window_destroy(window));
    OK(thiscpu_rate_window_destroy(NULL));
}

int main(void) {
    thiscpu_rate *rate = NULL;
    CHECK(thiscpu_rate_create(1, 1, 0, &rate) == THISCPU_STATUS_OUT_OF_RANGE && rate == NULL);
    CHECK(thiscpu_rate_create(1, 1, 1, NULL) == THISCPU_STATUS_NULL_POINTER);
    CHECK(thiscpu_rate_try_acquire(NULL, 1, NULL) == THISCPU_STATUS_NULL_POINTER);
    CHECK(thiscpu_rate_window_try_acquire(NULL, 1, NULL) == THISCPU_STATUS_NULL_POINTER);
    check_rate();
    check_window();
    return 0;
}
