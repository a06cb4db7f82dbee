/* A library that allocates, with a frame of FRAME bytes. */
#include <stdlib.h>

#ifndef FRAME
#define FRAME 40
#endif

void *plugin_allocate(size_t size) {
    volatile char room[FRAME];
    room[0] = 1;
    void *block = malloc(size);
    room[FRAME - 1] = 2;
    return block;
}
