/*
 * Forks workers that share a counter and a limit, and kills one of them.
 *
 *     make && ./workers
 *
 * Each worker counts requests, and then holds two of ten connections. The parent kills one worker:
 * its counts stay, and its connections come back. The segment needs no name, because the workers
 * inherit it.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <thiscpu.h>
#include <unistd.h>

enum { WORKERS = 3, REQUESTS_EACH = 1000, LIMIT = 10, KEPT = 2 };

static thiscpu_segment *segment;
static thiscpu_shared_counter *requests;
static thiscpu_shared_budget *connections;

static void check(thiscpu_status status, const char *what) {
    if (status != THISCPU_STATUS_OK) {
        fprintf(stderr, "workers: %s: %s\n", what, thiscpu_last_error());
        exit(1);
    }
}

static void check_call(int result, const char *what) {
    if (result < 0) {
        perror(what);
        exit(1);
    }
}

/* Serves requests, and then keeps connections until the parent closes its end of the pipe. */
static void work(int ready, int end) {
    char byte = 0;
    for (int i = 0; i < REQUESTS_EACH; i++) {
        check(thiscpu_shared_budget_try_acquire(connections, 1), "acquire a connection");
        check(thiscpu_shared_counter_add(requests, 1), "count a request");
        check(thiscpu_shared_budget_release(connections, 1), "release a connection");
    }
    check(thiscpu_shared_budget_try_acquire(connections, KEPT), "keep connections");
    check_call((int)write(ready, &byte, 1), "write");
    /* If another worker fails before its write, the parent finds the end of the pipe. */
    check_call(close(ready), "close");
    check_call((int)read(end, &byte, 1), "read");
    check(thiscpu_shared_budget_release(connections, KEPT), "release connections");
    exit(0);
}

/* Prints what each process holds, and returns how many units ended processes hold. */
static uint64_t show_holders(void) {
    thiscpu_segment_view *view;
    thiscpu_budget_view *budget;
    thiscpu_budget_participant users[1 + WORKERS];
    uint64_t held_by_ended = 0;
    size_t count;
    int fd;
    /* A view changes nothing, so it takes nothing back from the killed worker either. */
    check(thiscpu_segment_fd(segment, &fd), "pass the segment on");
    check(thiscpu_segment_view_from_fd(fd, &view), "open a view");
    check(thiscpu_budget_view_open(view, "connections", &budget), "find a budget");
    check(thiscpu_budget_view_participants(budget, users, 1 + WORKERS, &count), "list holders");
    for (size_t i = 0; i < count && i < 1 + WORKERS; i++) {
        printf("  process %lu %s, and holds %llu\n", (unsigned long)users[i].pid,
               users[i].is_alive ? "is alive" : "has ended", (unsigned long long)users[i].held);
        if (!users[i].is_alive)
            held_by_ended += users[i].held;
    }
    check(thiscpu_budget_view_close(budget), "close a budget");
    check(thiscpu_segment_view_close(view), "close a view");
    return held_by_ended;
}

int main(void) {
    pid_t workers[WORKERS];
    int ready[2], end[2], status;
    char byte;
    check(thiscpu_segment_anonymous(NULL, &segment), "create a segment");
    check(thiscpu_shared_counter_open(segment, "requests", &requests), "make a counter");
    check(thiscpu_shared_budget_open(segment, "connections", LIMIT, &connections), "make a budget");
    check_call(pipe(ready), "pipe");
    check_call(pipe(end), "pipe");
    for (int i = 0; i < WORKERS; i++) {
        check_call(workers[i] = fork(), "fork");
        if (workers[i] == 0) {
            close(ready[0]);
            close(end[1]);
            work(ready[1], end[0]);
        }
    }
    close(ready[1]);
    for (int i = 0; i < WORKERS; i++)
        if (read(ready[0], &byte, 1) != 1) {
            fprintf(stderr, "workers: a worker has ended too early\n");
            return 1;
        }
    int64_t sum;
    check(thiscpu_shared_counter_sum(requests, &sum), "sum");
    printf("%d workers have served %lld requests:\n", WORKERS, (long long)sum);
    show_holders();

    check_call(kill(workers[0], SIGKILL), "kill");
    check_call(waitpid(workers[0], &status, 0), "wait");
    printf("worker %ld is killed:\n", (long)workers[0]);
    uint64_t lost = show_holders();
    if (lost != KEPT) {
        fprintf(stderr, "workers: the killed worker held %llu connections, not %d\n",
                (unsigned long long)lost, KEPT);
        return 1;
    }

    /* All that the living workers leave. This takes the units of the killed one back. */
    uint64_t rest = LIMIT - KEPT * (WORKERS - 1), free_units;
    check(thiscpu_shared_budget_acquire_timeout(connections, rest, 10000000000),
          "get the units of a killed worker back");
    printf("%llu connections came back: the parent got %llu of %d\n", (unsigned long long)lost,
           (unsigned long long)rest, LIMIT);
    check(thiscpu_shared_budget_release(connections, rest), "release connections");

    close(end[1]);
    for (int i = 1; i < WORKERS; i++) {
        check_call(waitpid(workers[i], &status, 0), "wait");
        if (status != 0) {
            fprintf(stderr, "workers: worker %ld failed\n", (long)workers[i]);
            return 1;
        }
    }
    check(thiscpu_shared_counter_sum(requests, &sum), "sum");
    check(thiscpu_shared_budget_available(connections, &free_units), "look");
    if (sum != WORKERS * REQUESTS_EACH) {
        fprintf(stderr, "workers: requests are lost: %lld are left\n", (long long)sum);
        return 1;
    }
    if (free_units != LIMIT) {
        fprintf(stderr, "workers: connections are lost: %llu of %d are free\n",
                (unsigned long long)free_units, LIMIT);
        return 1;
    }
    printf("in the end: %lld requests, none lost; %llu of %d connections free\n", (long long)sum,
           (unsigned long long)free_units, LIMIT);
    check(thiscpu_shared_budget_destroy(connections), "close a budget");
    check(thiscpu_shared_counter_close(requests), "close a counter");
    check(thiscpu_segment_close(segment), "close a segment");
    return 0;
}
