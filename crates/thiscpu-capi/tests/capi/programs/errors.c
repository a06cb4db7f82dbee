#include "check.h"
#include <pthread.h>
#include <string.h>

#define NULL_IS_REPORTED(call) RETURNS(THISCPU_STATUS_NULL_POINTER, call)

static void do_nothing(uint64_t id, const int64_t *counters, void *context) {
    (void)id, (void)counters, (void)context;
}

static void wake(void *context) {
    (void)context;
}

static int construct(void *object, void *context) {
    (void)object, (void)context;
    return 0;
}

static void nulls(void) {
    int64_t value = 1;
    uint64_t number = 1;
    size_t count;
    bool flag;
    thiscpu_lease *lease = NULL;
    thiscpu_acquire *acquire = NULL;
    int32_t ordering;
    thiscpu_bounds bounds;
    thiscpu_cache_statistics statistics;
    thiscpu_halves halves = {0, 0};
    thiscpu_link link, *node;
    NULL_IS_REPORTED(thiscpu_get_tier(NULL));
    NULL_IS_REPORTED(thiscpu_degradations(NULL, 0, NULL));
    size_t degradations;
    NULL_IS_REPORTED(thiscpu_degradations(NULL, 1, &degradations));
    NULL_IS_REPORTED(thiscpu_counter_create(NULL));
    NULL_IS_REPORTED(thiscpu_counter_add(NULL, 1));
    NULL_IS_REPORTED(thiscpu_counter_read(NULL, &value));
    NULL_IS_REPORTED(thiscpu_counter_bounds(NULL, &bounds));
    NULL_IS_REPORTED(thiscpu_counter_sum(NULL, &value));
    NULL_IS_REPORTED(thiscpu_counter_set(NULL, 1));
    NULL_IS_REPORTED(thiscpu_counter_take(NULL, &value));
    NULL_IS_REPORTED(thiscpu_counter_compare(NULL, 1, &ordering));
    NULL_IS_REPORTED(thiscpu_counter_create_with_batch(1, NULL));
    NULL_IS_REPORTED(thiscpu_counters_create(1, NULL));
    NULL_IS_REPORTED(thiscpu_counters_len(NULL, &count));
    NULL_IS_REPORTED(thiscpu_counters_add(NULL, 0, 1));
    NULL_IS_REPORTED(thiscpu_counters_read(NULL, 0, &value));
    NULL_IS_REPORTED(thiscpu_counters_sum(NULL, 0, &value));
    NULL_IS_REPORTED(thiscpu_counters_snapshot(NULL, &value, 1));
    NULL_IS_REPORTED(thiscpu_budget_create(1, NULL));
    NULL_IS_REPORTED(thiscpu_budget_try_acquire(NULL, 1));
    NULL_IS_REPORTED(thiscpu_budget_try_acquire_up_to(NULL, 1, &number));
    NULL_IS_REPORTED(thiscpu_budget_acquire(NULL, 1));
    NULL_IS_REPORTED(thiscpu_budget_acquire_timeout(NULL, 1, 1));
    NULL_IS_REPORTED(thiscpu_budget_release(NULL, 1));
    NULL_IS_REPORTED(thiscpu_budget_available(NULL, &number));
    NULL_IS_REPORTED(thiscpu_budget_acquired(NULL, &number));
    NULL_IS_REPORTED(thiscpu_budget_limit(NULL, &number));
    NULL_IS_REPORTED(thiscpu_budget_over_released(NULL, &number));
    NULL_IS_REPORTED(thiscpu_budget_set_limit(NULL, 1));
    NULL_IS_REPORTED(thiscpu_budget_close(NULL));
    NULL_IS_REPORTED(thiscpu_budget_is_closed(NULL, &flag));
    NULL_IS_REPORTED(thiscpu_budget_waiters(NULL, &count));
    NULL_IS_REPORTED(thiscpu_budget_try_lease(NULL, 1, &lease));
    NULL_IS_REPORTED(thiscpu_budget_lease(NULL, 1, &lease));
    NULL_IS_REPORTED(thiscpu_budget_lease_timeout(NULL, 1, 1, &lease));
    NULL_IS_REPORTED(thiscpu_lease_units(NULL, &number));
    NULL_IS_REPORTED(thiscpu_lease_split(NULL, 1, &lease));
    NULL_IS_REPORTED(thiscpu_lease_merge(NULL, NULL));
    NULL_IS_REPORTED(thiscpu_lease_forget(NULL, &number));
    NULL_IS_REPORTED(thiscpu_budget_acquire_async(NULL, 1, wake, NULL, &acquire));
    NULL_IS_REPORTED(thiscpu_acquire_take(NULL, &lease));
    NULL_IS_REPORTED(thiscpu_ledger_create(1, false, NULL));
    NULL_IS_REPORTED(thiscpu_ledger_len(NULL, &count));
    NULL_IS_REPORTED(thiscpu_ledger_sync(NULL));
    NULL_IS_REPORTED(thiscpu_ledger_for_each(NULL, do_nothing, NULL));
    NULL_IS_REPORTED(thiscpu_account_charge(NULL, 0, 1));
    NULL_IS_REPORTED(thiscpu_account_charge_uncached(NULL, 0, 1));
    NULL_IS_REPORTED(thiscpu_account_read(NULL, 0, &value));
    NULL_IS_REPORTED(thiscpu_account_sum(NULL, 0, &value));
    NULL_IS_REPORTED(thiscpu_account_snapshot(NULL, &value, 1));
    NULL_IS_REPORTED(thiscpu_account_transfer(NULL, NULL, 0, 1));
    NULL_IS_REPORTED(thiscpu_account_id(NULL, &number));
    NULL_IS_REPORTED(thiscpu_cache_create(8, 8, NULL));
    NULL_IS_REPORTED(thiscpu_cache_free(NULL, &link));
    NULL_IS_REPORTED(thiscpu_cache_shrink(NULL, NULL));
    NULL_IS_REPORTED(thiscpu_cache_stats(NULL, &statistics));
    CHECK(thiscpu_cache_alloc(NULL) == NULL);
    thiscpu_constructed_cache *constructed = NULL;
    thiscpu_prefilled *prefilled = NULL;
    NULL_IS_REPORTED(thiscpu_constructed_cache_create(8, 8, construct, NULL, NULL, NULL));
    NULL_IS_REPORTED(thiscpu_constructed_cache_create(8, 8, NULL, NULL, NULL, &constructed));
    NULL_IS_REPORTED(thiscpu_constructed_cache_free(NULL, &link));
    NULL_IS_REPORTED(thiscpu_constructed_cache_shrink(NULL, NULL));
    NULL_IS_REPORTED(thiscpu_constructed_cache_stats(NULL, &statistics));
    NULL_IS_REPORTED(thiscpu_constructed_cache_prefill(NULL, 1, &prefilled));
    RETURNS(THISCPU_STATUS_INVALID_SIZE,
            thiscpu_constructed_cache_create(8, 3, construct, NULL, NULL, &constructed));
    CHECK(thiscpu_constructed_cache_alloc(NULL) == NULL && constructed == NULL);
    CHECK(strstr(thiscpu_last_error(), "null pointer") != NULL && prefilled == NULL);
    NULL_IS_REPORTED(thiscpu_word_create(8, NULL));
    NULL_IS_REPORTED(thiscpu_word_add(NULL, 1));
    NULL_IS_REPORTED(thiscpu_word_add_return(NULL, 1, &number));
    NULL_IS_REPORTED(thiscpu_word_xchg(NULL, 1, &number));
    NULL_IS_REPORTED(thiscpu_word_cmpxchg(NULL, 1, 2, &number));
    NULL_IS_REPORTED(thiscpu_word_values(NULL, NULL, 0, &count));
    NULL_IS_REPORTED(thiscpu_pair_create(8, NULL));
    NULL_IS_REPORTED(thiscpu_pair_cmpxchg(NULL, &halves, &halves, NULL));
    NULL_IS_REPORTED(thiscpu_stack_create(NULL));
    NULL_IS_REPORTED(thiscpu_stack_push(NULL, &link));
    NULL_IS_REPORTED(thiscpu_stack_pop(NULL, &node));
    NULL_IS_REPORTED(thiscpu_stack_take_all(NULL, &node));
    NULL_IS_REPORTED(thiscpu_stack_drain(NULL, NULL, NULL));

    thiscpu_segment *segment = NULL;
    thiscpu_shared_counter *shared = NULL;
    thiscpu_shared_counters *several = NULL;
    thiscpu_segment_view *view = NULL;
    thiscpu_counter_view *viewed = NULL;
    thiscpu_counters_view *all_viewed = NULL;
    thiscpu_bounds seen;
    bool lost;
    int32_t fd;
    uint32_t lanes;
    NULL_IS_REPORTED(thiscpu_segment_create(NULL, NULL, &segment));
    NULL_IS_REPORTED(thiscpu_segment_create("/dev/shm/thiscpu-null", NULL, NULL));
    NULL_IS_REPORTED(thiscpu_segment_open(NULL, NULL, &segment));
    NULL_IS_REPORTED(thiscpu_segment_open_or_create(NULL, true, NULL, &segment));
    NULL_IS_REPORTED(thiscpu_segment_anonymous(NULL, NULL));
    NULL_IS_REPORTED(thiscpu_segment_from_fd(0, NULL));
    NULL_IS_REPORTED(thiscpu_segment_fd(NULL, &fd));
    NULL_IS_REPORTED(thiscpu_segment_lanes(NULL, &lanes));
    NULL_IS_REPORTED(thiscpu_segment_is_lost(NULL, &lost));
    NULL_IS_REPORTED(thiscpu_segment_view_open(NULL, &view));
    NULL_IS_REPORTED(thiscpu_segment_view_from_fd(0, NULL));
    NULL_IS_REPORTED(thiscpu_segment_view_is_lost(NULL, &lost));
    NULL_IS_REPORTED(thiscpu_counter_view_open(NULL, "name", &viewed));
    NULL_IS_REPORTED(thiscpu_counter_view_bounds(NULL, &seen));
    NULL_IS_REPORTED(thiscpu_counters_view_open(NULL, "name", 1, &all_viewed));
    NULL_IS_REPORTED(thiscpu_counters_view_len(NULL, &count));
    NULL_IS_REPORTED(thiscpu_counters_view_bounds(NULL, &seen, 1));
    NULL_IS_REPORTED(thiscpu_shared_counter_open(NULL, "name", &shared));
    NULL_IS_REPORTED(thiscpu_shared_counter_add(NULL, 1));
    NULL_IS_REPORTED(thiscpu_shared_counter_sum(NULL, &value));
    NULL_IS_REPORTED(thiscpu_shared_counters_open(NULL, "name", 1, &several));
    NULL_IS_REPORTED(thiscpu_shared_counters_len(NULL, &count));
    NULL_IS_REPORTED(thiscpu_shared_counters_add(NULL, 0, 1));
    NULL_IS_REPORTED(thiscpu_shared_counters_snapshot(NULL, &value, 1));
    thiscpu_shared_family *family = NULL;
    thiscpu_shared_series *series = NULL;
    thiscpu_scrape *scrape = NULL;
    thiscpu_scrape_info info;
    thiscpu_sample sample;
    thiscpu_string label;
    thiscpu_registry_usage usage;
    uint64_t total;
    NULL_IS_REPORTED(thiscpu_shared_family_open(NULL, "name", "", NULL, 0, &family));
    NULL_IS_REPORTED(thiscpu_shared_family_find(NULL, "name", &family));
    NULL_IS_REPORTED(thiscpu_shared_series_open(NULL, NULL, 0, &series));
    NULL_IS_REPORTED(thiscpu_shared_series_find(NULL, NULL, 0, &series));
    NULL_IS_REPORTED(thiscpu_shared_series_add(NULL, 1));
    NULL_IS_REPORTED(thiscpu_shared_series_sum(NULL, &total));
    NULL_IS_REPORTED(thiscpu_segment_registry_usage(NULL, &usage));
    NULL_IS_REPORTED(thiscpu_scrape_create(NULL, &scrape));
    NULL_IS_REPORTED(thiscpu_scrape_create_by_view(NULL, &scrape));
    NULL_IS_REPORTED(thiscpu_scrape_summary(NULL, &info));
    NULL_IS_REPORTED(thiscpu_scrape_sample(NULL, 0, &sample));
    NULL_IS_REPORTED(thiscpu_scrape_label(NULL, 0, 0, &label, &label));
    NULL_IS_REPORTED(thiscpu_segment_view_series_bounds(NULL, "name", NULL, 0, &seen));
    NULL_IS_REPORTED(thiscpu_segment_view_registry_usage(NULL, &usage));
    OK(thiscpu_segment_anonymous(NULL, &segment));
    NULL_IS_REPORTED(thiscpu_shared_family_open(segment, NULL, "", NULL, 0, &family));
    NULL_IS_REPORTED(thiscpu_shared_family_open(segment, "name", "", NULL, 1, &family));
    NULL_IS_REPORTED(thiscpu_shared_counter_open(segment, NULL, &shared));
    NULL_IS_REPORTED(thiscpu_shared_counters_open(segment, NULL, 1, &several));
    NULL_IS_REPORTED(thiscpu_shared_counters_open(segment, "name", 1, NULL));
    OK(thiscpu_shared_counters_open(segment, "name", 1, &several));
    NULL_IS_REPORTED(thiscpu_shared_counters_snapshot(several, NULL, 1));
    OK(thiscpu_shared_counters_close(several));
    OK(thiscpu_segment_close(segment));
    CHECK(shared == NULL);

    // Valid handles, but no place for the result.
    thiscpu_counter *counter;
    thiscpu_ledger *ledger;
    thiscpu_word *word;
    OK(thiscpu_counter_create(&counter));
    OK(thiscpu_ledger_create(1, false, &ledger));
    OK(thiscpu_word_create(8, &word));
    NULL_IS_REPORTED(thiscpu_counter_sum(counter, NULL));
    NULL_IS_REPORTED(thiscpu_ledger_for_each(ledger, NULL, NULL));
    NULL_IS_REPORTED(thiscpu_account_open(ledger, NULL));
    NULL_IS_REPORTED(thiscpu_word_values(word, NULL, 1, &count));
    NULL_IS_REPORTED(thiscpu_word_values(word, &number, 1, NULL));
    OK(thiscpu_counter_destroy(counter));
    OK(thiscpu_ledger_destroy(ledger));
    OK(thiscpu_word_destroy(word));
    thiscpu_account *account = NULL;
    NULL_IS_REPORTED(thiscpu_account_open(NULL, &account));
    CHECK(account == NULL);
    CHECK(lease == NULL && acquire == NULL);
}

