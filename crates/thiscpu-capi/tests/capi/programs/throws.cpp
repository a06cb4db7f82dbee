#include <thiscpu.hpp>

#include "check.h"

// What a callback throws ends the process: it does not come out of the library.
int main() {
    thiscpu::stack stack;
    thiscpu_link node;
    stack.push(&node);
    try {
        thiscpu_stack_drain(stack.get(), [](thiscpu_link *, void *) { throw 1; }, nullptr);
    } catch (int) {
        std::puts("it came out");
    }
    return 0;
}
