// All forms of operator new and delete, with and without memory.
#include <sys/mman.h>
#include <sys/resource.h>

#include <map>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

namespace {

constexpr std::size_t TOO_MUCH = SIZE_MAX / 2;
constexpr std::align_val_t ALIGN{256};

bool is_aligned(const void *block, std::size_t align) {
    return reinterpret_cast<std::uintptr_t>(block) % align == 0;
}

void every_form_works() {
    for (std::size_t size : {0, 1, 8, 24, 100, 1000, 10000, 1000000}) {
        void *blocks[] = {
            ::operator new(size),
            ::operator new(size),
            ::operator new(size, std::nothrow),
            ::operator new[](size),
            ::operator new[](size),
            ::operator new[](size, std::nothrow),
            ::operator new(size, ALIGN),
            ::operator new(size, ALIGN),
            ::operator new(size, ALIGN, std::nothrow),
            ::operator new[](size, ALIGN),
            ::operator new[](size, ALIGN),
            ::operator new[](size, ALIGN, std::nothrow),
        };
        for (int one = 0; one < 12; one++) {
            CHECK(blocks[one] != nullptr);
            CHECK(is_aligned(blocks[one], one >= 6 ? 256 : size > 8 ? 16 : 8));
            for (int other = 0; other < one; other++) CHECK(blocks[one] != blocks[other]);
            fill(blocks[one], size);
        }
        for (void *block : blocks) CHECK(is_filled(block, size, block));
        ::operator delete(blocks[0]);
        ::operator delete(blocks[1], size);
        ::operator delete(blocks[2], std::nothrow);
        ::operator delete[](blocks[3]);
        ::operator delete[](blocks[4], size);
        ::operator delete[](blocks[5], std::nothrow);
        ::operator delete(blocks[6], ALIGN);
        ::operator delete(blocks[7], size, ALIGN);
        ::operator delete(blocks[8], ALIGN, std::nothrow);
        ::operator delete[](blocks[9], ALIGN);
        ::operator delete[](blocks[10], size, ALIGN);
        ::operator delete[](blocks[11], ALIGN, std::nothrow);
    }
    ::operator delete(nullptr);
    ::operator delete[](nullptr, ALIGN);
}

int guards_destroyed = 0;

// Counts that the stack was unwound.
struct Guard {
    ~Guard() { guards_destroyed++; }
};

template <typename Exception, typename Call>
bool throws(Call call) {
    int before = guards_destroyed;
    try {
        Guard guard;
        call();
    } catch (const Exception &) {
        return guards_destroyed == before + 1;
    }
    return false;
}

template <typename Exception>
void all_throw() {
    CHECK(throws<Exception>([] { return ::operator new(TOO_MUCH); }));
    CHECK(throws<Exception>([] { return ::operator new[](TOO_MUCH); }));
    CHECK(throws<Exception>([] { return ::operator new(TOO_MUCH, ALIGN); }));
    CHECK(throws<Exception>([] { return ::operator new[](TOO_MUCH, ALIGN); }));
}

void none_throws() {
    CHECK(::operator new(TOO_MUCH, std::nothrow) == nullptr);
    CHECK(::operator new[](TOO_MUCH, std::nothrow) == nullptr);
    CHECK(::operator new(TOO_MUCH, ALIGN, std::nothrow) == nullptr);
    CHECK(::operator new[](TOO_MUCH, ALIGN, std::nothrow) == nullptr);
}

void exhausted_memory_throws() {
    all_throw<std::bad_alloc>();
    none_throws();
    CHECK(throws<std::bad_alloc>([] { return std::string(TOO_MUCH / 2, 'x'); }));
    CHECK(throws<std::bad_alloc>([] { return ::operator new(64, std::align_val_t{24}); }));
    CHECK(::operator new(64, std::align_val_t{24}, std::nothrow) == nullptr);
}

int calls = 0;

void give_up_at_the_third() {
    if (++calls % 3 == 0) std::set_new_handler(nullptr);
}

struct OwnException : std::bad_alloc {};

void throw_own() {
    calls++;
    throw OwnException();
}

void handler_is_called_until_it_gives_up() {
    CHECK(std::set_new_handler(give_up_at_the_third) == nullptr);
    CHECK(throws<std::bad_alloc>([] { return ::operator new(TOO_MUCH); }) && calls == 3);
    std::set_new_handler(give_up_at_the_third);
    CHECK(throws<std::bad_alloc>([] { return ::operator new[](TOO_MUCH, ALIGN); }) && calls == 6);
    std::set_new_handler(give_up_at_the_third);
    CHECK(::operator new(TOO_MUCH, std::nothrow) == nullptr && calls == 9);
    std::set_new_handler(give_up_at_the_third);
    CHECK(::operator new[](TOO_MUCH, ALIGN, std::nothrow) == nullptr && calls == 12);
}

void exceptions_of_handlers_propagate() {
    std::set_new_handler(throw_own);
    calls = 0;
    all_throw<OwnException>();
    CHECK(calls == 4);
    none_throws();
    CHECK(calls == 8);
    std::set_new_handler(nullptr);
}

rlimit limit;

void lift_limit() {
    calls++;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_DATA, &limit);
}

void handler_that_frees_memory_suffices() {
    calls = 0;
    CHECK(getrlimit(RLIMIT_DATA, &limit) == 0);
    limit.rlim_cur = 4096;
    std::set_new_handler(lift_limit);
    CHECK(setrlimit(RLIMIT_DATA, &limit) == 0);
    void *block = ::operator new(std::size_t{1} << 28);
    CHECK(block != nullptr && calls == 1);
    ::operator delete(block);
    limit.rlim_cur = 4096;
    CHECK(setrlimit(RLIMIT_DATA, &limit) == 0);
    block = ::operator new[](std::size_t{1} << 29, ALIGN, std::nothrow);
    CHECK(block != nullptr && calls == 2);
    ::operator delete[](block, ALIGN);
    std::set_new_handler(nullptr);
}

void containers_work() {
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; thread++)
        threads.emplace_back([thread] {
            std::map<int, std::string> map;
            for (int n = 0; n < 500; n++) map[n * 7 % 501] = std::string(n % 100, 'a' + thread);
            for (const auto &[n, text] : map) CHECK(text == std::string(text.size(), 'a' + thread));
        });
    for (auto &thread : threads) thread.join();
}

}  // namespace

int main() {
    every_form_works();
    exhausted_memory_throws();
    handler_is_called_until_it_gives_up();
    exceptions_of_handlers_propagate();
    handler_that_frees_memory_suffices();
    containers_work();
    std::puts("done");
}
