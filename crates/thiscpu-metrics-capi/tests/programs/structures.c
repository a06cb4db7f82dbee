// Counters and the accounts of a ledger of thiscpu.h, as series.
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>

static const thiscpu_metrics_label region[] = {{"region", "eu"}};
static const char *const methods[] = {"get", "put", "get"};

#define CALL(call) CHECK((call) == THISCPU_STATUS_OK)

static thiscpu_counters *counters;
static atomic_bool is_done;

static void *get_then_put(void *unused) {
    while (!atomic_load(&is_done)) {
        CALL(thiscpu_counters_add(counters, 0, 1));
        CALL(thiscpu_counters_add(counters, 1, 1));
    }
    return unused;
}

static bool nothing(int64_t *values, size_t count, void *is_called) {
    CHECK(count == 2 && values[0] == 0 && values[1] == 0);
    values[0] = 1;
    *(bool *)is_called = true;
    return false;
}

static void families(void) {
    CALL(thiscpu_counters_create(2, &counters));
    DONE(thiscpu_metrics_show_counters(registry, "requests_total", "Served.", region, 1, "method",
                                       methods, counters));
    RETURNS(REJECTED, thiscpu_metrics_show_counters(registry, "requests_total", NULL, region, 1,
                                                    "method", methods, counters));
    ERROR_HAS("duplicate series");
    CALL(thiscpu_counters_add(counters, 0, 5));
    CALL(thiscpu_counters_add(counters, 1, 4));
    HAS("# TYPE requests_total counter");
    HAS("requests_total{method=\"get\",region=\"eu\"} 5");
    HAS("requests_total{method=\"put\",region=\"eu\"} 4");

    // The values of a scrape are of one instant: never were there more puts than gets.
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, get_then_put, NULL) == 0);
    for (int i = 0; i < 2000; i++) {
        const char *text = scrape();
        const char *get = strstr(text, "{method=\"get\""), *put = strstr(text, "{method=\"put\"");
        CHECK(get != NULL && put != NULL);
        long more = strtol(strchr(get, ' '), NULL, 10) - strtol(strchr(put, ' '), NULL, 10);
        CHECK(more == 1 || more == 2);
    }
    atomic_store(&is_done, true);
    CHECK(pthread_join(thread, NULL) == 0);

    bool is_called = false;
    DONE(thiscpu_metrics_show_values(registry, "silent", NULL, NULL, 0, "method", methods, 2,
                                     nothing, &is_called));
    LACKS("\nsilent{");
    CHECK(is_called);
    RETURNS(NULL_POINTER, thiscpu_metrics_show_values(registry, "null", NULL, NULL, 0, "method",
                                                      methods, 2, NULL, NULL));
    RETURNS(NULL_POINTER, thiscpu_metrics_show_values(registry, "null", NULL, NULL, 0, NULL,
                                                      methods, 2, nothing, &is_called));
    RETURNS(NULL_POINTER, thiscpu_metrics_show_values(registry, "null", NULL, NULL, 0, "method",
                                                      NULL, 2, nothing, &is_called));
    RETURNS(REJECTED, thiscpu_metrics_show_values(registry, "null", NULL, NULL, 0, "method",
                                                  methods, 3, nothing, &is_called));
    RETURNS(NULL_POINTER, thiscpu_metrics_show_counters(registry, "null", NULL, NULL, 0, "method",
                                                        methods, NULL));
    DONE(thiscpu_metrics_remove_matching(registry, NULL, 0, NULL));
    CHECK(*scrape() == 0);
    CALL(thiscpu_counters_destroy(counters));
}

// Gives the first account a name that does not fit, and the second one a short name.
static void name(uint64_t id, char *buffer, size_t bytes, void *first) {
    CHECK(bytes == THISCPU_METRICS_SAMPLE_NAME_MAX);
    if (id == *(uint64_t *)first) {
        memset(buffer, 'x', bytes);
    } else {
        snprintf(buffer, bytes, "the other");
    }
}

static bool fails(thiscpu_metrics_samples *samples, void *unused) {
    (void)unused;
    DONE(thiscpu_metrics_samples_add(samples, 1, 1));
    RETURNS(NULL_POINTER, thiscpu_metrics_samples_add(NULL, 1, 1));
    return false;
}

