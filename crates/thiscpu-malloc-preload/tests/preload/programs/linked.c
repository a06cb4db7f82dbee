/* Says whether the kernel has given it rights that its user does not have. */
#include <sys/auxv.h>

#include "check.h"

int main(void) {
    free(malloc(100));
    puts(getauxval(AT_SECURE) ? "privileged" : "not privileged");
    return 0;
}
