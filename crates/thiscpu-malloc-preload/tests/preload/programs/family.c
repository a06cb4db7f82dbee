/* All C functions of the family, with the edge cases that POSIX and glibc define. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "check.h"

/* Looked up at run time, because older C libraries do not have them. */
static void (*free_sized)(void *, size_t);
static void (*free_aligned_sized)(void *, size_t, size_t);
static void *(*libc_memalign)(size_t, size_t);

enum { MARK = 77 };
static const size_t HUGE_SIZES[] = {SIZE_MAX, SIZE_MAX - 15, SIZE_MAX / 2 + 1, SIZE_MAX - 4096};

static int is_aligned(const void *block, size_t align) { return (uintptr_t)block % align == 0; }

static void malloc_is_ours(void) {
    Dl_info info;
    CHECK(dladdr((void *)malloc, &info) != 0);
    CHECK(strstr(info.dli_fname, "libthiscpu_malloc.so") != NULL);
    free_sized = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "free_sized");
    free_aligned_sized =
        (void (*)(void *, size_t, size_t))dlsym(RTLD_DEFAULT, "free_aligned_sized");
    libc_memalign = (void *(*)(size_t, size_t))dlsym(RTLD_DEFAULT, "__libc_memalign");
    CHECK(free_sized != NULL && free_aligned_sized != NULL && libc_memalign != NULL);
}

static void blocks_fit_and_do_not_overlap(void) {
    enum { COUNT = 600 };
    static char *blocks[COUNT];
    static size_t sizes[COUNT];
    for (size_t n = 0; n < COUNT; n++) {
        sizes[n] = n < 500 ? n : n * n;
        blocks[n] = malloc(sizes[n]);
        CHECK(blocks[n] != NULL);
        CHECK(is_aligned(blocks[n], sizes[n] > 8 ? 16 : 8));
        CHECK(malloc_usable_size(blocks[n]) >= sizes[n]);
        sizes[n] = malloc_usable_size(blocks[n]);
        fill(blocks[n], sizes[n]);
    }
    for (size_t n = 0; n < COUNT; n++) {
        CHECK(is_filled(blocks[n], sizes[n], blocks[n]));
        free(blocks[n]);
    }
}

static void zero_size_has_a_unique_address(void) {
    void *blocks[] = {malloc(0),
                      malloc(0),
                      calloc(0, 5),
                      calloc(5, 0),
                      realloc(NULL, 0),
                      reallocarray(NULL, 0, 3),
                      memalign(64, 0),
                      aligned_alloc(64, 0),
                      valloc(0),
                      pvalloc(0)};
    enum { COUNT = sizeof blocks / sizeof *blocks };
    for (size_t one = 0; one < COUNT; one++) {
        CHECK(blocks[one] != NULL);
        for (size_t other = 0; other < one; other++) CHECK(blocks[one] != blocks[other]);
    }
    for (size_t one = 0; one < COUNT; one++) free(blocks[one]);
}

static void success_keeps_errno(void) {
    static const size_t sizes[] = {1, 100, 5000, 70000, 3 << 20, 64 << 20};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        errno = MARK;
        void *block = malloc(sizes[n]);
        CHECK(block != NULL && errno == MARK);
        block = realloc(block, sizes[n] * 2);
        CHECK(block != NULL && errno == MARK);
        free(block);
        CHECK(errno == MARK);
        free(calloc(1, sizes[n]));
        free(memalign(4096, sizes[n]));
        malloc_trim(0);
        CHECK(errno == MARK);
    }
    free(NULL);
    CHECK(errno == MARK);
}

static void impossible_sizes_fail(void) {
    for (size_t n = 0; n < sizeof HUGE_SIZES / sizeof *HUGE_SIZES; n++) {
        size_t size = HUGE_SIZES[n];
        char *kept = malloc(100);
        fill(kept, 100);
        void *place = kept;
#define FAILS(call) \
    errno = 0;      \
    CHECK((call) == NULL && errno == ENOMEM)
        FAILS(malloc(size));
        FAILS(calloc(size, 1));
        FAILS(calloc(1, size));
        FAILS(realloc(NULL, size));
        FAILS(realloc(kept, size));
        FAILS(reallocarray(kept, size, 1));
        FAILS(memalign(64, size));
        FAILS(libc_memalign(64, size));
        FAILS(aligned_alloc(4096, size));
        FAILS(valloc(size));
        FAILS(pvalloc(size));
        errno = MARK;
        CHECK(posix_memalign(&place, 64, size) == ENOMEM && errno == MARK && place == kept);
        CHECK(is_filled(kept, 100, kept));
        free(kept);
    }
    char *kept = malloc(100);
    FAILS(calloc(SIZE_MAX / 2, 3));
    FAILS(calloc((size_t)1 << 32, (size_t)1 << 32));
    FAILS(reallocarray(kept, (size_t)1 << 32, (size_t)1 << 32));
    FAILS(reallocarray(NULL, SIZE_MAX / 4, 5));
    free(kept);
    for (int bit = 48; bit < 64; bit++) {
        size_t align = (size_t)1 << bit;
        void *place = NULL;
        FAILS(memalign(align, 1));
        FAILS(aligned_alloc(align, SIZE_MAX / 2));
        CHECK(posix_memalign(&place, align, align) == ENOMEM && place == NULL);
    }
}

