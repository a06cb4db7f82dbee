// A sandbox that denies both ways to a fence after the library has started.
#include "check.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void deny(unsigned number) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static uint64_t unix_ns(void) {
    struct timespec now;
    CHECK(clock_gettime(CLOCK_REALTIME, &now) == 0);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

// The failed fence is listed, with its error and the time.
static void check_degradations(bool is_atomic, uint64_t before) {
    thiscpu_degradation all[16];
    size_t count = 0, more = 0, fences = 0;
    OK(thiscpu_degradations(all, 16, &count));
    OK(thiscpu_degradations(NULL, 0, &more));
    CHECK(count == more && count <= 16);
    for (size_t i = 0; i < count; i++) {
        CHECK(strlen(all[i].reason) > 20 && all[i].occurrences >= 1);
        if (strcmp(all[i].name, "fences") == 0) {
            fences++;
            CHECK(all[i].error == EPERM);
            CHECK(all[i].since_unix_ns >= before && all[i].since_unix_ns <= unix_ns());
        }
        CHECK((strcmp(all[i].name, "atomic-tier") == 0) == is_atomic);
    }
    CHECK(fences == !is_atomic && count == (is_atomic ? 1 : 2));
    CHECK(thiscpu_shared_lane_calls() == 0);
}

int main(void) {
    thiscpu_tier tier;
    OK(thiscpu_get_tier(&tier));
    // The atomic tier needs no fence.
    bool is_atomic = tier == THISCPU_TIER_ATOMIC;
    thiscpu_status expected = is_atomic ? THISCPU_STATUS_OK : THISCPU_STATUS_FENCE_DENIED;

    thiscpu_counter *counter;
    int64_t value = -1;
    OK(thiscpu_counter_create(&counter));
    for (int i = 0; i < 1000; i++) {
        OK(thiscpu_counter_add(counter, 1));
    }
    thiscpu_counters *counters;
    int64_t values[3] = {-1, -1, -1};
    OK(thiscpu_counters_create(2, &counters));
    for (int i = 0; i < 1000; i++) {
        OK(thiscpu_counters_add(counters, 1, 1));
    }
    thiscpu_budget *budget;
    uint64_t available = 7;
    OK(thiscpu_budget_create(1 << 20, &budget));
    for (int i = 0; i < 1000; i++) {
        OK(thiscpu_budget_try_acquire(budget, 1));
    }

    // Nothing is printed: this file replaces standard error, and stays empty.
    int printed = memfd_create("printed", MFD_CLOEXEC), saved = dup(STDERR_FILENO);
    CHECK(printed >= 0 && saved >= 0 && dup2(printed, STDERR_FILENO) >= 0);
    deny(__NR_membarrier);
    deny(__NR_sched_setaffinity);
    uint64_t before = unix_ns();
    RETURNS(expected, thiscpu_counter_sum(counter, &value));
    check_degradations(is_atomic, before);
    CHECK(value == (expected ? -1 : 1000));
    RETURNS(expected, thiscpu_counter_take(counter, &value));
    thiscpu_summable all[] = {{counter, counters}};
    RETURNS(expected, thiscpu_counters_snapshot(counters, values, 2));
    RETURNS(expected, thiscpu_sum_all(all, 1, values, 3));
    CHECK(values[2] == (expected ? -1 : 1000) && values[0] == (expected ? -1 : 0));
    if (!is_atomic) {
        CHECK(strstr(thiscpu_last_error(), "membarrier has stopped working") != NULL);
        CHECK(strstr(thiscpu_last_error(), "thiscpu: ") == NULL);
    }
    // The next failed call has a sentence of its own.
    RETURNS(THISCPU_STATUS_NULL_POINTER, thiscpu_counter_take(NULL, &value));
    CHECK(strcmp(thiscpu_last_error(), thiscpu_strerror(THISCPU_STATUS_NULL_POINTER)) == 0);
    RETURNS(expected, thiscpu_budget_available(budget, &available));
    RETURNS(expected, thiscpu_budget_set_limit(budget, 1 << 19));
    RETURNS(expected, thiscpu_budget_close(budget));
    CHECK(available == (expected ? 7 : (1 << 20) - 1000));
    // Adds, estimates and releases need no fence.
    OK(thiscpu_counter_add(counter, 1));
    OK(thiscpu_counter_read(counter, &value));
    OK(thiscpu_budget_release(budget, 1000));
    OK(thiscpu_counter_destroy(counter));
    OK(thiscpu_counters_destroy(counters));
    struct stat file;
    CHECK(dup2(saved, STDERR_FILENO) >= 0 && fstat(printed, &file) == 0);
    CHECK(file.st_size == 0);
    return 0;
}
