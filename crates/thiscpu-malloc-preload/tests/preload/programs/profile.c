/* Allocates in the way that the first argument names, with a heap profile that is asked for. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static void *blocks[20000];

static void __attribute__((noinline)) allocate(int count, size_t size) {
    for (int at = 0; at < count; at++) {
        blocks[at] = malloc(size);
        CHECK(blocks[at] != NULL);
        fill(blocks[at], size);
    }
}

static void __attribute__((noinline)) give(int count, int step) {
    for (int at = 0; at < count; at += step) {
        free(blocks[at]);
        blocks[at] = NULL;
    }
}

/* Signals come while blocks are sampled. One in each round, because a handler may take long. */
static void with_signals(void) {
    struct sigaction by_timer;
    CHECK(sigaction(SIGUSR2, NULL, &by_timer) == 0 && by_timer.sa_handler != SIG_DFL);
    CHECK(sigaction(SIGALRM, &by_timer, NULL) == 0);
    for (int round = 0; round < 200; round++) {
        struct itimerval once = {{0, 0}, {0, 1 + round * 7 % 300}};
        CHECK(setitimer(ITIMER_REAL, &once, NULL) == 0);
        allocate(100, 1000);
        give(100, 1);
    }
    raise(SIGUSR2);
    _exit(0);
}

static void in_child(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        allocate(100, 100);
        exit(0);
    }
    CHECK(waitpid(child, NULL, 0) == child);
}

/* Allocates ten blocks in a plugin, and unloads it. Returns the address of its function. */
static uintptr_t __attribute__((noinline)) use_plugin(const char *path, size_t size) {
    void *plugin = dlopen(path, RTLD_NOW);
    CHECK(plugin != NULL);
    void *(*plugin_allocate)(size_t) = (void *(*)(size_t))dlsym(plugin, "plugin_allocate");
    CHECK(plugin_allocate != NULL);
    for (int at = 0; at < 10; at++) CHECK(plugin_allocate(size) != NULL);
    CHECK(dlclose(plugin) == 0);
    return (uintptr_t)plugin_allocate;
}

int main(int count, char **arguments) {
    CHECK(count >= 2);
    const char *how = arguments[1];
    if (strcmp(how, "exit") == 0) {
        allocate(1000, 1000);
        give(1000, 2);
    } else if (strcmp(how, "zero") == 0) {
        for (int at = 0; at < 10000; at++) blocks[at] = malloc(0);
    } else if (strcmp(how, "signal") == 0) {
        with_signals();
    } else if (strcmp(how, "plugins") == 0) {
        CHECK(count == 4);
        uintptr_t first = use_plugin(arguments[2], 3000);
        uintptr_t second = use_plugin(arguments[3], 5000);
        puts(first == second ? "same address" : "other address");
    } else if (strcmp(how, "fork") == 0) {
        in_child();
        in_child();
    } else if (strcmp(how, "killed") == 0) {
        /* The second peak comes more than a second after the first. */
        allocate(1000, 1000);
        struct timespec pause = {1, 200000000};
        nanosleep(&pause, NULL);
        allocate(20000, 1000);
        kill(getpid(), SIGKILL);
    } else {
        return 99;
    }
    return 0;
}
