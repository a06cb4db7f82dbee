#include "check.h"
#include <string.h>

// Says what it runs on; with an argument, that nothing can be made, and why.
int main(int count, char **arguments) {
    thiscpu_tier tier;
    if (count == 1) {
        OK(thiscpu_get_tier(&tier));
        puts(tier == THISCPU_TIER_ATOMIC ? "atomic" : "sections");
        return 0;
    }
    thiscpu_status wanted = strcmp(arguments[1], "unknown") == 0 ? THISCPU_STATUS_UNKNOWN_TIER : THISCPU_STATUS_TIER_UNAVAILABLE;
    thiscpu_counter *counter = NULL;
    thiscpu_budget *budget;
    thiscpu_ledger *ledger;
    thiscpu_cache *cache;
    thiscpu_word *word;
    thiscpu_pair *pair;
    thiscpu_stack *stack;
    SAYS(wanted, thiscpu_get_tier(&tier));
    SAYS(wanted, thiscpu_counter_create(&counter));
    SAYS(wanted, thiscpu_budget_create(1, &budget));
    SAYS(wanted, thiscpu_ledger_create(1, false, &ledger));
    SAYS(wanted, thiscpu_cache_create(8, 8, &cache));
    SAYS(wanted, thiscpu_word_create(8, &word));
    SAYS(wanted, thiscpu_pair_create(8, &pair));
    SAYS(wanted, thiscpu_stack_create(&stack));
    CHECK(counter == NULL);
    return 0;
}
