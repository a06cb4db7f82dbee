// Uses series as programs do, and shows handles of thiscpu.h.
#include "check.h"
#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, EACH = 50000 };

static const thiscpu_metrics_label acme[] = {{"tenant", "acme"}, {"method", "get"}};

static void *increment(void *counter) {
    for (int i = 0; i < EACH; i++) {
        DONE(thiscpu_metrics_counter_increment(counter, 3));
    }
    return NULL;
}

static void counters(void) {
    thiscpu_metrics_counter *counter, *other = NULL;
    DONE(thiscpu_metrics_counter_create(registry, "requests", "Served.", acme, 2, &counter));
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, increment, counter) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    HAS("requests_total{method=\"get\",tenant=\"acme\"} 600000");
    RETURNS(REJECTED, thiscpu_metrics_counter_create(registry, "requests", NULL, acme, 2, &other));
    ERROR_HAS("already registered");
    RETURNS(REJECTED, thiscpu_metrics_counter_create(registry, "a b", NULL, NULL, 0, &other));
    ERROR_HAS("' '");
    RETURNS(REJECTED, thiscpu_metrics_counter_create(registry, "\xff", NULL, NULL, 0, &other));
    ERROR_HAS("UTF-8");
    RETURNS(NULL_POINTER, thiscpu_metrics_counter_create(registry, NULL, NULL, NULL, 0, &other));
    RETURNS(NULL_POINTER, thiscpu_metrics_counter_create(registry, "x", NULL, NULL, 1, &other));
    RETURNS(NULL_POINTER, thiscpu_metrics_counter_create(registry, "x", NULL, NULL, 0, NULL));
    RETURNS(NULL_POINTER, thiscpu_metrics_counter_create(NULL, "x", NULL, NULL, 0, &other));
    RETURNS(NULL_POINTER, thiscpu_metrics_counter_increment(NULL, 1));
    ERROR_HAS("null pointer");
    CHECK(other == NULL);
    LACKS("x");

    // The series outlives the handle, until it is removed.
    DONE(thiscpu_metrics_counter_destroy(counter));
    HAS("requests_total{method=\"get\",tenant=\"acme\"} 600000");
    bool removed;
    size_t count;
    DONE(thiscpu_metrics_remove(registry, "requests", acme, 1, &removed));
    CHECK(!removed);
    DONE(thiscpu_metrics_remove(registry, "requests", acme, 2, &removed));
    CHECK(removed);
    LACKS("requests");
    DONE(thiscpu_metrics_counter_create(registry, "requests", NULL, acme, 2, &counter));
    DONE(thiscpu_metrics_counter_create(registry, "errors", NULL, acme, 1, &other));
    DONE(thiscpu_metrics_counter_absolute(other, 7));
    HAS("errors_total{tenant=\"acme\"} 7");
    DONE(thiscpu_metrics_remove_matching(registry, acme, 1, &count));
    CHECK(count == 2);
    LACKS("acme");
    DONE(thiscpu_metrics_counter_destroy(other));
    DONE(thiscpu_metrics_counter_increment(counter, 5));
    HAS("requests_total{method=\"get\",tenant=\"acme\"} 5");
    DONE(thiscpu_metrics_counter_remove(registry, counter));
    LACKS("requests");
}

static void others(void) {
    thiscpu_metrics_gauge *gauge;
    thiscpu_metrics_histogram *histogram;
    DONE(thiscpu_metrics_gauge_create(registry, "load", NULL, NULL, 0, &gauge));
    DONE(thiscpu_metrics_gauge_set(gauge, 1.5));
    DONE(thiscpu_metrics_gauge_add(gauge, -1));
    HAS("load 0.5");
    DONE(thiscpu_metrics_histogram_create(registry, "took", NULL, NULL, 0, &histogram));
    DONE(thiscpu_metrics_histogram_record(histogram, 0.75, 3));
    HAS("took_bucket{le=\"0.5\"} 0");
    HAS("took_bucket{le=\"2.0\"} 3");
    HAS("took_sum 2.25");
    DONE(thiscpu_metrics_gauge_remove(registry, gauge));
    DONE(thiscpu_metrics_histogram_remove(registry, histogram));
    CHECK(*scrape() == 0);
}

static bool nothing(int64_t *value, void *context) {
    (void)value, (void)context;
    return false;
}

