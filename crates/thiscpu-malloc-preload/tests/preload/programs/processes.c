/* Starts processes in all ways, while threads allocate. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

extern char **environ;

enum { THREADS = 3, FORKS = 25, CALLS = 20000, SLOTS = 64 };

/* Allocates, checks and frees blocks. */
static void churn(unsigned random, int calls) {
    char *held[SLOTS] = {0};
    size_t sizes[SLOTS] = {0};
    for (int call = 0; call < calls; call++) {
        random = random * 1664525u + 1013904223u;
        unsigned slot = (random >> 8) % SLOTS;
        if (held[slot] != NULL) CHECK(is_filled(held[slot], sizes[slot], held[slot]));
        free(held[slot]);
        sizes[slot] = (random >> 16) % (call % 100 == 0 ? 50000 : 500);
        held[slot] = malloc(sizes[slot]);
        CHECK(held[slot] != NULL);
        fill(held[slot], sizes[slot]);
    }
    for (int slot = 0; slot < SLOTS; slot++) free(held[slot]);
}

static int ends_with(pid_t child) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static atomic_int stop;

static void *allocate(void *number) {
    churn((unsigned)(uintptr_t)number, CALLS);
    /* The thread still exists while others fork, without using the CPU. */
    while (!stop) usleep(1000);
    return NULL;
}

static void *fork_often(void *number) {
    for (int round = 0; round < FORKS; round++) {
        pid_t child = fork();
        if (child == 0) {
            /* If the fork left a lock locked, the child would hang. */
            alarm(120);
            churn((unsigned)round + (unsigned)(uintptr_t)number, 300);
            pthread_t thread;
            CHECK(pthread_create(&thread, NULL, (void *(*)(void *))malloc, (void *)100) == 0);
            void *left;
            CHECK(pthread_join(thread, &left) == 0);
            free(left);
            pid_t grandchild = fork();
            if (grandchild == 0) {
                churn((unsigned)round, 100);
                _exit(4);
            }
            _exit(ends_with(grandchild));
        }
        CHECK(ends_with(child) == 4);
    }
    return NULL;
}

static void threads_allocate_while_others_fork(void) {
    pthread_t threads[THREADS], forking;
    for (uintptr_t n = 0; n < THREADS; n++)
        CHECK(pthread_create(&threads[n], NULL, allocate, (void *)n) == 0);
    CHECK(pthread_create(&forking, NULL, fork_often, (void *)7) == 0);
    fork_often((void *)8);
    CHECK(pthread_join(forking, NULL) == 0);
    stop = 1;
    for (int n = 0; n < THREADS; n++) CHECK(pthread_join(threads[n], NULL) == 0);
}

static void libc_starts_programs(void) {
    for (int round = 0; round < 10; round++) {
        char *const arguments[] = {"sh", "-c", "exit 6", NULL};
        pid_t child;
        CHECK(posix_spawnp(&child, "sh", NULL, NULL, arguments, environ) == 0);
        CHECK(ends_with(child) == 6);
        CHECK(WEXITSTATUS(system("exit 7")) == 7);
        char word[10] = {0};
        FILE *pipe = popen("echo hello", "r");
        CHECK(pipe != NULL && fgets(word, sizeof word, pipe) != NULL);
        CHECK(strcmp(word, "hello\n") == 0 && pclose(pipe) == 0);
        churn((unsigned)round, 100);
    }
}

int main(void) {
    threads_allocate_while_others_fork();
    libc_starts_programs();
    puts("done");
    return 0;
}
