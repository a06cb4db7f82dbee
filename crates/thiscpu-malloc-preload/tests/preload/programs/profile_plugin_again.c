/* The same code at the same offsets, but for the size of the frame. */
#define FRAME 88
#include "profile_plugin.c"
