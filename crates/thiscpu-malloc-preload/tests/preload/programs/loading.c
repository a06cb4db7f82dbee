/* Loads and unloads a plugin (the first argument) repeatedly, and uses its blocks after that. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>

#include "check.h"

static void *use(void *function) {
    char *(*make)(size_t) = (char *(*)(size_t))(uintptr_t)function;
    char *block = make(300);
    CHECK(is_filled(block, 300, block));
    return block;
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    for (int round = 0; round < 50; round++) {
        void *plugin = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
        if (plugin == NULL) fprintf(stderr, "%s\n", dlerror());
        CHECK(plugin != NULL);
        void *make = dlsym(plugin, "make");
        int (*catches)(void) = (int (*)(void))(uintptr_t)dlsym(plugin, "catches");
        CHECK(make != NULL && catches != NULL);
        CHECK(catches() == 1);
        void *of_main = use(make), *of_thread;
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, use, make) == 0);
        CHECK(pthread_join(thread, &of_thread) == 0);
        CHECK(dlsym(plugin, "no such symbol") == NULL && dlerror() != NULL);
        CHECK(dlclose(plugin) == 0);
        CHECK(is_filled(of_main, 300, of_main) && is_filled(of_thread, 300, of_thread));
        free(of_main);
        free(of_thread);
    }
    /* The allocator itself is never unloaded. */
    Dl_info info;
    CHECK(dladdr((void *)malloc, &info) != 0);
    void *allocator = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    for (int round = 0; round < 3; round++) dlclose(allocator);
    free(malloc(10));
    puts("done");
    return 0;
}
