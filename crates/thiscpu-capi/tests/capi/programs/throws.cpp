#include <thiscpu.hpp>

#include "check.h"

// What a callback throws ends the process: it does not come out of the library.
int main() {
    thiscpu::list list;
    thiscpu_link node;
    list.push(&node);
    try {
        thiscpu_list_drain(list.get(), [](thiscpu_link *, void *) { throw 1; }, nullptr);
    } catch (int) {
        std::puts("it came out");
    }
    return 0;
}
