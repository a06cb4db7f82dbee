#include "threads.h"
#include <string.h>

enum { EACH = 100000 };

static void *add(void *with) {
    for (int i = 0; i < EACH; i++) {
        OK(thiscpu_word_add(with, 1));
    }
    return NULL;
}

static uint64_t sum_of(thiscpu_word *word) {
    size_t count;
    OK(thiscpu_word_values(word, NULL, 0, &count));
    CHECK(count > 0);
    uint64_t values[4097], sum = 0;
    OK(thiscpu_word_values(word, values, 4097, &count));
    CHECK(count <= 4097);
    for (size_t i = 0; i < count; i++) {
        sum += values[i];
    }
    return sum;
}

// Every thread adds what it took again, so that the sum does not change.
static void *exchange(void *with) {
    for (int i = 0; i < EACH; i++) {
        uint64_t old, found;
        OK(thiscpu_word_xchg(with, 0, &old));
        OK(thiscpu_word_add(with, old));
        thiscpu_status status = thiscpu_word_cmpxchg(with, 5, 6, &found);
        CHECK(status == THISCPU_STATUS_OK || (status == THISCPU_STATUS_MISMATCH && found != 5));
        if (status == THISCPU_STATUS_OK) {
            OK(thiscpu_word_add(with, (uint64_t)-1));
        }
    }
    return NULL;
}

int main(void) {
    thiscpu_word *word;
    for (size_t bytes = 1; bytes <= 8; bytes *= 2) {
        OK(thiscpu_word_create(bytes, &word));
        CHECK(sum_of(word) == 0);
        uint64_t all = bytes == 8 ? UINT64_MAX : (UINT64_C(1) << 8 * bytes) - 1, sum;
        OK(thiscpu_word_add_return(word, all, &sum));
        CHECK(sum == all || sum_of(word) == all);
        OK(thiscpu_word_destroy(word));
    }
    OK(thiscpu_word_create(8, &word));
    on_threads(add, word);
    CHECK(sum_of(word) == (uint64_t)EACH * THREADS);
    on_threads(exchange, word);
    CHECK(sum_of(word) == (uint64_t)EACH * THREADS);
    CHECK(thiscpu_word_cmpxchg(word, UINT64_MAX, 1, NULL) == THISCPU_STATUS_MISMATCH);
    OK(thiscpu_word_destroy(word));
    return 0;
}
