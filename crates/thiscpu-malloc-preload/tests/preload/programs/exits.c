/* Exits in the way that the first argument names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static void wait_for(pid_t child) { CHECK(waitpid(child, NULL, 0) == child); }

int main(int count, char **arguments) {
    CHECK(count >= 2);
    const char *how = arguments[1];
    free(malloc(1000));
    if (strcmp(how, "exit") == 0) exit(3);
    if (strcmp(how, "_exit") == 0) _exit(3);
    if (strcmp(how, "children") == 0) {
        pid_t child = fork();
        if (child == 0) _exit(0);
        wait_for(child);
        child = fork();
        if (child == 0) exit(0);
        wait_for(child);
        return 0;
    }
    /* Like GNU programs, which detect write errors by this. */
    if (strcmp(how, "close") == 0) return fclose(stderr);
    /* Like daemons. The second argument is a file that the allocator must not write to. */
    if (strcmp(how, "reopen") == 0) {
        for (int file = 2; file < 1024; file++) close(file);
        CHECK(open(arguments[2], O_WRONLY | O_CREAT | O_TRUNC, 0600) == 2);
        for (int file = 3; file < 1024; file++) dup2(2, file);
        return 0;
    }
    /* Calls operator new in a program without a C++ runtime. */
    if (strcmp(how, "throw") == 0) {
        void *(*operator_new)(size_t) = (void *(*)(size_t))dlsym(RTLD_DEFAULT, "_Znwm");
        return operator_new(SIZE_MAX / 2) == NULL;
    }
    return 99;
}
