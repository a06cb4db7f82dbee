// Measures an add in C: inlined, called, and as others do it. Run by `cargo xtask bench-c`.
//
//     add CONTENDER CPU,CPU... MILLISECONDS
//
// Prints the nanoseconds per add of threads that add to the same thing at once, one on each CPU.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/rseq.h>
#include <time.h>
#include <thiscpu.h>

enum { THREADS_MAX = 64, BURST = 1000, LANES = 4096, LANE_BYTES = 128 };

// The things to add to. Loops keep their addresses in registers.
static struct {
    thiscpu_counter *counter;
    thiscpu_word *word;
    char *lanes;
} targets;
static _Atomic int64_t shared;
static atomic_bool stop;
static pthread_barrier_t begin;

// An add as librseq's templates have it. The index is loaded first and compared again in the
// section, whose commit is one addition in memory.
static inline __attribute__((always_inline)) bool
add_on(intptr_t *lane, intptr_t n, uint32_t index) {
#if defined(__x86_64__)
    __asm__ __volatile__ goto(
        ".pushsection __rseq_cs, \"aw\"\n\t.balign 32\n"
        "3:\n\t.long 0, 0\n\t.quad 1f, 2f - 1f, 4f\n\t.popsection\n\t"
        ".pushsection __rseq_cs_ptr_array, \"aw\"\n\t.quad 3b\n\t.popsection\n\t"
        "leaq 3b(%%rip), %%rax\n\t"
        "movq %%rax, %%fs:8(%[offset])\n"
        "1:\n\t"
        "cmpl %[index], %%fs:24(%[offset])\n\t"
        "jnz 4f\n\t"
        "addq %[n], %[lane]\n"
        "2:\n\t"
        ".pushsection __rseq_failure, \"ax\"\n\t.byte 0x0f, 0xb9, 0x3d\n\t.long 0x53053053\n"
        "4:\n\tjmp %l[aborted]\n\t.popsection"
        :
        : [offset] "r"(__rseq_offset), [index] "r"(index), [lane] "m"(*lane), [n] "er"(n)
        : "memory", "cc", "rax"
        : aborted);
#elif defined(__aarch64__)
    __asm__ __volatile__ goto(
        ".pushsection __rseq_cs, \"aw\"\n\t.balign 32\n"
        "3:\n\t.long 0, 0\n\t.quad 1f, 2f - 1f, 4f\n\t.popsection\n\t"
        ".pushsection __rseq_cs_ptr_array, \"aw\"\n\t.quad 3b\n\t.popsection\n\t"
        "adrp x15, 3b\n\tadd x15, x15, :lo12:3b\n\t"
        "str x15, [%[area], #8]\n"
        "1:\n\t"
        "ldr w15, [%[area], #24]\n\t"
        "sub w15, %w[index], w15\n\t"
        "cbnz w15, 4f\n\t"
        "ldr x15, %[lane]\n\t"
        "add x15, x15, %[n]\n\t"
        "str x15, %[lane]\n"
        "2:\n\t"
        "b 5f\n\t.inst 0xd428bc00\n4:\n\tb %l[aborted]\n5:"
        :
        : [area] "r"((char *)__builtin_thread_pointer() + __rseq_offset), [index] "r"(index),
          [lane] "Qo"(*lane), [n] "r"(n)
        : "memory", "cc", "x15"
        : aborted);
#endif
    return true;
aborted:
    return false;
}

// Loads mm_cid, which is 24 bytes into the rseq area.
static inline uint32_t index_now(void) {
    return *(volatile uint32_t *)((char *)__builtin_thread_pointer() + __rseq_offset + 24);
}

static inline void add_as_librseq(char *lanes, int64_t n) {
    uint32_t index;
    do {
        index = index_now();
    } while (!add_on((intptr_t *)(lanes + (size_t)index * LANE_BYTES), n, index));
}

// How many nops precede each loop, which begins at a multiple of 64 bytes otherwise. Results depend
// on it, so `cargo xtask bench-c` varies it.
#ifndef PLACE
#define PLACE 0
#endif
#define TEXT_OF(number) #number
#define TEXT(macro) TEXT_OF(macro)

// Defines a contender's loop. Each has its own, so that it makes no call but those of its add.
#define LOOP(name, add)                                                                            \
    static __attribute__((noinline, aligned(64))) uint64_t name(void) {                            \
        __asm__ __volatile__(".rept " TEXT(PLACE) "\n\tnop\n\t.endr");                             \
        thiscpu_counter *const counter = targets.counter;                                          \
        thiscpu_word *const word = targets.word;                                                   \
        char *const lanes = targets.lanes;                                                         \
        uint64_t done = 0;                                                                         \
        while (!atomic_load_explicit(&stop, memory_order_relaxed)) {                               \
            for (int i = 0; i < BURST; i++) {                                                      \
                add;                                                                               \
            }                                                                                      \
            done += BURST;                                                                         \
        }                                                                                          \
        (void)counter, (void)word, (void)lanes;                                                    \
        return done;                                                                               \
    }

