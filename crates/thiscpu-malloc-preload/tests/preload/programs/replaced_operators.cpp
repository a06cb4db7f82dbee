// A program with its own operator new and delete, which put a header before each block. All forms
// that it does not define must call these.
#include <algorithm>
#include <new>
#include <string>
#include <vector>

#include "check.h"

namespace {

constexpr std::size_t BEFORE = 256;
constexpr std::uint64_t OWN = 0x0123456789abcdef;
int news = 0, deletes = 0;
bool fails = false;

void *own_new(std::size_t size, std::size_t align) {
    news++;
    if (fails) throw std::bad_alloc();
    void *start = nullptr;
    CHECK(posix_memalign(&start, std::max(align, BEFORE), size + std::max(align, BEFORE)) == 0);
    char *block = static_cast<char *>(start) + std::max(align, BEFORE);
    memcpy(block - 8, &OWN, 8);
    memcpy(block - 16, &start, 8);
    return block;
}

void own_delete(void *block) {
    if (block == nullptr) return;
    std::uint64_t mark;
    void *start;
    memcpy(&mark, static_cast<char *>(block) - 8, 8);
    memcpy(&start, static_cast<char *>(block) - 16, 8);
    CHECK(mark == OWN);
    deletes++;
    free(start);
}

}  // namespace

void *operator new(std::size_t size) { return own_new(size, 16); }
void operator delete(void *block) noexcept { own_delete(block); }
void *operator new(std::size_t size, std::align_val_t align) {
    return own_new(size, std::size_t(align));
}
void operator delete(void *block, std::align_val_t) noexcept { own_delete(block); }

int main() {
    constexpr std::align_val_t ALIGN{64};
    news = deletes = 0;
    ::operator delete(::operator new(10));
    ::operator delete(::operator new(10), std::size_t{10});
    ::operator delete(::operator new(10, std::nothrow), std::nothrow);
    ::operator delete[](::operator new[](10));
    ::operator delete[](::operator new[](10), std::size_t{10});
    ::operator delete[](::operator new[](10, std::nothrow), std::nothrow);
    CHECK(news == 6 && deletes == 6);
    ::operator delete(::operator new(10, ALIGN), ALIGN);
    ::operator delete(::operator new(10, ALIGN), std::size_t{10}, ALIGN);
    ::operator delete(::operator new(10, ALIGN, std::nothrow), ALIGN, std::nothrow);
    ::operator delete[](::operator new[](10, ALIGN), ALIGN);
    ::operator delete[](::operator new[](10, ALIGN), std::size_t{10}, ALIGN);
    ::operator delete[](::operator new[](10, ALIGN, std::nothrow), ALIGN, std::nothrow);
    CHECK(news == 12 && deletes == 12);
    // stable_sort allocates a buffer by one form and frees it by another.
    {
        std::vector<std::string> words(1000, "a word that takes some room of its own");
        std::stable_sort(words.begin(), words.end());
    }
    CHECK(news == deletes && news > 1000);
    fails = true;
    CHECK(::operator new(10, std::nothrow) == nullptr);
    CHECK(::operator new[](10, std::nothrow) == nullptr);
    CHECK(::operator new(10, ALIGN, std::nothrow) == nullptr);
    CHECK(::operator new[](10, ALIGN, std::nothrow) == nullptr);
    fails = false;
    std::puts("done");
}
