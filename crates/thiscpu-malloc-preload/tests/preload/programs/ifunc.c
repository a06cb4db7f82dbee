// Allocates in an ifunc resolver, when thread-local variables are not initialized yet.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *early[3];

static int chosen(void) {
    return 1;
}

static void *choose(void) {
    early[0] = malloc(10);
    early[1] = calloc(1, 5000);
    early[2] = malloc(100);
    free(early[2]);
    return chosen;
}

int one(void) __attribute__((ifunc("choose")));

int main(void) {
    memset(early[0], 1, 10);
    memset(early[1], 1, 5000);
    free(early[0]);
    free(early[1]);
    puts(one() == 1 ? "done" : "wrong");
    return 0;
}
