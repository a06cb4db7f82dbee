// What the programs have in common.
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <thiscpu.h>

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);                                         \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

// The call says so.
#define SAYS(wanted, call)                                                                                             \
    do {                                                                                                               \
        thiscpu_status said = (call);                                                                                  \
        if (said != (wanted)) {                                                                                        \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, thiscpu_strerror(said));                     \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define OK(call) SAYS(THISCPU_STATUS_OK, call)

#endif