static void shown(void) {
    thiscpu_counter *counter;
    thiscpu_budget *budget;
    CHECK(thiscpu_counter_create(&counter) == THISCPU_STATUS_OK);
    CHECK(thiscpu_budget_create(100, &budget) == THISCPU_STATUS_OK);
    DONE(thiscpu_metrics_show_counter(registry, "sockets", "Open.", acme, 1, counter));
    DONE(thiscpu_metrics_show_counter(registry, "bytes_total", NULL, NULL, 0, counter));
    DONE(thiscpu_metrics_show_budget(registry, "memory", acme, 1, budget));
    DONE(thiscpu_metrics_show(registry, "silent", NULL, NULL, 0, nothing, NULL));
    RETURNS(NULL_POINTER, thiscpu_metrics_show(registry, "null", NULL, NULL, 0, NULL, NULL));
    for (int i = 0; i < 1000; i++) {
        CHECK(thiscpu_counter_add(counter, 2) == THISCPU_STATUS_OK);
    }
    CHECK(thiscpu_budget_try_acquire(budget, 30) == THISCPU_STATUS_OK);
    HAS("sockets{tenant=\"acme\"} 2000");
    HAS("# TYPE sockets gauge");
    HAS("# TYPE bytes_total counter");
    HAS("bytes_total 2000");
    HAS("memory_limit{tenant=\"acme\"} 100");
    HAS("memory_held{tenant=\"acme\"} 30");
    HAS("memory_waiters{tenant=\"acme\"} 0");
    HAS("memory_over_released_total{tenant=\"acme\"} 0");
    LACKS("\nsilent ");
    char name[300];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = 0;
    RETURNS(REJECTED, thiscpu_metrics_show_budget(registry, name, NULL, 0, budget));
    DONE(thiscpu_metrics_remove_matching(registry, NULL, 0, NULL));
    CHECK(*scrape() == 0);
    CHECK(thiscpu_budget_release(budget, 30) == THISCPU_STATUS_OK);
    CHECK(thiscpu_counter_destroy(counter) == THISCPU_STATUS_OK);
    CHECK(thiscpu_budget_destroy(budget) == THISCPU_STATUS_OK);
}

// A text that does not fit is cut off, and the buffer never overflows.
static void buffers(void) {
    thiscpu_metrics_counter *counter;
    char text[24], whole[200];
    size_t length, again;
    DONE(thiscpu_metrics_counter_create(registry, "cut", NULL, NULL, 0, &counter));
    thiscpu_metrics_format open = THISCPU_METRICS_FORMAT_OPEN_METRICS;
    DONE(thiscpu_metrics_render(registry, open, whole, sizeof whole, &length));
    CHECK(strcmp(whole, "# TYPE cut counter\ncut_total 0\n# EOF\n") == 0);
    memset(text, 'x', sizeof text);
    DONE(thiscpu_metrics_render(registry, open, text, 8, &again));
    CHECK(again == length && strcmp(text, "# TYPE ") == 0 && text[8] == 'x');
    DONE(thiscpu_metrics_render(registry, open, NULL, 0, &again));
    CHECK(again == length);
    RETURNS(NULL_POINTER, thiscpu_metrics_render(registry, open, NULL, 8, &again));
    RETURNS(REJECTED, thiscpu_metrics_render(registry, 7, text, 8, &again));
    DONE(thiscpu_metrics_counter_remove(registry, counter));
}

static void endpoint(void) {
    thiscpu_metrics_counter *counter;
    thiscpu_metrics_endpoint *served, *twice = NULL;
    char address[64], answer[4096];
    DONE(thiscpu_metrics_counter_create(registry, "answers", NULL, NULL, 0, &counter));
    DONE(thiscpu_metrics_counter_increment(counter, 42));
    DONE(thiscpu_metrics_serve(registry, "127.0.0.1:0", &served));
    DONE(thiscpu_metrics_endpoint_address(served, address, sizeof address, NULL));
    CHECK(strncmp(address, "127.0.0.1:", 10) == 0);
    RETURNS(CANNOT_LISTEN, thiscpu_metrics_serve(registry, address, &twice));
    ERROR_HAS("in use");
    CHECK(twice == NULL);

    struct sockaddr_in to = {.sin_family = AF_INET};
    to.sin_port = htons((uint16_t)atoi(address + 10));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int client = socket(AF_INET, SOCK_STREAM, 0);
    const char request[] = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    CHECK(client >= 0 && connect(client, (struct sockaddr *)&to, sizeof to) == 0);
    CHECK(write(client, request, sizeof request - 1) == (ssize_t)sizeof request - 1);
    size_t length = 0;
    ssize_t part;
    while ((part = read(client, answer + length, sizeof answer - 1 - length)) > 0) {
        length += (size_t)part;
    }
    answer[length] = 0;
    CHECK(strstr(answer, "answers_total 42\n") != NULL);
    close(client);
    DONE(thiscpu_metrics_endpoint_destroy(served));
    DONE(thiscpu_metrics_counter_remove(registry, counter));
}

int main(void) {
    double wrong[] = {2, 1}, buckets[] = {0.5, 2};
    thiscpu_metrics_options options = {.buckets = wrong, .bucket_count = 2};
    RETURNS(REJECTED, thiscpu_metrics_registry_create(&options, &registry));
    ERROR_HAS("buckets");
    options.buckets = buckets;
    DONE(thiscpu_metrics_registry_create(&options, &registry));
    counters();
    others();
    shown();
    buffers();
    endpoint();

    // A child's series are its own, and handles outlive the registry's.
    thiscpu_metrics_counter *counter;
    DONE(thiscpu_metrics_counter_create(registry, "forked", NULL, NULL, 0, &counter));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        DONE(thiscpu_metrics_counter_increment(counter, 1));
        HAS("forked_total 1");
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    HAS("forked_total 0");
    DONE(thiscpu_metrics_registry_destroy(registry));
    DONE(thiscpu_metrics_counter_increment(counter, 1));
    DONE(thiscpu_metrics_counter_destroy(counter));
    DONE(thiscpu_metrics_registry_destroy(NULL));
    DONE(thiscpu_metrics_counter_destroy(NULL));
    return 0;
}
