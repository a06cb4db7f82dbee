// Calls use little stack and are no cancellation points. Each is made in a process of its own, so
// that the first use of what it needs is included.
#include "check.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MANY = 3000, IN_HANDLER = 2 << 10, ANYWHERE = 16 << 10 };

static thiscpu_counter *counter;
static thiscpu_counters *several;
static thiscpu_budget *budget;
static thiscpu_ledger *ledger;
static thiscpu_account *account, *other;
static thiscpu_cache *cache;
static thiscpu_constructed_cache *constructed;
static thiscpu_word *word;
static thiscpu_pair *pair;
static thiscpu_stack *nodes;
static thiscpu_link links[4];

static void make_counter(void) { OK(thiscpu_counter_create(&counter)); }

static void add_many(void) {
    for (int i = 0; i < MANY; i++) {
        OK(thiscpu_counter_add(counter, 1 << 20));
    }
}

static void make_and_add(void) {
    make_counter();
    add_many();
}

static void read_counter(void) {
    int64_t value;
    thiscpu_bounds bounds;
    OK(thiscpu_counter_read(counter, &value));
    OK(thiscpu_counter_bounds(counter, &bounds));
}

static void sum_counter(void) {
    int64_t value;
    int32_t ordering;
    OK(thiscpu_counter_sum(counter, &value));
    OK(thiscpu_counter_compare(counter, value, &ordering));
    OK(thiscpu_counter_set(counter, 1));
    OK(thiscpu_counter_take(counter, &value));
    OK(thiscpu_counter_destroy(counter));
}

static void make_counters(void) {
    OK(thiscpu_counters_create(THISCPU_COUNTERS_MAX, &several));
}

static void add_to_counters(void) {
    int64_t value;
    for (size_t i = 0; i < MANY; i++) {
        OK(thiscpu_counters_add(several, i, 1 << 20));
    }
    OK(thiscpu_counters_read(several, 1, &value));
}

static void make_and_add_to_counters(void) {
    make_counters();
    add_to_counters();
}

static void sum_counters(void) {
    static int64_t values[THISCPU_COUNTERS_MAX];
    thiscpu_summable summable = {NULL, several};
    OK(thiscpu_counters_sum(several, 1, values));
    OK(thiscpu_counters_snapshot(several, values, THISCPU_COUNTERS_MAX));
    OK(thiscpu_sum_all(&summable, 1, values, THISCPU_COUNTERS_MAX));
    OK(thiscpu_counters_destroy(several));
}

static void make_budget(void) { OK(thiscpu_budget_create(1 << 30, &budget)); }

static void make_and_hold(void) {
    make_budget();
    OK(thiscpu_budget_try_acquire(budget, MANY));
}

static void release_many(void) {
    for (int i = 0; i < MANY; i++) {
        OK(thiscpu_budget_release(budget, 1));
    }
}

static void use_budget(void) {
    uint64_t n;
    for (int i = 0; i < MANY; i++) {
        OK(thiscpu_budget_try_acquire(budget, 1));
    }
    RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_budget_try_acquire(budget, 1 << 30));
    RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_budget_acquire_timeout(budget, 1 << 30, 1000000));
    OK(thiscpu_budget_acquire(budget, 1));
    OK(thiscpu_budget_try_acquire_up_to(budget, 5, &n));
    OK(thiscpu_budget_available(budget, &n));
    OK(thiscpu_budget_acquired(budget, &n));
    OK(thiscpu_budget_set_limit(budget, 1 << 20));
    OK(thiscpu_budget_limit(budget, &n));
    OK(thiscpu_budget_destroy(budget));
}

static void *release_to_waiter(void *unused) {
    for (uint64_t waiters = 0; waiters == 0; sched_yield()) {
        OK(thiscpu_budget_waiters(budget, &waiters));
    }
    OK(thiscpu_budget_release(budget, 4));
    return unused;
}

static void hold_for_a_while(void) {
    pthread_t thread;
    OK(thiscpu_budget_create(4, &budget));
    OK(thiscpu_budget_try_acquire(budget, 4));
    CHECK(pthread_create(&thread, NULL, release_to_waiter, NULL) == 0);
}

static void wait_for_units(void) { OK(thiscpu_budget_acquire(budget, 3)); }

