// The inlined calls of C programs, each compiled once. inlined.rs has the functions that they call.
#include <thiscpu.h>

void inlined_counter_add(thiscpu_counter *counter, int64_t n) {
    thiscpu_counter_add(counter, n);
}

void inlined_counters_add(thiscpu_counters *counters, size_t index, int64_t n) {
    thiscpu_counters_add(counters, index, n);
}

void inlined_budget_try_acquire(thiscpu_budget *budget, uint64_t n) {
    thiscpu_budget_try_acquire(budget, n);
}

void inlined_budget_release(thiscpu_budget *budget, uint64_t n) {
    thiscpu_budget_release(budget, n);
}

void inlined_account_charge(thiscpu_account *account, size_t index, int64_t n) {
    thiscpu_account_charge(account, index, n);
}

void *inlined_cache_alloc(thiscpu_cache *cache) {
    return thiscpu_cache_alloc(cache);
}

void inlined_cache_free(thiscpu_cache *cache, void *object) {
    thiscpu_cache_free(cache, object);
}

void inlined_word_add(thiscpu_word *word, uint64_t n) {
    thiscpu_word_add(word, n);
}
