// A plugin that contains the static library. Its children of vfork use its copy.
#include "check.h"
#include <sys/wait.h>
#include <unistd.h>

int plugin_run(void);

static thiscpu_counter *counter;

static void add(int times) {
    for (int i = 0; i < times; i++) {
        OK(thiscpu_counter_add(counter, 1));
    }
}

int plugin_run(void) {
    int64_t sum;
    OK(thiscpu_counter_create(&counter));
    for (int round = 0; round < 20; round++) {
        add(1000);
        pid_t child = vfork();
        if (child == 0) {
            add(1000);
            _exit(7);
        }
        int status;
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
    OK(thiscpu_counter_sum(counter, &sum));
    CHECK(sum == 20 * 2 * 1000);
    return thiscpu_counter_destroy(counter);
}