static void make_ledger(void) {
    OK(thiscpu_ledger_create(8, true, &ledger));
    OK(thiscpu_account_open(ledger, &account));
    OK(thiscpu_account_open(ledger, &other));
}

static void ignore(uint64_t id, const int64_t *counters, void *context) {
    (void)id, (void)counters, (void)context;
}

static void use_ledger(void) {
    int64_t value, values[8];
    uint64_t id;
    size_t len;
    for (int i = 0; i < MANY; i++) {
        OK(thiscpu_account_charge(account, 7, 1));
    }
    OK(thiscpu_account_charge_uncached(account, 7, 1));
    OK(thiscpu_account_read(account, 7, &value));
    OK(thiscpu_account_sum(account, 7, &value));
    OK(thiscpu_account_snapshot(account, values, 8));
    OK(thiscpu_account_transfer(account, other, 7, 1));
    OK(thiscpu_account_id(account, &id));
    OK(thiscpu_ledger_len(ledger, &len));
    OK(thiscpu_ledger_sync(ledger));
    OK(thiscpu_ledger_for_each(ledger, ignore, NULL));
    OK(thiscpu_account_close(account));
    OK(thiscpu_account_close(other));
    OK(thiscpu_ledger_destroy(ledger));
}

static void make_cache(void) { OK(thiscpu_cache_create(64, 8, &cache)); }

static void use_cache(void) {
    static void *objects[MANY];
    size_t bytes;
    thiscpu_cache_statistics stats;
    for (int i = 0; i < MANY; i++) {
        CHECK((objects[i] = thiscpu_cache_alloc(cache)) != NULL);
    }
    for (int i = 0; i < MANY; i++) {
        OK(thiscpu_cache_free(cache, objects[i]));
    }
    OK(thiscpu_cache_shrink(cache, &bytes));
    OK(thiscpu_cache_stats(cache, &stats));
    OK(thiscpu_cache_close(cache, &bytes));
}

static int construct(void *object, void *context) {
    (void)context;
    memset(object, 0, 64);
    return 0;
}

static void make_constructed(void) {
    OK(thiscpu_constructed_cache_create(64, 8, construct, NULL, NULL, &constructed));
}

static void use_constructed(void) {
    static void *objects[MANY];
    size_t bytes;
    thiscpu_cache_statistics stats;
    thiscpu_prefilled *prefilled;
    for (int i = 0; i < MANY; i++) {
        CHECK((objects[i] = thiscpu_constructed_cache_alloc(constructed)) != NULL);
    }
    for (int i = 0; i < MANY; i++) {
        OK(thiscpu_constructed_cache_free(constructed, objects[i]));
    }
    OK(thiscpu_constructed_cache_prefill(constructed, MANY, &prefilled));
    OK(thiscpu_prefilled_destroy(prefilled));
    OK(thiscpu_constructed_cache_shrink(constructed, &bytes));
    OK(thiscpu_constructed_cache_stats(constructed, &stats));
    OK(thiscpu_constructed_cache_close(constructed, &bytes));
}

static void make_words(void) {
    OK(thiscpu_word_create(8, &word));
    OK(thiscpu_pair_create(8, &pair));
    OK(thiscpu_stack_create(&nodes));
}

static void use_words(void) {
    uint64_t value, values[64];
    size_t len;
    for (int i = 0; i < MANY; i++) {
        OK(thiscpu_word_add(word, 1));
        OK(thiscpu_word_add_return(word, 1, &value));
        OK(thiscpu_word_xchg(word, 1, &value));
    }
    thiscpu_word_cmpxchg(word, 1, 2, &value);
    OK(thiscpu_word_values(word, values, 64, &len));
    static const thiscpu_halves old, desired = {1, 1};
    thiscpu_halves halves[16];
    thiscpu_pair_cmpxchg(pair, &old, &desired, halves);
    OK(thiscpu_pair_values(pair, halves, 16, &len));
}

static void use_stack(void) {
    thiscpu_link *node;
    for (int i = 0; i < 4; i++) {
        OK(thiscpu_stack_push(nodes, &links[i]));
    }
    OK(thiscpu_stack_pop(nodes, &node));
    OK(thiscpu_stack_take_all(nodes, &node));
}

