// The tier is determined at the first use, not when the library is loaded.
#include "check.h"

int main(void) {
    thiscpu_tier tier;
    CHECK(setenv("THISCPU_TIER", "atomic", 1) == 0);
    OK(thiscpu_get_tier(&tier));
    CHECK(tier == THISCPU_TIER_ATOMIC);
    thiscpu_counter *counter;
    int64_t sum;
    OK(thiscpu_counter_create(&counter));
    for (int i = 0; i < 1000; i++) {
        OK(thiscpu_counter_add(counter, 1));
    }
    OK(thiscpu_counter_sum(counter, &sum));
    CHECK(sum == 1000);
    return thiscpu_counter_destroy(counter);
}
