// The hot calls of C, each inlined alone in a function.
//
// `cargo xtask aborts --only calls` compares their instructions with recorded ones. The program
// does nothing when it is run.
#include <thiscpu.h>

thiscpu_status c_counter_add(thiscpu_counter *counter, int64_t n) {
    return thiscpu_counter_add(counter, n);
}

thiscpu_status c_counters_add(thiscpu_counters *counters, size_t index, int64_t n) {
    return thiscpu_counters_add(counters, index, n);
}

thiscpu_status c_budget_try_acquire(thiscpu_budget *budget, uint64_t n) {
    return thiscpu_budget_try_acquire(budget, n);
}

thiscpu_status c_budget_release(thiscpu_budget *budget, uint64_t n) {
    return thiscpu_budget_release(budget, n);
}

thiscpu_status c_account_charge(thiscpu_account *account, int64_t n) {
    return thiscpu_account_charge(account, 1, n);
}

thiscpu_status c_word_add(thiscpu_word *word, uint64_t n) { return thiscpu_word_add(word, n); }

void *c_cache_alloc(thiscpu_cache *cache) { return thiscpu_cache_alloc(cache); }

thiscpu_status c_cache_free(thiscpu_cache *cache, void *object) {
    return thiscpu_cache_free(cache, object);
}

int main(void) { return 0; }
