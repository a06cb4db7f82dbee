/*
 * The hot calls, inlined: thiscpu_counter_add, thiscpu_budget_try_acquire and _release, thiscpu_account_charge, thiscpu_cache_alloc and
 * _free, and thiscpu_word_add. thiscpu.h includes this, and then these names, called, are the functions below: a section each, and a call of the
 * library's function where that is refused or interrupted. What they promise and return is the same, but that they do not see whether a
 * handle is misaligned. Their addresses are those of the library's functions.
 *
 * THISCPU_NO_INLINE, defined before thiscpu.h is included, leaves all of this out, and so do compilers that have no `asm goto` with outputs.
 * With `-masm=intel` it has to be defined.
 *
 * Code that is unloaded must not leave a section behind that the kernel may still look at. A shared object that is closed (`dlclose`) is
 * therefore linked with `-Wl,-z,nodelete`, as pkg-config and CMake are told to do, or compiled with THISCPU_NO_INLINE.
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

#if !defined(THISCPU_NO_INLINE) && THISCPU_ASM_GOTO_OUTPUTS && defined(__linux__) && defined(__LP64__)                 \
    && (defined(__x86_64__) || defined(__AARCH64EL__))

#include "thiscpu_sections.h"

#ifdef __cplusplus
/* What is C too has C's casts. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
extern "C" {
#endif

/* Where sections find a thread's lane. The offsets of the rseq area's cpu_id and, in the upper half, of the index from the thread pointer: those of an area
 * that nobody registers before the first handle is there, so that sections leave at once, and 0 before the library is started. The table that an index leads
 * to, which never changes. The offset of the thread's habit. A gate that is never open; and an area that nobody registers.
 *
 * The offsets, and the habit's, change before the first handle is there: who has loaded them too early calls functions. They change once more if a copy of the
 * library is loaded that calls functions of its own and uses this variable: who has loaded them before goes on in lanes that are still those of its handles. So
 * nobody is hurt by their being constant. */
struct thiscpu_inline_abi {
    int64_t offsets;
    const uintptr_t *table;
    int64_t bypass;
    uintptr_t closed_gate;
    uint64_t unused[4];
    uint32_t unregistered[8];
};

extern const struct thiscpu_inline_abi thiscpu_inline_abi_3;

/* Nobody's but the library's: which copy of it answers. */
const void *thiscpu_inline_abi_3_table(void);

/* An object for an encoded pointer that was taken and is not marked as it should be: says so, and ends the process. */
void *thiscpu_inline_abi_3_finish_alloc(struct thiscpu_cache *cache, uintptr_t encoded);

/* What handles begin with. Counters and budgets begin with their gate. */
struct thiscpu_inline_account {
    uintptr_t set;
    uint64_t key;
    uintptr_t first;
    uintptr_t step;
    size_t counters;
};

struct thiscpu_inline_cache {
    uintptr_t gate;
    uintptr_t key;
};

/* The first word of a free object. */
typedef uintptr_t __attribute__((may_alias)) thiscpu_inline_mark;

#define THISCPU_LIKELY(condition) __builtin_expect(!!(condition), 1)
/* What is done with units stays between their acquisition and their release, as far as compilers are concerned. */
#define THISCPU_COMPILER_BARRIER __asm__ __volatile__("" ::: "memory")
/* One of two values by an instruction that is no branch: loops have it taken out of them, of which compilers are not as sure with `?:`. */
#if defined(__x86_64__)
#define THISCPU_REPLACE_ZERO(value, fallback) __asm__("testq %0, %0\n\tcmoveq %1, %0" : "+r"(value) : "r"(fallback) : "cc")
#else
#define THISCPU_REPLACE_ZERO(value, fallback) __asm__("cmp %0, #0\n\tcsel %0, %1, %0, eq" : "+r"(value) : "r"(fallback) : "cc")
#endif

/* Both offsets, loaded once, so that they belong together. */
THISCPU_SECTION int64_t thiscpu_inline_offsets(void) {
    int64_t offsets = thiscpu_inline_abi_3.offsets;
    __asm__("" : "+r"(offsets));
    return offsets;
}

/* The offset of an area's cpu_id; before the library is started, of the one below. */
THISCPU_SECTION intptr_t thiscpu_inline_cpu_id(int64_t offsets) {
    intptr_t cpu_id = (intptr_t)(int32_t)offsets, pointer;
#if defined(__x86_64__)
    __asm__("movq %%fs:0, %0" : "=r"(pointer));
#else
    __asm__("mrs %0, tpidr_el0" : "=r"(pointer));
#endif
    THISCPU_REPLACE_ZERO(cpu_id, (intptr_t)&thiscpu_inline_abi_3.unregistered[1] - pointer);
    return cpu_id;
}

THISCPU_SECTION intptr_t thiscpu_inline_index(int64_t offsets) {
    return (intptr_t)(offsets >> 32);
}

/* Where lanes are found: the first arguments of every section. */
#define THISCPU_LANES(offsets) thiscpu_inline_cpu_id(offsets), thiscpu_inline_index(offsets), thiscpu_inline_abi_3.table

/* What handles begin with, if there is one; else a gate that is never open. */
THISCPU_SECTION const void *thiscpu_inline_gate(const void *handle) {
    THISCPU_REPLACE_ZERO(handle, &thiscpu_inline_abi_3.closed_gate);
    return handle;
}

