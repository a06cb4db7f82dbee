/* Made by `cargo xtask header` from xtask/templates. */

#ifndef THISCPU_SECTIONS_H
#define THISCPU_SECTIONS_H

#include <stdint.h>

/*
 * The sections that inlined calls consist of: restartable sequences, each a few loads and checks
 * and one store that commits. They are those of the library, instruction for instruction. A section
 * returns whether it has committed, or the value that it took. If it has not committed, nothing has
 * happened, and the caller calls a function of the library. `cpu_id` and `index` are offsets of
 * these fields from the thread pointer. `vfork_word` is the offset of a word that keeps children of
 * vfork out of lanes. Sections that add order only themselves, for compilers too.
 *
 * For gcc 11, clang 12 and later.
 */

#define THISCPU_SECTION static inline __attribute__((always_inline, unused))

/*
 * A section's descriptor, and its name for checkers. Each is in the section group of its function,
 * if there is one; linkers keep one group of several equal ones.
 */
#define THISCPU_DESCRIPTOR(name) \
    ".pushsection __rseq_cs, \"aw?\"\n\t" \
    ".balign 32\n" \
    "30:\n\t" \
    ".long 0, 0\n\t" \
    ".quad 31f, 32f - 31f, 34f\n\t" \
    ".popsection\n\t" \
    ".pushsection __rseq_cs_ptr_array, \"aw?\"\n\t" \
    ".quad 30b\n\t" \
    ".popsection\n\t" \
    ".pushsection .thiscpu_sections, \"o?\", %%progbits, __rseq_cs\n\t" \
    ".quad 30b\n\t" \
    ".asciz \"" name "\"\n\t" \
    ".popsection\n\t"

#if defined(__x86_64__)

/* The kernel continues here if it aborts a section: after an undefined instruction with the
 * signature as its operand. */
#define THISCPU_ABORT_HANDLER \
    ".pushsection __rseq_failure, \"ax?\"\n\t" \
    ".byte 0x0f, 0xb9, 0x3d\n\t" \
    ".long 0x53053053\n" \
    "34:\n\t"

/* add_windowed: adds to this CPU's lane of a counter or budget, if that stays in its window. */
THISCPU_SECTION int thiscpu_section_add_windowed(intptr_t cpu_id, intptr_t vfork_word,
    intptr_t index, const uintptr_t *table, const void *gate, int64_t n) {
    uint64_t a, count, window, distance;
    __asm__ __volatile__ goto(
        THISCPU_DESCRIPTOR("add_windowed")
        "leaq 30b(%%rip), %[a]\n\t"
        "movq %[a], %%fs:4(%[cpu_id])\n\t"
        "31:\n"
        "movl %%fs:(%[vfork_word]), %k[a]\n\t"
        "cmpl %k[a], %%fs:(%[cpu_id])\n\t"
        "jl %l[out]\n\t"
        "movzwl %%fs:(%[index]), %k[a]\n\t"
        "movq (%[table], %[a], 8), %[a]\n\t"
        "addq (%[gate]), %[a]\n\t"
        "jae %l[out]\n\t"
        "movq (%[a]), %[count]\n\t"
        "addq %[n], %[count]\n\t"
        "movq 8(%[a]), %[window]\n\t"
        "movq %[window], %[distance]\n\t"
        "subq %[count], %[distance]\n\t"
        "shrq %b[window], %[distance]\n\t"
        "jne %l[out]\n\t"
        "movq %[count], (%[a])\n\t"
        "32:\n"
        THISCPU_ABORT_HANDLER
        "jmp %l[out]\n\t"
        ".popsection\n"
        "33:"
        : [a] "=&r"(a), [count] "=&r"(count), [window] "=&c"(window), [distance] "=&r"(distance)
        : [cpu_id] "r"(cpu_id), [vfork_word] "r"(vfork_word), [index] "r"(index),
          [table] "r"(table), [gate] "r"(gate), [n] "er"(n)
        : "cc"
        : out);
    return 1;
out:
    return 0;
}