static void sizes(void) {
    thiscpu_word *word;
    thiscpu_pair *pair;
    thiscpu_ledger *ledger;
    thiscpu_cache *cache;
    thiscpu_budget *budget;
    RETURNS(THISCPU_STATUS_INVALID_SIZE, thiscpu_word_create(0, &word));
    RETURNS(THISCPU_STATUS_INVALID_SIZE, thiscpu_word_create(3, &word));
    RETURNS(THISCPU_STATUS_INVALID_SIZE, thiscpu_word_create(16, &word));
    RETURNS(THISCPU_STATUS_INVALID_SIZE, thiscpu_pair_create(2, &pair));
    RETURNS(THISCPU_STATUS_INVALID_SIZE, thiscpu_ledger_create(0, false, &ledger));
    RETURNS(THISCPU_STATUS_INVALID_SIZE,
            thiscpu_ledger_create(THISCPU_LEDGER_COUNTERS_MAX + 1, false, &ledger));
    OK(thiscpu_ledger_create(THISCPU_LEDGER_COUNTERS_MAX, true, &ledger));
    OK(thiscpu_ledger_destroy(ledger));
    RETURNS(THISCPU_STATUS_INVALID_SIZE, thiscpu_cache_create(8, 0, &cache));
    RETURNS(THISCPU_STATUS_INVALID_SIZE, thiscpu_cache_create(8, 3, &cache));
    RETURNS(THISCPU_STATUS_INVALID_SIZE, thiscpu_cache_create(8, 1 << 17, &cache));
    RETURNS(THISCPU_STATUS_INVALID_SIZE, thiscpu_cache_create((1 << 20) + 1, 8, &cache));
    RETURNS(THISCPU_STATUS_INVALID_SIZE, thiscpu_cache_create(SIZE_MAX, 8, &cache));
    thiscpu_constructed_cache *constructed;
    const size_t wrong[][2] = {{8, 0}, {8, 3}, {8, 1 << 17}, {(1 << 20) - 7, 8}, {SIZE_MAX, 8}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        RETURNS(THISCPU_STATUS_INVALID_SIZE,
                thiscpu_constructed_cache_create(wrong[i][0], wrong[i][1], construct, NULL, NULL,
                                                 &constructed));
    }
    RETURNS(THISCPU_STATUS_OUT_OF_RANGE,
            thiscpu_budget_create(THISCPU_BUDGET_LIMIT_MAX + 1, &budget));
}