static void exhausted_memory_fails(void) {
    struct rlimit before, none;
    CHECK(getrlimit(RLIMIT_DATA, &before) == 0);
    none = before;
    /* Not 0, which Linux treats as unlimited. */
    none.rlim_cur = 4096;
    char *kept = malloc(1000);
    fill(kept, 1000);
    CHECK(setrlimit(RLIMIT_DATA, &none) == 0);
    FAILS(malloc((size_t)1 << 30));
    FAILS(calloc(1 << 15, 1 << 15));
    FAILS(realloc(kept, (size_t)1 << 30));
    FAILS(memalign(1 << 20, (size_t)1 << 30));
    CHECK(is_filled(kept, 1000, kept));
    CHECK(setrlimit(RLIMIT_DATA, &before) == 0);
    void *after = malloc((size_t)1 << 30);
    CHECK(after != NULL);
    free(after);
    free(kept);
}

/* Allocates up to `most` blocks as a linked list. */
static size_t allocate_list(void **first, size_t size, size_t most) {
    size_t count = 0;
    for (void **block; count < most && (block = malloc(size)) != NULL; count++) {
        *block = *first;
        *first = block;
    }
    return count;
}

static void free_list(void *first) {
    for (void *next; first != NULL; first = next) {
        next = *(void **)first;
        free(first);
    }
}

/* Memory that is kept for one size must serve others before an allocation fails. */
static void free_memory_moves_between_sizes(void) {
    enum { SIZE = 1000, COUNT = 8000 };
    struct rlimit before, none;
    void *blocks = NULL, *others = NULL;
    CHECK(allocate_list(&blocks, SIZE, COUNT) == COUNT);
    free_list(blocks);
    CHECK(getrlimit(RLIMIT_DATA, &before) == 0);
    none = before;
    none.rlim_cur = 4096;
    CHECK(setrlimit(RLIMIT_DATA, &none) == 0);
    errno = MARK;
    size_t wanted = COUNT / 4, found = allocate_list(&others, 3 * SIZE, wanted);
    CHECK(setrlimit(RLIMIT_DATA, &before) == 0);
    CHECK(found == wanted && errno == MARK);
    free_list(others);
}

static void calloc_is_zero(void) {
    static const size_t sizes[] = {1, 24, 100, 1000, 4096, 20000, 200000, 2 << 20};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
        for (int round = 0; round < 8; round++) {
            void *dirty = malloc(sizes[n]);
            memset(dirty, 0xff, malloc_usable_size(dirty));
            free(dirty);
            void *clean = calloc(sizes[n] % 4 ? 1 : 4, sizes[n] % 4 ? sizes[n] : sizes[n] / 4);
            CHECK(clean != NULL && is_zero(clean, sizes[n]));
            memset(clean, 0xff, malloc_usable_size(clean));
            free(clean);
        }
}

static void realloc_keeps_contents(void) {
    char *block = realloc(NULL, 1);
    size_t held = 1;
    fill(block, held);
    unsigned random = 1;
    for (int round = 0; round < 500; round++) {
        random = random * 1664525u + 1013904223u;
        size_t size = 1 + (random >> 8) % (round % 10 == 0 ? 3000000 : 3000);
        char *before = block;
        block = round % 2 ? realloc(block, size) : reallocarray(block, size, 1);
        CHECK(block != NULL && malloc_usable_size(block) >= size);
        CHECK(is_filled(block, size < held ? size : held, before));
        held = size;
        fill(block, held);
    }
    errno = MARK;
    CHECK(realloc(block, 0) == NULL && errno == MARK);
    CHECK(reallocarray(malloc(10), 0, 10) == NULL && errno == MARK);
}

static void alignments_are_honored(void) {
    static const size_t sizes[] = {1, 8, 40, 100, 4000, 5000, 100000};
    for (size_t align = 1; align <= (size_t)1 << 23; align *= 2)
        for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
            size_t size = sizes[n];
            void *place = NULL;
            void *blocks[] = {memalign(align, size), libc_memalign(align, size),
                              aligned_alloc(align, size)};
            for (int one = 0; one < 3; one++) {
                CHECK(blocks[one] != NULL && is_aligned(blocks[one], align));
                CHECK(malloc_usable_size(blocks[one]) >= size);
                fill(blocks[one], size);
            }
            if (align >= sizeof(void *)) {
                CHECK(posix_memalign(&place, align, size) == 0 && is_aligned(place, align));
                fill(place, size);
            }
            void *grown = realloc(blocks[0], size * 2);
            CHECK(grown != NULL && is_filled(grown, size, blocks[0]));
            CHECK(is_filled(blocks[1], size, blocks[1]) && is_filled(blocks[2], size, blocks[2]));
            free(grown);
            free_sized(blocks[1], size);
            free_aligned_sized(blocks[2], align, size);
            free(place);
        }
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *pages[] = {valloc(1), valloc(page + 1), pvalloc(1), pvalloc(page + 1)};
    for (int one = 0; one < 4; one++) CHECK(is_aligned(pages[one], page));
    CHECK(malloc_usable_size(pages[2]) >= page && malloc_usable_size(pages[3]) >= 2 * page);
    for (int one = 0; one < 4; one++) free(pages[one]);
}