/* add_windowed_at: adds to this CPU's lane of one of several counters, as add_windowed does. */
THISCPU_SECTION int thiscpu_section_add_windowed_at(intptr_t cpu_id, intptr_t vfork_word,
    intptr_t index, const uintptr_t *table, const void *gate, uintptr_t cell, int64_t n) {
    uint64_t a, count, window, distance;
    __asm__ __volatile__ goto(
        THISCPU_DESCRIPTOR("add_windowed_at")
        "leaq 30b(%%rip), %[a]\n\t"
        "movq %[a], %%fs:4(%[cpu_id])\n\t"
        "31:\n"
        "movl %%fs:(%[vfork_word]), %k[a]\n\t"
        "cmpl %k[a], %%fs:(%[cpu_id])\n\t"
        "jl %l[out]\n\t"
        "movzwl %%fs:(%[index]), %k[a]\n\t"
        "movq (%[table], %[a], 8), %[a]\n\t"
        "addq (%[gate]), %[a]\n\t"
        "jae %l[out]\n\t"
        "addq %[cell], %[a]\n\t"
        "movq (%[a]), %[count]\n\t"
        "addq %[n], %[count]\n\t"
        "movq 8(%[a]), %[window]\n\t"
        "movq %[window], %[distance]\n\t"
        "subq %[count], %[distance]\n\t"
        "shrq %b[window], %[distance]\n\t"
        "jne %l[out]\n\t"
        "movq %[count], (%[a])\n\t"
        "32:\n"
        THISCPU_ABORT_HANDLER
        "jmp %l[out]\n\t"
        ".popsection\n"
        "33:"
        : [a] "=&r"(a), [count] "=&r"(count), [window] "=&c"(window), [distance] "=&r"(distance)
        : [cpu_id] "r"(cpu_id), [vfork_word] "r"(vfork_word), [index] "r"(index),
          [table] "r"(table), [gate] "r"(gate), [cell] "r"(cell), [n] "er"(n)
        : "cc"
        : out);
    return 1;
out:
    return 0;
}

/* charge: charges an account, if it is in this CPU's cache. */
THISCPU_SECTION int thiscpu_section_charge(intptr_t cpu_id, intptr_t vfork_word, intptr_t index,
    const uintptr_t *table, uintptr_t set, uint64_t key, uintptr_t cell, int64_t n) {
    uint64_t a, count, distance;
    __asm__ __volatile__ goto(
        THISCPU_DESCRIPTOR("charge")
        "leaq 30b(%%rip), %[a]\n\t"
        "movq %[a], %%fs:4(%[cpu_id])\n\t"
        "31:\n"
        "movl %%fs:(%[vfork_word]), %k[a]\n\t"
        "cmpl %k[a], %%fs:(%[cpu_id])\n\t"
        "jl %l[out]\n\t"
        "movzwl %%fs:(%[index]), %k[a]\n\t"
        "movq (%[table], %[a], 8), %[a]\n\t"
        "addq %[set], %[a]\n\t"
        "jae %l[out]\n\t"
        "cmpq %[key], (%[a])\n\t"
        "je 35f\n\t"
        "addq $8, %[a]\n\t"
        "cmpq %[key], (%[a])\n\t"
        "je 35f\n\t"
        "addq $8, %[a]\n\t"
        "cmpq %[key], (%[a])\n\t"
        "je 35f\n\t"
        "addq $8, %[a]\n\t"
        "cmpq %[key], (%[a])\n\t"
        "jne %l[out]\n\t"
        "35:\n"
        "movq (%[a], %[cell], 1), %[count]\n\t"
        "addq %[n], %[count]\n\t"
        "leaq 1024(%[count]), %[distance]\n\t"
        "shrq $11, %[distance]\n\t"
        "jne %l[out]\n\t"
        "movq %[count], (%[a], %[cell], 1)\n\t"
        "32:\n"
        THISCPU_ABORT_HANDLER
        "jmp %l[out]\n\t"
        ".popsection\n"
        "33:"
        : [a] "=&r"(a), [count] "=&r"(count), [distance] "=&r"(distance)
        : [cpu_id] "r"(cpu_id), [vfork_word] "r"(vfork_word), [index] "r"(index),
          [table] "r"(table), [set] "r"(set), [key] "r"(key), [cell] "r"(cell), [n] "r"(n)
        : "cc"
        : out);
    return 1;
out:
    return 0;
}

/* pop_object_single: pops an encoded pointer from this CPU's lane of a cache; 0 if it is empty. */
THISCPU_SECTION uintptr_t thiscpu_section_pop_object_single(intptr_t cpu_id, intptr_t vfork_word,
    intptr_t index, const uintptr_t *table, const void *gate) {
    uint64_t a, top;
    uintptr_t encoded = 0;
    __asm__ __volatile__(
        THISCPU_DESCRIPTOR("pop_object_single")
        "leaq 30b(%%rip), %[a]\n\t"
        "movq %[a], %%fs:4(%[cpu_id])\n\t"
        "31:\n"
        "movl %%fs:(%[vfork_word]), %k[a]\n\t"
        "cmpl %k[a], %%fs:(%[cpu_id])\n\t"
        "jl 34f\n\t"
        "movzwl %%fs:(%[index]), %k[a]\n\t"
        "movq (%[table], %[a], 8), %[a]\n\t"
        "addq (%[gate]), %[a]\n\t"
        "jae 34f\n\t"
        "xorl %k[top], %k[top]\n\t"
        "movq (%[a]), %[encoded]\n\t"
        "testq %[encoded], %[encoded]\n\t"
        "jne 35f\n\t"
        "movq 16(%[a]), %[top]\n\t"
        "movq 8(%[a], %[top], 1), %[encoded]\n\t"
        "testq %[encoded], %[encoded]\n\t"
        "je 33f\n\t"
        "subq $8, %[top]\n\t"
        "addq $16, %[a]\n\t"
        "35:\n"
        "movq %[top], (%[a])\n\t"
        "32:\n"
        THISCPU_ABORT_HANDLER
        "xorl %k[encoded], %k[encoded]\n\t"
        "jmp 33f\n\t"
        ".popsection\n"
        "33:"
        : [a] "=&r"(a), [top] "=&r"(top), [encoded] "+&r"(encoded)
        : [cpu_id] "r"(cpu_id), [vfork_word] "r"(vfork_word), [index] "r"(index),
          [table] "r"(table), [gate] "r"(gate)
        : "memory", "cc");
    return encoded;
}

