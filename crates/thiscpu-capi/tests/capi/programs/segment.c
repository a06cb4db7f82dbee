// Processes that share counters in a segment.
#include "threads.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ADDS = 20000, KILLS = 40 };

static char path[100];

static thiscpu_shared_counter *counter_of(thiscpu_segment *segment, const char *name) {
    thiscpu_shared_counter *counter;
    OK(thiscpu_shared_counter_open(segment, name, &counter));
    return counter;
}

static int64_t sum_of(thiscpu_shared_counter *counter) {
    int64_t sum;
    OK(thiscpu_shared_counter_sum(counter, &sum));
    return sum;
}

static void passes(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

// A child uses the handles of its parent, and another one attaches by path.
static void processes_share_counters(void) {
    thiscpu_segment *segment;
    uint32_t lanes;
    OK(thiscpu_segment_create(path, NULL, &segment));
    OK(thiscpu_segment_lanes(segment, &lanes));
    CHECK(lanes >= 1);
    thiscpu_shared_counter *counter = counter_of(segment, "requests");
    pid_t children[2];
    for (int i = 0; i < 2; i++) {
        children[i] = fork();
        CHECK(children[i] >= 0);
        if (children[i] == 0) {
            thiscpu_segment *own = segment;
            if (i == 1) {
                OK(thiscpu_segment_open(path, NULL, &own));
                counter = counter_of(own, "requests");
            }
            for (int k = 0; k < ADDS; k++) {
                OK(thiscpu_shared_counter_add(counter, k % 2 == 0 ? 3 : -1));
            }
            _exit(0);
        }
    }
    for (int64_t sum = 0, last = 0; sum < 2 * ADDS - 100; last = sum) {
        sum = sum_of(counter);
        CHECK(sum >= last - 8 && sum <= 2 * ADDS + 8);
    }
    passes(children[0]);
    passes(children[1]);
    CHECK(sum_of(counter) == 2 * ADDS);
    // Large amounts, and the whole range.
    OK(thiscpu_shared_counter_add(counter, INT64_MAX));
    OK(thiscpu_shared_counter_add(counter, -INT64_MAX));
    CHECK(sum_of(counter) == 2 * ADDS);
    // The counter keeps the segment attached.
    OK(thiscpu_segment_close(segment));
    OK(thiscpu_shared_counter_add(counter, 1));
    CHECK(sum_of(counter) == 2 * ADDS + 1);
    OK(thiscpu_shared_counter_close(counter));
    CHECK(unlink(path) == 0);
}

static int is_text(thiscpu_string text, const char *wanted) {
    return text.len == strlen(wanted) && memcmp(text.bytes, wanted, text.len) == 0;
}

// Parent and child insert series; a scrape and a view see both.
static void processes_share_series(void) {
    const char *const labels[] = {"method", "status"};
    const char *const get[] = {"GET", "200"};
    const char *const put[] = {"PUT", ""};
    thiscpu_segment *segment;
    thiscpu_shared_family *family, *found;
    thiscpu_shared_series *series, *other = NULL;
    thiscpu_segment_options options = {.series = 10};
    thiscpu_registry_usage usage;
    OK(thiscpu_segment_create(path, NULL, &segment));
    CHECK(thiscpu_segment_registry_usage(segment, &usage) == THISCPU_STATUS_NO_SUCH_OBJECT);
    OK(thiscpu_segment_close(segment));
    OK(thiscpu_segment_open_or_create(path, true, &options, &segment));
    OK(thiscpu_shared_family_open(segment, "requests", "Requests.", labels, 2, &family));
    CHECK(thiscpu_shared_family_open(segment, "requests", "", labels, 1, &found) ==
          THISCPU_STATUS_WRONG_KIND);
    CHECK(strstr(thiscpu_last_error(), "registered by process") != NULL);
    CHECK(thiscpu_shared_family_open(segment, "a b", "", NULL, 0, &found) ==
          THISCPU_STATUS_INVALID_NAME);
    CHECK(thiscpu_shared_family_find(segment, "none", &found) == THISCPU_STATUS_NO_SUCH_OBJECT);
    CHECK(thiscpu_shared_series_find(family, get, 2, &other) == THISCPU_STATUS_NO_SUCH_OBJECT);
    CHECK(thiscpu_shared_series_open(family, get, 1, &other) == THISCPU_STATUS_INVALID_NAME);
    OK(thiscpu_shared_series_open(family, get, 2, &series));
    OK(thiscpu_shared_series_add(series, 5));
    pid_t child = fork();
    if (child == 0) {
        OK(thiscpu_shared_family_find(segment, "requests_total", &found));
        OK(thiscpu_shared_series_find(found, get, 2, &other));
        OK(thiscpu_shared_series_add(other, 2));
        OK(thiscpu_shared_series_open(found, put, 2, &other));
        OK(thiscpu_shared_series_add(other, 1));
        _exit(0);
    }
    passes(child);
    uint64_t sum;
    OK(thiscpu_shared_series_sum(series, &sum));
    CHECK(sum == 7);
    thiscpu_segment_view *view;
    OK(thiscpu_segment_view_open(path, &view));
    for (int by_view = 0; by_view < 2; by_view++) {
        thiscpu_scrape *scrape;
        thiscpu_scrape_info info;
        thiscpu_sample sample;
        thiscpu_string name, value;
        OK(by_view ? thiscpu_scrape_create_by_view(view, &scrape)
                   : thiscpu_scrape_create(segment, &scrape));
        OK(thiscpu_scrape_summary(scrape, &info));
        CHECK(info.samples == 2 && info.damaged == 0 && info.refused == 0 && info.is_exact);
        OK(thiscpu_scrape_sample(scrape, 0, &sample));
        CHECK(is_text(sample.name, "requests_total") && is_text(sample.help, "Requests."));
        CHECK(sample.low == 7 && sample.high == 7 && sample.labels == 2);
        OK(thiscpu_scrape_label(scrape, 0, 1, &name, &value));
        CHECK(is_text(name, "status") && is_text(value, "200"));
        OK(thiscpu_scrape_sample(scrape, 1, &sample));
        CHECK(sample.low == 1 && sample.labels == 1);
        CHECK(thiscpu_scrape_sample(scrape, 2, &sample) == THISCPU_STATUS_OUT_OF_RANGE);
        CHECK(thiscpu_scrape_label(scrape, 1, 1, &name, &value) == THISCPU_STATUS_OUT_OF_RANGE);
        OK(thiscpu_scrape_destroy(scrape));
    }
    thiscpu_bounds bounds;
    OK(thiscpu_segment_view_series_bounds(view, "requests", get, 2, &bounds));
    CHECK(bounds.low == 7 && bounds.high == 7);
    CHECK(thiscpu_segment_view_series_bounds(view, "none", NULL, 0, &bounds) ==
          THISCPU_STATUS_NO_SUCH_OBJECT);
    OK(thiscpu_segment_view_registry_usage(view, &usage));
    CHECK(usage.capacity == 10 && usage.series == 2 && usage.families == 1 && usage.refused == 0);
    // A handle keeps the segment attached.
    OK(thiscpu_segment_view_close(view));
    OK(thiscpu_shared_family_close(family));
    OK(thiscpu_segment_close(segment));
    OK(thiscpu_shared_series_add(series, 1));
    OK(thiscpu_shared_series_close(series));
    CHECK(unlink(path) == 0);
}

// Adds until it is killed, and notes after each add how many it has completed.
static void add_until_killed(thiscpu_shared_counter *counter, volatile int64_t *completed) {
    for (;;) {
        OK(thiscpu_shared_counter_add(counter, 1));
        *completed += 1;
    }
}

// A killed child has made the add that it was in, or not, and no add of others is lost.
static void sum_is_exact_after_kills(void) {
    thiscpu_segment *segment;
    OK(thiscpu_segment_anonymous(NULL, &segment));
    thiscpu_shared_counter *counter = counter_of(segment, "requests");
    volatile int64_t *completed = mmap(NULL, sizeof *completed, PROT_READ | PROT_WRITE,
                                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(completed != MAP_FAILED);
    for (int64_t i = 0; i < KILLS; i++) {
        int64_t before = sum_of(counter);
        int ready[2], status;
        char byte;
        *completed = 0;
        CHECK(pipe(ready) == 0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            CHECK(write(ready[1], "", 1) == 1);
            add_until_killed(counter, completed);
        }
        CHECK(read(ready[0], &byte, 1) == 1);
        close(ready[0]);
        close(ready[1]);
        int64_t own = 0;
        for (; *completed < 1 + 97 * i; own++) {
            OK(thiscpu_shared_counter_add(counter, 1));
            CHECK(sum_of(counter) > before);
        }
        CHECK(kill(child, SIGKILL) == 0);
        CHECK(waitpid(child, &status, 0) == child && WTERMSIG(status) == SIGKILL);
        int64_t expected = before + own + *completed, sum = sum_of(counter);
        CHECK(sum == expected || sum == expected + 1);
        CHECK(sum_of(counter) == sum);
    }
    OK(thiscpu_shared_counter_close(counter));
    OK(thiscpu_segment_close(segment));
}

static void *add_to_both(void *with) {
    for (int i = 0; i < ADDS; i++) {
        OK(thiscpu_shared_counters_add(with, 0, 1));
        OK(thiscpu_shared_counters_add(with, 1, 1));
    }
    return NULL;
}

// A snapshot has the first count of a thread before its second one, and is at one instant.
static void snapshot_is_of_one_instant(void) {
    enum { COUNT = 3 };
    thiscpu_segment *segment;
    thiscpu_shared_counters *counters;
    thiscpu_shared_counter *other;
    size_t len;
    OK(thiscpu_segment_anonymous(NULL, &segment));
    OK(thiscpu_shared_counters_open(segment, "pair", COUNT, &counters));
    OK(thiscpu_shared_counters_len(counters, &len));
    CHECK(len == COUNT);
    int64_t values[COUNT + 1] = {0, 0, 0, -77};
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        add_to_both(counters);
        _exit(0);
    }
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, add_to_both, counters) == 0);
    do {
        OK(thiscpu_shared_counters_snapshot(counters, values, COUNT));
        CHECK(values[0] >= values[1] && values[0] <= values[1] + 2);
    } while (values[1] < 2 * ADDS);
    CHECK(pthread_join(thread, NULL) == 0);
    passes(child);
    RETURNS(THISCPU_STATUS_OUT_OF_RANGE, thiscpu_shared_counters_add(counters, COUNT, 1));
    RETURNS(THISCPU_STATUS_OUT_OF_RANGE, thiscpu_shared_counters_add(counters, SIZE_MAX, 1));
    RETURNS(THISCPU_STATUS_INVALID_SIZE,
            thiscpu_shared_counters_snapshot(counters, values, COUNT - 1));
    OK(thiscpu_shared_counters_snapshot(counters, values, COUNT + 1));
    CHECK(values[0] == 2 * ADDS && values[1] == 2 * ADDS && values[2] == 0 && values[3] == -77);
    OK(thiscpu_shared_counters_close(counters));

    RETURNS(THISCPU_STATUS_WRONG_KIND, thiscpu_shared_counter_open(segment, "pair", &other));
    RETURNS(THISCPU_STATUS_WRONG_KIND,
            thiscpu_shared_counters_open(segment, "pair", COUNT + 1, &counters));
    RETURNS(THISCPU_STATUS_INVALID_SIZE,
            thiscpu_shared_counters_open(segment, "none", 0, &counters));
    RETURNS(THISCPU_STATUS_INVALID_SIZE,
            thiscpu_shared_counters_open(segment, "none", THISCPU_COUNTERS_MAX + 1, &counters));
    OK(thiscpu_segment_close(segment));
}

