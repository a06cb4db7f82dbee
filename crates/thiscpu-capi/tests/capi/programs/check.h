// Checks that all programs use.
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <thiscpu.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition);          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

// Checks that a call returns a status.
#define RETURNS(expected, call)                                                                    \
    do {                                                                                           \
        thiscpu_status checked = (call);                                                           \
        if (checked != (expected)) {                                                               \
            const char *message = thiscpu_strerror(checked);                                       \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, message);                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define OK(call) RETURNS(THISCPU_STATUS_OK, call)

#endif