/* push_object_single: pushes an encoded pointer to this CPU's lane of a cache if it has room. */
THISCPU_SECTION int thiscpu_section_push_object_single(intptr_t cpu_id, intptr_t vfork_word,
    intptr_t index, const uintptr_t *table, const void *gate, uintptr_t encoded) {
    uint64_t a, top;
    __asm__ __volatile__ goto(
        THISCPU_DESCRIPTOR("push_object_single")
        "leaq 30b(%%rip), %[a]\n\t"
        "movq %[a], %%fs:4(%[cpu_id])\n\t"
        "31:\n"
        "movl %%fs:(%[vfork_word]), %k[a]\n\t"
        "cmpl %k[a], %%fs:(%[cpu_id])\n\t"
        "jl %l[out]\n\t"
        "movzwl %%fs:(%[index]), %k[a]\n\t"
        "movq (%[table], %[a], 8), %[a]\n\t"
        "addq (%[gate]), %[a]\n\t"
        "jae %l[out]\n\t"
        "cmpq $0, (%[a])\n\t"
        "je 35f\n\t"
        "movq 16(%[a]), %[top]\n\t"
        "movq 16(%[a], %[top], 1), %[gate]\n\t"
        "testq %[gate], %[gate]\n\t"
        "je %l[out]\n\t"
        "movq %[encoded], 16(%[a], %[top], 1)\n\t"
        "leaq 8(%[top]), %[encoded]\n\t"
        "addq $16, %[a]\n\t"
        "35:\n"
        "movq %[encoded], (%[a])\n\t"
        "32:\n"
        THISCPU_ABORT_HANDLER
        "jmp %l[out]\n\t"
        ".popsection\n"
        "33:"
        : [a] "=&r"(a), [gate] "+&r"(gate), [top] "=&r"(top), [encoded] "+&r"(encoded)
        : [cpu_id] "r"(cpu_id), [vfork_word] "r"(vfork_word), [index] "r"(index),
          [table] "r"(table)
        : "memory", "cc"
        : out);
    return 1;
out:
    return 0;
}

/* u8::add: adds to this CPU's word of 1 byte. */
THISCPU_SECTION int thiscpu_section_u8_add(intptr_t cpu_id, intptr_t vfork_word, intptr_t index,
    const uintptr_t *table, uintptr_t item, uint64_t n) {
    uint64_t a;
    __asm__ __volatile__ goto(
        THISCPU_DESCRIPTOR("u8::add")
        "leaq 30b(%%rip), %[a]\n\t"
        "movq %[a], %%fs:4(%[cpu_id])\n\t"
        "31:\n"
        "movl %%fs:(%[vfork_word]), %k[a]\n\t"
        "cmpl %k[a], %%fs:(%[cpu_id])\n\t"
        "jl %l[out]\n\t"
        "movzwl %%fs:(%[index]), %k[a]\n\t"
        "movq (%[table], %[a], 8), %[a]\n\t"
        "addq %[item], %[a]\n\t"
        "jae %l[out]\n\t"
        "addb %b[n], (%[a])\n\t"
        "32:\n"
        THISCPU_ABORT_HANDLER
        "jmp %l[out]\n\t"
        ".popsection\n"
        "33:"
        : [a] "=&r"(a)
        : [cpu_id] "r"(cpu_id), [vfork_word] "r"(vfork_word), [index] "r"(index),
          [table] "r"(table), [item] "r"(item), [n] "r"(n)
        : "cc"
        : out);
    return 1;
out:
    return 0;
}

