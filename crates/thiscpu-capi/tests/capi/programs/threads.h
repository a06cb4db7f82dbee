// Runs a function on several threads at once.
#ifndef THREADS_H
#define THREADS_H

#include "check.h"
#include <pthread.h>

#define THREADS 4

static inline void on_threads(void *(*body)(void *), void *with) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, body, with) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

#endif
