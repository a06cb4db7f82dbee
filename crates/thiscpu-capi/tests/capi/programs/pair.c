#include "threads.h"
#include <stdlib.h>
#include <string.h>

enum { EACH = 50000 };

// Keeps the second half at twice the first.
static void *count(void *with) {
    for (int i = 0; i < EACH; i++) {
        thiscpu_halves seen = {0, 0}, next;
        thiscpu_status status;
        do {
            CHECK(seen.second == 2 * seen.first);
            next.first = seen.first + 1;
            next.second = seen.second + 2;
            status = thiscpu_pair_cmpxchg(with, &seen, &next, &seen);
            CHECK(status == THISCPU_STATUS_OK || status == THISCPU_STATUS_MISMATCH);
        } while (status != THISCPU_STATUS_OK);
    }
    return NULL;
}

int main(void) {
    thiscpu_pair *pair;
    for (size_t half = 4; half <= 8; half *= 2) {
        OK(thiscpu_pair_create(half, &pair));
        on_threads(count, pair);
        thiscpu_halves zero = {0, 0}, large = {UINT64_C(1) << 32, 1};
        thiscpu_status status = thiscpu_pair_cmpxchg(pair, &large, &zero, NULL);
        CHECK(status == (half == 4 ? THISCPU_STATUS_OUT_OF_RANGE : THISCPU_STATUS_MISMATCH));

        size_t number;
        OK(thiscpu_pair_values(pair, NULL, 0, &number));
        static thiscpu_halves values[4097];
        OK(thiscpu_pair_values(pair, values, 4097, &number));
        uint64_t sum = 0;
        for (size_t i = 0; i < number; i++) {
            sum += values[i].first;
        }
        CHECK(sum == (uint64_t)EACH * THREADS);

        // There is room for halves at this address, but it is not aligned.
        char *memory = aligned_alloc(16, 64);
        CHECK(memory != NULL);
        memset(memory, 0, 64);
        thiscpu_halves *misaligned = (thiscpu_halves *)(void *)(memory + 8);
        RETURNS(THISCPU_STATUS_MISALIGNED, thiscpu_pair_cmpxchg(pair, misaligned, &zero, NULL));
        RETURNS(THISCPU_STATUS_MISALIGNED, thiscpu_pair_cmpxchg(pair, &zero, misaligned, NULL));
        RETURNS(THISCPU_STATUS_MISALIGNED, thiscpu_pair_cmpxchg(pair, &zero, &zero, misaligned));
        free(memory);
        OK(thiscpu_pair_destroy(pair));
    }
    return 0;
}
