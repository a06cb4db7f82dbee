/* Children of vfork that allocate, while threads of the parent do. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { THREADS = 3, ROUNDS = 15, CALLS = 1000, SLOTS = 64 };

static unsigned next(unsigned *random) { return *random = *random * 1664525u + 1013904223u; }

/* Allocates, checks and frees blocks, most of them of size classes. */
static void churn(unsigned random, int calls) {
    char *held[SLOTS] = {0};
    size_t sizes[SLOTS] = {0};
    for (int call = 0; call < calls; call++) {
        unsigned slot = (next(&random) >> 8) % SLOTS;
        if (held[slot] != NULL) CHECK(is_filled(held[slot], sizes[slot], held[slot]));
        free(held[slot]);
        sizes[slot] = (next(&random) >> 12) % (call % 100 == 0 ? 50000 : call % 20 ? 500 : 9000);
        held[slot] = malloc(sizes[slot]);
        CHECK(held[slot] != NULL);
        fill(held[slot], sizes[slot]);
    }
    for (int slot = 0; slot < SLOTS; slot++) {
        if (held[slot] != NULL) CHECK(is_filled(held[slot], sizes[slot], held[slot]));
        free(held[slot]);
    }
}

static int ends_with(pid_t child) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Moves the calling process or thread to the first or last CPU that it may use. */
static void run_on(int last) {
    static cpu_set_t allowed;
    static atomic_int known;
    if (!known) {
        CHECK(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
        known = 1;
    }
    int found = -1;
    for (int cpu = 0; cpu < CPU_SETSIZE && (last || found < 0); cpu++)
        if (CPU_ISSET(cpu, &allowed)) found = cpu;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(found, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
}

static void parent_sees_what_its_child_stores(void) {
    volatile int why = 0;
    char *volatile block = NULL;
    char *arguments[] = {"nosuchcommand", NULL};
    pid_t child = vfork();
    if (child == 0) {
        block = malloc(100);
        execv("/nonexistent/nosuchcommand", arguments);
        why = errno;
        _exit(127);
    }
    CHECK(ends_with(child) == 127 && why == ENOENT && block != NULL);
    free(block);
}

static atomic_int stop;

static void *allocate(void *number) {
    while (!stop) churn((unsigned)(uintptr_t)number, 500);
    return NULL;
}

/* What a parent passes to its child, and back. */
static char *volatile passed[16];

static void pass_blocks(void) {
    for (int n = 0; n < 16; n++) {
        size_t size = (size_t)1 << n;
        CHECK(passed[n] == NULL || is_filled(passed[n], size, passed[n]));
        free(passed[n]);
        passed[n] = malloc(size);
        CHECK(passed[n] != NULL);
        fill(passed[n], size);
    }
}

/* A child is on another CPU than its parent, where other threads run. */
static void *start_children(void *number) {
    unsigned seed = (unsigned)(uintptr_t)number;
    run_on(0);
    for (int round = 0; round < ROUNDS; round++) {
        pid_t child = vfork();
        if (child == 0) {
            run_on(1);
            if (seed == 0) pass_blocks();
            churn(seed + (unsigned)round, CALLS);
            if (round % 2) execl("/bin/true", "true", (char *)NULL);
            _exit(0);
        }
        CHECK(ends_with(child) == 0);
        if (seed == 0) pass_blocks();
        churn(seed + (unsigned)round, CALLS);
    }
    return NULL;
}

/* The thread's first call of the allocator is its child's. */
static void *start_child_first(void *number) {
    run_on(0);
    pid_t child = vfork();
    if (child == 0) {
        run_on(1);
        churn(3, CALLS);
        _exit(0);
    }
    CHECK(ends_with(child) == 0);
    for (int round = 0; round < 10; round++) {
        run_on(round % 2);
        churn((unsigned)(uintptr_t)number, CALLS);
    }
    return NULL;
}

static void children_allocate_while_threads_do(void) {
    pthread_t threads[THREADS], parents[2];
    stop = 0;
    for (uintptr_t n = 0; n < THREADS; n++)
        CHECK(pthread_create(&threads[n], NULL, allocate, (void *)n) == 0);
    CHECK(pthread_create(&parents[0], NULL, start_children, (void *)0) == 0);
    CHECK(pthread_create(&parents[1], NULL, start_children, (void *)7) == 0);
    for (int n = 0; n < 2; n++) CHECK(pthread_join(parents[n], NULL) == 0);
    for (uintptr_t n = 0; n < 8; n++) {
        CHECK(pthread_create(&parents[0], NULL, start_child_first, (void *)n) == 0);
        CHECK(pthread_join(parents[0], NULL) == 0);
    }
    stop = 1;
    for (int n = 0; n < THREADS; n++) CHECK(pthread_join(threads[n], NULL) == 0);
}

/* Each child allocates before and after the life of its own child. */
static void nest(int depth) {
    pid_t child = vfork();
    if (child == 0) {
        run_on(depth % 2);
        churn((unsigned)depth, 300);
        if (depth > 0) nest(depth - 1);
        churn((unsigned)depth, 300);
        if (depth == 0) execl("/bin/sh", "sh", "-c", "exit 5", (char *)NULL);
        _exit(5);
    }
    CHECK(ends_with(child) == 5);
}

static void children_have_children(void) {
    pthread_t thread;
    stop = 0;
    CHECK(pthread_create(&thread, NULL, allocate, (void *)9) == 0);
    for (int round = 0; round < 20; round++) {
        nest(3);
        churn((unsigned)round, 300);
    }
    stop = 1;
    CHECK(pthread_join(thread, NULL) == 0);
}

static atomic_uint signals;

static void count(int signal) {
    (void)signal;
    signals++;
}

static void signals_arrive_in_children(void) {
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    for (int round = 0; round < 20; round++) {
        CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
        pid_t child = vfork();
        if (child == 0) {
            setitimer(ITIMER_REAL, &often, NULL);
            churn((unsigned)round, CALLS);
            _exit(0);
        }
        CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
        CHECK(ends_with(child) == 0);
    }
    CHECK(signals > 0);
}

static void failure_is_reported(void) {
    struct rlimit none = {0, 0};
    /* Root is exempt. The system call changes the calling thread only, which is the last one. */
    if (geteuid() == 0) CHECK(setuid(65534) == 0);
    CHECK(setrlimit(RLIMIT_NPROC, &none) == 0);
    for (int round = 0; round < 3; round++) {
        errno = 0;
        pid_t child = vfork();
        if (child == 0) _exit(0);
        CHECK(child == -1 && errno == EAGAIN);
        churn((unsigned)round, CALLS);
    }
}

int main(void) {
    parent_sees_what_its_child_stores();
    children_allocate_while_threads_do();
    children_have_children();
    signals_arrive_in_children();
    failure_is_reported();
    puts("done");
    return 0;
}
