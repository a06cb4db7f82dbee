// Loads a plugin, runs it and closes it. The library in it stays mapped.
#include <dlfcn.h>
#include <stdio.h>

int main(void) {
    int (*run)(void);
    for (int round = 0; round < 3; round++) {
        void *plugin = dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL);
        if (plugin == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        *(void **)&run = dlsym(plugin, "plugin_run");
        if (run == NULL || run() != 0 || dlclose(plugin) != 0) {
            return 2;
        }
    }
    return 0;
}