// The descriptor leads to the same counters, and stays the caller's.
static void descriptor_is_passed_on(void) {
    thiscpu_segment *first, *second;
    int32_t fd;
    OK(thiscpu_segment_anonymous(NULL, &first));
    thiscpu_shared_counter *counter = counter_of(first, "requests");
    OK(thiscpu_shared_counter_add(counter, 5));
    OK(thiscpu_segment_fd(first, &fd));
    int duplicate = dup(fd);
    CHECK(duplicate >= 0);
    OK(thiscpu_segment_from_fd(duplicate, &second));
    CHECK(close(duplicate) == 0);
    thiscpu_shared_counter *again = counter_of(second, "requests");
    CHECK(sum_of(again) == 5);
    OK(thiscpu_shared_counter_close(again));
    OK(thiscpu_segment_close(second));
    // The descriptor of the first segment is still open.
    OK(thiscpu_segment_fd(first, &fd));
    CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
    OK(thiscpu_shared_counter_close(counter));
    OK(thiscpu_segment_close(first));
    for (int bad = -2; bad < 0; bad++) {
        errno = 0;
        RETURNS(THISCPU_STATUS_SYSTEM, thiscpu_segment_from_fd(bad, &second));
        CHECK(errno == EBADF);
    }
    RETURNS(THISCPU_STATUS_SYSTEM, thiscpu_segment_from_fd(1000000, &second));
    CHECK(strstr(thiscpu_last_error(), "descriptor") != NULL);
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    RETURNS(THISCPU_STATUS_INVALID_SEGMENT, thiscpu_segment_from_fd(pipes[0], &second));
    CHECK(close(pipes[0]) == 0 && close(pipes[1]) == 0);
}

