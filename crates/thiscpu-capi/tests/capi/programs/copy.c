// A shared object with a copy of the library in it, of which a process has two. NAME is what its functions begin with.
#include "threads.h"

#define JOINED(name, rest) name##_##rest
#define FUNCTION(name, rest) JOINED(name, rest)

enum { EACH = 300000 };

static void *add(void *with) {
    for (int i = 0; i < EACH; i++) {
        OK(thiscpu_counter_add(with, 1));
    }
    return NULL;
}

void FUNCTION(NAME, adds)(void);
void FUNCTION(NAME, adds)(void) {
    thiscpu_counter *counter;
    int64_t sum;
    OK(thiscpu_counter_create(&counter));
    on_threads(add, counter);
    OK(thiscpu_counter_sum(counter, &sum));
    CHECK(sum == (int64_t)THREADS * EACH);
    OK(thiscpu_counter_destroy(counter));
}
