/*
 * Inlined versions of the hot calls. thiscpu.h includes this header.
 *
 * thiscpu_counter_add, thiscpu_counters_add, thiscpu_budget_try_acquire and _release,
 * thiscpu_account_charge, thiscpu_cache_alloc and _free, and thiscpu_word_add are inlined: calls of
 * these names use the functions below. Each is one restartable sequence, and calls the library's
 * function if that does not commit. Guarantees and results are those of the library's functions,
 * except that a misaligned handle is not detected. The address of such a name is that of the
 * library's function.
 *
 * Define THISCPU_NO_INLINE before including thiscpu.h to call the library instead. It is required
 * with `-masm=intel`. Compilers without `asm goto` with outputs always call the library.
 *
 * A shared object that may be closed by `dlclose` must not take its restartable sequences with it,
 * because the kernel may still read their descriptors. Link such an object with `-Wl,-z,nodelete`,
 * as the pkg-config and CMake files do, or compile it with THISCPU_NO_INLINE.
 */
#ifndef THISCPU_INLINE_H
#define THISCPU_INLINE_H

#if defined(__clang__)
#define THISCPU_ASM_GOTO_OUTPUTS (__clang_major__ >= 12)
#elif defined(__GNUC__)
#define THISCPU_ASM_GOTO_OUTPUTS (__GNUC__ >= 11)
#else
#define THISCPU_ASM_GOTO_OUTPUTS 0
#endif

#if !defined(THISCPU_NO_INLINE) && THISCPU_ASM_GOTO_OUTPUTS && defined(__linux__)                  \
    && defined(__LP64__)                                                                           \
    && (defined(__x86_64__) || defined(__AARCH64EL__))

#include "thiscpu_sections.h"

#ifdef __cplusplus
/* The code below is C as well as C++, so its casts are C's. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
extern "C" {
#endif

/*
 * Where restartable sequences find the calling thread's lane.
 *
 * The library changes `offsets` and `bypass`, although they are declared constant here. Neither
 * change harms a thread that has loaded an older value:
 *
 * - Before the first handle is created, offsets are 0, or lead to an area that no thread registers.
 *   Each sequence fails then, and the library's function is called.
 * - Until the offsets are known, `vfork_word` leads to a word that fails each sequence. Then it
 *   leads to one that fails sequences while a child of vfork may run on the thread's memory.
 * - If the process loads a second copy of the library whose functions are bound to one copy and
 *   this variable to the other, sequences are disabled. Threads with older offsets still work on
 *   the lanes of the handles that they have.
 */
struct thiscpu_inline_abi {
    /* From the thread pointer to the rseq area's cpu_id; in the upper half, to the lane's index. */
    int64_t offsets;
    /* From an index to the lane's address. */
    const uintptr_t *table;
    /* From the thread pointer to a word that is not 0 if charges are to bypass the lane. */
    int64_t bypass;
    /* A gate that is always closed. */
    uintptr_t closed_gate;
    /* From the thread pointer to a word that cpu_id must not be less than. */
    int64_t vfork_word;
    uint64_t unused[3];
    /* An rseq area that no thread registers. */
    uint32_t unregistered[8];
};

extern const struct thiscpu_inline_abi thiscpu_inline_abi_5;

/* Identifies the copy of the library that answers. Only the library calls this. */
const void *thiscpu_inline_abi_5_table(void);

/* Reports that the object of an encoded pointer was written to after it was freed, and aborts. */
void *thiscpu_inline_abi_5_finish_alloc(struct thiscpu_cache *cache, uintptr_t encoded);

/* The beginning of what handles point to. Counters and budgets begin with their gate. */
struct thiscpu_inline_account {
    uintptr_t set;
    uint64_t key;
    uintptr_t first;
    uintptr_t step;
    size_t counters;
};

struct thiscpu_inline_counters {
    uintptr_t gate;
    uint64_t unused[6];
    size_t len;
};

struct thiscpu_inline_cache {
    uintptr_t gate;
    uintptr_t key;
};

/* The free mark: the first word of a free object. */
typedef uintptr_t __attribute__((may_alias)) thiscpu_inline_mark;

#define THISCPU_LIKELY(condition) __builtin_expect(!!(condition), 1)
/* Keeps the compiler from moving accesses out of the code between an acquire and its release. */
#define THISCPU_COMPILER_BARRIER __asm__ __volatile__("" ::: "memory")
/* Assigns `fallback` to `value` if that is 0, by a conditional move. With `?:` compilers are less
 * reliable in hoisting this out of loops. */
#if defined(__x86_64__)
#define THISCPU_REPLACE_ZERO(value, fallback)                                                      \
    __asm__("testq %0, %0\n\tcmoveq %1, %0" : "+r"(value) : "r"(fallback) : "cc")
#else
#define THISCPU_REPLACE_ZERO(value, fallback)                                                      \
    __asm__("cmp %0, #0\n\tcsel %0, %1, %0, eq" : "+r"(value) : "r"(fallback) : "cc")
#endif

