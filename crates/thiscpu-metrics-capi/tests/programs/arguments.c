// Null and misaligned pointers, and lack of memory, are reported before anything changes.
#include "check.h"

// Fails for another reason, so that a later sentence is not that of an earlier call.
static void fail(void) {
    RETURNS(REJECTED, thiscpu_metrics_render(registry, 7, NULL, 0, NULL));
    ERROR_HAS("unknown format");
}

#define MISALIGNED(pointer) ((void *)((char *)(pointer) + 1))
#define IS_NULL(call)                                                                              \
    do {                                                                                           \
        fail();                                                                                    \
        RETURNS(NULL_POINTER, call);                                                               \
        ERROR_HAS("null pointer");                                                                 \
    } while (0)
#define IS_MISALIGNED(call)                                                                        \
    do {                                                                                           \
        fail();                                                                                    \
        RETURNS(MISALIGNED, call);                                                                 \
        ERROR_HAS("misaligned pointer");                                                           \
    } while (0)

static const thiscpu_metrics_label tenant[2] = {{"tenant", "acme"}};
static uint64_t place[4];

// While this is set, malloc has no memory for this program and its libraries.
static bool is_exhausted;
extern void *__libc_malloc(size_t bytes);

void *malloc(size_t bytes) { return is_exhausted ? NULL : __libc_malloc(bytes); }

static bool value(int64_t *out, void *context) {
    *out = 1;
    return context == NULL;
}

static bool values(int64_t *out, size_t count, void *context) {
    (void)out, (void)context;
    return count == 0;
}

static bool each(thiscpu_metrics_samples *samples, void *context) {
    uint64_t *is_called = context;
    *is_called = 1;
    IS_NULL(thiscpu_metrics_samples_add(NULL, 1, 1));
    IS_MISALIGNED(thiscpu_metrics_samples_add(MISALIGNED(samples), 1, 1));
    return true;
}

static void registries(void) {
    thiscpu_metrics_options options = {.bucket_count = 1};
    thiscpu_metrics_registry *none = NULL;
    IS_NULL(thiscpu_metrics_registry_create(NULL, NULL));
    IS_NULL(thiscpu_metrics_registry_create(&options, &none));
    IS_MISALIGNED(thiscpu_metrics_registry_create(NULL, MISALIGNED(place)));
    IS_MISALIGNED(thiscpu_metrics_registry_create(MISALIGNED(place), &none));
    options.buckets = MISALIGNED(place);
    IS_MISALIGNED(thiscpu_metrics_registry_create(&options, &none));
    options = (thiscpu_metrics_options){.buckets_by_name = MISALIGNED(place),
                                        .buckets_by_name_count = 1};
    IS_MISALIGNED(thiscpu_metrics_registry_create(&options, &none));
    options = (thiscpu_metrics_options){.groups = MISALIGNED(place), .group_count = 1};
    IS_MISALIGNED(thiscpu_metrics_registry_create(&options, &none));
    IS_MISALIGNED(thiscpu_metrics_registry_destroy(MISALIGNED(registry)));
    CHECK(none == NULL);
}

static void counters(void) {
    thiscpu_metrics_counter *counter, *none = NULL;
    DONE(thiscpu_metrics_counter_create(registry, "a", NULL, NULL, 0, &counter));
    IS_NULL(thiscpu_metrics_counter_create(NULL, "b", NULL, NULL, 0, &none));
    IS_NULL(thiscpu_metrics_counter_create(registry, NULL, NULL, NULL, 0, &none));
    IS_NULL(thiscpu_metrics_counter_create(registry, "b", NULL, NULL, 1, &none));
    IS_NULL(thiscpu_metrics_counter_create(registry, "b", NULL, tenant, 2, &none));
    IS_NULL(thiscpu_metrics_counter_create(registry, "b", NULL, NULL, 0, NULL));
    IS_MISALIGNED(
        thiscpu_metrics_counter_create(MISALIGNED(registry), "b", NULL, NULL, 0, &none));
    IS_MISALIGNED(
        thiscpu_metrics_counter_create(registry, "b", NULL, MISALIGNED(tenant), 1, &none));
    IS_MISALIGNED(
        thiscpu_metrics_counter_create(registry, "b", NULL, NULL, 0, MISALIGNED(place)));
    IS_NULL(thiscpu_metrics_counter_increment(NULL, 1));
    IS_NULL(thiscpu_metrics_counter_absolute(NULL, 1));
    IS_NULL(thiscpu_metrics_counter_remove(registry, NULL));
    IS_NULL(thiscpu_metrics_counter_remove(NULL, counter));
    IS_MISALIGNED(thiscpu_metrics_counter_increment(MISALIGNED(counter), 1));
    IS_MISALIGNED(
        thiscpu_metrics_increment_exemplar(counter, 1, MISALIGNED(tenant), 1));
    IS_MISALIGNED(thiscpu_metrics_counter_absolute(MISALIGNED(counter), 1));
    IS_MISALIGNED(thiscpu_metrics_counter_remove(registry, MISALIGNED(counter)));
    IS_MISALIGNED(thiscpu_metrics_counter_remove(MISALIGNED(registry), counter));
    IS_MISALIGNED(thiscpu_metrics_counter_destroy(MISALIGNED(counter)));
    HAS("a_total 0");
    LACKS("b_total");
    DONE(thiscpu_metrics_counter_remove(registry, counter));
    DONE(thiscpu_metrics_counter_destroy(NULL));
    CHECK(none == NULL);
}

