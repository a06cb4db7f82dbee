#include <thiscpu.hpp>

#include <cstring>

#include "check.h"

static int construct(void *, void *throws) {
    if (throws != nullptr) {
        throw 1;
    }
    return 0;
}

static void destroy(void *, void *) { throw 1; }

static void constructed(void *throws) {
    thiscpu_constructed_cache *cache;
    OK(thiscpu_constructed_cache_create(8, 8, construct, destroy, throws, &cache));
    OK(thiscpu_constructed_cache_free(cache, thiscpu_constructed_cache_alloc(cache)));
    thiscpu_constructed_cache_shrink(cache, nullptr);
}

// An exception that leaves a callback aborts; it does not pass through the library.
int main(int, char **arguments) {
    thiscpu::stack stack;
    thiscpu_link node;
    stack.push(&node);
    try {
        if (std::strcmp(arguments[1], "construct") == 0) {
            constructed(&stack);
        } else if (std::strcmp(arguments[1], "destroy") == 0) {
            constructed(nullptr);
        } else {
            thiscpu_stack_drain(stack.get(), [](thiscpu_link *, void *) { throw 1; }, nullptr);
        }
    } catch (int) {
        std::puts("the exception passed through");
    }
    return 0;
}
