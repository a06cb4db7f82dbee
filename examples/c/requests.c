/*
 * Counts and limits requests of several threads.
 *
 *     make && ./requests
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <thiscpu.h>

enum { THREADS = 4, REQUESTS = 100000, LIMIT = 3 };

static thiscpu_counter *served;
static thiscpu_counter *refused;
static thiscpu_budget *slots;

static void check(thiscpu_status status, const char *what) {
    if (status != THISCPU_STATUS_OK) {
        fprintf(stderr, "requests: %s: %s\n", what, thiscpu_strerror(status));
        exit(1);
    }
}

static void *work(void *unused) {
    (void)unused;
    for (int i = 0; i < REQUESTS; i++) {
        thiscpu_status status = thiscpu_budget_try_acquire(slots, 1);
        if (status == THISCPU_STATUS_EXHAUSTED) {
            thiscpu_counter_add(refused, 1);
            continue;
        }
        check(status, "acquire a slot");
        thiscpu_counter_add(served, 1);
        check(thiscpu_budget_release(slots, 1), "release a slot");
    }
    return NULL;
}

int main(void) {
    check(thiscpu_counter_create(&served), "create a counter");
    check(thiscpu_counter_create(&refused), "create a counter");
    check(thiscpu_budget_create(LIMIT, &slots), "create a budget");
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, NULL) != 0)
            return 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    int64_t total, rejected;
    check(thiscpu_counter_sum(served, &total), "sum");
    check(thiscpu_counter_sum(refused, &rejected), "sum");
    printf("%lld requests served, %lld refused, %lld in all\n", (long long)total,
           (long long)rejected, (long long)(total + rejected));
    check(thiscpu_budget_destroy(slots), "destroy a budget");
    check(thiscpu_counter_destroy(refused), "destroy a counter");
    check(thiscpu_counter_destroy(served), "destroy a counter");
    return total + rejected == (int64_t)THREADS * REQUESTS ? 0 : 1;
}
