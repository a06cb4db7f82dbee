// The series of thiscpu-malloc. With an argument, that allocator serves this program.
#include "check.h"

enum { SIZE = 7168, COUNT = 1000 };

// Returns the value of a series, or -1 if there is no line of it.
static long long value(const char *series) {
    size_t length = strlen(series);
    const char *line = scrape();
    while (*line != 0) {
        if (strncmp(line, series, length) == 0 && line[length] == ' ') {
            return atoll(line + length);
        }
        line = strchr(line, '\n') + 1;
    }
    return -1;
}

static void series_show_the_allocator(bool is_in_use) {
    const char *of_class = "malloc_class_allocated_bytes{size=\"7168\"}";
    static void *blocks[COUNT];
    long long bytes = (long long)SIZE * COUNT;
    DONE(thiscpu_metrics_registry_create(NULL, &registry));
    DONE(thiscpu_metrics_show_malloc(registry));
    RETURNS(REJECTED, thiscpu_metrics_show_malloc(registry));
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = malloc(SIZE);
        CHECK(blocks[i] != NULL);
    }
    HAS("# TYPE malloc_purged_bytes_total counter");
    if (is_in_use) {
        CHECK(value(of_class) >= bytes && value("malloc_allocated_bytes") >= bytes);
        CHECK(value("malloc_mapped_bytes") >= bytes);
    } else {
        CHECK(value(of_class) == -1 && value("malloc_allocated_bytes") == 0);
        CHECK(value("malloc_mapped_bytes") == 0);
    }
    for (int i = 0; i < COUNT; i++) {
        free(blocks[i]);
    }
    CHECK(value(of_class) < bytes);
    DONE(thiscpu_metrics_registry_destroy(registry));
}

// None of the series is shown if one of the names is taken.
static void taken_name_is_rejected(void) {
    thiscpu_metrics_gauge *taken;
    DONE(thiscpu_metrics_registry_create(NULL, &registry));
    DONE(thiscpu_metrics_gauge_create(registry, "malloc_hits_total", "", NULL, 0, &taken));
    RETURNS(REJECTED, thiscpu_metrics_show_malloc(registry));
    LACKS("malloc_mapped_bytes");
    DONE(thiscpu_metrics_gauge_destroy(taken));
    DONE(thiscpu_metrics_registry_destroy(registry));
}

int main(int count, char **arguments) {
    (void)arguments;
    series_show_the_allocator(count > 1);
    taken_name_is_rejected();
}