/* u16::add: adds to this CPU's word of 2 bytes. */
THISCPU_SECTION int thiscpu_section_u16_add(intptr_t cpu_id, intptr_t vfork_word, intptr_t index,
    const uintptr_t *table, uintptr_t item, uint64_t n) {
    uint64_t a;
    __asm__ __volatile__ goto(
        THISCPU_DESCRIPTOR("u16::add")
        "leaq 30b(%%rip), %[a]\n\t"
        "movq %[a], %%fs:4(%[cpu_id])\n\t"
        "31:\n"
        "movl %%fs:(%[vfork_word]), %k[a]\n\t"
        "cmpl %k[a], %%fs:(%[cpu_id])\n\t"
        "jl %l[out]\n\t"
        "movzwl %%fs:(%[index]), %k[a]\n\t"
        "movq (%[table], %[a], 8), %[a]\n\t"
        "addq %[item], %[a]\n\t"
        "jae %l[out]\n\t"
        "addw %w[n], (%[a])\n\t"
        "32:\n"
        THISCPU_ABORT_HANDLER
        "jmp %l[out]\n\t"
        ".popsection\n"
        "33:"
        : [a] "=&r"(a)
        : [cpu_id] "r"(cpu_id), [vfork_word] "r"(vfork_word), [index] "r"(index),
          [table] "r"(table), [item] "r"(item), [n] "r"(n)
        : "cc"
        : out);
    return 1;
out:
    return 0;
}

/* u32::add: adds to this CPU's word of 4 bytes. */
THISCPU_SECTION int thiscpu_section_u32_add(intptr_t cpu_id, intptr_t vfork_word, intptr_t index,
    const uintptr_t *table, uintptr_t item, uint64_t n) {
    uint64_t a;
    __asm__ __volatile__ goto(
        THISCPU_DESCRIPTOR("u32::add")
        "leaq 30b(%%rip), %[a]\n\t"
        "movq %[a], %%fs:4(%[cpu_id])\n\t"
        "31:\n"
        "movl %%fs:(%[vfork_word]), %k[a]\n\t"
        "cmpl %k[a], %%fs:(%[cpu_id])\n\t"
        "jl %l[out]\n\t"
        "movzwl %%fs:(%[index]), %k[a]\n\t"
        "movq (%[table], %[a], 8), %[a]\n\t"
        "addq %[item], %[a]\n\t"
        "jae %l[out]\n\t"
        "addl %k[n], (%[a])\n\t"
        "32:\n"
        THISCPU_ABORT_HANDLER
        "jmp %l[out]\n\t"
        ".popsection\n"
        "33:"
        : [a] "=&r"(a)
        : [cpu_id] "r"(cpu_id), [vfork_word] "r"(vfork_word), [index] "r"(index),
          [table] "r"(table), [item] "r"(item), [n] "r"(n)
        : "cc"
        : out);
    return 1;
out:
    return 0;
}

/* u64::add: adds to this CPU's word of 8 bytes. */
THISCPU_SECTION int thiscpu_section_u64_add(intptr_t cpu_id, intptr_t vfork_word, intptr_t index,
    const uintptr_t *table, uintptr_t item, uint64_t n) {
    uint64_t a;
    __asm__ __volatile__ goto(
        THISCPU_DESCRIPTOR("u64::add")
        "leaq 30b(%%rip), %[a]\n\t"
        "movq %[a], %%fs:4(%[cpu_id])\n\t"
        "31:\n"
        "movl %%fs:(%[vfork_word]), %k[a]\n\t"
        "cmpl %k[a], %%fs:(%[cpu_id])\n\t"
        "jl %l[out]\n\t"
        "movzwl %%fs:(%[index]), %k[a]\n\t"
        "movq (%[table], %[a], 8), %[a]\n\t"
        "addq %[item], %[a]\n\t"
        "jae %l[out]\n\t"
        "addq %[n], (%[a])\n\t"
        "32:\n"
        THISCPU_ABORT_HANDLER
        "jmp %l[out]\n\t"
        ".popsection\n"
        "33:"
        : [a] "=&r"(a)
        : [cpu_id] "r"(cpu_id), [vfork_word] "r"(vfork_word), [index] "r"(index),
          [table] "r"(table), [item] "r"(item), [n] "er"(n)
        : "cc"
        : out);
    return 1;
out:
    return 0;
}

#elif defined(__aarch64__)

/* The kernel continues here if it aborts a section: after an instruction that is the signature. */
#define THISCPU_ABORT_HANDLER \
    ".pushsection __rseq_failure, \"ax?\"\n\t" \
    ".inst 0xd428bc00\n" \
    "34:\n\t"

