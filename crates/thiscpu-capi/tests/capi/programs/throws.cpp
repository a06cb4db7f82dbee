#include <thiscpu.hpp>

#include "check.h"

// An exception that leaves a callback aborts; it does not pass through the library.
int main() {
    thiscpu::stack stack;
    thiscpu_link node;
    stack.push(&node);
    try {
        thiscpu_stack_drain(stack.get(), [](thiscpu_link *, void *) { throw 1; }, nullptr);
    } catch (int) {
        std::puts("the exception passed through");
    }
    return 0;
}
