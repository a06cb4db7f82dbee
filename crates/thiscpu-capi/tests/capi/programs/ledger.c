#include "threads.h"

enum { EACH = 50000, COUNTERS = 3 };

static thiscpu_account *accounts[2];

static void *charge(void *with) {
    (void)with;
    for (int i = 0; i < EACH; i++) {
        OK(thiscpu_account_charge(accounts[i % 2], (size_t)i % COUNTERS, 2));
        OK(thiscpu_account_charge_uncached(accounts[i % 2], (size_t)i % COUNTERS, -1));
    }
    return NULL;
}

struct totals {
    int accounts;
    int64_t sum;
};

static void add_up(uint64_t id, const int64_t *counters, void *context) {
    struct totals *totals = context;
    (void)id;
    totals->accounts++;
    for (int i = 0; i < COUNTERS; i++) {
        totals->sum += counters[i];
    }
}

int main(void) {
    thiscpu_ledger *ledger, *other;
    thiscpu_account *foreign;
    OK(thiscpu_ledger_create(COUNTERS, false, &ledger));
    OK(thiscpu_ledger_create(COUNTERS, true, &other));
    OK(thiscpu_account_open(ledger, &accounts[0]));
    OK(thiscpu_account_open(ledger, &accounts[1]));
    OK(thiscpu_account_open(other, &foreign));
    on_threads(charge, NULL);

    size_t count;
    OK(thiscpu_ledger_len(ledger, &count));
    CHECK(count == 2);
    struct totals totals = {0, 0};
    OK(thiscpu_ledger_for_each(ledger, add_up, &totals));
    CHECK(totals.accounts == 2 && totals.sum == (int64_t)EACH * THREADS);

    int64_t before[COUNTERS], after[COUNTERS], value;
    RETURNS(THISCPU_STATUS_INVALID_SIZE,
            thiscpu_account_snapshot(accounts[0], before, COUNTERS - 1));
    OK(thiscpu_account_snapshot(accounts[0], before, COUNTERS));
    OK(thiscpu_account_transfer(accounts[0], accounts[1], 1, 5));
    OK(thiscpu_account_snapshot(accounts[0], after, COUNTERS));
    CHECK(after[0] == before[0] && after[1] == before[1] - 5 && after[2] == before[2]);
    OK(thiscpu_account_sum(accounts[0], 1, &value));
    CHECK(value == after[1]);
    OK(thiscpu_ledger_sync(ledger));
    OK(thiscpu_account_read(accounts[0], 1, &value));
    CHECK(value == after[1]);
    OK(thiscpu_account_charge(foreign, 0, -7));
    OK(thiscpu_account_sum(foreign, 0, &value));
    CHECK(value == -7);

    uint64_t one, two;
    OK(thiscpu_account_id(accounts[0], &one));
    OK(thiscpu_account_id(accounts[1], &two));
    CHECK(one != two);

    RETURNS(THISCPU_STATUS_WRONG_LEDGER, thiscpu_account_transfer(accounts[0], foreign, 1, 5));
    RETURNS(THISCPU_STATUS_OUT_OF_RANGE,
            thiscpu_account_transfer(accounts[0], accounts[1], COUNTERS, 5));
    RETURNS(THISCPU_STATUS_OUT_OF_RANGE, thiscpu_account_charge(accounts[0], COUNTERS, 1));
    RETURNS(THISCPU_STATUS_OUT_OF_RANGE, thiscpu_account_charge_uncached(accounts[0], COUNTERS, 1));
    RETURNS(THISCPU_STATUS_OUT_OF_RANGE, thiscpu_account_read(accounts[0], COUNTERS, &value));
    RETURNS(THISCPU_STATUS_OUT_OF_RANGE, thiscpu_account_sum(accounts[0], SIZE_MAX, &value));

    // The ledger lives until its last account is closed.
    OK(thiscpu_ledger_destroy(ledger));
    OK(thiscpu_account_sum(accounts[0], 1, &value));
    CHECK(value == after[1]);
    OK(thiscpu_account_close(accounts[0]));
    OK(thiscpu_account_close(accounts[1]));
    OK(thiscpu_account_close(foreign));
    OK(thiscpu_ledger_destroy(other));
    return 0;
}
