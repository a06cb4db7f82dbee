// The memory of destroyed handles returns to the system, whatever the C library's malloc does.
#include "check.h"
#include <stdio.h>
#include <unistd.h>

enum { COUNT = 250000 };
static thiscpu_counter *counters[COUNT];
static thiscpu_account *accounts[COUNT];

static long resident(void) {
    long whole, resident;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%ld %ld", &whole, &resident) == 2);
    fclose(file);
    return resident * sysconf(_SC_PAGESIZE);
}

// Checks that at most a fifth of the used memory stays.
static void check(long before, long used) {
    long left = resident() - before;
    CHECK(used - before >= COUNT * 16L);
    CHECK(left <= (used - before) / 5);
}

int main(void) {
    thiscpu_ledger *ledger;
    OK(thiscpu_ledger_create(1, false, &ledger));
    for (int i = 0; i < COUNT; i++) {
        counters[i] = NULL;
        accounts[i] = NULL;
    }
    long before = resident();
    for (int i = 0; i < COUNT; i++) {
        OK(thiscpu_counter_create(&counters[i]));
        for (int k = 0; k < 40; k++) {
            OK(thiscpu_counter_add(counters[i], 1));
        }
    }
    long used = resident();
    for (int i = 0; i < COUNT; i++) {
        OK(thiscpu_counter_destroy(counters[i]));
    }
    check(before, used);
    before = resident();
    for (int i = 0; i < COUNT; i++) {
        OK(thiscpu_account_open(ledger, &accounts[i]));
        OK(thiscpu_account_charge(accounts[i], 0, 1));
    }
    used = resident();
    for (int i = 0; i < COUNT; i++) {
        OK(thiscpu_account_close(accounts[i]));
    }
    check(before, used);
    return thiscpu_ledger_destroy(ledger);
}