static void invalid_alignments_fail(void) {
    static const size_t bad[] = {0, 3, 24, 4097, SIZE_MAX};
    for (size_t n = 0; n < sizeof bad / sizeof *bad; n++) {
        errno = 0;
        CHECK(aligned_alloc(bad[n], 64) == NULL && errno == EINVAL);
        void *place = &place;
        errno = MARK;
        CHECK(posix_memalign(&place, bad[n], 64) == EINVAL && errno == MARK && place == &place);
    }
    void *place = &place;
    CHECK(posix_memalign(&place, 4, 64) == EINVAL && place == &place);
    void *rounded = memalign(24, 10);
    CHECK(rounded != NULL && is_aligned(rounded, 32));
    free(rounded);
    rounded = memalign(0, 10);
    CHECK(rounded != NULL);
    free(rounded);
    errno = 0;
    CHECK(memalign(SIZE_MAX, 1) == NULL && errno == EINVAL);
    errno = 0;
    CHECK(memalign(SIZE_MAX / 2 + 2, 1) == NULL && errno == EINVAL);
}

static void introspection_works(void) {
    CHECK(malloc_usable_size(NULL) == 0);
    CHECK(mallopt(M_ARENA_MAX, 1) == 1 && mallopt(-1000, 3) == 1);
    struct mallinfo2 now = mallinfo2();
    CHECK(now.uordblks + now.fordblks == now.arena);
    struct mallinfo old = mallinfo();
    CHECK(old.arena >= 0 && old.uordblks >= 0 && old.hblkhd >= 0);
    int given_back = malloc_trim(0);
    CHECK(given_back == 0 || given_back == 1);
}

/* Blocks of each allocating name of glibc can be freed by each freeing name. */
static void glibc_names_are_ours(void) {
    typedef void *(*one_size)(size_t);
    void *(*calloc_)(size_t, size_t) =
        (void *(*)(size_t, size_t))dlsym(RTLD_DEFAULT, "__libc_calloc");
    void *(*realloc_)(void *, size_t) =
        (void *(*)(void *, size_t))dlsym(RTLD_DEFAULT, "__libc_realloc");
    static const char *allocating[] = {"__libc_malloc", "__libc_valloc", "__libc_pvalloc"};
    static const char *freeing[] = {"__libc_free", "cfree", "free"};
    for (int one = 0; one < 3; one++) {
        one_size allocate = (one_size)dlsym(RTLD_DEFAULT, allocating[one]);
        void (*give)(void *) = (void (*)(void *))dlsym(RTLD_DEFAULT, freeing[one]);
        CHECK(allocate != NULL && give != NULL && calloc_ != NULL && realloc_ != NULL);
        for (size_t size = 10; size < 1000000; size *= 10) {
            free(allocate(size));
            give(malloc(size));
            give(realloc_(calloc_(1, size), 2 * size));
        }
    }
}

/* We free blocks that the C library allocates, so it must use our malloc. */
static void libc_uses_our_malloc(void) {
    char *text = NULL, *line = NULL;
    size_t room = 0;
    CHECK(asprintf(&text, "%0500d", 7) == 500);
    free(text);
    free(strdup("a string"));
    free(getcwd(NULL, 0));
    free(realpath("/", NULL));
    FILE *file = fopen("/proc/self/status", "r");
    CHECK(file != NULL && getline(&line, &room, file) > 0);
    CHECK(malloc_usable_size(line) >= room);
    free(line);
    fclose(file);
}

int main(int count, char **arguments) {
    if (count > 1 && strcmp(arguments[1], "stats") == 0) {
        malloc_stats();
        return 0;
    }
    malloc_is_ours();
    /* First, because later tests leave free address space of a gibibyte. */
    free_memory_moves_between_sizes();
    blocks_fit_and_do_not_overlap();
    zero_size_has_a_unique_address();
    success_keeps_errno();
    impossible_sizes_fail();
    exhausted_memory_fails();
    calloc_is_zero();
    realloc_keeps_contents();
    alignments_are_honored();
    invalid_alignments_fail();
    introspection_works();
    glibc_names_are_ours();
    libc_uses_our_malloc();
    puts("done");
    return 0;
}