// A restarted service goes on with its counts, or starts at 0.
static void existing_is_kept_or_replaced(void) {
    thiscpu_segment *old, *same, *new;
    OK(thiscpu_segment_open_or_create(path, false, NULL, &old));
    thiscpu_shared_counter *counter = counter_of(old, "requests");
    OK(thiscpu_shared_counter_add(counter, 7));
    OK(thiscpu_segment_open_or_create(path, false, NULL, &same));
    thiscpu_shared_counter *kept = counter_of(same, "requests");
    CHECK(sum_of(kept) == 7);
    OK(thiscpu_segment_open_or_create(path, true, NULL, &new));
    thiscpu_shared_counter *fresh = counter_of(new, "requests");
    CHECK(sum_of(fresh) == 0 && sum_of(counter) == 7);
    OK(thiscpu_shared_counter_close(counter));
    OK(thiscpu_shared_counter_close(kept));
    OK(thiscpu_shared_counter_close(fresh));
    OK(thiscpu_segment_close(old));
    OK(thiscpu_segment_close(same));
    OK(thiscpu_segment_close(new));
    CHECK(unlink(path) == 0);
}

static void options_are_obeyed(void) {
    thiscpu_segment *segment;
    uint32_t lanes;
    struct stat file;
    thiscpu_segment_options options = {.max_bytes = 1 << 20, .lanes = 3, .mode = 0640};
    OK(thiscpu_segment_create(path, &options, &segment));
    OK(thiscpu_segment_lanes(segment, &lanes));
    CHECK(lanes == 3 && stat(path, &file) == 0 && (file.st_mode & 0777) == 0640);
    CHECK(file.st_size > 1 << 19 && file.st_size <= 1 << 20);
    // The lanes of a small segment are full first.
    thiscpu_status status = THISCPU_STATUS_OK;
    for (int i = 0; status == THISCPU_STATUS_OK; i++) {
        thiscpu_shared_counters *counters;
        char name[20];
        snprintf(name, sizeof name, "group %d", i);
        status = thiscpu_shared_counters_open(segment, name, 1000, &counters);
        CHECK(status != THISCPU_STATUS_OK || thiscpu_shared_counters_close(counters) == 0);
    }
    CHECK(status == THISCPU_STATUS_SEGMENT_FULL);
    CHECK(strstr(thiscpu_last_error(), "max_bytes") != NULL);
    OK(thiscpu_segment_close(segment));
    // Others may write to the file, unless the options allow it.
    CHECK(chmod(path, 0666) == 0);
    RETURNS(THISCPU_STATUS_UNTRUSTED_SEGMENT, thiscpu_segment_open(path, &options, &segment));
    CHECK(strstr(thiscpu_last_error(), "666") != NULL);
    options.mode = 0666;
    OK(thiscpu_segment_open(path, &options, &segment));
    OK(thiscpu_segment_close(segment));
    CHECK(unlink(path) == 0);
    if (geteuid() == 0) {
        OK(thiscpu_segment_create(path, NULL, &segment));
        OK(thiscpu_segment_close(segment));
        CHECK(chown(path, 12345, (gid_t)-1) == 0);
        RETURNS(THISCPU_STATUS_UNTRUSTED_SEGMENT, thiscpu_segment_open(path, NULL, &segment));
        options.owner = 12345;
        OK(thiscpu_segment_open(path, &options, &segment));
        OK(thiscpu_segment_close(segment));
        CHECK(unlink(path) == 0);
    }
    thiscpu_segment_options bad[3] = {
        {.max_bytes = 1}, {.max_bytes = 1ULL << 50}, {.lanes = 1 << 20}};
    for (int i = 0; i < 3; i++) {
        RETURNS(THISCPU_STATUS_OUT_OF_RANGE, thiscpu_segment_anonymous(&bad[i], &segment));
    }
}

