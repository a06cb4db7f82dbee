// Linked with `--wrap` for the hot functions, so that calls of the library's functions are counted.
// With sections there must be hardly any.
#include "check.h"
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MANY = 10000 };

static long calls;

#define WRAP(answer, name, parameters, ...)                                                        \
    answer __real_##name parameters;                                                               \
    answer __wrap_##name parameters;                                                               \
    answer __wrap_##name parameters {                                                              \
        calls++;                                                                                   \
        return __real_##name(__VA_ARGS__);                                                         \
    }

#undef thiscpu_counter_add
#undef thiscpu_counters_add
#undef thiscpu_budget_try_acquire
#undef thiscpu_budget_release
#undef thiscpu_account_charge
#undef thiscpu_cache_alloc
#undef thiscpu_cache_free
#undef thiscpu_word_add
WRAP(thiscpu_status, thiscpu_counter_add, (thiscpu_counter * counter, int64_t n), counter, n)
WRAP(thiscpu_status, thiscpu_counters_add, (thiscpu_counters * counters, size_t i, int64_t n),
     counters, i, n)
WRAP(thiscpu_status, thiscpu_budget_try_acquire, (thiscpu_budget * budget, uint64_t n), budget, n)
WRAP(thiscpu_status, thiscpu_budget_release, (thiscpu_budget * budget, uint64_t n), budget, n)
WRAP(thiscpu_status, thiscpu_account_charge, (thiscpu_account * account, size_t i, int64_t n),
     account, i, n)
WRAP(void *, thiscpu_cache_alloc, (thiscpu_cache * cache), cache)
WRAP(thiscpu_status, thiscpu_cache_free, (thiscpu_cache * cache, void *object), cache, object)
WRAP(thiscpu_status, thiscpu_word_add, (thiscpu_word * word, uint64_t n), word, n)

static thiscpu_tier tier;
// The calls of each kind. Fewer in the atomic tier, in which nothing is inlined.
static int each;

