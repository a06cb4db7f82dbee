/* Changes settings of the preloaded library, whose function it finds when it runs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>

#include "check.h"
#include "thiscpu_malloc.h"

static void handle(int signal) { (void)signal; }

/* A signal that the program handles stays the program's. Another one gets its default back. */
static void signals(__typeof__(thiscpu_malloc_set) *set) {
    CHECK(signal(SIGUSR1, handle) == SIG_DFL);
    CHECK(set("profile_signal", "USR2") == 0 && set("profile_signal", "USR1") == EAGAIN);
    CHECK(signal(SIGUSR2, SIG_DFL) != SIG_DFL && signal(SIGUSR1, SIG_DFL) == handle);
    CHECK(set("profile_signal", "USR1") == 0 && set("profile_signal", "off") == 0);
    CHECK(signal(SIGUSR1, SIG_DFL) == SIG_DFL);
}

int main(void) {
    __typeof__(thiscpu_malloc_set) *set =
        (__typeof__(set))(uintptr_t)dlsym(RTLD_DEFAULT, "thiscpu_malloc_set");
    CHECK(set != NULL);
    errno = 7;
    CHECK(set("harden", "on") == 0 && set("harden", "off") == 0);
    CHECK(set("no such setting", "on") == ENOENT && set(NULL, NULL) == ENOENT);
    CHECK(set("stats", "xml") == EINVAL && set("stats", "") == EINVAL);
    CHECK(set("profile", NULL) == EINVAL && set("profile_interval", "0") == EINVAL);
    CHECK(set("profile", "/dev/null") == 0 && set("profile", "off") == 0);
    signals(set);
    CHECK(errno == 7);
    /* The table at exit. */
    CHECK(set("stats", NULL) == 0);
    for (int i = 0; i < 10; i++) {
        CHECK(set("stats", "off") == 0 && set("stats", "table") == 0);
    }
    /* Standard error was duplicated once, to the first number from 200 on. */
    CHECK(fcntl(200, F_GETFD) != -1 && fcntl(201, F_GETFD) == -1);
    free(malloc(100));
    puts("done");
    return 0;
}
