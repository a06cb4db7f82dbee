// The segment of a program, and its budgets.
#ifndef SHARED_H
#define SHARED_H

#include "check.h"

enum { LIMIT = 100 };

static thiscpu_segment *segment;

static thiscpu_shared_budget *budget_of(const char *name) {
    thiscpu_shared_budget *budget;
    OK(thiscpu_shared_budget_open(segment, name, LIMIT, &budget));
    return budget;
}

static inline uint64_t held(thiscpu_shared_budget *budget) {
    uint64_t units;
    OK(thiscpu_shared_budget_acquired(budget, &units));
    return units;
}

#endif
