// Allocates at every stage of a process, and prints the stage.
#include <pthread.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "check.h"

extern "C" char **environ;

namespace {

// Does not use the C library's buffers, which may not exist yet or any more.
void say(const char *what) { CHECK(write(1, what, strlen(what)) == (ssize_t)strlen(what)); }

void use() {
    for (std::size_t size : {10, 1000, 100000}) {
        char *block = static_cast<char *>(malloc(size));
        CHECK(block != nullptr);
        fill(block, size);
        block = static_cast<char *>(realloc(block, size + 7));
        CHECK(block != nullptr);
        free(block);
        char *clean = static_cast<char *>(calloc(1, size));
        CHECK(clean != nullptr && is_zero(clean, size));
        free(clean);
        delete[] new char[size];
    }
}

void on_preinit() {
    use();
    say(environ == nullptr ? "preinit without environment\n" : "preinit\n");
}

__attribute__((section(".preinit_array"), used)) void (*const PREINIT)() = on_preinit;

__attribute__((constructor)) void on_start() {
    use();
    say("constructor\n");
}

__attribute__((destructor)) void on_exit_() {
    use();
    say("destructor\n");
}

struct Local {
    void *block = malloc(50);
    ~Local() {
        free(block);
        use();
        say("thread_local\n");
    }
};

thread_local Local local;
pthread_key_t key;

void *kept;

// Runs twice: it sets a value, so it is called again after other destructors.
void end_of_key(void *value) {
    free(value);
    use();
    if (kept == nullptr) {
        kept = malloc(60);
        CHECK(pthread_setspecific(key, malloc(10)) == 0);
        say("key\n");
    } else {
        say("key again\n");
    }
}

void *a_thread(void *given) {
    free(given);
    CHECK(local.block != nullptr);
    CHECK(pthread_setspecific(key, malloc(40)) == 0);
    return malloc(70);
}

void threads_start_and_exit() {
    CHECK(pthread_key_create(&key, end_of_key) == 0);
    pthread_t thread;
    void *left;
    CHECK(pthread_create(&thread, nullptr, a_thread, malloc(100)) == 0);
    CHECK(pthread_join(thread, &left) == 0);
    free(left);
    free(kept);
    std::vector<char *> blocks;
    for (int round = 0; round < 200; round++)
        std::thread([&] {
            char *block = static_cast<char *>(malloc(round + 1));
            fill(block, round + 1);
            blocks.push_back(block);
        }).join();
    for (std::size_t round = 0; round < blocks.size(); round++) {
        CHECK(is_filled(blocks[round], round + 1, blocks[round]));
        free(blocks[round]);
    }
}

}  // namespace

int main() {
    CHECK(atexit([] {
              use();
              say("atexit\n");
          }) == 0);
    use();
    threads_start_and_exit();
    say("main\n");
}
