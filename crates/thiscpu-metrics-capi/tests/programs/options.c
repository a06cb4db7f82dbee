// Buckets by name, groups, and exemplars.
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>

static const double rows[] = {1, 10}, disk[] = {0.25}, writes[] = {0.5}, wrong[] = {2, 1};
static const char *const traffic[] = {"begun_total", "ended"}, *const unnamed[] = {NULL};

static void create(thiscpu_metrics_options *options, const char *part) {
    thiscpu_metrics_registry *none = NULL;
    RETURNS(REJECTED, thiscpu_metrics_registry_create(options, &none));
    ERROR_HAS(part);
    CHECK(none == NULL);
}

static void rejected_options(void) {
    thiscpu_metrics_buckets buckets[] = {{"rows", false, rows, 2}, {"rows", false, rows, 2}};
    thiscpu_metrics_options options = {.buckets_by_name = buckets, .buckets_by_name_count = 2};
    create(&options, "twice");
    buckets[1] = (thiscpu_metrics_buckets){"disk_", true, wrong, 2};
    create(&options, "begin with \"disk_\"");
    buckets[1].bound_count = 0;
    create(&options, "no bound");
    thiscpu_metrics_registry *none = NULL;
    buckets[1].name = NULL;
    RETURNS(NULL_POINTER, thiscpu_metrics_registry_create(&options, &none));
    buckets[1] = (thiscpu_metrics_buckets){"disk_", true, NULL, 1};
    RETURNS(NULL_POINTER, thiscpu_metrics_registry_create(&options, &none));
    options.buckets_by_name = NULL;
    RETURNS(NULL_POINTER, thiscpu_metrics_registry_create(&options, &none));

    thiscpu_metrics_group groups[] = {{"traffic", traffic, 2}, {"again", traffic, 1}};
    thiscpu_metrics_options grouped = {.groups = groups, .group_count = 2};
    create(&grouped, "already in group \"traffic\"");
    groups[1].metric_count = 0;
    create(&grouped, "0 metrics");
    groups[1] = (thiscpu_metrics_group){"unnamed", unnamed, 1};
    RETURNS(NULL_POINTER, thiscpu_metrics_registry_create(&grouped, &none));
    groups[1].metrics = NULL;
    RETURNS(NULL_POINTER, thiscpu_metrics_registry_create(&grouped, &none));
    CHECK(none == NULL);
}

// A histogram has the buckets of its name, else of the longest prefix, else of the registry.
static void buckets(void) {
    static const struct {
        const char *name, *line;
    } all[] = {
        {"rows", "rows_bucket{le=\"10.0\"} 0\n"},
        {"disk_read", "disk_read_bucket{le=\"0.25\"} 0\n"},
        {"disk_write_late", "disk_write_late_bucket{le=\"0.5\"} 0\n"},
        {"other", "other_bucket{le=\"0.005\"} 0\n"},
    };
    thiscpu_metrics_histogram *histogram;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        DONE(thiscpu_metrics_histogram_create(registry, all[i].name, NULL, NULL, 0, &histogram));
        has(__LINE__, all[i].line);
        DONE(thiscpu_metrics_histogram_remove(registry, histogram));
    }
}

static thiscpu_metrics_counter *begun, *ended;
static atomic_bool is_done;

static void *begin_and_end(void *unused) {
    while (!atomic_load(&is_done)) {
        DONE(thiscpu_metrics_counter_increment(begun, 1));
        DONE(thiscpu_metrics_counter_increment(ended, 1));
    }
    return unused;
}

static long value(const char *text, const char *name) {
    const char *line = strstr(text, name);
    CHECK(line != NULL);
    return strtol(line + strlen(name), NULL, 10);
}