#define MISALIGNED(pointer) ((void *)((char *)(pointer) + 1))
#define IS_MISALIGNED(...) RETURNS(THISCPU_STATUS_MISALIGNED, __VA_ARGS__)

// A name in parentheses is the library's function, not the inlined call. A misaligned handle is
// rejected, and the right one stays usable.
static void misaligned(void) {
    int64_t sum[2] = {0};
    uint64_t number[2] = {0};
    size_t count[2] = {0};
    thiscpu_counter *counter;
    OK(thiscpu_counter_create(&counter));
    IS_MISALIGNED((thiscpu_counter_add)(MISALIGNED(counter), 1));
    IS_MISALIGNED(thiscpu_counter_sum(counter, MISALIGNED(sum)));
    IS_MISALIGNED(thiscpu_counter_create(MISALIGNED(sum)));
    IS_MISALIGNED(thiscpu_counter_destroy(MISALIGNED(counter)));
    OK(thiscpu_counter_destroy(counter));
    thiscpu_counters *counters;
    OK(thiscpu_counters_create(1, &counters));
    IS_MISALIGNED((thiscpu_counters_add)(MISALIGNED(counters), 0, 1));
    IS_MISALIGNED(thiscpu_counters_snapshot(counters, MISALIGNED(sum), 1));
    IS_MISALIGNED(thiscpu_counters_destroy(MISALIGNED(counters)));
    thiscpu_summable both[2] = {{NULL, MISALIGNED(counters)}, {NULL, counters}};
    IS_MISALIGNED(thiscpu_sum_all(both, 1, sum, 1));
    IS_MISALIGNED(thiscpu_sum_all(&both[1], 1, MISALIGNED(sum), 1));
    OK(thiscpu_counters_destroy(counters));
    thiscpu_budget *budget;
    OK(thiscpu_budget_create(1, &budget));
    IS_MISALIGNED((thiscpu_budget_try_acquire)(MISALIGNED(budget), 1));
    IS_MISALIGNED((thiscpu_budget_release)(MISALIGNED(budget), 1));
    IS_MISALIGNED(thiscpu_budget_available(budget, MISALIGNED(number)));
    thiscpu_lease *lease;
    thiscpu_acquire *acquire;
    IS_MISALIGNED(thiscpu_budget_try_lease(budget, 1, MISALIGNED(number)));
    OK(thiscpu_budget_try_lease(budget, 1, &lease));
    IS_MISALIGNED(thiscpu_lease_split(MISALIGNED(lease), 1, &lease));
    IS_MISALIGNED(thiscpu_lease_forget(lease, MISALIGNED(number)));
    IS_MISALIGNED(thiscpu_lease_destroy(MISALIGNED(lease)));
    OK(thiscpu_lease_destroy(lease));
    IS_MISALIGNED(thiscpu_budget_acquire_async(budget, 1, wake, NULL, MISALIGNED(number)));
    OK(thiscpu_budget_acquire_async(budget, 1, wake, NULL, &acquire));
    IS_MISALIGNED(thiscpu_acquire_take(acquire, MISALIGNED(number)));
    IS_MISALIGNED(thiscpu_acquire_destroy(MISALIGNED(acquire)));
    OK(thiscpu_acquire_destroy(acquire));
    IS_MISALIGNED(thiscpu_budget_destroy(MISALIGNED(budget)));
    OK(thiscpu_budget_destroy(budget));
    thiscpu_ledger *ledger;
    thiscpu_account *account;
    OK(thiscpu_ledger_create(1, false, &ledger));
    OK(thiscpu_account_open(ledger, &account));
    IS_MISALIGNED(thiscpu_account_open(MISALIGNED(ledger), &account));
    IS_MISALIGNED((thiscpu_account_charge)(MISALIGNED(account), 0, 1));
    IS_MISALIGNED(thiscpu_account_close(MISALIGNED(account)));
    IS_MISALIGNED(thiscpu_ledger_destroy(MISALIGNED(ledger)));
    OK(thiscpu_account_close(account));
    OK(thiscpu_ledger_destroy(ledger));
    thiscpu_cache *cache;
    OK(thiscpu_cache_create(8, 8, &cache));
    CHECK((thiscpu_cache_alloc)(MISALIGNED(cache)) == NULL);
    IS_MISALIGNED((thiscpu_cache_free)(MISALIGNED(cache), sum));
    IS_MISALIGNED(thiscpu_cache_close(MISALIGNED(cache), NULL));
    IS_MISALIGNED(thiscpu_cache_close(cache, MISALIGNED(count)));
    IS_MISALIGNED(thiscpu_cache_destroy(MISALIGNED(cache)));
    OK(thiscpu_cache_close(cache, NULL));
    thiscpu_constructed_cache *constructed;
    OK(thiscpu_constructed_cache_create(8, 8, construct, NULL, NULL, &constructed));
    CHECK(thiscpu_constructed_cache_alloc(MISALIGNED(constructed)) == NULL);
    IS_MISALIGNED(thiscpu_constructed_cache_free(MISALIGNED(constructed), sum));
    IS_MISALIGNED(thiscpu_constructed_cache_shrink(constructed, MISALIGNED(count)));
    IS_MISALIGNED(thiscpu_constructed_cache_stats(constructed, MISALIGNED(count)));
    IS_MISALIGNED(thiscpu_constructed_cache_prefill(constructed, 1, MISALIGNED(count)));
    IS_MISALIGNED(thiscpu_constructed_cache_close(MISALIGNED(constructed), NULL));
    IS_MISALIGNED(thiscpu_constructed_cache_close(constructed, MISALIGNED(count)));
    IS_MISALIGNED(thiscpu_constructed_cache_destroy(MISALIGNED(constructed)));
    OK(thiscpu_constructed_cache_close(constructed, NULL));
    for (size_t bytes = 1; bytes <= 8; bytes *= 2) {
        thiscpu_word *word;
        OK(thiscpu_word_create(bytes, &word));
        IS_MISALIGNED((thiscpu_word_add)(MISALIGNED(word), 1));
        IS_MISALIGNED(thiscpu_word_values(word, MISALIGNED(number), 1, count));
        IS_MISALIGNED(thiscpu_word_destroy(MISALIGNED(word)));
        OK(thiscpu_word_destroy(word));
    }
    thiscpu_pair *pair;
    OK(thiscpu_pair_create(8, &pair));
    IS_MISALIGNED(thiscpu_pair_values(MISALIGNED(pair), NULL, 0, count));
    IS_MISALIGNED(thiscpu_pair_destroy(MISALIGNED(pair)));
    OK(thiscpu_pair_destroy(pair));
    thiscpu_stack *stack;
    thiscpu_link *node;
    OK(thiscpu_stack_create(&stack));
    IS_MISALIGNED(thiscpu_stack_pop(MISALIGNED(stack), &node));
    IS_MISALIGNED(thiscpu_stack_destroy(MISALIGNED(stack)));
    OK(thiscpu_stack_destroy(stack));
    thiscpu_segment *segment;
    thiscpu_segment_options options[2] = {{.lanes = 1}, {.lanes = 1}};
    thiscpu_shared_counter *shared;
    thiscpu_shared_counters *several;
    IS_MISALIGNED(thiscpu_segment_anonymous(MISALIGNED(options), &segment));
    IS_MISALIGNED(thiscpu_segment_anonymous(options, MISALIGNED(number)));
    OK(thiscpu_segment_anonymous(options, &segment));
    IS_MISALIGNED(thiscpu_segment_fd(segment, MISALIGNED(number)));
    IS_MISALIGNED(thiscpu_shared_counter_open(MISALIGNED(segment), "name", &shared));
    OK(thiscpu_shared_counter_open(segment, "name", &shared));
    OK(thiscpu_shared_counters_open(segment, "names", 1, &several));
    IS_MISALIGNED(thiscpu_shared_counter_add(MISALIGNED(shared), 1));
    IS_MISALIGNED(thiscpu_shared_counter_sum(shared, MISALIGNED(sum)));
    IS_MISALIGNED(thiscpu_shared_counter_close(MISALIGNED(shared)));
    IS_MISALIGNED(thiscpu_shared_counters_add(MISALIGNED(several), 0, 1));
    IS_MISALIGNED(thiscpu_shared_counters_snapshot(several, MISALIGNED(sum), 1));
    IS_MISALIGNED(thiscpu_shared_counters_close(MISALIGNED(several)));
    IS_MISALIGNED(thiscpu_segment_close(MISALIGNED(segment)));
    OK(thiscpu_shared_counter_close(shared));
    OK(thiscpu_shared_counters_close(several));
    OK(thiscpu_segment_close(segment));
}