static thiscpu_bounds bounds_of(thiscpu_counter_view *counter) {
    thiscpu_bounds bounds;
    OK(thiscpu_counter_view_bounds(counter, &bounds));
    CHECK(bounds.low <= bounds.estimate && bounds.estimate <= bounds.high);
    return bounds;
}

// A view of another process reads the counters, and learns that the file is shortened.
static void view_gives_bounds(void) {
    thiscpu_segment *segment;
    thiscpu_shared_counters *group;
    OK(thiscpu_segment_create(path, NULL, &segment));
    thiscpu_shared_counter *counter = counter_of(segment, "requests");
    OK(thiscpu_shared_counters_open(segment, "pair", 2, &group));
    OK(thiscpu_shared_counter_add(counter, 10));
    OK(thiscpu_shared_counter_add(counter, -3));
    OK(thiscpu_shared_counters_add(group, 1, 5));
    thiscpu_shared_budget *budget;
    uint64_t units;
    OK(thiscpu_shared_budget_open(segment, "limit", 10, &budget));
    OK(thiscpu_shared_budget_try_acquire(budget, 4));
    OK(thiscpu_shared_budget_available(budget, &units));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        thiscpu_segment_view *view;
        thiscpu_counter_view *viewed, *none = NULL;
        thiscpu_counters_view *all;
        thiscpu_budget_view *limit, *no_limit = NULL;
        thiscpu_budget_state state;
        thiscpu_bounds bounds[3] = {{0, 0, 0}, {0, 0, 0}, {-7, -7, -7}};
        size_t len;
        bool lost = true;
        int file = open(path, O_RDWR);
        CHECK(file >= 0);
        OK(thiscpu_segment_view_from_fd(file, &view));
        OK(thiscpu_segment_view_close(view));
        OK(thiscpu_segment_view_open(path, &view));
        OK(thiscpu_counter_view_open(view, "requests", &viewed));
        CHECK(bounds_of(viewed).low == 7 && bounds_of(viewed).high == 7);
        OK(thiscpu_counters_view_open(view, "pair", 2, &all));
        OK(thiscpu_counters_view_len(all, &len));
        CHECK(len == 2);
        OK(thiscpu_counters_view_bounds(all, bounds, 3));
        CHECK(bounds[0].high == 0 && bounds[1].low == 5 && bounds[2].low == -7);
        RETURNS(THISCPU_STATUS_INVALID_SIZE, thiscpu_counters_view_bounds(all, bounds, 1));
        RETURNS(THISCPU_STATUS_NULL_POINTER, thiscpu_counters_view_bounds(all, NULL, 2));
        RETURNS(THISCPU_STATUS_NO_SUCH_OBJECT, thiscpu_counter_view_open(view, "none", &none));
        RETURNS(THISCPU_STATUS_WRONG_KIND, thiscpu_counter_view_open(view, "pair", &none));
        RETURNS(THISCPU_STATUS_INVALID_NAME, thiscpu_counter_view_open(view, "", &none));
        OK(thiscpu_budget_view_open(view, "limit", &limit));
        OK(thiscpu_budget_view_state(limit, &state));
        CHECK(state.limit == 10 && state.free == 6 && state.is_exact);
        CHECK(!state.is_queued && !state.is_closed);
        // The parent lives.
        thiscpu_budget_participant users[2] = {{7, 7, 7, false}, {7, 7, 7, false}};
        size_t count = 0;
        OK(thiscpu_budget_view_participants(limit, NULL, 0, &count));
        CHECK(count == 1);
        OK(thiscpu_budget_view_participants(limit, users, 2, &count));
        CHECK(count == 1 && users[0].slot == 0 && users[0].pid == (uint32_t)getppid());
        CHECK(users[0].held == 4 && users[0].is_alive && users[1].held == 7);
        RETURNS(THISCPU_STATUS_NULL_POINTER,
                thiscpu_budget_view_participants(limit, NULL, 1, &count));
        RETURNS(THISCPU_STATUS_NULL_POINTER,
                thiscpu_budget_view_participants(limit, users, 2, NULL));
        RETURNS(THISCPU_STATUS_WRONG_KIND, thiscpu_budget_view_open(view, "pair", &no_limit));
        RETURNS(THISCPU_STATUS_NULL_POINTER, thiscpu_budget_view_state(limit, NULL));
        CHECK(no_limit == NULL);
        OK(thiscpu_segment_view_is_lost(view, &lost));
        CHECK(!lost && none == NULL);
        CHECK(ftruncate(file, 0) == 0);
        CHECK(bounds_of(viewed).low == INT64_MIN && bounds_of(viewed).high == INT64_MAX);
        OK(thiscpu_segment_view_is_lost(view, &lost));
        CHECK(lost);
        RETURNS(THISCPU_STATUS_INVALID_SEGMENT,
                thiscpu_counter_view_open(view, "requests", &none));
        OK(thiscpu_counter_view_close(viewed));
        OK(thiscpu_counters_view_close(all));
        OK(thiscpu_budget_view_state(limit, &state));
        CHECK(state.limit == 0 && !state.is_exact);
        OK(thiscpu_budget_view_participants(limit, users, 2, &count));
        CHECK(count == 0);
        OK(thiscpu_budget_view_close(limit));
        OK(thiscpu_budget_view_close(NULL));
        OK(thiscpu_segment_view_close(view));
        _exit(0);
    }
    passes(child);
    // This process goes on too.
    bool lost = false;
    OK(thiscpu_shared_counter_add(counter, 4));
    CHECK(sum_of(counter) == 4);
    OK(thiscpu_segment_is_lost(segment, &lost));
    CHECK(lost);
    OK(thiscpu_shared_counter_close(counter));
    OK(thiscpu_shared_counters_close(group));
    OK(thiscpu_shared_budget_destroy(budget));
    OK(thiscpu_segment_close(segment));
    CHECK(unlink(path) == 0);
}

