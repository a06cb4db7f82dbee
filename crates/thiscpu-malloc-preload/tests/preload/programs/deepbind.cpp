// Loads the plugin of the first argument in the way that the second one names, and exchanges blocks
// with it.
#include <dlfcn.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static void *function(void *plugin, const char *name) {
    void *found = dlsym(plugin, name);
    CHECK(found != NULL);
    return found;
}

static void exchange(void *plugin) {
    if (plugin == NULL) fprintf(stderr, "%s\n", dlerror());
    CHECK(plugin != NULL);
    auto make = (char *(*)(size_t))function(plugin, "make_block");
    auto drop = (void (*)(void *))function(plugin, "drop_block");
    auto say = (std::string * (*)(const std::string &)) function(plugin, "make_text");
    for (size_t size = 1; size < 100000; size = size * 3 + 1) {
        free(make(size));
        drop(malloc(size));
        free(realloc(make(size), size * 2));
    }
    std::string *text = say("from the program");
    CHECK(*text == "from the program and the plugin");
    delete text;
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    const char *path = arguments[1], *how = arguments[2];
    if (strcmp(how, "deep") == 0) exchange(dlopen(path, RTLD_NOW | RTLD_DEEPBIND));
    if (strcmp(how, "deep in base") == 0)
        exchange(dlmopen(LM_ID_BASE, path, RTLD_NOW | RTLD_DEEPBIND));
    if (strcmp(how, "global") == 0) {
        CHECK(dlsym(RTLD_DEFAULT, "make_block") == NULL);
        exchange(dlopen(path, RTLD_NOW | RTLD_GLOBAL | RTLD_DEEPBIND));
        CHECK(dlsym(RTLD_DEFAULT, "make_block") != NULL);
    }
    if (strcmp(how, "forks") == 0) {
        exchange(dlopen(path, RTLD_NOW | RTLD_DEEPBIND));
        for (int child = 0; child < 40; child++) {
            if (fork() == 0) {
                exchange(dlopen(path, RTLD_NOW | RTLD_DEEPBIND));
                _exit(0);
            }
            int status = -1;
            CHECK(wait(&status) > 0 && status == 0);
        }
    }
    if (strcmp(how, "questions") == 0) {
        CHECK(dlopen(NULL, RTLD_NOW | RTLD_DEEPBIND) != NULL);
        CHECK(dlopen(path, RTLD_NOW | RTLD_NOLOAD | RTLD_DEEPBIND) == NULL);
        CHECK(dlopen("no such library", RTLD_NOW) == NULL && dlerror() != NULL);
    }
    if (strncmp(how, "namespace", 9) == 0) {
        void *plugin = dlmopen(LM_ID_NEWLM, path, RTLD_NOW | RTLD_DEEPBIND);
        if (plugin == NULL) fprintf(stderr, "%s\n", dlerror());
        CHECK(plugin != NULL);
        auto make = (char *(*)(size_t))function(plugin, "make_block");
        auto drop = (void (*)(void *))function(plugin, "drop_block");
        drop(make(300));
        // A second call, and one by the plugin, which stays in its namespace.
        CHECK(dlmopen(LM_ID_NEWLM, path, RTLD_NOW) != NULL);
        auto load = (void *(*)(const char *))function(plugin, "load");
        CHECK(load(path) == plugin);
        if (strcmp(how, "namespace, wrong free") == 0) free(make(300));
    }
    puts("done");
    return 0;
}