static void one_account(void) {
    thiscpu_ledger *ledger;
    thiscpu_account *account;
    CALL(thiscpu_ledger_create(2, false, &ledger));
    CALL(thiscpu_account_open(ledger, &account));
    thiscpu_metrics_account_counter second = {account, 1}, third = {account, 2};
    DONE(thiscpu_metrics_show_account(registry, "held_bytes", "Held.", region, 1, &second));
    RETURNS(REJECTED, thiscpu_metrics_show_account(registry, "x", NULL, NULL, 0, &third));
    CHECK(strstr(thiscpu_last_error(), "out of range") != NULL);
    CALL(thiscpu_account_charge(account, 0, 5));
    CALL(thiscpu_account_charge(account, 1, 7));
    HAS("# TYPE held_bytes gauge");
    HAS("held_bytes{region=\"eu\"} 7");
    DONE(thiscpu_metrics_remove_matching(registry, NULL, 0, NULL));
    CALL(thiscpu_account_close(account));
    CALL(thiscpu_ledger_destroy(ledger));
}

static void top_accounts(void) {
    enum { ACCOUNTS = 5 };
    const int64_t bytes[ACCOUNTS] = {7, 90, 0, 40, -3};
    thiscpu_ledger *ledger;
    thiscpu_account *accounts[ACCOUNTS];
    uint64_t ids[ACCOUNTS];
    CALL(thiscpu_ledger_create(2, true, &ledger));
    for (int i = 0; i < ACCOUNTS; i++) {
        CALL(thiscpu_account_open(ledger, &accounts[i]));
        CALL(thiscpu_account_charge(accounts[i], 1, bytes[i]));
        CALL(thiscpu_account_id(accounts[i], &ids[i]));
    }
    static thiscpu_metrics_top_accounts top, named, none;
    top = (thiscpu_metrics_top_accounts){.ledger = ledger, .counter = 1, .count = 2,
                                         .label = "tenant"};
    DONE(thiscpu_metrics_show_top_accounts(registry, "tenant_bytes", "Used.", region, 1, &top));
    char line[128];
    for (int i = 0; i < ACCOUNTS; i++) {
        unsigned long id = ids[i];
        snprintf(line, sizeof line, "\ntenant_bytes{region=\"eu\",tenant=\"%lu\"} %ld\n", id,
                 (long)bytes[i]);
        CHECK((strstr(scrape(), line) != NULL) == (bytes[i] >= 40));
    }
    // The next scrape has others.
    CALL(thiscpu_account_charge(accounts[0], 1, 100));
    CALL(thiscpu_account_charge(accounts[1], 1, -90));
    snprintf(line, sizeof line, "\ntenant_bytes{region=\"eu\",tenant=\"%lu\"} 107\n",
             (unsigned long)ids[0]);
    CHECK(strstr(scrape(), line) != NULL);
    snprintf(line, sizeof line, "tenant=\"%lu\"", (unsigned long)ids[1]);
    LACKS(line);

    named = (thiscpu_metrics_top_accounts){ledger, 1, 2, "who", name, &ids[0]};
    DONE(thiscpu_metrics_show_top_accounts(registry, "named", NULL, NULL, 0, &named));
    HAS("\nnamed{who=\"the other\"} 40");
    char cut[THISCPU_METRICS_SAMPLE_NAME_MAX + 16] = "named{who=\"";
    memset(cut + strlen(cut), 'x', THISCPU_METRICS_SAMPLE_NAME_MAX - 1);
    strcat(cut, "\"}");
    CHECK(strstr(scrape(), cut) != NULL);

    none = (thiscpu_metrics_top_accounts){ledger, 2, 2, "who", NULL, NULL};
    RETURNS(REJECTED, thiscpu_metrics_show_top_accounts(registry, "x", NULL, NULL, 0, &none));
    RETURNS(NULL_POINTER, thiscpu_metrics_show_top_accounts(registry, "x", NULL, NULL, 0, NULL));
    none.counter = 1;
    none.label = NULL;
    RETURNS(NULL_POINTER, thiscpu_metrics_show_top_accounts(registry, "x", NULL, NULL, 0, &none));
    RETURNS(NULL_POINTER, thiscpu_metrics_show_top(registry, "x", NULL, NULL, 0, "who", 1, NULL,
                                                   NULL, NULL));
    size_t open;
    CALL(thiscpu_ledger_len(ledger, &open));
    CHECK(open == ACCOUNTS);
    DONE(thiscpu_metrics_show_top(registry, "failing", NULL, NULL, 0, "who", 1, fails, NULL,
                                  NULL));
    LACKS("\nfailing{");

    DONE(thiscpu_metrics_registry_destroy(registry));
    for (int i = 0; i < ACCOUNTS; i++) {
        CALL(thiscpu_account_close(accounts[i]));
    }
    CALL(thiscpu_ledger_destroy(ledger));
}

int main(void) {
    DONE(thiscpu_metrics_registry_create(NULL, &registry));
    families();
    one_account();
    top_accounts();
    return 0;
}