/* add_windowed: adds to this CPU's lane of a counter or budget, if that stays in its window. */
THISCPU_SECTION int thiscpu_section_add_windowed(intptr_t cpu_id, intptr_t vfork_word,
    intptr_t index, const uintptr_t *table, const void *gate, int64_t n) {
    uint64_t s, a, count, window;
    __asm__ __volatile__ goto(
        THISCPU_DESCRIPTOR("add_windowed")
        "mrs %[s], tpidr_el0\n\t"
        "adrp %[a], 30b\n\t"
        "add %[a], %[a], :lo12:30b\n\t"
        "add %[cpu_id], %[cpu_id], %[s]\n\t"
        "stur %[a], [%[cpu_id], #0x4]\n\t"
        "31:\n"
        "ldr %w[a], [%[s], %[vfork_word]]\n\t"
        "ldr %w[cpu_id], [%[cpu_id]]\n\t"
        "cmp %w[cpu_id], %w[a]\n\t"
        "b.lt %l[out]\n\t"
        "ldrh %w[a], [%[s], %[index]]\n\t"
        "ldr %[a], [%[table], %[a], lsl #3]\n\t"
        "ldr %[s], [%[gate]]\n\t"
        "adds %[a], %[a], %[s]\n\t"
        "b.lo %l[out]\n\t"
        "ldp %[count], %[window], [%[a]]\n\t"
        "add %[count], %[count], %[n]\n\t"
        "sub %[s], %[window], %[count]\n\t"
        "lsr %[s], %[s], %[window]\n\t"
        "cbnz %[s], %l[out]\n\t"
        "str %[count], [%[a]]\n\t"
        "32:\n"
        THISCPU_ABORT_HANDLER
        "b %l[out]\n\t"
        ".popsection\n"
        "33:"
        : [s] "=&r"(s), [a] "=&r"(a), [cpu_id] "+&r"(cpu_id), [count] "=&r"(count),
          [window] "=&r"(window)
        : [vfork_word] "r"(vfork_word), [index] "r"(index), [table] "r"(table), [gate] "r"(gate),
          [n] "r"(n)
        : "cc"
        : out);
    return 1;
out:
    return 0;
}

/* add_windowed_at: adds to this CPU's lane of one of several counters, as add_windowed does. */
THISCPU_SECTION int thiscpu_section_add_windowed_at(intptr_t cpu_id, intptr_t vfork_word,
    intptr_t index, const uintptr_t *table, const void *gate, uintptr_t cell, int64_t n) {
    uint64_t s, a, count, window;
    __asm__ __volatile__ goto(
        THISCPU_DESCRIPTOR("add_windowed_at")
        "mrs %[s], tpidr_el0\n\t"
        "adrp %[a], 30b\n\t"
        "add %[a], %[a], :lo12:30b\n\t"
        "add %[cpu_id], %[cpu_id], %[s]\n\t"
        "stur %[a], [%[cpu_id], #0x4]\n\t"
        "31:\n"
        "ldr %w[a], [%[s], %[vfork_word]]\n\t"
        "ldr %w[cpu_id], [%[cpu_id]]\n\t"
        "cmp %w[cpu_id], %w[a]\n\t"
        "b.lt %l[out]\n\t"
        "ldrh %w[a], [%[s], %[index]]\n\t"
        "ldr %[a], [%[table], %[a], lsl #3]\n\t"
        "ldr %[s], [%[gate]]\n\t"
        "adds %[a], %[a], %[s]\n\t"
        "b.lo %l[out]\n\t"
        "add %[a], %[a], %[cell]\n\t"
        "ldp %[count], %[window], [%[a]]\n\t"
        "add %[count], %[count], %[n]\n\t"
        "sub %[s], %[window], %[count]\n\t"
        "lsr %[s], %[s], %[window]\n\t"
        "cbnz %[s], %l[out]\n\t"
        "str %[count], [%[a]]\n\t"
        "32:\n"
        THISCPU_ABORT_HANDLER
        "b %l[out]\n\t"
        ".popsection\n"
        "33:"
        : [s] "=&r"(s), [a] "=&r"(a), [cpu_id] "+&r"(cpu_id), [count] "=&r"(count),
          [window] "=&r"(window)
        : [vfork_word] "r"(vfork_word), [index] "r"(index), [table] "r"(table), [gate] "r"(gate),
          [cell] "r"(cell), [n] "r"(n)
        : "cc"
        : out);
    return 1;
out:
    return 0;
}

