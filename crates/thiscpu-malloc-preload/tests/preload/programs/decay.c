/* Frees a peak in several threads, and waits until its memory has returned. The argument says what
   the process does meanwhile: nothing, malloc, realloc, or a pause. Returns failure after a minute.
   With a pause, the first look must find that it has returned: it allocates a stream first. */
#include <pthread.h>
#include <unistd.h>

#include "check.h"

enum { THREADS = 4, BLOCKS = 100000 };

static pthread_barrier_t barrier;

static size_t resident_mebibytes(void) {
    unsigned long all, resident;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%lu %lu", &all, &resident) == 2);
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE) >> 20;
}

/* Allocates and frees many blocks. The thread stays until the end, so its exit drives nothing. */
static void *peak(void *unused) {
    char **blocks = malloc(BLOCKS * sizeof *blocks);
    for (int i = 0; i < BLOCKS; i++) {
        size_t size = 40 + (size_t)i * 7919 % 100;
        CHECK((blocks[i] = malloc(size)) != NULL);
        fill(blocks[i], size);
    }
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    free(blocks);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return unused;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    pthread_t threads[THREADS];
    size_t before = resident_mebibytes();
    char *block = malloc(100);
    CHECK(pthread_barrier_init(&barrier, NULL, THREADS + 1) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, peak, NULL) == 0);
    pthread_barrier_wait(&barrier);
    CHECK(resident_mebibytes() > before + 30);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    if (strcmp(argv[1], "pause") == 0) {
        /* A look takes a bounded part of the time: on a busy machine it may return too little. */
        for (int pauses = 0;; pauses++) {
            sleep(3);
            if (resident_mebibytes() < before + 15) break;
            CHECK(pauses < 2);
        }
    } else for (int looks = 0;; looks++) {
        usleep(10000);
        if (strcmp(argv[1], "malloc") == 0) free(malloc(64));
        if (strcmp(argv[1], "realloc") == 0) block = realloc(block, looks % 2 == 0 ? 98 : 100);
        /* This allocates a buffer, so it must be rare. */
        if (looks % 200 == 199 && resident_mebibytes() < before + 15) break;
        CHECK(looks < 6000);
    }
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    free(block);
    puts("done");
    return 0;
}