static void others(void) {
    thiscpu_metrics_gauge *gauge;
    thiscpu_metrics_histogram *histogram;
    DONE(thiscpu_metrics_gauge_create(registry, "g", NULL, NULL, 0, &gauge));
    DONE(thiscpu_metrics_histogram_create(registry, "h", NULL, NULL, 0, &histogram));
    IS_NULL(thiscpu_metrics_gauge_create(registry, "x", NULL, NULL, 0, NULL));
    IS_NULL(thiscpu_metrics_gauge_set(NULL, 1));
    IS_NULL(thiscpu_metrics_gauge_add(NULL, 1));
    IS_NULL(thiscpu_metrics_gauge_remove(registry, NULL));
    IS_NULL(thiscpu_metrics_histogram_create(registry, "x", NULL, NULL, 0, NULL));
    IS_NULL(thiscpu_metrics_histogram_record(NULL, 1, 1));
    IS_NULL(thiscpu_metrics_histogram_remove(registry, NULL));
    IS_MISALIGNED(thiscpu_metrics_gauge_create(registry, "x", NULL, NULL, 0, MISALIGNED(place)));
    IS_MISALIGNED(thiscpu_metrics_gauge_set(MISALIGNED(gauge), 1));
    IS_MISALIGNED(thiscpu_metrics_gauge_add(MISALIGNED(gauge), 1));
    IS_MISALIGNED(thiscpu_metrics_gauge_remove(registry, MISALIGNED(gauge)));
    IS_MISALIGNED(thiscpu_metrics_gauge_destroy(MISALIGNED(gauge)));
    IS_MISALIGNED(
        thiscpu_metrics_histogram_create(registry, "x", NULL, NULL, 0, MISALIGNED(place)));
    IS_MISALIGNED(thiscpu_metrics_histogram_record(MISALIGNED(histogram), 1, 1));
    IS_MISALIGNED(
        thiscpu_metrics_record_exemplar(histogram, 1, MISALIGNED(tenant), 1));
    IS_MISALIGNED(thiscpu_metrics_histogram_remove(registry, MISALIGNED(histogram)));
    IS_MISALIGNED(thiscpu_metrics_histogram_destroy(MISALIGNED(histogram)));
    HAS("g 0");
    HAS("h_count 0");
    DONE(thiscpu_metrics_gauge_destroy(gauge));
    DONE(thiscpu_metrics_histogram_destroy(histogram));

    // A series is not removed if the result cannot be stored.
    IS_NULL(thiscpu_metrics_remove(NULL, "g", NULL, 0, NULL));
    IS_NULL(thiscpu_metrics_remove_matching(NULL, NULL, 0, NULL));
    IS_MISALIGNED(thiscpu_metrics_remove_matching(registry, NULL, 0, MISALIGNED(place)));
    IS_MISALIGNED(thiscpu_metrics_remove(MISALIGNED(registry), "g", NULL, 0, NULL));
    HAS("g 0");
    DONE(thiscpu_metrics_remove_matching(registry, NULL, 0, NULL));
}