static void messages(void) {
    // A library's version may go on after the header's.
    CHECK(strncmp(thiscpu_version(), THISCPU_VERSION, strlen(THISCPU_VERSION)) == 0);
    for (int status = THISCPU_STATUS_OK; status <= THISCPU_STATUS_INTERNAL; status++) {
        CHECK(strlen(thiscpu_strerror(status)) > 3);
        CHECK(strcmp(thiscpu_strerror(status), thiscpu_strerror(-1)) != 0);
        for (int other = THISCPU_STATUS_OK; other < status; other++) {
            CHECK(strcmp(thiscpu_strerror(status), thiscpu_strerror(other)) != 0);
        }
    }
    CHECK(strcmp(thiscpu_strerror(-1), thiscpu_strerror(THISCPU_STATUS_INTERNAL + 1)) == 0);
}

static void *has_no_error(void *with) {
    (void)with;
    CHECK(strstr(thiscpu_last_error(), "no call of this thread") != NULL);
    return NULL;
}

#define LAST_ERROR_HAS(part) CHECK(strstr(thiscpu_last_error(), part) != NULL)

// The sentence is that of the last failed call of this thread, with its details.
static void last_errors(void) {
    thiscpu_budget *budget;
    uint64_t number;
    pthread_t thread;
    OK(thiscpu_budget_create(10, &budget));
    OK(thiscpu_budget_try_acquire(budget, 7));
    RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_budget_try_acquire(budget, 4));
    LAST_ERROR_HAS("only 3 units are available");
    OK(thiscpu_budget_try_acquire(budget, 2));
    OK(thiscpu_budget_available(budget, &number));
    LAST_ERROR_HAS("only 3 units are available");
    RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_budget_acquire_timeout(budget, 4, 1));
    LAST_ERROR_HAS("only 1 units are available");
    CHECK(pthread_create(&thread, NULL, has_no_error, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(thiscpu_budget_close(budget));
    RETURNS(THISCPU_STATUS_CLOSED, thiscpu_budget_try_acquire(budget, 1));
    CHECK(strcmp(thiscpu_last_error(), thiscpu_strerror(THISCPU_STATUS_CLOSED)) == 0);
    NULL_IS_REPORTED(thiscpu_budget_available(NULL, &number));
    CHECK(strcmp(thiscpu_last_error(), thiscpu_strerror(THISCPU_STATUS_NULL_POINTER)) == 0);
    OK(thiscpu_budget_destroy(budget));
}

static void null_destroys(void) {
    OK(thiscpu_counter_destroy(NULL));
    OK(thiscpu_budget_destroy(NULL));
    OK(thiscpu_lease_destroy(NULL));
    OK(thiscpu_acquire_destroy(NULL));
    OK(thiscpu_ledger_destroy(NULL));
    OK(thiscpu_account_close(NULL));
    OK(thiscpu_cache_destroy(NULL));
    OK(thiscpu_cache_close(NULL, NULL));
    OK(thiscpu_constructed_cache_destroy(NULL));
    OK(thiscpu_constructed_cache_close(NULL, NULL));
    OK(thiscpu_word_destroy(NULL));
    OK(thiscpu_pair_destroy(NULL));
    OK(thiscpu_stack_destroy(NULL));
    OK(thiscpu_segment_close(NULL));
    OK(thiscpu_shared_counter_close(NULL));
    OK(thiscpu_shared_counters_close(NULL));
}

int main(void) {
    has_no_error(NULL);
    last_errors();
    nulls();
    sizes();
    misaligned();
    messages();
    null_destroys();
    return 0;
}