static void destroy_words(void) {
    OK(thiscpu_word_destroy(word));
    OK(thiscpu_pair_destroy(pair));
    OK(thiscpu_stack_destroy(nodes));
}

static void get_tier(void) {
    thiscpu_tier tier;
    OK(thiscpu_get_tier(&tier));
}

static void nothing(void) {}

static const struct call {
    const char *name;
    void (*prepare)(void), (*run)(void);
    size_t limit;
} calls[] = {
    {"counter_add", make_counter, add_many, IN_HANDLER},
    {"counter_read, _bounds", make_and_add, read_counter, IN_HANDLER},
    {"counters_add, _read", make_counters, add_to_counters, IN_HANDLER},
    {"budget_release", make_and_hold, release_many, IN_HANDLER},
    {"word", make_words, use_words, IN_HANDLER},
    {"stack", make_words, use_stack, IN_HANDLER},
    {"get_tier", nothing, get_tier, ANYWHERE},
    {"counter_create", nothing, make_counter, ANYWHERE},
    {"counter", make_and_add, sum_counter, ANYWHERE},
    {"counters_create", nothing, make_counters, ANYWHERE},
    {"counters", make_and_add_to_counters, sum_counters, ANYWHERE},
    {"budget_create", nothing, make_budget, ANYWHERE},
    {"budget", make_budget, use_budget, ANYWHERE},
    {"budget_acquire, blocked", hold_for_a_while, wait_for_units, ANYWHERE},
    {"ledger_create", nothing, make_ledger, ANYWHERE},
    {"ledger", make_ledger, use_ledger, ANYWHERE},
    {"cache_create", nothing, make_cache, ANYWHERE},
    {"cache", make_cache, use_cache, ANYWHERE},
    {"constructed_cache_create", nothing, make_constructed, ANYWHERE},
    {"constructed_cache", make_constructed, use_constructed, ANYWHERE},
    {"word_create, pair_create, stack_create", nothing, make_words, ANYWHERE},
    {"word_destroy, pair_destroy, stack_destroy", make_words, destroy_words, ANYWHERE},
};

// Runs a function in a child, and returns its exit status.
static int in_child(const struct call *call, int (*body)(const struct call *)) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(60);
        _exit(body(call));
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

enum { STACK_BYTES = 1 << 20, PAINT = 0x5a };
static unsigned char painted[STACK_BYTES] __attribute__((aligned(64)));
static const struct call *measured;
static unsigned char *handler_frame;

static void call_on_painted_stack(int signal) {
    (void)signal;
    handler_frame = __builtin_frame_address(0);
    measured->run();
}

static int uses_too_much(const struct call *call) {
    call->prepare();
    measured = call;
    memset(painted, PAINT, sizeof painted);
    stack_t stack = {.ss_sp = painted, .ss_size = sizeof painted};
    struct sigaction action = {.sa_handler = call_on_painted_stack, .sa_flags = SA_ONSTACK};
    CHECK(sigaltstack(&stack, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(raise(SIGUSR1) == 0);
    size_t lowest = 0;
    while (lowest < sizeof painted && ((volatile unsigned char *)painted)[lowest] == PAINT) {
        lowest++;
    }
    size_t used = (size_t)(handler_frame - &painted[lowest]);
    if (used > call->limit) {
        fprintf(stderr, "%s uses %zu bytes of stack, not %zu\n", call->name, used, call->limit);
    }
    return used > call->limit;
}

static void *call_with_pending_cancel(void *call) {
    CHECK(pthread_cancel(pthread_self()) == 0);
    ((const struct call *)call)->run();
    _exit(0);
}

static int is_cancellation_point(const struct call *call) {
    pthread_t thread;
    call->prepare();
    CHECK(pthread_create(&thread, NULL, call_with_pending_cancel, (void *)call) == 0);
    pthread_join(thread, NULL);
    fprintf(stderr, "%s is a cancellation point\n", call->name);
    return 1;
}

int main(void) {
    int failures = 0;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        failures += in_child(&calls[i], uses_too_much) != 0;
        failures += in_child(&calls[i], is_cancellation_point) != 0;
    }
    // Shows that the test sees a cancellation point.
    struct call point = {"pthread_testcancel", nothing, pthread_testcancel, 0};
    CHECK(in_child(&point, is_cancellation_point) != 0);
    CHECK(failures == 0);
}