static void shown(void) {
    static uint64_t is_called;
    IS_NULL(thiscpu_metrics_show_malloc(NULL));
    IS_MISALIGNED(thiscpu_metrics_show_malloc(MISALIGNED(registry)));
    IS_NULL(thiscpu_metrics_show(registry, "s", NULL, NULL, 0, NULL, NULL));
    IS_MISALIGNED(thiscpu_metrics_show(MISALIGNED(registry), "s", NULL, NULL, 0, value, NULL));
    IS_MISALIGNED(thiscpu_metrics_show(registry, "s", NULL, MISALIGNED(tenant), 1, value, NULL));
    IS_MISALIGNED(thiscpu_metrics_show_values(registry, "s", NULL, NULL, 0, "l",
                                              MISALIGNED(place), 1, values, NULL));
    IS_MISALIGNED(thiscpu_metrics_show_top(MISALIGNED(registry), "s", NULL, NULL, 0, "l", 1, each,
                                           NULL, &is_called));
    thiscpu_metrics_top_accounts top = {0};
    thiscpu_metrics_account_counter account = {0};
    thiscpu_budget *budget;
    CHECK(thiscpu_budget_create(1, &budget) == THISCPU_STATUS_OK);
    IS_NULL(thiscpu_metrics_show_counter(registry, "s", NULL, NULL, 0, NULL));
    IS_NULL(thiscpu_metrics_show_counters(registry, "s", NULL, NULL, 0, "l", NULL, NULL));
    IS_NULL(thiscpu_metrics_show_budget(registry, "s", NULL, 0, NULL));
    IS_NULL(thiscpu_metrics_show_budget(registry, NULL, NULL, 0, budget));
    IS_NULL(thiscpu_metrics_show_account(registry, "s", NULL, NULL, 0, NULL));
    IS_NULL(thiscpu_metrics_show_account(registry, "s", NULL, NULL, 0, &account));
    IS_NULL(thiscpu_metrics_show_top_accounts(registry, "s", NULL, NULL, 0, NULL));
    IS_NULL(thiscpu_metrics_show_top_accounts(registry, "s", NULL, NULL, 0, &top));
    CHECK(thiscpu_budget_destroy(budget) == THISCPU_STATUS_OK);
    CHECK(*scrape() == 0);
    DONE(thiscpu_metrics_show_top(registry, "s", NULL, NULL, 0, "l", 1, each, NULL, &is_called));
    LACKS("\ns{");
    CHECK(is_called);
}

static void outputs(void) {
    thiscpu_metrics_endpoint *endpoint;
    char text[8] = "before";
    IS_NULL(thiscpu_metrics_render(NULL, 0, text, sizeof text, NULL));
    IS_NULL(thiscpu_metrics_render(registry, 0, NULL, 1, NULL));
    IS_MISALIGNED(thiscpu_metrics_render(MISALIGNED(registry), 0, text, sizeof text, NULL));
    IS_MISALIGNED(thiscpu_metrics_render(registry, 0, text, sizeof text, MISALIGNED(place)));
    IS_NULL(thiscpu_metrics_serve(registry, NULL, &endpoint));
    IS_NULL(thiscpu_metrics_serve(registry, "127.0.0.1:0", NULL));
    IS_MISALIGNED(thiscpu_metrics_serve(registry, "127.0.0.1:0", MISALIGNED(place)));
    DONE(thiscpu_metrics_serve(registry, "127.0.0.1:0", &endpoint));
    IS_MISALIGNED(thiscpu_metrics_endpoint_address(MISALIGNED(endpoint), text, 8, NULL));
    IS_MISALIGNED(thiscpu_metrics_endpoint_address(endpoint, text, 8, MISALIGNED(place)));
    IS_MISALIGNED(thiscpu_metrics_endpoint_destroy(MISALIGNED(endpoint)));
    CHECK(strcmp(text, "before") == 0);
    DONE(thiscpu_metrics_endpoint_destroy(endpoint));
}

// A handle for which there is no memory is not created, and neither is its series.
static void exhausted(void) {
    thiscpu_metrics_registry *other = NULL;
    thiscpu_metrics_counter *counter = NULL;
    thiscpu_metrics_gauge *gauge = NULL;
    thiscpu_metrics_histogram *histogram = NULL;
    thiscpu_metrics_endpoint *endpoint = NULL;
    is_exhausted = true;
    RETURNS(NO_MEMORY, thiscpu_metrics_registry_create(NULL, &other));
    ERROR_HAS("no memory");
    RETURNS(NO_MEMORY, thiscpu_metrics_counter_create(registry, "c", NULL, NULL, 0, &counter));
    RETURNS(NO_MEMORY, thiscpu_metrics_gauge_create(registry, "c", NULL, NULL, 0, &gauge));
    RETURNS(NO_MEMORY, thiscpu_metrics_histogram_create(registry, "c", NULL, NULL, 0, &histogram));
    RETURNS(NO_MEMORY, thiscpu_metrics_serve(registry, "127.0.0.1:0", &endpoint));
    ERROR_HAS("no memory");
    is_exhausted = false;
    CHECK(!other && !counter && !gauge && !histogram && !endpoint);
    LACKS("c_");
    DONE(thiscpu_metrics_counter_create(registry, "c", NULL, NULL, 0, &counter));
    DONE(thiscpu_metrics_counter_remove(registry, counter));
}

int main(void) {
    DONE(thiscpu_metrics_registry_create(NULL, &registry));
    exhausted();
    registries();
    counters();
    others();
    shown();
    outputs();
    DONE(thiscpu_metrics_registry_destroy(registry));
    return 0;
}
