// A program with its own malloc family and the library's operators. Operators must match each
// other, whichever of the two they use.
#include <cstdlib>
#include <new>

#include "check.h"

static char arena[1 << 24];
static size_t used;

static bool is_own(const void *block) {
    return (const char *)block >= arena && (const char *)block < arena + sizeof arena;
}

extern "C" void *malloc(size_t size) {
    size_t start = __atomic_fetch_add(&used, 16 + (size + 15) / 16 * 16, __ATOMIC_RELAXED);
    if (start + size + 16 > sizeof arena) abort();
    *(size_t *)(arena + start) = size;
    return arena + start + 16;
}

extern "C" void free(void *block) {
    if (block != nullptr && !is_own(block)) abort();
}

extern "C" void *calloc(size_t count, size_t size) { return malloc(count * size); }

extern "C" void *realloc(void *block, size_t size) {
    if (block == nullptr) return malloc(size);
    size_t before = *((size_t *)block - 2);
    return memcpy(malloc(size), block, before < size ? before : size);
}

int main() {
    for (size_t align = 32; align <= 4096; align *= 2) {
        std::align_val_t at{align};
        void *block = operator new(100, at);
        CHECK((size_t)block % align == 0);
        operator delete(block, at);
        operator delete(operator new(100, at), 100, at);
        operator delete[](operator new[](100, at), at);
        operator delete(operator new(100, at, std::nothrow), at, std::nothrow);
    }
    operator delete(operator new(100));
    puts("done");
    return 0;
}