LOOP(loop_librseq, add_as_librseq(lanes, 1))
LOOP(loop_word, thiscpu_word_add(word, 1))
LOOP(loop_word_call, (thiscpu_word_add)(word, 1))
LOOP(loop_counter, thiscpu_counter_add(counter, 1))
LOOP(loop_counter_call, (thiscpu_counter_add)(counter, 1))
LOOP(loop_atomic, atomic_fetch_add_explicit(&shared, 1, memory_order_relaxed))

static const struct contender {
    const char *name;
    uint64_t (*loop)(void);
} contenders[] = {
    {"librseq-style", loop_librseq}, {"word", loop_word},       {"word-call", loop_word_call},
    {"counter", loop_counter},       {"counter-call", loop_counter_call}, {"atomic", loop_atomic},
};

static uint64_t (*loop)(void);

struct thread {
    pthread_t thread;
    int cpu;
    uint64_t done;
    double seconds;
};

// Returns the thread's CPU time, which excludes other programs.
static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void *run(void *with) {
    struct thread *self = with;
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(self->cpu, &cpus);
    if (pthread_setaffinity_np(pthread_self(), sizeof cpus, &cpus)) {
        fprintf(stderr, "cannot run on CPU %d\n", self->cpu);
        exit(1);
    }
    pthread_barrier_wait(&begin);
    double began = now();
    self->done = loop();
    self->seconds = now() - began;
    return NULL;
}

static void refuse(const char *reason) {
    fprintf(stderr, "%s\n", reason);
    exit(2);
}

int main(int count, char **arguments) {
    if (count != 4) {
        refuse("usage: add CONTENDER CPU,CPU... MILLISECONDS");
    }
    for (size_t i = 0; i < sizeof contenders / sizeof *contenders; i++) {
        if (!strcmp(contenders[i].name, arguments[1])) {
            loop = contenders[i].loop;
        }
    }
    if (!loop) {
        refuse("unknown contender");
    }
    if (!__rseq_size || index_now() >= LANES) {
        refuse("no mm_cid: the kernel is older than Linux 6.3, or rseq is not registered");
    }
    thiscpu_tier tier;
    if (thiscpu_get_tier(&tier) || tier != THISCPU_TIER_RSEQ_CID) {
        refuse("wrong tier: this program measures rseq-cid; check THISCPU_TIER and the kernel");
    }
    targets.lanes = aligned_alloc(LANE_BYTES, (size_t)LANES * LANE_BYTES);
    if (!targets.lanes || thiscpu_counter_create(&targets.counter)
        || thiscpu_word_create(8, &targets.word)) {
        refuse("cannot create a counter and a word: no memory");
    }
    memset(targets.lanes, 0, (size_t)LANES * LANE_BYTES);
    static struct thread threads[THREADS_MAX];
    unsigned number = 0;
    char *cpu = strtok(arguments[2], ",");
    for (; cpu && number < THREADS_MAX; cpu = strtok(NULL, ",")) {
        threads[number++].cpu = atoi(cpu);
    }
    pthread_barrier_init(&begin, NULL, number + 1);
    for (unsigned i = 0; i < number; i++) {
        if (pthread_create(&threads[i].thread, NULL, run, &threads[i])) {
            refuse("cannot start a thread");
        }
    }
    pthread_barrier_wait(&begin);
    long ms = atol(arguments[3]);
    struct timespec slice = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&slice, &slice) && errno == EINTR) {
    }
    atomic_store(&stop, true);
    double seconds = 0;
    uint64_t done = 0;
    for (unsigned i = 0; i < number; i++) {
        pthread_join(threads[i].thread, NULL);
        seconds += threads[i].seconds;
        done += threads[i].done;
    }
    // Every add must be found in one of the targets.
    uint64_t values[LANES], found = (uint64_t)shared;
    int64_t sum;
    size_t words;
    if (thiscpu_counter_sum(targets.counter, &sum)
        || thiscpu_word_values(targets.word, values, LANES, &words) || words > LANES) {
        refuse("cannot read the sums");
    }
    found += (uint64_t)sum;
    for (size_t i = 0; i < words; i++) {
        found += values[i];
    }
    for (size_t i = 0; i < LANES; i++) {
        found += *(uint64_t *)(void *)(targets.lanes + i * LANE_BYTES);
    }
    if (found != done) {
        fprintf(stderr, "lost adds: %llu of %llu were found\n", (unsigned long long)found,
                (unsigned long long)done);
        return 1;
    }
    printf("%.4f\n", seconds / (double)done * 1e9);
    return 0;
}