/* Loads both offsets at once, so that they belong together. */
THISCPU_SECTION int64_t thiscpu_inline_offsets(void) {
    int64_t offsets = thiscpu_inline_abi_5.offsets;
    __asm__("" : "+r"(offsets));
    return offsets;
}

/* Returns the offset of the area's cpu_id; before the library has started, that of the area in the
 * variable. */
THISCPU_SECTION intptr_t thiscpu_inline_cpu_id(int64_t offsets) {
    intptr_t cpu_id = (intptr_t)(int32_t)offsets, pointer;
#if defined(__x86_64__)
    __asm__("movq %%fs:0, %0" : "=r"(pointer));
#else
    __asm__("mrs %0, tpidr_el0" : "=r"(pointer));
#endif
    THISCPU_REPLACE_ZERO(cpu_id, (intptr_t)&thiscpu_inline_abi_5.unregistered[1] - pointer);
    return cpu_id;
}

THISCPU_SECTION intptr_t thiscpu_inline_index(int64_t offsets) {
    return (intptr_t)(offsets >> 32);
}

/* The first arguments of every section: where lanes are found. */
#define THISCPU_LANES(offsets)                                                                     \
    thiscpu_inline_cpu_id(offsets), (intptr_t)thiscpu_inline_abi_5.vfork_word,                     \
        thiscpu_inline_index(offsets), thiscpu_inline_abi_5.table

/* Returns the gate of a counter or budget; for NULL a gate that is always closed. */
THISCPU_SECTION const void *thiscpu_inline_gate(const void *handle) {
    THISCPU_REPLACE_ZERO(handle, &thiscpu_inline_abi_5.closed_gate);
    return handle;
}

/* Adds to this CPU's lane of a counter or budget. Returns whether that committed. */
THISCPU_SECTION int thiscpu_inline_add_windowed(const void *handle, int64_t n) {
    int64_t offsets = thiscpu_inline_offsets();
    return thiscpu_section_add_windowed(THISCPU_LANES(offsets), thiscpu_inline_gate(handle), n);
}

THISCPU_SECTION enum thiscpu_status
thiscpu_counter_add_inline(struct thiscpu_counter *counter, int64_t n) {
    if (THISCPU_LIKELY(thiscpu_inline_add_windowed(counter, n))) {
        return THISCPU_STATUS_OK;
    }
    return thiscpu_counter_add(counter, n);
}

THISCPU_SECTION enum thiscpu_status
thiscpu_counters_add_inline(struct thiscpu_counters *counters, size_t index, int64_t n) {
    const struct thiscpu_inline_counters *fields =
        (const struct thiscpu_inline_counters *)(const void *)counters;
    int64_t offsets = thiscpu_inline_offsets();
    /* A counter has 32 bytes in each lane. */
    if (THISCPU_LIKELY(fields != NULL) && THISCPU_LIKELY(index < fields->len)
        && THISCPU_LIKELY(
            thiscpu_section_add_windowed_at(THISCPU_LANES(offsets), fields, index * 32, n))) {
        return THISCPU_STATUS_OK;
    }
    return thiscpu_counters_add(counters, index, n);
}

THISCPU_SECTION enum thiscpu_status
thiscpu_budget_try_acquire_inline(struct thiscpu_budget *budget, uint64_t n) {
    /* A lane counts the units taken from it, multiplied by 64. */
    if (THISCPU_LIKELY(n <= THISCPU_BUDGET_LIMIT_MAX)
        && THISCPU_LIKELY(thiscpu_inline_add_windowed(budget, (int64_t)n * 64))) {
        THISCPU_COMPILER_BARRIER;
        return THISCPU_STATUS_OK;
    }
    return thiscpu_budget_try_acquire(budget, n);
}

THISCPU_SECTION enum thiscpu_status
thiscpu_budget_release_inline(struct thiscpu_budget *budget, uint64_t n) {
    THISCPU_COMPILER_BARRIER;
    if (THISCPU_LIKELY(n <= THISCPU_BUDGET_LIMIT_MAX)
        && THISCPU_LIKELY(thiscpu_inline_add_windowed(budget, (int64_t)n * -64))) {
        return THISCPU_STATUS_OK;
    }
    return thiscpu_budget_release(budget, n);
}

/* Returns whether a charge is to use this CPU's cache. The library lets a thread bypass it if its
 * accounts are hardly ever cached. */
THISCPU_SECTION int thiscpu_inline_uses_cache(void) {
    uint32_t bypass;
#if defined(__x86_64__)
    __asm__ __volatile__("movl %%fs:(%[offset]), %[bypass]"
                         : [bypass] "=r"(bypass)
                         : [offset] "r"(thiscpu_inline_abi_5.bypass));
#else
    const char *thread = (const char *)__builtin_thread_pointer();
    bypass = *(const volatile uint32_t *)(thread + thiscpu_inline_abi_5.bypass);
#endif
    return !bypass;
}