/* charge: charges an account, if it is in this CPU's cache. */
THISCPU_SECTION int thiscpu_section_charge(intptr_t cpu_id, intptr_t vfork_word, intptr_t index,
    const uintptr_t *table, uintptr_t set, uint64_t key, uintptr_t cell, int64_t n) {
    uint64_t s, a, count;
    __asm__ __volatile__ goto(
        THISCPU_DESCRIPTOR("charge")
        "mrs %[s], tpidr_el0\n\t"
        "adrp %[a], 30b\n\t"
        "add %[a], %[a], :lo12:30b\n\t"
        "add %[cpu_id], %[cpu_id], %[s]\n\t"
        "stur %[a], [%[cpu_id], #0x4]\n\t"
        "31:\n"
        "ldr %w[a], [%[s], %[vfork_word]]\n\t"
        "ldr %w[cpu_id], [%[cpu_id]]\n\t"
        "cmp %w[cpu_id], %w[a]\n\t"
        "b.lt %l[out]\n\t"
        "ldrh %w[a], [%[s], %[index]]\n\t"
        "ldr %[a], [%[table], %[a], lsl #3]\n\t"
        "adds %[a], %[a], %[set]\n\t"
        "b.lo %l[out]\n\t"
        "ldr %[s], [%[a]]\n\t"
        "cmp %[s], %[key]\n\t"
        "b.eq 35f\n\t"
        "ldr %[s], [%[a], #0x8]!\n\t"
        "cmp %[s], %[key]\n\t"
        "b.eq 35f\n\t"
        "ldr %[s], [%[a], #0x8]!\n\t"
        "cmp %[s], %[key]\n\t"
        "b.eq 35f\n\t"
        "ldr %[s], [%[a], #0x8]!\n\t"
        "cmp %[s], %[key]\n\t"
        "b.ne %l[out]\n\t"
        "35:\n"
        "ldr %[count], [%[a], %[cell]]\n\t"
        "add %[count], %[count], %[n]\n\t"
        "add %[s], %[count], #0x400\n\t"
        "lsr %[s], %[s], #0xb\n\t"
        "cbnz %[s], %l[out]\n\t"
        "str %[count], [%[a], %[cell]]\n\t"
        "32:\n"
        THISCPU_ABORT_HANDLER
        "b %l[out]\n\t"
        ".popsection\n"
        "33:"
        : [s] "=&r"(s), [a] "=&r"(a), [cpu_id] "+&r"(cpu_id), [count] "=&r"(count)
        : [vfork_word] "r"(vfork_word), [index] "r"(index), [table] "r"(table), [set] "r"(set),
          [key] "r"(key), [cell] "r"(cell), [n] "r"(n)
        : "cc"
        : out);
    return 1;
out:
    return 0;
}

/* pop_object_single: pops an encoded pointer from this CPU's lane of a cache; 0 if it is empty. */
THISCPU_SECTION uintptr_t thiscpu_section_pop_object_single(intptr_t cpu_id, intptr_t vfork_word,
    intptr_t index, const uintptr_t *table, const void *gate) {
    uint64_t s, a, top;
    uintptr_t encoded = 0;
    __asm__ __volatile__(
        THISCPU_DESCRIPTOR("pop_object_single")
        "mrs %[s], tpidr_el0\n\t"
        "adrp %[a], 30b\n\t"
        "add %[a], %[a], :lo12:30b\n\t"
        "add %[cpu_id], %[cpu_id], %[s]\n\t"
        "stur %[a], [%[cpu_id], #0x4]\n\t"
        "31:\n"
        "ldr %w[a], [%[s], %[vfork_word]]\n\t"
        "ldr %w[cpu_id], [%[cpu_id]]\n\t"
        "cmp %w[cpu_id], %w[a]\n\t"
        "b.lt 33f\n\t"
        "ldrh %w[a], [%[s], %[index]]\n\t"
        "ldr %[a], [%[table], %[a], lsl #3]\n\t"
        "ldr %[s], [%[gate]]\n\t"
        "adds %[a], %[a], %[s]\n\t"
        "b.lo 33f\n\t"
        "mov %[top], #0x0\n\t"
        "ldr %[encoded], [%[a]]\n\t"
        "cbnz %[encoded], 35f\n\t"
        "ldr %[top], [%[a], #0x10]!\n\t"
        "add %[s], %[a], %[top]\n\t"
        "ldur %[encoded], [%[s], #-0x8]\n\t"
        "cbz %[encoded], 33f\n\t"
        "sub %[top], %[top], #0x8\n\t"
        "35:\n"
        "str %[top], [%[a]]\n\t"
        "32:\n"
        THISCPU_ABORT_HANDLER
        "mov %w[encoded], #0x0\n\t"
        "b 33f\n\t"
        ".popsection\n"
        "33:"
        : [s] "=&r"(s), [a] "=&r"(a), [cpu_id] "+&r"(cpu_id), [top] "=&r"(top),
          [encoded] "+&r"(encoded)
        : [vfork_word] "r"(vfork_word), [index] "r"(index), [table] "r"(table), [gate] "r"(gate)
        : "memory", "cc");
    return encoded;
}

