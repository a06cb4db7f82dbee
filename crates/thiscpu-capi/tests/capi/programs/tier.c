#include "check.h"
#include <string.h>

// Prints the tier. With an argument, checks that every creation fails, and with which status.
int main(int count, char **arguments) {
    thiscpu_tier tier;
    if (count == 1) {
        OK(thiscpu_get_tier(&tier));
        puts(tier == THISCPU_TIER_ATOMIC ? "atomic" : "sections");
        return 0;
    }
    bool is_unknown = strcmp(arguments[1], "unknown") == 0;
    thiscpu_status expected =
        is_unknown ? THISCPU_STATUS_UNKNOWN_TIER : THISCPU_STATUS_TIER_UNAVAILABLE;
    thiscpu_counter *counter = NULL;
    thiscpu_budget *budget;
    thiscpu_ledger *ledger;
    thiscpu_cache *cache;
    thiscpu_word *word;
    thiscpu_pair *pair;
    thiscpu_stack *stack;
    RETURNS(expected, thiscpu_get_tier(&tier));
    RETURNS(expected, thiscpu_counter_create(&counter));
    RETURNS(expected, thiscpu_budget_create(1, &budget));
    RETURNS(expected, thiscpu_ledger_create(1, false, &ledger));
    RETURNS(expected, thiscpu_cache_create(8, 8, &cache));
    RETURNS(expected, thiscpu_word_create(8, &word));
    RETURNS(expected, thiscpu_pair_create(8, &pair));
    RETURNS(expected, thiscpu_stack_create(&stack));
    CHECK(counter == NULL);
    return 0;
}
