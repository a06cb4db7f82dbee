// Checks that all programs use.
#ifndef CHECK_H
#define CHECK_H

#include <stdlib.h>
#include <string.h>
#include <thiscpu_metrics.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition);          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

// Checks that a call returns a status.
#define RETURNS(expected, call)                                                                    \
    do {                                                                                           \
        thiscpu_metrics_status checked = THISCPU_METRICS_STATUS_##expected;                        \
        thiscpu_metrics_status returned = (call);                                                  \
        if (returned != checked) {                                                                 \
            const char *why = thiscpu_metrics_last_error();                                        \
            fprintf(stderr, "%s:%d: %s: %d, %s\n", __FILE__, __LINE__, #call, returned, why);      \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define DONE(call) RETURNS(OK, call)

static thiscpu_metrics_registry *registry;

static inline const char *scrape_as(thiscpu_metrics_format format) {
    static char text[1 << 16];
    size_t length;
    DONE(thiscpu_metrics_render(registry, format, text, sizeof text, &length));
    CHECK(length == strlen(text));
    return text;
}

static inline const char *scrape(void) { return scrape_as(THISCPU_METRICS_FORMAT_TEXT); }

static inline void has(int at, const char *line) {
    const char *text = scrape();
    if (strstr(text, line) == NULL) {
        fprintf(stderr, "line %d: no %s in:\n%s", at, line, text);
        exit(1);
    }
}

#define HAS(line) has(__LINE__, line "\n")
#define LACKS(part) CHECK(strstr(scrape(), part) == NULL)
#define ERROR_HAS(part) CHECK(strstr(thiscpu_metrics_last_error(), part) != NULL)

#endif
