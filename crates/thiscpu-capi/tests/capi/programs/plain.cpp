#include <thiscpu.hpp>

#include "check.h"

// Without exceptions a failed call prints the status's message and aborts.
int main(int count, char **) {
    thiscpu::counter counter;
    counter += 2;
    CHECK(counter.sum() == 2);
    thiscpu::ledger ledger(2);
    auto account = ledger.open();
    account.charge(1, 3);
    CHECK(ledger.snapshot().size() == 1);
    thiscpu::cache<int> cache;
    cache.destroy(cache.make(4));
    if (count > 1) {
        thiscpu::ledger none(0);
    }
    return 0;
}
