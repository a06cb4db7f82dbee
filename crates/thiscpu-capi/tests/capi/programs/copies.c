// Linked with two shared objects of copy.c. Inlined calls must call the library only if its
// functions and its variables are bound to different copies.
#include <stdbool.h>
#include <stdio.h>

bool one_adds(bool are_calls);
bool two_adds(bool are_calls);

int main(void) {
    for (int i = 0; i < 3; i++) {
        if (!one_adds(ARE_CALLS) || !two_adds(ARE_CALLS)) {
            fprintf(stderr, "adds %s calls\n", ARE_CALLS ? "should be" : "should not be");
            return 1;
        }
    }
    return 0;
}
