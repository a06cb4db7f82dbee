// Children of vfork and clone(CLONE_VM) use the library, while threads of their parent do.
#include "check.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 16, TIMES = 750 };

static thiscpu_counter *counter;
static thiscpu_word *word;
static thiscpu_budget *budget;
static thiscpu_cache *cache;
static atomic_int stop;
static atomic_long done;

static void use(int times) {
    void *objects[16];
    for (int time = 0; time < times; time++) {
        size_t bytes = 20 + (size_t)time % 40;
        char *block = malloc(bytes);
        CHECK(block != NULL);
        memset(block, (char)done, bytes);
        block[bytes - 1] = (char)time;
        OK(thiscpu_counter_add(counter, 1));
        OK(thiscpu_word_add(word, 1));
        OK(thiscpu_budget_try_acquire(budget, 2));
        OK(thiscpu_budget_release(budget, 1));
        for (int n = 0; n < 16 && time % 8 == 0; n++) {
            uintptr_t *object = objects[n] = thiscpu_cache_alloc(cache);
            CHECK(object != NULL);
            object[0] = object[7] = (uintptr_t)&objects[n];
        }
        for (int n = 0; n < 16 && time % 8 == 0; n++) {
            uintptr_t *object = objects[n];
            CHECK(object[0] == (uintptr_t)&objects[n] && object[7] == object[0]);
            OK(thiscpu_cache_free(cache, object));
        }
        CHECK(block[bytes - 1] == (char)time);
        free(block);
    }
    done += times;
}

// Moves the calling process or thread to the first or last CPU that it may use.
static void run_on(int last) {
    static cpu_set_t allowed;
    static atomic_int known;
    if (!known) {
        CHECK(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
        known = 1;
    }
    int found = -1;
    for (int cpu = 0; cpu < CPU_SETSIZE && (last || found < 0); cpu++) {
        found = CPU_ISSET(cpu, &allowed) ? cpu : found;
    }
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(found, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
}

static void *use_here(void *number) {
    run_on((int)(intptr_t)number);
    while (!stop) {
        use(100);
    }
    return NULL;
}

static void ends(pid_t child, int expected) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == expected);
}

// The child runs on another CPU than its parent, where other threads run.
static void child_of_vfork(int round) {
    volatile int why = 0;
    run_on(round % 2);
    pid_t child = vfork();
    if (child == 0) {
        run_on(round % 2 == 0);
        use(TIMES);
        if (round % 3 == 0) {
            execl("/nonexistent", "nonexistent", (char *)NULL);
            why = errno;
        }
        _exit(3);
    }
    ends(child, 3);
    CHECK(why == (round % 3 == 0 ? ENOENT : 0));
    use(TIMES / 10);
}

static void nest(int depth) {
    pid_t child = vfork();
    if (child == 0) {
        run_on(depth % 2);
        use(TIMES / 4);
        if (depth > 0) {
            nest(depth - 1);
        }
        use(TIMES / 4);
        _exit(5);
    }
    ends(child, 5);
}

static int use_in_child(void *depth) {
    run_on(1);
    use(TIMES);
    if (*(int *)depth > 0) {
        nest(*(int *)depth - 1);
        use(TIMES);
    }
    return 6;
}

// These children have a stack of their own.
static void children_of_clone(void) {
    static char stack[1 << 18] __attribute__((aligned(16)));
    for (int round = 0; round < ROUNDS / 4; round++) {
        run_on(0);
        int depth = round % 3;
        uint32_t previous = thiscpu_vfork_enter();
        int flags = CLONE_VM | CLONE_VFORK | SIGCHLD;
        pid_t child = clone(use_in_child, stack + sizeof stack, flags, &depth);
        thiscpu_vfork_leave(previous);
        ends(child, 6);
        use(TIMES / 10);
    }
}

int main(void) {
    OK(thiscpu_counter_create(&counter));
    OK(thiscpu_word_create(8, &word));
    OK(thiscpu_budget_create(INT64_C(1) << 40, &budget));
    OK(thiscpu_cache_create(64, 8, &cache));
    pthread_t threads[3];
    for (int n = 0; n < 3; n++) {
        CHECK(pthread_create(&threads[n], NULL, use_here, (void *)(intptr_t)(n % 2)) == 0);
    }
    for (int round = 0; round < ROUNDS; round++) {
        child_of_vfork(round);
    }
    for (int round = 0; round < ROUNDS / 4; round++) {
        nest(2);
        use(TIMES / 10);
    }
    children_of_clone();
    stop = 1;
    for (int n = 0; n < 3; n++) {
        CHECK(pthread_join(threads[n], NULL) == 0);
    }

    int64_t sum;
    OK(thiscpu_counter_sum(counter, &sum));
    CHECK(sum == done);
    uint64_t values[4097], total = 0;
    size_t count;
    OK(thiscpu_word_values(word, values, 4097, &count));
    for (size_t n = 0; n < count; n++) {
        total += values[n];
    }
    CHECK(total == (uint64_t)done);
    OK(thiscpu_budget_release(budget, done));
    OK(thiscpu_budget_destroy(budget));
    OK(thiscpu_word_destroy(word));
    OK(thiscpu_counter_destroy(counter));
    size_t allocated = 0;
    OK(thiscpu_cache_close(cache, &allocated));
    CHECK(allocated == 0);
    return 0;
}