static void errors_are_reported(void) {
    thiscpu_segment *segment = NULL, *second;
    thiscpu_shared_counter *counter = NULL;
    RETURNS(THISCPU_STATUS_SYSTEM, thiscpu_segment_open(path, NULL, &segment));
    CHECK(errno == ENOENT && strstr(thiscpu_last_error(), path) != NULL);
    RETURNS(THISCPU_STATUS_SYSTEM, thiscpu_segment_create("/nowhere/segment", NULL, &segment));
    CHECK(segment == NULL);
    OK(thiscpu_segment_create(path, NULL, &segment));
    RETURNS(THISCPU_STATUS_SYSTEM, thiscpu_segment_create(path, NULL, &second));
    CHECK(errno == EEXIST);
    char name[202];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = 0;
    RETURNS(THISCPU_STATUS_INVALID_NAME, thiscpu_shared_counter_open(segment, name, &counter));
    RETURNS(THISCPU_STATUS_INVALID_NAME, thiscpu_shared_counter_open(segment, "", &counter));
    RETURNS(THISCPU_STATUS_INVALID_NAME, thiscpu_shared_counter_open(segment, "a\nb", &counter));
    RETURNS(THISCPU_STATUS_INVALID_NAME, thiscpu_shared_counter_open(segment, "\xff", &counter));
    CHECK(counter == NULL);
    OK(thiscpu_shared_counter_open(segment, name + 1, &counter));
    OK(thiscpu_shared_counter_close(counter));
    OK(thiscpu_segment_close(segment));
    // A file that is one byte longer than its header says.
    struct stat before;
    CHECK(stat(path, &before) == 0 && truncate(path, before.st_size + 1) == 0);
    RETURNS(THISCPU_STATUS_INVALID_SEGMENT, thiscpu_segment_open(path, NULL, &segment));
    CHECK(strstr(thiscpu_last_error(), ": its header says ") != NULL);
    CHECK(truncate(path, before.st_size) == 0);
    // A file of the right length, whose header is damaged.
    int file = open(path, O_RDWR);
    CHECK(file >= 0 && pwrite(file, "damaged", 7, 0) == 7 && close(file) == 0);
    RETURNS(THISCPU_STATUS_INVALID_SEGMENT, thiscpu_segment_open(path, NULL, &segment));
    CHECK(unlink(path) == 0);
}

int main(void) {
    snprintf(path, sizeof path, "/dev/shm/thiscpu-capi-%d", (int)getpid());
    alarm(300);
    processes_share_counters();
    processes_share_series();
    sum_is_exact_after_kills();
    snapshot_is_of_one_instant();
    descriptor_is_passed_on();
    existing_is_kept_or_replaced();
    options_are_obeyed();
    view_gives_bounds();
    errors_are_reported();
    return 0;
}
