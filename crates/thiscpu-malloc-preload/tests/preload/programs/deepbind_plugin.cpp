// A plugin that exchanges blocks with the program.
#include <dlfcn.h>
#include <string>

#include "check.h"

extern "C" char *make_block(size_t size) {
    char *block = static_cast<char *>(malloc(size));
    fill(block, size);
    return block;
}

extern "C" void drop_block(void *block) { free(block); }

extern "C" std::string *make_text(const std::string &start) {
    return new std::string(start + " and the plugin");
}

extern "C" void *load(const char *path) { return dlopen(path, RTLD_NOW); }