// Runs the code a few times first, because first uses call the library.
#define HARDLY_CALLS(name, ...)                                                                    \
    do {                                                                                           \
        for (int i = 0; i < 1000; i++) {                                                           \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
        calls = 0;                                                                                 \
        for (int i = 0; i < each; i++) {                                                           \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
        if (tier != THISCPU_TIER_ATOMIC && calls > each / 10) {                                    \
            fprintf(stderr, "%s: %ld of %d called the library\n", name, calls, each);              \
            return 1;                                                                              \
        }                                                                                          \
        CHECK(tier != THISCPU_TIER_ATOMIC || calls >= each);                                       \
    } while (0)

// Checks that a misuse of an object aborts. On one CPU, so that the next allocation returns the
// object that was freed last.
static void aborts(thiscpu_cache *cache, void (*misuse)(thiscpu_cache *cache)) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        cpu_set_t cpu;
        CPU_ZERO(&cpu);
        CPU_SET(sched_getcpu(), &cpu);
        CHECK(sched_setaffinity(0, sizeof cpu, &cpu) == 0);
        CHECK(freopen("/dev/null", "w", stderr));
        misuse(cache);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void write_after_free(thiscpu_cache *cache) {
    volatile uint64_t *object = thiscpu_cache_alloc_inline(cache);
    thiscpu_cache_free_inline(cache, (void *)object);
    *object = 1;
    for (int i = 0; i < MANY; i++) {
        thiscpu_cache_alloc_inline(cache);
    }
}

static void double_free(thiscpu_cache *cache) {
    void *object = thiscpu_cache_alloc_inline(cache);
    thiscpu_cache_free_inline(cache, object);
    thiscpu_cache_free_inline(cache, object);
}

int main(void) {
    OK(thiscpu_get_tier(&tier));
    each = tier == THISCPU_TIER_ATOMIC ? 1000 : 100000;

    thiscpu_counter *counter;
    int64_t sum;
    OK(thiscpu_counter_create(&counter));
    HARDLY_CALLS("a counter's add", OK(thiscpu_counter_add_inline(counter, 3)));
    OK(thiscpu_counter_sum(counter, &sum));
    CHECK(sum == 3L * (each + 1000));
    RETURNS(THISCPU_STATUS_NULL_POINTER, thiscpu_counter_add_inline(NULL, 1));

    thiscpu_counters *several;
    int64_t sums[3];
    OK(thiscpu_counters_create(3, &several));
    HARDLY_CALLS("an add to one of several",
                 OK(thiscpu_counters_add_inline(several, (size_t)i % 3, i % 3 + 1)));
    /* The memory after one of the groups is the other's, where an add would succeed. */
    thiscpu_counters *others;
    OK(thiscpu_counters_create(3, &others));
    for (int i = 0; i < 10000; i++) OK(thiscpu_counters_add_inline(others, (size_t)i % 3, 1));
    RETURNS(THISCPU_STATUS_OUT_OF_RANGE, thiscpu_counters_add_inline(others, 3, 1));
    RETURNS(THISCPU_STATUS_OUT_OF_RANGE, thiscpu_counters_add_inline(several, 3, 1));
    OK(thiscpu_counters_destroy(others));
    RETURNS(THISCPU_STATUS_OUT_OF_RANGE, thiscpu_counters_add_inline(several, SIZE_MAX, 1));
    RETURNS(THISCPU_STATUS_NULL_POINTER, thiscpu_counters_add_inline(NULL, 0, 1));
    OK(thiscpu_counters_snapshot(several, sums, 3));
    for (int index = 0; index < 3; index++) {
        CHECK(sums[index] == (index + 1) * ((each + 2 - index) / 3 + (1002 - index) / 3));
    }
    OK(thiscpu_counters_destroy(several));

    thiscpu_budget *budget;
    uint64_t available;
    OK(thiscpu_budget_create(1 << 30, &budget));
    HARDLY_CALLS("a budget's acquire and release", OK(thiscpu_budget_try_acquire_inline(budget, 5));
                 OK(thiscpu_budget_release_inline(budget, 4)));
    OK(thiscpu_budget_available(budget, &available));
    CHECK((int64_t)available == (1 << 30) - (each + 1000));
    RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_budget_try_acquire_inline(budget, 1 << 30));
    RETURNS(THISCPU_STATUS_EXHAUSTED, thiscpu_budget_try_acquire_inline(budget, UINT64_MAX));
    RETURNS(THISCPU_STATUS_NULL_POINTER, thiscpu_budget_try_acquire_inline(NULL, 1));
    RETURNS(THISCPU_STATUS_NULL_POINTER, thiscpu_budget_release_inline(NULL, 1));

    thiscpu_ledger *ledger;
    thiscpu_account *account;
    for (size_t counters = 1; counters <= THISCPU_LEDGER_COUNTERS_MAX; counters++) {
        OK(thiscpu_ledger_create(counters, true, &ledger));
        OK(thiscpu_account_open(ledger, &account));
        HARDLY_CALLS("a charge",
                     OK(thiscpu_account_charge_inline(account, counters - 1, i % 2 ? 7 : -6)));
        RETURNS(THISCPU_STATUS_OUT_OF_RANGE, thiscpu_account_charge_inline(account, counters, 1));
        for (size_t index = 0; index < counters; index++) {
            OK(thiscpu_account_sum(account, index, &sum));
            CHECK(sum == (index == counters - 1 ? (each + 1000) / 2 : 0));
        }
        OK(thiscpu_account_close(account));
        OK(thiscpu_ledger_destroy(ledger));
    }
    RETURNS(THISCPU_STATUS_NULL_POINTER, thiscpu_account_charge_inline(NULL, 0, 1));

    // A thread whose accounts are hardly ever cached bypasses the cache, and returns to it later.
    static thiscpu_account *accounts[MANY];
    OK(thiscpu_ledger_create(2, true, &ledger));
    for (int i = 0; i < MANY; i++) {
        OK(thiscpu_account_open(ledger, &accounts[i]));
    }
    calls = 0;
    for (int i = 0; i < 50 * MANY; i++) {
        OK(thiscpu_account_charge_inline(accounts[i % MANY], 1, 1));
    }
    CHECK(calls > 25 * MANY);
    for (int i = 0; i < 50 * MANY; i++) {
        OK(thiscpu_account_charge_inline(accounts[0], 1, 1));
    }
    HARDLY_CALLS("a charge to one of many", OK(thiscpu_account_charge_inline(accounts[0], 1, 1)));
    OK(thiscpu_account_sum(accounts[0], 1, &sum));
    CHECK(sum == 50 + 50 * MANY + each + 1000);
    for (int i = 0; i < MANY; i++) {
        OK(thiscpu_account_close(accounts[i]));
    }
    OK(thiscpu_ledger_destroy(ledger));

    thiscpu_cache *cache;
    void *objects[20];
    OK(thiscpu_cache_create(24, 8, &cache));
    HARDLY_CALLS("a pair of alloc and free", {
        void *object = thiscpu_cache_alloc_inline(cache);
        CHECK(object && *(uint64_t *)object == 0);
        *(uint64_t *)object = 1;
        OK(thiscpu_cache_free_inline(cache, object));
    });
    HARDLY_CALLS("objects of a sheaf", {
        objects[i % 20] = thiscpu_cache_alloc_inline(cache);
        for (int other = 0; i % 20 == 19 && other < 20; other++) {
            OK(thiscpu_cache_free_inline(cache, objects[other]));
        }
    });
    static void *many[MANY];
    for (int i = 0; i < MANY; i++) {
        CHECK((many[i] = thiscpu_cache_alloc_inline(cache)));
    }
    for (int i = 0; i < MANY; i++) {
        OK(thiscpu_cache_free_inline(cache, many[i]));
    }
    aborts(cache, write_after_free);
    aborts(cache, double_free);
    CHECK(!thiscpu_cache_alloc_inline(NULL));
    RETURNS(THISCPU_STATUS_NULL_POINTER, thiscpu_cache_free_inline(NULL, &sum));
    OK(thiscpu_cache_free_inline(cache, NULL));
    OK(thiscpu_cache_close(cache, NULL));

    for (size_t bytes = 1; bytes <= 8; bytes *= 2) {
        thiscpu_word *word;
        uint64_t values[4096], total = 0;
        size_t count;
        OK(thiscpu_word_create(bytes, &word));
        HARDLY_CALLS("a word's add", OK(thiscpu_word_add_inline(word, 0x100000003)));
        OK(thiscpu_word_values(word, values, 4096, &count));
        uint64_t mask = bytes == 8 ? UINT64_MAX : (UINT64_C(1) << 8 * bytes) - 1;
        for (size_t i = 0; i < count; i++) {
            CHECK(values[i] <= mask);
            total += values[i];
        }
        CHECK((total & mask) == ((each + 1000) * UINT64_C(0x100000003) & mask));
        OK(thiscpu_word_destroy(word));
    }
    RETURNS(THISCPU_STATUS_NULL_POINTER, thiscpu_word_add_inline(NULL, 1));
    OK(thiscpu_budget_destroy(budget));
    OK(thiscpu_counter_destroy(counter));
    return 0;
}
