// A shared object that contains a copy of the library; a process loads two. NAME is the prefix of
// its functions.
#include "threads.h"

#define JOINED(name, rest) name##_##rest
#define FUNCTION(name, rest) JOINED(name, rest)

enum { EACH = 300000 };

// Linked with `--wrap`, so that calls of the library's function are counted.
#undef thiscpu_counter_add
static _Atomic long calls;
thiscpu_status __real_thiscpu_counter_add(thiscpu_counter *counter, int64_t n);
thiscpu_status __wrap_thiscpu_counter_add(thiscpu_counter *counter, int64_t n);
thiscpu_status __wrap_thiscpu_counter_add(thiscpu_counter *counter, int64_t n) {
    calls++;
    return __real_thiscpu_counter_add(counter, n);
}

// The number of adds on each thread. Fewer in the atomic tier, in which nothing is inlined.
static int each;

static void *add(void *with) {
    for (int i = 0; i < each; i++) {
        OK(thiscpu_counter_add_inline(with, 1));
    }
    return NULL;
}

// Adds on several threads. Returns whether most adds called the library, as `are_calls` says. In
// the atomic tier all do.
bool FUNCTION(NAME, adds)(bool are_calls);
bool FUNCTION(NAME, adds)(bool are_calls) {
    thiscpu_tier tier;
    OK(thiscpu_get_tier(&tier));
    each = tier == THISCPU_TIER_ATOMIC ? EACH / 10 : EACH;
    calls = 0;
    thiscpu_counter *counter;
    int64_t sum;
    OK(thiscpu_counter_create(&counter));
    on_threads(add, counter);
    OK(thiscpu_counter_sum(counter, &sum));
    CHECK(sum == (int64_t)THREADS * each);
    OK(thiscpu_counter_destroy(counter));
    return tier == THISCPU_TIER_ATOMIC || are_calls == (calls > (long)THREADS * each / 2);
}