/* Adds to this CPU's part of a counter or budget. */
THISCPU_SECTION int thiscpu_inline_add_windowed(const void *handle, int64_t n) {
    int64_t offsets = thiscpu_inline_offsets();
    return thiscpu_section_add_windowed(THISCPU_LANES(offsets), thiscpu_inline_gate(handle), n);
}

THISCPU_SECTION enum thiscpu_status thiscpu_counter_add_inline(struct thiscpu_counter *counter, int64_t n) {
    if (THISCPU_LIKELY(thiscpu_inline_add_windowed(counter, n))) {
        return THISCPU_STATUS_OK;
    }
    return thiscpu_counter_add(counter, n);
}

THISCPU_SECTION enum thiscpu_status thiscpu_budget_try_acquire_inline(struct thiscpu_budget *budget, uint64_t n) {
    /* A lane counts what was taken of it, in units of 64. */
    if (THISCPU_LIKELY(n <= THISCPU_BUDGET_LIMIT_MAX) && THISCPU_LIKELY(thiscpu_inline_add_windowed(budget, (int64_t)n * 64))) {
        THISCPU_COMPILER_BARRIER;
        return THISCPU_STATUS_OK;
    }
    return thiscpu_budget_try_acquire(budget, n);
}

THISCPU_SECTION enum thiscpu_status thiscpu_budget_release_inline(struct thiscpu_budget *budget, uint64_t n) {
    THISCPU_COMPILER_BARRIER;
    if (THISCPU_LIKELY(n <= THISCPU_BUDGET_LIMIT_MAX) && THISCPU_LIKELY(thiscpu_inline_add_windowed(budget, (int64_t)n * -64))) {
        return THISCPU_STATUS_OK;
    }
    return thiscpu_budget_release(budget, n);
}

/* Whether a charge is to look into this thread's lane. The library changes that for a thread whose accounts are hardly ever there. */
THISCPU_SECTION int thiscpu_inline_uses_cache(void) {
    uint32_t bypass;
#if defined(__x86_64__)
    __asm__ __volatile__("movl %%fs:(%[offset]), %[bypass]" : [bypass] "=r"(bypass) : [offset] "r"(thiscpu_inline_abi_3.bypass));
#else
    bypass = *(const volatile uint32_t *)((const char *)__builtin_thread_pointer() + thiscpu_inline_abi_3.bypass);
#endif
    return !bypass;
}

THISCPU_SECTION enum thiscpu_status
thiscpu_account_charge_inline(struct thiscpu_account *account, size_t index, int64_t n) {
    const struct thiscpu_inline_account *slot = (const struct thiscpu_inline_account *)(const void *)account;
    int64_t offsets = thiscpu_inline_offsets();
    if (THISCPU_LIKELY(slot != NULL) && THISCPU_LIKELY(index < slot->counters) && THISCPU_LIKELY(thiscpu_inline_uses_cache())
        && thiscpu_section_charge(THISCPU_LANES(offsets), slot->set, slot->key, slot->first + index * slot->step, n)) {
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
    /* An encoded pointer is the key less the address, and is what a free object begins with. Whoever has taken one finds the key stored. */
    const struct thiscpu_inline_cache *fields = (const struct thiscpu_inline_cache *)(const void *)cache;
    thiscpu_inline_mark *object = (thiscpu_inline_mark *)(__atomic_load_n(&fields->key, __ATOMIC_RELAXED) - encoded);
    if (!THISCPU_LIKELY(*object == encoded)) {
        return thiscpu_inline_abi_3_finish_alloc(cache, encoded);
    }
    *object = 0;
    return object;
}

THISCPU_SECTION enum thiscpu_status thiscpu_cache_free_inline(struct thiscpu_cache *cache, void *object) {
    int64_t offsets = thiscpu_inline_offsets();
    if (THISCPU_LIKELY((cache != NULL) & (object != NULL))) {
        const struct thiscpu_inline_cache *fields = (const struct thiscpu_inline_cache *)(const void *)cache;
        uintptr_t encoded = __atomic_load_n(&fields->key, __ATOMIC_RELAXED) - (uintptr_t)object;
        thiscpu_inline_mark *mark = (thiscpu_inline_mark *)object;
        /* Else it is free already, which the function says. */
        if (THISCPU_LIKELY(*mark != encoded)) {
            *mark = encoded;
            if (THISCPU_LIKELY(thiscpu_section_push_object_single(THISCPU_LANES(offsets), cache, encoded))) {
                return THISCPU_STATUS_OK;
            }
            *mark = 0;
        }
    }
    return thiscpu_cache_free(cache, object);
}

/* A word's handle says what it is: sections take that of 8 bytes as it is. Those of others, and null, are no open gate; their width is in the
 * uppermost byte. */
THISCPU_SECTION enum thiscpu_status thiscpu_word_add_inline(struct thiscpu_word *word, uint64_t n) {
    int64_t offsets = thiscpu_inline_offsets();
    uintptr_t handle = (uintptr_t)word, item = (handle & ~((uintptr_t)0xff << 56)) | (uintptr_t)1 << 63;
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

/* With any arguments: a comma of a template's is no comma of a macro's. */
#define thiscpu_counter_add(...) thiscpu_counter_add_inline(__VA_ARGS__)
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