// Counters of a group are read at one instant: never has more ended than begun.
static void groups(void) {
    enum { WORKERS = 3, SCRAPES = 2000 };
    pthread_t threads[WORKERS];
    DONE(thiscpu_metrics_counter_create(registry, "ended_total", NULL, NULL, 0, &ended));
    DONE(thiscpu_metrics_counter_create(registry, "begun", NULL, NULL, 0, &begun));
    for (int i = 0; i < WORKERS; i++) {
        CHECK(pthread_create(&threads[i], NULL, begin_and_end, NULL) == 0);
    }
    for (int i = 0; i < SCRAPES; i++) {
        const char *text = scrape();
        long open = value(text, "\nbegun_total ") - value(text, "\nended_total ");
        CHECK(0 <= open && open <= WORKERS);
    }
    atomic_store(&is_done, true);
    for (int i = 0; i < WORKERS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    // Only counters can be in a group.
    thiscpu_metrics_gauge *gauge;
    DONE(thiscpu_metrics_counter_remove(registry, begun));
    DONE(thiscpu_metrics_counter_remove(registry, ended));
    RETURNS(REJECTED,
            thiscpu_metrics_gauge_create(registry, "begun_total", NULL, NULL, 0, &gauge));
    ERROR_HAS("begun");
}

static void exemplars(void) {
    const thiscpu_metrics_label trace[] = {{"trace_id", "4bf92f35"}}, none[] = {{"a b", "c"}};
    thiscpu_metrics_counter *errors;
    thiscpu_metrics_histogram *took;
    DONE(thiscpu_metrics_counter_create(registry, "errors", NULL, NULL, 0, &errors));
    DONE(thiscpu_metrics_histogram_create(registry, "rows", NULL, NULL, 0, &took));
    DONE(thiscpu_metrics_increment_exemplar(errors, 3, trace, 1));
    DONE(thiscpu_metrics_record_exemplar(took, 4, trace, 1));
    const char *text = scrape_as(THISCPU_METRICS_FORMAT_OPEN_METRICS);
    CHECK(strstr(text, "\nerrors_total 3 # {trace_id=\"4bf92f35\"} 3 ") != NULL);
    CHECK(strstr(text, "\nrows_bucket{le=\"10.0\"} 1 # {trace_id=\"4bf92f35\"} 4 ") != NULL);
    CHECK(strstr(text, "\nrows_bucket{le=\"1.0\"} 0\n") != NULL);

    // A call with invalid labels changes nothing.
    RETURNS(REJECTED, thiscpu_metrics_increment_exemplar(errors, 1, none, 1));
    ERROR_HAS("invalid exemplar");
    RETURNS(REJECTED, thiscpu_metrics_record_exemplar(took, 4, none, 1));
    RETURNS(NULL_POINTER, thiscpu_metrics_increment_exemplar(errors, 1, NULL, 1));
    RETURNS(NULL_POINTER, thiscpu_metrics_record_exemplar(took, 4, NULL, 1));
    RETURNS(NULL_POINTER, thiscpu_metrics_increment_exemplar(NULL, 1, trace, 1));
    RETURNS(NULL_POINTER, thiscpu_metrics_record_exemplar(NULL, 4, trace, 1));
    HAS("errors_total 3");
    HAS("rows_count 1");
    DONE(thiscpu_metrics_counter_destroy(errors));
    DONE(thiscpu_metrics_histogram_destroy(took));
}

int main(void) {
    thiscpu_metrics_buckets by_name[] = {
        {"disk_", true, disk, 1}, {"rows", false, rows, 2}, {"disk_write_", true, writes, 1}};
    thiscpu_metrics_group group = {"traffic", traffic, 2};
    thiscpu_metrics_options options = {.buckets_by_name = by_name,
                                       .buckets_by_name_count = 3,
                                       .groups = &group,
                                       .group_count = 1};
    rejected_options();
    DONE(thiscpu_metrics_registry_create(&options, &registry));
    buckets();
    groups();
    exemplars();
    DONE(thiscpu_metrics_registry_destroy(registry));
    return 0;
}