/* push_object_single: pushes an encoded pointer to this CPU's lane of a cache if it has room. */
THISCPU_SECTION int thiscpu_section_push_object_single(intptr_t cpu_id, intptr_t vfork_word,
    intptr_t index, const uintptr_t *table, const void *gate, uintptr_t encoded) {
    uint64_t s, a, top;
    __asm__ __volatile__ goto(
        THISCPU_DESCRIPTOR("push_object_single")
        "mrs %[s], tpidr_el0\n\t"
        "adrp %[a], 30b\n\t"
        "add %[a], %[a], :lo12:30b\n\t"
        "add %[cpu_id], %[cpu_id], %[s]\n\t"
        "stur %[a], [%[cpu_id], #0x4]\n\t"
        "31:\n"
        "ldr %w[a], [%[s], %[vfork_word]]\n\t"
        "ldr %w[cpu_id], [%[cpu_id]]\n\t"
        "cmp %w[cpu_id], %w[a]\n\t"
        "b.lt %l[out]\n\t"
        "ldrh %w[a], [%[s], %[index]]\n\t"
        "ldr %[a], [%[table], %[a], lsl #3]\n\t"
        "ldr %[s], [%[gate]]\n\t"
        "adds %[a], %[a], %[s]\n\t"
        "b.lo %l[out]\n\t"
        "mov %[top], %[encoded]\n\t"
        "ldr %[s], [%[a]]\n\t"
        "cbz %[s], 35f\n\t"
        "ldr %[top], [%[a], #0x10]!\n\t"
        "ldr %[s], [%[a], %[top]]\n\t"
        "cbz %[s], %l[out]\n\t"
        "str %[encoded], [%[a], %[top]]\n\t"
        "add %[top], %[top], #0x8\n\t"
        "35:\n"
        "str %[top], [%[a]]\n\t"
        "32:\n"
        THISCPU_ABORT_HANDLER
        "b %l[out]\n\t"
        ".popsection\n"
        "33:"
        : [s] "=&r"(s), [a] "=&r"(a), [cpu_id] "+&r"(cpu_id), [top] "=&r"(top)
        : [vfork_word] "r"(vfork_word), [index] "r"(index), [table] "r"(table), [gate] "r"(gate),
          [encoded] "r"(encoded)
        : "memory", "cc"
        : out);
    return 1;
out:
    return 0;
}

/* u8::add: adds to this CPU's word of 1 byte. */
THISCPU_SECTION int thiscpu_section_u8_add(intptr_t cpu_id, intptr_t vfork_word, intptr_t index,
    const uintptr_t *table, uintptr_t item, uint64_t n) {
    uint64_t s, a, v;
    __asm__ __volatile__ goto(
        THISCPU_DESCRIPTOR("u8::add")
        "mrs %[s], tpidr_el0\n\t"
        "adrp %[a], 30b\n\t"
        "add %[a], %[a], :lo12:30b\n\t"
        "add %[cpu_id], %[cpu_id], %[s]\n\t"
        "stur %[a], [%[cpu_id], #0x4]\n\t"
        "31:\n"
        "ldr %w[a], [%[s], %[vfork_word]]\n\t"
        "ldr %w[cpu_id], [%[cpu_id]]\n\t"
        "cmp %w[cpu_id], %w[a]\n\t"
        "b.lt %l[out]\n\t"
        "ldrh %w[a], [%[s], %[index]]\n\t"
        "ldr %[a], [%[table], %[a], lsl #3]\n\t"
        "adds %[a], %[a], %[item]\n\t"
        "b.lo %l[out]\n\t"
        "ldrb %w[v], [%[a]]\n\t"
        "add %w[v], %w[v], %w[n]\n\t"
        "strb %w[v], [%[a]]\n\t"
        "32:\n"
        THISCPU_ABORT_HANDLER
        "b %l[out]\n\t"
        ".popsection\n"
        "33:"
        : [s] "=&r"(s), [a] "=&r"(a), [cpu_id] "+&r"(cpu_id), [v] "=&r"(v)
        : [vfork_word] "r"(vfork_word), [index] "r"(index), [table] "r"(table), [item] "r"(item),
          [n] "r"(n)
        : "cc"
        : out);
    return 1;
out:
    return 0;
}

