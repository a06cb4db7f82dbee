// Functions of which both files have a copy. The linker keeps one.
#ifndef TWIN_H
#define TWIN_H

#include <thiscpu.hpp>

struct tally {
    thiscpu::counter counter;
    void add(std::int64_t n) { counter.add(n); }
};

inline void add_to(thiscpu_counter *counter, std::int64_t n) {
    thiscpu_counter_add(counter, n);
}

template <typename Number>
void add_any(thiscpu_counter *counter, Number n) {
    thiscpu_counter_add(counter, n);
}

template <typename First, typename Second>
thiscpu_counter *of_both(thiscpu_counter *counter) {
    return counter;
}

void add_in_other_file(tally &tally);

#endif
