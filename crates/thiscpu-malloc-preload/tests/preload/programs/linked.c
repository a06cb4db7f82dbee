/* Prints whether the program runs with more privileges than its user. */
#include <sys/auxv.h>

#include "check.h"

int main(void) {
    free(malloc(100));
    puts(getauxval(AT_SECURE) ? "privileged" : "not privileged");
    return 0;
}
