/*
 * thiscpu_malloc: the functions of libthiscpu_malloc.so beyond the malloc family.
 *
 * A program that is linked with the library, or started by `thiscpu run`, may call these functions.
 * A program that may run without the library finds them by dlsym(RTLD_DEFAULT, ...).
 *
 * All functions may be called from any thread, and in children of `fork`. No function may be called
 * from a signal handler, unless it says so. All of them keep errno.
 */

#ifndef THISCPU_MALLOC_H
#define THISCPU_MALLOC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Changes a setting of the allocator from now on. docs/malloc.md lists names and values.
 *
 * A value that is NULL stands for the first of the setting's values, as a name without a value does
 * in THISCPU_MALLOC. Takes a lock and system calls. The path of a file takes a page for good.
 *
 * Returns 0, or an error number, and then nothing has changed: ENOENT if no setting has the name,
 * EINVAL if the setting does not have the value, or EAGAIN if the value cannot take effect now. The
 * reasons for that are exhausted memory, and a signal that the program handles.
 */
int thiscpu_malloc_set(const char *name, const char *value);

/** Totals of the allocator. All are estimates while other threads allocate or free. */
typedef struct thiscpu_malloc_totals {
  /** Bytes of blocks in use, excluding guarded ones. */
  uint64_t allocated_bytes;
  /** The highest value of allocated_bytes that was noticed in this process. */
  uint64_t peak_allocated_bytes;
  /** Bytes of free blocks of size classes. */
  uint64_t free_bytes;
  /** Number of free blocks of size classes. */
  uint64_t free_blocks;
  /** Blocks in use that belong to no size class, such as those of more than 4 MiB. */
  uint64_t large_blocks;
  /** Bytes of blocks in use that belong to no size class. */
  uint64_t large_bytes;
  /** Guarded blocks in use. They are in no other number. */
  uint64_t guarded_blocks;
  /** Guarded blocks that were allocated so far. */
  uint64_t guarded_blocks_total;
  /** Bytes of slabs, of blocks without a class, and of free chunks that may have pages. */
  uint64_t system_bytes;
  /** The highest value of system_bytes that was noticed in this process. */
  uint64_t peak_system_bytes;
  /** Bytes that may have pages: system_bytes and the heap's metadata. */
  uint64_t resident_bytes;
  /** Bytes of address space that the heap and its metadata take, with or without pages. */
  uint64_t mapped_bytes;
  /** Bytes of mapped_bytes without pages. */
  uint64_t retained_bytes;
  /** Bytes of free chunks that malloc_trim would return to the system. */
  uint64_t purgeable_bytes;
  /** Bytes that were returned to the system so far. */
  uint64_t purged_bytes;
  /** Sheaves that lanes have traded with their barns so far. */
  uint64_t trades;
  /** Blocks so far that returned to a slab of another CPU's share, or of another node. */
  uint64_t remote_frees;
  /** 1 if calls are counted, else 0. */
  uint64_t is_counting;
} thiscpu_malloc_totals;

/** A size class. */
typedef struct thiscpu_malloc_class {
  /** The size of its blocks, in bytes. */
  uint64_t size;
  /** Blocks allocated so far, if calls are counted, else 0. */
  uint64_t allocations;
  /** Blocks freed so far, if calls are counted, else 0. */
  uint64_t frees;
  /** Allocations and frees that their CPU's lane served, if calls are counted, else 0. */
  uint64_t hits;
  /** Sheaves that lanes have traded with their barns so far. */
  uint64_t trades;
  /** Blocks so far that returned to a slab of another CPU's share, or of another node. */
  uint64_t remote_frees;
  /** Slabs that the class has. */
  uint64_t slabs;
  /** Bytes of blocks in use. */
  uint64_t allocated_bytes;
  /** Bytes of free blocks. */
  uint64_t free_bytes;
} thiscpu_malloc_class;

/**
 * Stores the totals in `*totals`, of which `bytes` is the size: sizeof(thiscpu_malloc_totals).
 *
 * Returns the size that the library knows. If that is less, the rest of `*totals` is zeros. Visits
 * each slab and each lane once.
 */
size_t thiscpu_malloc_stats(thiscpu_malloc_totals *totals, size_t bytes);

/**
 * Stores the first `count` size classes, smallest first, in an array whose elements have `bytes`
 * bytes: sizeof(thiscpu_malloc_class).
 *
 * Returns the number of all classes. Costs what thiscpu_malloc_stats() does, and also a fence for
 * each class if calls are counted.
 */
size_t thiscpu_malloc_class_stats(thiscpu_malloc_class *classes, size_t bytes, size_t count);

/**
 * Writes all statistics as one line of JSON into `buffer`, of `bytes` bytes, like snprintf.
 *
 * The text is cut to bytes - 1 and ends with a zero byte. With 0 bytes, `buffer` may be NULL.
 * Returns the length of the whole text without the zero byte. That length may differ in the next
 * call, so allow for some more. Costs what thiscpu_malloc_class_stats() does.
 */
size_t thiscpu_malloc_stats_json(char *buffer, size_t bytes);

/**
 * Begins to sample blocks for a heap profile, one in each `interval` bytes on average.
 *
 * 0 stands for 512 KiB. With 1, almost every block is sampled. While a profile is on, an allocation
 * takes a nanosecond or more longer, and a sample microseconds. Blocks that were allocated before
 * are not in the profile.
 */
void thiscpu_malloc_profile_start(uint64_t interval);

/** Ends the sampling. The profile so far stays, and frees of its blocks are still counted. */
void thiscpu_malloc_profile_stop(void);

/**
 * Writes the profile to the file at `path`, as text for `thiscpu profile` and pprof.
 *
 * Returns 0, EBUSY if another thread is writing one, or the number of the error that prevented it;
 * the file is as it was then. May be called from a signal handler.
 */
int thiscpu_malloc_profile_write(const char *path);

#ifdef __cplusplus
}
#endif

#endif
