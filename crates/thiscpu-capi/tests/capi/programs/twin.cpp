#include "twin.h"

void add_in_other_file(tally &tally) {
    tally.add(1);
    add_to(tally.counter.get(), 2);
    add_any(tally.counter.get(), 3L);
}
