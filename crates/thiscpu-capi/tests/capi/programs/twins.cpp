// Linked with twin.cpp.
#include "check.h"
#include "twin.h"

int main() {
    tally tally;
    tally.add(10);
    add_to(tally.counter.get(), 20);
    add_any(tally.counter.get(), 30L);
    add_in_other_file(tally);
    // A comma that does not separate arguments.
    OK(thiscpu_counter_add(of_both<int, long>(tally.counter.get()), 1));
    CHECK(tally.counter.sum() == 67);
    return 0;
}