THISCPU_SECTION enum thiscpu_status
thiscpu_account_charge_inline(struct thiscpu_account *account, size_t index, int64_t n) {
    const struct thiscpu_inline_account *slot =
        (const struct thiscpu_inline_account *)(const void *)account;
    int64_t offsets = thiscpu_inline_offsets();
    if (THISCPU_LIKELY(slot != NULL) && THISCPU_LIKELY(index < slot->counters)
        && THISCPU_LIKELY(thiscpu_inline_uses_cache())
        && thiscpu_section_charge(THISCPU_LANES(offsets), slot->set, slot->key,
                                  slot->first + index * slot->step, n)) {
        return THISCPU_STATUS_OK;
    }
    return thiscpu_account_charge(account, index, n);
}

THISCPU_SECTION void *thiscpu_cache_alloc_inline(struct thiscpu_cache *cache) {
    int64_t offsets = thiscpu_inline_offsets();
    uintptr_t encoded = 0;
    if (THISCPU_LIKELY(cache != NULL)) {
        encoded = thiscpu_section_pop_object_single(THISCPU_LANES(offsets), cache);
    }
    if (!THISCPU_LIKELY(encoded)) {
        return thiscpu_cache_alloc(cache);
    }
    /* An encoded pointer is the key minus the address. A free object's mark is its encoded pointer.
     * Relaxed: the key was stored before the first object was in any lane. */
    const struct thiscpu_inline_cache *fields =
        (const struct thiscpu_inline_cache *)(const void *)cache;
    uintptr_t key = __atomic_load_n(&fields->key, __ATOMIC_RELAXED);
    thiscpu_inline_mark *object = (thiscpu_inline_mark *)(key - encoded);
    if (!THISCPU_LIKELY(*object == encoded)) {
        return thiscpu_inline_abi_5_finish_alloc(cache, encoded);
    }
    *object = 0;
    return object;
}

THISCPU_SECTION enum thiscpu_status
thiscpu_cache_free_inline(struct thiscpu_cache *cache, void *object) {
    int64_t offsets = thiscpu_inline_offsets();
    if (THISCPU_LIKELY((cache != NULL) & (object != NULL))) {
        const struct thiscpu_inline_cache *fields =
            (const struct thiscpu_inline_cache *)(const void *)cache;
        /* Relaxed: the key was stored before the cache handed out its first object. */
        uintptr_t encoded = __atomic_load_n(&fields->key, __ATOMIC_RELAXED) - (uintptr_t)object;
        thiscpu_inline_mark *mark = (thiscpu_inline_mark *)object;
        /* An object with this mark is already free; the library's function reports that. */
        if (THISCPU_LIKELY(*mark != encoded)) {
            *mark = encoded;
            if (THISCPU_LIKELY(
                    thiscpu_section_push_object_single(THISCPU_LANES(offsets), cache, encoded))) {
                return THISCPU_STATUS_OK;
            }
            *mark = 0;
        }
    }
    return thiscpu_cache_free(cache, object);
}

/* The handle of an 8-byte word is what its section takes. The handles of narrower words, and NULL,
 * fail in that section as closed gates do. The uppermost byte is the width. */
THISCPU_SECTION enum thiscpu_status
thiscpu_word_add_inline(struct thiscpu_word *word, uint64_t n) {
    int64_t offsets = thiscpu_inline_offsets();
    uintptr_t handle = (uintptr_t)word;
    uintptr_t item = (handle & ~((uintptr_t)0xff << 56)) | (uintptr_t)1 << 63;
    if (THISCPU_LIKELY(thiscpu_section_u64_add(THISCPU_LANES(offsets), handle, n))) {
        return THISCPU_STATUS_OK;
    }
    switch (handle >> 56) {
    case 4:
        if (thiscpu_section_u32_add(THISCPU_LANES(offsets), item, n)) {
            return THISCPU_STATUS_OK;
        }
        break;
    case 2:
        if (thiscpu_section_u16_add(THISCPU_LANES(offsets), item, n)) {
            return THISCPU_STATUS_OK;
        }
        break;
    case 1:
        if (thiscpu_section_u8_add(THISCPU_LANES(offsets), item, n)) {
            return THISCPU_STATUS_OK;
        }
        break;
    default:
        break;
    }
    return thiscpu_word_add(word, n);
}

/* Variadic, because an argument may be a C++ template with commas. */
#define thiscpu_counter_add(...) thiscpu_counter_add_inline(__VA_ARGS__)
#define thiscpu_counters_add(...) thiscpu_counters_add_inline(__VA_ARGS__)
#define thiscpu_budget_try_acquire(...) thiscpu_budget_try_acquire_inline(__VA_ARGS__)
#define thiscpu_budget_release(...) thiscpu_budget_release_inline(__VA_ARGS__)
#define thiscpu_account_charge(...) thiscpu_account_charge_inline(__VA_ARGS__)
#define thiscpu_cache_alloc(...) thiscpu_cache_alloc_inline(__VA_ARGS__)
#define thiscpu_cache_free(...) thiscpu_cache_free_inline(__VA_ARGS__)
#define thiscpu_word_add(...) thiscpu_word_add_inline(__VA_ARGS__)

#ifdef __cplusplus
}
#pragma GCC diagnostic pop
#endif

#endif

#endif