/* u16::add: adds to this CPU's word of 2 bytes. */
THISCPU_SECTION int thiscpu_section_u16_add(intptr_t cpu_id, intptr_t vfork_word, intptr_t index,
    const uintptr_t *table, uintptr_t item, uint64_t n) {
    uint64_t s, a, v;
    __asm__ __volatile__ goto(
        THISCPU_DESCRIPTOR("u16::add")
        "mrs %[s], tpidr_el0\n\t"
        "adrp %[a], 30b\n\t"
        "add %[a], %[a], :lo12:30b\n\t"
        "add %[cpu_id], %[cpu_id], %[s]\n\t"
        "stur %[a], [%[cpu_id], #0x4]\n\t"
        "31:\n"
        "ldr %w[a], [%[s], %[vfork_word]]\n\t"
        "ldr %w[cpu_id], [%[cpu_id]]\n\t"
        "cmp %w[cpu_id], %w[a]\n\t"
        "b.lt %l[out]\n\t"
        "ldrh %w[a], [%[s], %[index]]\n\t"
        "ldr %[a], [%[table], %[a], lsl #3]\n\t"
        "adds %[a], %[a], %[item]\n\t"
        "b.lo %l[out]\n\t"
        "ldrh %w[v], [%[a]]\n\t"
        "add %w[v], %w[v], %w[n]\n\t"
        "strh %w[v], [%[a]]\n\t"
        "32:\n"
        THISCPU_ABORT_HANDLER
        "b %l[out]\n\t"
        ".popsection\n"
        "33:"
        : [s] "=&r"(s), [a] "=&r"(a), [cpu_id] "+&r"(cpu_id), [v] "=&r"(v)
        : [vfork_word] "r"(vfork_word), [index] "r"(index), [table] "r"(table), [item] "r"(item),
          [n] "r"(n)
        : "cc"
        : out);
    return 1;
out:
    return 0;
}

/* u32::add: adds to this CPU's word of 4 bytes. */
THISCPU_SECTION int thiscpu_section_u32_add(intptr_t cpu_id, intptr_t vfork_word, intptr_t index,
    const uintptr_t *table, uintptr_t item, uint64_t n) {
    uint64_t s, a, v;
    __asm__ __volatile__ goto(
        THISCPU_DESCRIPTOR("u32::add")
        "mrs %[s], tpidr_el0\n\t"
        "adrp %[a], 30b\n\t"
        "add %[a], %[a], :lo12:30b\n\t"
        "add %[cpu_id], %[cpu_id], %[s]\n\t"
        "stur %[a], [%[cpu_id], #0x4]\n\t"
        "31:\n"
        "ldr %w[a], [%[s], %[vfork_word]]\n\t"
        "ldr %w[cpu_id], [%[cpu_id]]\n\t"
        "cmp %w[cpu_id], %w[a]\n\t"
        "b.lt %l[out]\n\t"
        "ldrh %w[a], [%[s], %[index]]\n\t"
        "ldr %[a], [%[table], %[a], lsl #3]\n\t"
        "adds %[a], %[a], %[item]\n\t"
        "b.lo %l[out]\n\t"
        "ldr %w[v], [%[a]]\n\t"
        "add %w[v], %w[v], %w[n]\n\t"
        "str %w[v], [%[a]]\n\t"
        "32:\n"
        THISCPU_ABORT_HANDLER
        "b %l[out]\n\t"
        ".popsection\n"
        "33:"
        : [s] "=&r"(s), [a] "=&r"(a), [cpu_id] "+&r"(cpu_id), [v] "=&r"(v)
        : [vfork_word] "r"(vfork_word), [index] "r"(index), [table] "r"(table), [item] "r"(item),
          [n] "r"(n)
        : "cc"
        : out);
    return 1;
out:
    return 0;
}

/* u64::add: adds to this CPU's word of 8 bytes. */
THISCPU_SECTION int thiscpu_section_u64_add(intptr_t cpu_id, intptr_t vfork_word, intptr_t index,
    const uintptr_t *table, uintptr_t item, uint64_t n) {
    uint64_t s, a, v;
    __asm__ __volatile__ goto(
        THISCPU_DESCRIPTOR("u64::add")
        "mrs %[s], tpidr_el0\n\t"
        "adrp %[a], 30b\n\t"
        "add %[a], %[a], :lo12:30b\n\t"
        "add %[cpu_id], %[cpu_id], %[s]\n\t"
        "stur %[a], [%[cpu_id], #0x4]\n\t"
        "31:\n"
        "ldr %w[a], [%[s], %[vfork_word]]\n\t"
        "ldr %w[cpu_id], [%[cpu_id]]\n\t"
        "cmp %w[cpu_id], %w[a]\n\t"
        "b.lt %l[out]\n\t"
        "ldrh %w[a], [%[s], %[index]]\n\t"
        "ldr %[a], [%[table], %[a], lsl #3]\n\t"
        "adds %[a], %[a], %[item]\n\t"
        "b.lo %l[out]\n\t"
        "ldr %[v], [%[a]]\n\t"
        "add %[v], %[v], %[n]\n\t"
        "str %[v], [%[a]]\n\t"
        "32:\n"
        THISCPU_ABORT_HANDLER
        "b %l[out]\n\t"
        ".popsection\n"
        "33:"
        : [s] "=&r"(s), [a] "=&r"(a), [cpu_id] "+&r"(cpu_id), [v] "=&r"(v)
        : [vfork_word] "r"(vfork_word), [index] "r"(index), [table] "r"(table), [item] "r"(item),
          [n] "r"(n)
        : "cc"
        : out);
    return 1;
out:
    return 0;
}

#endif

#endif
