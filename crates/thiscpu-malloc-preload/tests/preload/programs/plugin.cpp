// A plugin that allocates when it is loaded and frees when it is unloaded, has a thread-local
// variable, and loads the C++ runtime into its own scope only.
#include <new>
#include <string>

#include "check.h"

static std::string *const TEXT = new std::string(100, 'x');
static thread_local char local[5000];

__attribute__((destructor)) static void on_unload() { delete TEXT; }

extern "C" char *make(size_t size) {
    fill(local, sizeof local);
    char *block = static_cast<char *>(malloc(size));
    fill(block, size);
    CHECK(is_filled(local, sizeof local, local));
    return block;
}

extern "C" int catches() {
    int caught = 0;
    try {
        ::operator delete(::operator new(SIZE_MAX / 2));
    } catch (const std::bad_alloc &) {
        caught++;
    }
    return caught;
}
