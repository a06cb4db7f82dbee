/*
 * thiscpu: per-CPU data for Linux programs, on restartable sequences (rseq).
 *
 * Types, and what they are in Rust:
 *
 *   thiscpu_counter            Counter            fast adds, exact sums
 *   thiscpu_counters           Counters           counters that are read at one instant
 *   thiscpu_budget             Budget             units up to a limit that is never exceeded
 *   thiscpu_lease              OwnedLease         units that are released with their handle
 *   thiscpu_acquire            AcquireOwned       a request for units that waits without a thread
 *   thiscpu_reserve            Reserve            units of a budget that are set aside
 *   thiscpu_rate               Rate               units over time: so many a second, with a burst
 *   thiscpu_rate_window        RateWindow         at most so many units in any window of time
 *   thiscpu_ledger             Ledger             accounts for any number of owners
 *   thiscpu_account            Account            one owner's counters
 *   thiscpu_cache              RawCache           objects of one size
 *   thiscpu_constructed_cache  ConstructedCache   objects that stay constructed while free
 *   thiscpu_prefilled          RawPrefilled       objects of a cache that are allocated in advance
 *   thiscpu_word               PerCpu             a word per CPU
 *   thiscpu_pair               PerCpuPair         two adjacent words per CPU, exchanged as one
 *   thiscpu_stack              PerCpuStack        a stack of nodes per CPU
 *   thiscpu_segment            Segment            memory that processes share
 *   thiscpu_shared_counter     SharedCounter      a counter in a segment
 *   thiscpu_shared_counters    SharedCounters     counters in a segment, read at one instant
 *   thiscpu_shared_budget      SharedBudget       a limit in a segment that processes share
 *   thiscpu_shared_lease       SharedOwnedLease   units of such a limit
 *   thiscpu_shared_acquire     SharedAcquireOwned a request for units of such a limit
 *   thiscpu_segment_view       SegmentView        a segment that a process can only read
 *   thiscpu_counter_view       CounterView        a counter in a view
 *   thiscpu_budget_view        BudgetView         a budget in a view
 *   thiscpu_counters_view      CountersView       counters in a view, read at one instant
 *
 * Guarantees and costs are those of Rust (docs/guide.md, docs/c.md). docs/c.md lists what C lacks.
 *
 * Rules for all functions:
 *
 * - Status: a function returns a thiscpu_status unless it says otherwise. "Returns" lists statuses
 *   without the prefix THISCPU_STATUS_. After an error nothing has changed and nothing is stored,
 *   unless the function says otherwise. Any function may return INTERNAL, which is a bug of this
 *   library. thiscpu_strerror() returns the message for a status, and thiscpu_last_error() a
 *   sentence about the calling thread's last failed call. No call prints anything, except the
 *   reason for an abort, and one line for each budget to which too many units are released.
 * - Handles: `_create` or `_open` stores a handle; it is valid until `_destroy` or `_close`. Using
 *   any other non-NULL value as a handle is undefined behavior.
 * - NULL: an argument must not be NULL unless the function allows it. If it is NULL,
 *   functions and inlined calls return NULL_POINTER.
 * - Alignment: functions return MISALIGNED if a pointer is not aligned for its type. Inlined calls
 *   do not check this.
 * - Threads: each type says which functions threads may call at once.
 * - Signal handlers: each function says whether a signal handler may call it. Some functions are
 *   not allowed although they never block, because no test covers them in a handler.
 * - Stack: a function uses at most 16 KiB of stack, and 2 KiB if a signal handler may call it. This
 *   is without lazy binding (`-z now`), and without the stack of callbacks.
 * - Cancellation: no function is a cancellation point, and none is safe under asynchronous
 *   cancellation.
 * - After `fork`: the child may call all functions. Its values are its own, but those in segments
 *   are shared.
 * - After `vfork`: the child may call all functions; it shares all values with its parent. For
 *   `clone(CLONE_VM)` see `thiscpu_vfork_enter`.
 *
 * Terms:
 *
 * - Lane: one CPU's copy of all per-CPU data. A thread works on the lane of its current CPU.
 * - Restartable sequence: a few instructions of which the last one stores the result (commits). The
 *   kernel aborts them if it preempts, migrates or signals their thread before that store. The
 *   library then starts them again.
 * - Fence: a `membarrier` system call. When it returns, each restartable sequence that began before
 *   has committed or will restart, on all CPUs. A fence takes 0.2 µs if the process runs on no
 *   other CPU, and 10 to 30 µs otherwise (measured on two CPUs of a virtual machine).
 *
 * For Linux on x86-64 and AArch64, with glibc.
 */

#ifndef THISCPU_H
#define THISCPU_H

/* Generated by `cargo xtask header` from thiscpu-capi. Do not edit. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** The version of this header. thiscpu_version() returns that of the loaded library. */
#define THISCPU_VERSION "0.1.0"

#define THISCPU_ALIGNED(n) __attribute__((aligned(n)))


/**
 * The largest number of counters of a `thiscpu_counters`.
 */
#define THISCPU_COUNTERS_MAX 4096

/**
 * The largest limit of a budget: 2^56.
 */
#define THISCPU_BUDGET_LIMIT_MAX 72057594037927936

/**
 * The largest burst of a rate, and the largest limit of a window: 2^40.
 */
#define THISCPU_RATE_BURST_MAX 1099511627776

/**
 * The largest number of units in a period of a rate: 2^40.
 */
#define THISCPU_RATE_UNITS_MAX 1099511627776

/**
 * The largest number of counters of an account.
 */
#define THISCPU_LEDGER_COUNTERS_MAX 8

/**
 * The largest size of an object of a cache, in bytes: 1 MiB.
 */
#define THISCPU_CACHE_SIZE_MAX 1048576

/**
 * The largest alignment of an object of a cache, in bytes.
 */
#define THISCPU_CACHE_ALIGN_MAX 65536

/**
 * The largest limit of a shared budget: 2^30 - 1.
 */
#define THISCPU_SHARED_BUDGET_LIMIT_MAX 1073741823

/**
 * The result of a call. `THISCPU_STATUS_OK` is 0.
 */
typedef enum thiscpu_status {
  /**
   * The call succeeded.
   */
  THISCPU_STATUS_OK = 0,
  /**
   * Fewer units are available than requested, or other threads already wait for units.
   */
  THISCPU_STATUS_EXHAUSTED,
  /**
   * The budget or rate is closed. It will never hand out units again.
   */
  THISCPU_STATUS_CLOSED,
  /**
   * The asynchronous acquire still waits.
   */
  THISCPU_STATUS_PENDING,
  /**
   * A compare-and-exchange found a value other than the expected one.
   */
  THISCPU_STATUS_MISMATCH,
  /**
   * This CPU's stack has no node, or the lease of this acquire was taken before.
   */
  THISCPU_STATUS_EMPTY,
  /**
   * The cache cannot be closed: some of its objects are still allocated.
   */
  THISCPU_STATUS_IN_USE,
  /**
   * The function that constructs a cache's objects has failed.
   */
  THISCPU_STATUS_CONSTRUCT_FAILED,
  /**
   * A handle or another required pointer is NULL.
   */
  THISCPU_STATUS_NULL_POINTER,
  /**
   * A pointer is not aligned for its type. Library functions check this; inlined calls do not.
   */
  THISCPU_STATUS_MISALIGNED,
  /**
   * A size, an alignment or a number of counters is not supported.
   */
  THISCPU_STATUS_INVALID_SIZE,
  /**
   * A number exceeds its maximum, or an index the number of counters.
   */
  THISCPU_STATUS_OUT_OF_RANGE,
  /**
   * The two accounts belong to different ledgers.
   */
  THISCPU_STATUS_WRONG_LEDGER,
  /**
   * The two leases belong to different budgets, or are one lease.
   */
  THISCPU_STATUS_WRONG_BUDGET,
  /**
   * `THISCPU_TIER` is not the name of a tier.
   */
  THISCPU_STATUS_UNKNOWN_TIER,
  /**
   * `THISCPU_TIER` names a tier that this system does not support.
   */
  THISCPU_STATUS_TIER_UNAVAILABLE,
  /**
   * The system refused a call on a segment's file. `errno` has its error number.
   */
  THISCPU_STATUS_SYSTEM,
  /**
   * The file is no segment of this version and byte order, is damaged, or has a wrong length.
   *
   * A length is wrong if the header says another one.
   */
  THISCPU_STATUS_INVALID_SEGMENT,
  /**
   * Another user owns the segment's file, or more users may write to it than allowed.
   */
  THISCPU_STATUS_UNTRUSTED_SEGMENT,
  /**
   * The segment has no room for another object.
   */
  THISCPU_STATUS_SEGMENT_FULL,
  /**
   * This process cannot use budgets of the segment, because too many others do.
   *
   * A first call in a child of vfork has this result too, because the child acts for its parent.
   */
  THISCPU_STATUS_NO_SLOT,
  /**
   * A name in a segment is empty, too long, not UTF-8, or has a control character.
   */
  THISCPU_STATUS_INVALID_NAME,
  /**
   * The object of this name is of another kind, or has another number of counters.
   */
  THISCPU_STATUS_WRONG_KIND,
  /**
   * No object in the segment has this name, and a view makes none.
   */
  THISCPU_STATUS_NO_SUCH_OBJECT,
  /**
   * The system denied address space for per-CPU memory.
   */
  THISCPU_STATUS_NO_ADDRESS_SPACE,
  /**
   * The system denied memory.
   */
  THISCPU_STATUS_NO_MEMORY,
  /**
   * An exact result needs a fence, which the system now denies. Do not retry.
   *
   * A sandbox that was installed after the start denies both `membarrier` and
   * `sched_setaffinity`. `thiscpu_last_error` has the details.
   */
  THISCPU_STATUS_FENCE_DENIED,
  /**
   * A bug of this library. `thiscpu_last_error` has a message; please report it.
   */
  THISCPU_STATUS_INTERNAL,
} thiscpu_status;

/**
 * The tier of this process: the mechanism by which it accesses per-CPU data.
 *
 * Values and guarantees are the same on all tiers; only speed differs.
 *
 * The environment variable `THISCPU_TIER` selects one by its name: `rseq-cid`, `rseq-cpu` or
 * `atomic`. If it is unset, the process gets the best one that the system has.
 */
typedef enum thiscpu_tier {
  /**
   * Restartable sequences; lanes are indexed by the kernel's `mm_cid`.
   *
   * `mm_cid` is the kernel's concurrency id (Linux 6.3 and newer).
   */
  THISCPU_TIER_RSEQ_CID = 0,
  /**
   * Restartable sequences; lanes are indexed by the CPU's number (Linux 5.10 and newer).
   */
  THISCPU_TIER_RSEQ_CPU,
  /**
   * Atomic instructions, on any kernel.
   */
  THISCPU_TIER_ATOMIC,
} thiscpu_tier;

/**
 * An account of a ledger: a set of counters. Rust: `Account`.
 *
 * A charge takes about 1 ns if this CPU has the account in its cache.
 *
 * - Threads: any number may call all functions at once, except `thiscpu_account_close`.
 * - Lifetime: from `thiscpu_account_open` to `thiscpu_account_close`, which may come after
 *   `thiscpu_ledger_destroy`.
 * - Signal handlers: none of the functions.
 * - After `fork`: the child has an account of its own, with the parent's values.
 * - Memory order: what a thread did before a charge or transfer happens before the return of each
 *   exact read whose result includes it: `_sum`, `_snapshot` and `thiscpu_ledger_for_each`.
 */
typedef struct thiscpu_account thiscpu_account;

/**
 * A request for units that waits without blocking a thread. Rust: `Budget::acquire_owned`.
 *
 * It waits in the queue of `thiscpu_budget_acquire`: first come, first served. Its callback tells
 * when the wait has ended; then `thiscpu_acquire_take` stores the lease. Destroying it cancels the
 * wait, at any time, and loses no unit. It keeps its budget alive.
 *
 * - Threads: one thread at a time may use it. Any thread may call its callback.
 * - Lifetime: from `thiscpu_budget_acquire_async` to `thiscpu_acquire_destroy`.
 * - Signal handlers: none of its functions.
 * - After `fork`: the child may destroy it, or call `thiscpu_acquire_take`, which queues it again.
 */
typedef struct thiscpu_acquire thiscpu_acquire;

/**
 * Units up to a limit that is never exceeded. Rust: `Budget`.
 *
 * A unit is anything that a program counts: a byte, a connection, a token. An acquire is refused
 * only if too few units are available. While threads wait for units, no unit counts as available.
 * A call takes about 1 ns while plenty of units are available.
 *
 * - Threads: any number may call all functions at once, except `thiscpu_budget_destroy`. Any
 *   thread may release the units that another one acquired.
 * - Lifetime: from `thiscpu_budget_create` to `thiscpu_budget_destroy`. Leases and asynchronous
 *   acquires of the budget may live longer.
 * - Signal handlers: `thiscpu_budget_release` if no asynchronous acquire waits, and the functions
 *   that cost one load.
 * - After `fork`: the child has a budget of its own, with the parent's units but no waiting
 *   thread.
 * - Memory order: what a thread did before it released units happens before the return of the call
 *   that acquires these units. A refusal orders nothing.
 *
 * Releasing more units than are held is a bug of the caller, but it fails no call:
 * `thiscpu_budget_over_released` counts such units, and says what the limit still promises.
 *
 * `THISCPU_STATUS_FENCE_DENIED`: available units are lent to CPUs, and only a fence can recall
 * them. Once a sandbox denies fences, each call that needs those units returns this status.
 */
typedef struct thiscpu_budget thiscpu_budget;

/**
 * A budget of a segment that this process can only read. Rust: `BudgetView`.
 *
 * - Threads: any number may call all functions at once, except `thiscpu_budget_view_close`.
 * - Lifetime: from `thiscpu_budget_view_open` to `thiscpu_budget_view_close`.
 * - Signal handlers: `_state`.
 * - After `fork`: the child has the handle of its parent.
 */
typedef struct thiscpu_budget_view thiscpu_budget_view;

/**
 * A cache of objects of one size, like the kernel's `kmem_cache`. Rust: `RawCache`.
 *
 * Objects are allocated and freed on any CPU, in about 1 ns each.
 *
 * - Threads: any number may call all functions at once, except `thiscpu_cache_close` and
 *   `thiscpu_cache_destroy`. Any thread may free an object.
 * - Lifetime: from `thiscpu_cache_create` to `thiscpu_cache_close` or `thiscpu_cache_destroy`.
 * - Signal handlers: none of the functions.
 * - After `fork`: the child has a cache of its own, with copies of the parent's objects.
 * - Memory order: a thread's accesses to an object before it frees the object happen before all
 *   accesses of the object's next owner.
 *
 * Some misuse is detected. The process then aborts with a message that has the object's address:
 *
 * - Double free: usually at once; never if the object was allocated again in between.
 * - Free to another cache: when CPUs return the objects that they keep.
 * - Write to the first 8 bytes of a free object: when the object is allocated.
 *
 * Reads of free objects, other writes to them, and writes past an object's end are not detected.
 */
typedef struct thiscpu_cache thiscpu_cache;

/**
 * A cache whose objects stay constructed while they are free. Rust: `ConstructedCache`.
 *
 * Costly parts of an object, such as a buffer or a lock, are made once and found by each later
 * user. Callbacks of the program construct and destroy objects:
 *
 * - `construct(object, context)` is called when the memory of an object is first allocated. It
 *   returns 0, or another number if it failed; then the object's memory is free again.
 * - `destroy(object, context)` is called once for each constructed object, when its memory is
 *   freed: by `_close`, `_destroy` or `_shrink`. `_free` and `_alloc` call it too, if all objects
 *   of a slab are free and the cache has enough free objects. A slab has 64 KiB, or more for large
 *   objects. Such a call destroys the objects of five slabs at most, and those that another
 *   thread's `_shrink` leaves to it.
 *
 * An object is as its last user left it. Users leave it in the state that the next one expects:
 * empty, unlocked.
 *
 * - Callbacks: they run in calls on the cache, on the calling thread, without a lock of the cache.
 *   Several threads may run them at once. They may use the cache, except during `_close` and
 *   `_destroy`. An object must not own an object of its own cache. Callbacks must return: an
 *   exception that leaves one ends the process, and `longjmp` out of one is undefined.
 * - Threads: any number may call all functions at once, except `_close` and `_destroy`. Any thread
 *   may free an object.
 * - Lifetime: from `thiscpu_constructed_cache_create` to `thiscpu_constructed_cache_close` or
 *   `thiscpu_constructed_cache_destroy`.
 * - Signal handlers: none of the functions.
 * - After `fork`: the child has a cache of its own, with copies of the parent's objects. It never
 *   destroys objects that another thread of the parent held, and not all objects of a slab that
 *   was being freed.
 * - Memory order: a thread's accesses to an object before it frees the object happen before all
 *   accesses of the object's next owner, and before its destruction.
 *
 * A double free is detected as by a `thiscpu_cache`, and a write to the word behind a free object,
 * which belongs to the cache.
 */
typedef struct thiscpu_constructed_cache thiscpu_constructed_cache;

/**
 * A counter of 64 bits with per-CPU adds and exact sums. Rust: `Counter`.
 *
 * An add takes about 1 ns on any number of CPUs. A sum is exact and does not delay adds. Values
 * wrap around on overflow.
 *
 * - Threads: any number may call all functions at once, except `thiscpu_counter_destroy`.
 * - Lifetime: from `thiscpu_counter_create` to `thiscpu_counter_destroy`.
 * - Signal handlers: `_add`, `_read` and `_bounds` only.
 * - After `fork`: the child has a counter of its own, which starts with the parent's value.
 * - Memory order: what a thread did before `_add` or `_set` happens before the return of each
 *   `_sum` or `_take` whose result includes it. `_read`, `_bounds` and `_compare` order nothing.
 */
typedef struct thiscpu_counter thiscpu_counter;

/**
 * A counter of a segment that this process can only read. Rust: `CounterView`.
 *
 * - Threads: any number may call all functions at once, except `thiscpu_counter_view_close`.
 * - Lifetime: from `thiscpu_counter_view_open` to `thiscpu_counter_view_close`.
 * - Signal handlers: `_bounds`.
 * - After `fork`: the child has the handle of its parent.
 */
typedef struct thiscpu_counter_view thiscpu_counter_view;

/**
 * Counters whose values can be read at one instant. Rust: `Counters`.
 *
 * Each is a counter like `thiscpu_counter`, with an index from 0 on. A snapshot of all costs one
 * fence. They cannot be set; subtract an earlier snapshot instead.
 *
 * - Threads: any number may call all functions at once, except `thiscpu_counters_destroy`.
 * - Lifetime: from `thiscpu_counters_create` to `thiscpu_counters_destroy`.
 * - Signal handlers: `_add`, `_read` and `_len` only.
 * - After `fork`: the child has counters of its own, which start with the parent's values.
 * - Memory order: what a thread did before `_add` happens before the return of each `_sum` or
 *   `_snapshot` whose result includes it. `_read` orders nothing.
 */
typedef struct thiscpu_counters thiscpu_counters;

/**
 * Counters of a segment that this process can only read. Rust: `CountersView`.
 *
 * - Threads: any number may call all functions at once, except `thiscpu_counters_view_close`.
 * - Lifetime: from `thiscpu_counters_view_open` to `thiscpu_counters_view_close`.
 * - Signal handlers: `_len`.
 * - After `fork`: the child has the handle of its parent.
 */
typedef struct thiscpu_counters_view thiscpu_counters_view;

/**
 * Units of a budget, which are released together with their handle. Rust: `OwnedLease`.
 *
 * A lease keeps its budget alive, even after `thiscpu_budget_destroy`.
 *
 * - Threads: one thread at a time may use a lease. Any thread may destroy it.
 * - Lifetime: from the call that stores its handle to `thiscpu_lease_destroy`, `_forget`, or
 *   `_merge` into another lease.
 * - Signal handlers: none of its functions.
 * - After `fork`: the child has leases of its own, on a budget of its own.
 */
typedef struct thiscpu_lease thiscpu_lease;

/**
 * A ledger: accounts for any number of owners, each with the same counters. Rust: `Ledger`.
 *
 * Each CPU caches the accounts that it charges; exact values are available at any time. A counter
 * holds -2^61 to 2^61 - 1 and wraps around: the library uses two of its 64 bits.
 *
 * - Threads: any number may call all functions at once, except `thiscpu_ledger_destroy`.
 * - Lifetime: the handle from `thiscpu_ledger_create` to `thiscpu_ledger_destroy`; the ledger
 *   itself until its last account is closed.
 * - Signal handlers: none of the functions.
 * - After `fork`: the child has a ledger of its own, with the parent's accounts and values.
 */
typedef struct thiscpu_ledger thiscpu_ledger;

/**
 * A pair of adjacent halves per CPU, compared and exchanged as one. Rust: `PerCpuPair`.
 *
 * A half has 4 or 8 bytes; functions take and return halves as 64 bits. The exchange is one store
 * in one restartable sequence. It is not atomic with respect to other CPUs, which have pairs of
 * their own.
 *
 * - Threads: any number may call all functions at once, except `thiscpu_pair_destroy`.
 * - Lifetime: from `thiscpu_pair_create` to `thiscpu_pair_destroy`.
 * - Signal handlers: all functions, except `thiscpu_pair_create` and `thiscpu_pair_destroy`.
 * - After `fork`: the child has pairs of its own, with the parent's values.
 * - Memory order: what a thread did before it exchanged a pair happens before the return of each
 *   later exchange of that pair. `_values` orders nothing.
 */
typedef struct thiscpu_pair thiscpu_pair;

/**
 * Objects of a cache, allocated in advance. Rust: `RawPrefilled`, `ConstructedPrefilled`.
 *
 * - Threads: one thread at a time may use it.
 * - Lifetime: from `thiscpu_cache_prefill`, or `thiscpu_constructed_cache_prefill`, to
 *   `thiscpu_prefilled_destroy`. The cache must outlive it.
 * - Signal handlers: none of its functions.
 * - After `fork`: the child has objects of its own.
 */
typedef struct thiscpu_prefilled thiscpu_prefilled;

/**
 * A limit on units over time: so many in a period, with a burst. Rust: `Rate`.
 *
 * A rate starts with `burst` units. Its pace adds units, up to the burst, and calls take them. In
 * every span of time `t`, calls take at most `burst + pace * t` units. Units are refused only if
 * at one instant of the call a bucket of `burst - share` units had fewer, or if other threads wait
 * for units. A call takes about 1 ns while plenty of units are available.
 *
 * The share is the most units that lanes hold for their CPUs. The clock is `CLOCK_MONOTONIC`, so
 * no units come while the system is suspended.
 *
 * - Threads: any number may call all functions at once, except `thiscpu_rate_destroy`.
 * - Lifetime: from `thiscpu_rate_create` to `thiscpu_rate_destroy`.
 * - Signal handlers: no function.
 * - After `fork`: the child has a rate of its own, with the parent's units but no waiting thread.
 *
 * `THISCPU_STATUS_FENCE_DENIED`: available units are lent to CPUs, and only a fence can recall
 * them. Once a sandbox denies fences, each call that needs those units returns this status.
 */
typedef struct thiscpu_rate thiscpu_rate;

/**
 * A limit on the units in any window of time: never more than so many. Rust: `RateWindow`.
 *
 * In every window of the given length, calls take at most `limit` units. Units
 * are refused only if calls took too many in a window that ends within the call and is longer by a
 * 64th. A call takes about 60 ns. The clock is `CLOCK_MONOTONIC`.
 *
 * - Threads: any number may call all functions at once, except `thiscpu_rate_window_destroy`.
 * - Lifetime: from `thiscpu_rate_window_create` to `thiscpu_rate_window_destroy`.
 * - Signal handlers: no function.
 * - After `fork`: the child has a window of its own, with the parent's units.
 */
typedef struct thiscpu_rate_window thiscpu_rate_window;

/**
 * Units of a budget that are set aside for the owner of the handle. Rust: `Reserve`.
 *
 * The owner can use them even when the budget is exhausted. A reserve keeps its budget alive.
 *
 * - Threads: any number may call all functions at once, except `thiscpu_reserve_destroy`.
 * - Lifetime: from `thiscpu_budget_try_reserve` to `thiscpu_reserve_destroy`. Leases of the
 *   reserve may live longer.
 * - Signal handlers: none of its functions.
 * - After `fork`: the child has reserves of its own, on a budget of its own.
 */
typedef struct thiscpu_reserve thiscpu_reserve;

/**
 * Memory that processes share, and the objects in it. Rust: `Segment`.
 *
 * A segment is a file on a tmpfs, such as /dev/shm, or a file without a name that children
 * inherit. A process may be killed at any instruction. The others go on without waiting,
 * and keep everything that it has counted.
 *
 * - Threads: any number may call all functions at once, except `thiscpu_segment_close`.
 * - Lifetime: until `thiscpu_segment_close`. Each object that was opened in it keeps it attached.
 * - Signal handlers: `_is_lost`.
 * - After `fork`: the child shares the segment with its parent, and all objects in it.
 * - After `exec`: the program attaches again, by path or by descriptor.
 * - Trust: a process that may write to the file can falsify values. It cannot make others access
 *   memory outside the segment.
 * - SIGBUS: the first attach of a file that somebody could shorten installs a handler. If a part
 *   of the file is missing at an access, the process goes on with zeroed memory of its own, and
 *   `thiscpu_segment_is_lost` says so. All other signals go to the program's previous action.
 */
typedef struct thiscpu_segment thiscpu_segment;

/**
 * A segment that this process can read, but not change. Rust: `SegmentView`.
 *
 * An exact sum is a write, so a view gives bounds of counters: see `thiscpu_counter_view_bounds`.
 * Of a budget it gives the last state: see `thiscpu_budget_view_state`. For a monitoring program
 * that runs as another user, create the segment with a mode such as 0644. The owner of the file is
 * not checked.
 *
 * - Threads: any number may call all functions at once, except `thiscpu_segment_view_close`.
 * - Lifetime: until `thiscpu_segment_view_close`. Each counter and budget that was opened in it
 *   keeps it attached.
 * - Signal handlers: `_is_lost`.
 * - After `fork`: the child has the view of its parent.
 * - SIGBUS: as `thiscpu_segment`.
 */
typedef struct thiscpu_segment_view thiscpu_segment_view;

/**
 * A request for units that blocks no thread. Rust: `SharedBudget::acquire_owned`.
 *
 * It waits in the queue of `thiscpu_shared_budget_acquire`: first come, first served, over all
 * processes. Its callback tells when the wait has ended; then `thiscpu_shared_acquire_take` stores
 * the lease. A program may destroy the request at any time, which cancels the wait and loses no
 * unit. A request keeps the segment attached. While requests wait, the process has a thread for
 * each segment, which calls the callbacks.
 *
 * - Threads: one thread at a time may use it. Any thread may call its callback.
 * - Lifetime: from `thiscpu_shared_budget_acquire_async` to `thiscpu_shared_acquire_destroy`.
 * - Signal handlers: none of its functions.
 * - After `fork`: the child may destroy it, or call `thiscpu_shared_acquire_take`. In the child,
 *   that queues a request of the child.
 */
typedef struct thiscpu_shared_acquire thiscpu_shared_acquire;

/**
 * Units up to a limit that processes share and that is never exceeded. Rust: `SharedBudget`.
 *
 * The guarantees are those of `thiscpu_budget`, over all processes. If a process ends, also by
 * `SIGKILL`, all units that it held come back. That happens at the next call that would refuse,
 * wait or report otherwise, and within 100 ms if anybody waits.
 *
 * - Threads: any number may call all functions at once, except `thiscpu_shared_budget_destroy`.
 *   A thread may release units that another thread of its process acquired.
 * - Lifetime: from `thiscpu_shared_budget_open` to `thiscpu_shared_budget_destroy`. The budget
 *   itself stays in the segment. When the last handle of the segment and of its objects is
 *   destroyed, the units that this process held come back.
 * - Signal handlers: `_release`, `_over_released`, `_is_closed` and `_waiters`.
 * - After `fork`: the child is a participant of its own and holds nothing. It must not release
 *   units that its parent acquired.
 * - Memory order: what a thread did before it released units happens before the return of the call
 *   that acquires these units, in any process. A refusal orders nothing.
 *
 * A release of more units than the process holds is a bug of its caller, but no call fails because
 * of it; see `thiscpu_shared_budget_over_released`.
 */
typedef struct thiscpu_shared_budget thiscpu_shared_budget;

/**
 * A counter of 64 bits that processes share, with exact sums. Rust: `SharedCounter`.
 *
 * An add costs about one uncontended atomic addition. It never waits. A process that is killed at
 * any instruction has made each of its adds or not. Values wrap around on overflow.
 *
 * - Threads: any number may call all functions at once, except `thiscpu_shared_counter_close`.
 * - Lifetime: from `thiscpu_shared_counter_open` to `thiscpu_shared_counter_close`. The counter
 *   itself stays in the segment.
 * - Signal handlers: `_add` and `_sum`.
 * - After `fork`: the child shares the counter with its parent.
 * - Memory order: what a thread did before `_add` happens before the return of each `_sum` whose
 *   result includes it, also if the threads are of two processes.
 */
typedef struct thiscpu_shared_counter thiscpu_shared_counter;

/**
 * Counters that processes share, and that are read at one instant. Rust: `SharedCounters`.
 *
 * Each is a counter like `thiscpu_shared_counter`, with an index from 0 on.
 *
 * - Threads: any number may call all functions at once, except `thiscpu_shared_counters_close`.
 * - Lifetime: from `thiscpu_shared_counters_open` to `thiscpu_shared_counters_close`. The counters
 *   themselves stay in the segment.
 * - Signal handlers: `_add`, `_len` and `_snapshot`.
 * - After `fork`: the child shares the counters with its parent.
 * - Memory order: what a thread did before `_add` happens before the return of each `_snapshot`
 *   whose result includes it, also if the threads are of two processes.
 */
typedef struct thiscpu_shared_counters thiscpu_shared_counters;

/**
 * Units of a shared budget, released with their handle. Rust: `SharedOwnedLease`.
 *
 * A lease keeps the segment attached, even after `thiscpu_shared_budget_destroy`. If the process
 * ends, the units of its leases come back.
 *
 * - Threads: one thread at a time may use a lease. Any thread may destroy it.
 * - Lifetime: from the call that stores its handle to `thiscpu_shared_lease_destroy`, `_forget`,
 *   or `_merge` into another lease.
 * - Signal handlers: none of its functions.
 * - After `fork`: the units stay with the parent. A child that destroys the lease releases
 *   nothing.
 */
typedef struct thiscpu_shared_lease thiscpu_shared_lease;

/**
 * A stack (last in, first out) of nodes per CPU. Rust: `PerCpuStack`.
 *
 * A stack keeps nodes that are not needed right now near the CPU that used them. Push, pop and
 * take-all work on this CPU's stack, in one restartable sequence. Other CPUs' nodes are out of
 * reach: if this CPU's stack is empty, other CPUs may have nodes.
 *
 * A node is a structure of the program whose first member is a `thiscpu_link`.
 *
 * - Threads: any number may call `_push`, `_pop` and `_take_all` at once. No other thread may use
 *   the stack during `_drain` and `_destroy`.
 * - Lifetime: from `thiscpu_stack_create` to `thiscpu_stack_destroy`.
 * - Signal handlers: `_push`, `_pop` and `_take_all` only.
 * - After `fork`: the child has stacks of its own, with copies of the parent's nodes.
 * - Memory order: what a thread did before it pushed a node happens before the return of the call
 *   that takes the node out.
 */
typedef struct thiscpu_stack thiscpu_stack;

/**
 * A word of 1, 2, 4 or 8 bytes per CPU. Rust: `PerCpu<u8>` to `PerCpu<u64>`.
 *
 * An operation on this CPU's word is one restartable sequence, without an atomic instruction. It
 * is not atomic with respect to other CPUs, which have words of their own. The thread may have
 * moved to another CPU when the call returns.
 *
 * Values have 64 bits in every function; a narrower word uses their lower bits. An inlined add
 * tries the sequence for 8 bytes first, so an add to a narrower word costs two sequences. Use 8
 * bytes where speed matters. A handle is a number and not an address: do not dereference it.
 *
 * - Threads: any number may call all functions at once, except `thiscpu_word_destroy`.
 * - Lifetime: from `thiscpu_word_create` to `thiscpu_word_destroy`.
 * - Signal handlers: all functions, except `thiscpu_word_create` and `thiscpu_word_destroy`.
 * - After `fork`: the child has words of its own, with the parent's values.
 * - Memory order: what a thread did before it changed a word happens before the return of each
 *   later operation on that word. `_values` orders nothing.
 */
typedef struct thiscpu_word thiscpu_word;

/**
 * A thing that is slower than it could be in this process, since when, and why.
 *
 * The strings stay valid forever. Rust: `Degradation`.
 */
typedef struct thiscpu_degradation {
  /**
   * A short name, such as `membarrier`; the page on guarantees lists all of them.
   */
  const char *name;
  /**
   * The loss and its cause, in one sentence without a full stop.
   */
  const char *reason;
  /**
   * The time of the first occurrence, in nanoseconds since 1970, by the system's clock.
   */
  uint64_t since_unix_ns;
  /**
   * How often it occurred.
   */
  uint64_t occurrences;
  /**
   * The error number (`errno`) of the first occurrence, or 0.
   */
  int error;
} thiscpu_degradation;

/**
 * Bounds of a counter's value, which was within them at one instant of the call.
 */
typedef struct thiscpu_bounds {
  /**
   * The lower bound: `low <= value`.
   */
  int64_t low;
  /**
   * The estimate that `thiscpu_counter_read` returns.
   */
  int64_t estimate;
  /**
   * The upper bound: `value <= high`.
   */
  int64_t high;
} thiscpu_bounds;

/**
 * What `thiscpu_sum_all` sums: a counter, or counters. Rust: `Summable`.
 *
 * One of the two is NULL. If neither is, both are summed, in this order.
 */
typedef struct thiscpu_summable {
  /**
   * A counter, which has one value.
   */
  struct thiscpu_counter *counter;
  /**
   * Counters, of which each has a value.
   */
  struct thiscpu_counters *counters;
} thiscpu_summable;

/**
 * Statistics of a cache.
 *
 * CPUs keep free objects in sheaves (arrays) and trade them with barns, which they share. If other
 * threads use the cache during the call, the numbers may belong to different instants.
 */
typedef struct thiscpu_cache_statistics {
  /**
   * The size of an object, in bytes.
   */
  size_t object_bytes;
  /**
   * The number of slabs, which hold the objects.
   */
  size_t slabs;
  /**
   * The size of all slabs, in bytes.
   */
  size_t slab_bytes;
  /**
   * The number of objects outside slabs: allocated, or kept by CPUs and barns.
   */
  size_t objects_outside_slabs;
  /**
   * The number of free objects that barns keep.
   */
  size_t objects_in_barns;
  /**
   * The number of objects that a new sheaf holds. A CPU trades a sheaf at a time.
   */
  size_t sheaf_capacity;
  /**
   * The number of sheaves that CPUs have traded.
   */
  uint64_t trades;
} thiscpu_cache_statistics;

/**
 * The two halves of a pair, aligned to 16 bytes.
 */
typedef struct THISCPU_ALIGNED(16) thiscpu_halves {
  /**
   * The first half.
   */
  uint64_t first;
  /**
   * The second half.
   */
  uint64_t second;
} thiscpu_halves;

/**
 * The first member of each node.
 */
typedef struct thiscpu_link {
  /**
   * The next node among those from `thiscpu_stack_take_all`; NULL in the last one.
   */
  struct thiscpu_link *next;
} thiscpu_link;

/**
 * Options of a segment. A field that is 0 has its default.
 */
typedef struct thiscpu_segment_options {
  /**
   * The size that a new segment can reach, in bytes.
   *
   * At least 128 KiB and 64 KiB for each lane, or more with over 96 participants. At most 1 TiB.
   * The default is 2 MiB and 512 KiB for each lane. Memory is taken as objects are made: 64
   * bytes or more for a counter, by the length of its name, and 32 or 64 in each lane.
   */
  uint64_t max_bytes;
  /**
   * The lanes of a new segment: copies of each object, to be used in parallel; 1 to 16,384.
   *
   * The default is one for each CPU that the machine can have.
   */
  uint32_t lanes;
  /**
   * The processes that can use budgets of a new segment at once; 1 to 1,024.
   *
   * The default is 64. The number is rounded up to a multiple of 8.
   */
  uint32_t participants;
  /**
   * The permission bits of a new file, and whether others may write to an existing one.
   *
   * The default is 0600. The `umask` has no effect.
   */
  uint32_t mode;
  /**
   * A user whose files are trusted, besides this process's own user and root.
   */
  uint32_t owner;
} thiscpu_segment_options;

/**
 * A process that uses budgets of a segment; see `thiscpu_budget_view_participants`.
 */
typedef struct thiscpu_budget_participant {
  /**
   * The number of its slot in the segment, below the segment's number of participants.
   */
  uint32_t slot;
  /**
   * Its process ID, in its own PID namespace.
   */
  uint32_t pid;
  /**
   * The units of the budget that it holds; 0 if it has released more than it held.
   *
   * Exact if the process has ended, unless others change the pool during each of 100 looks.
   * Otherwise units that it acquires or releases meanwhile may be counted, or not. If a release
   * was killed on its way to the pool, its units may not count, although they are not free yet.
   */
  uint64_t held;
  /**
   * Whether the process still exists, running or stopped.
   *
   * Found by the slot's lock and, in the same PID namespace, by the process ID. A process that
   * has closed its descriptors counts as ended in other namespaces. Units of an ended process
   * are on the way back.
   */
  bool is_alive;
} thiscpu_budget_participant;

/**
 * A budget as the last operation has left it; see `thiscpu_budget_view_state`.
 */
typedef struct thiscpu_budget_state {
  /**
   * The limit.
   */
  uint64_t limit;
  /**
   * The free units in the pool; negative if more units are held than the limit allows.
   */
  int64_t free;
  /**
   * Whether all free units were in the pool, so that `limit - free` were held.
   *
   * Otherwise at most that many were held.
   */
  bool is_exact;
  /**
   * Whether the free units are promised to a waiter.
   */
  bool is_queued;
  /**
   * Whether the budget is closed.
   */
  bool is_closed;
} thiscpu_budget_state;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the message for a status: what failed, why, and what to do.
 *
 * The result is never NULL and stays valid forever. For a number that is not a status the message
 * says so. `thiscpu_last_error` knows more about the last failed call.
 *
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
const char *thiscpu_strerror(int32_t status);

/**
 * Returns the version of the loaded library; `THISCPU_VERSION` is that of the header.
 *
 * The result is never NULL and stays valid forever.
 *
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
const char *thiscpu_version(void);

/**
 * Returns a sentence about the calling thread's last failed call.
 *
 * It says what failed, why, and what to do. A call fails if it returns a status other than `OK`;
 * calls that succeed change nothing here. The sentence may have more details than
 * `thiscpu_strerror`, such as the number of units that were available. It is valid until the
 * thread's next call of this function, or next failed call.
 *
 * The result is never NULL. If no call of this thread has failed, the sentence says so.
 *
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
const char *thiscpu_last_error(void);

/**
 * Determines the tier of this process and stores it in `*tier`.
 *
 * The first use of any structure also determines the tier, which never changes afterwards. To
 * detect a wrong `THISCPU_TIER` early, call this function at the start of the program.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `UNKNOWN_TIER`, `TIER_UNAVAILABLE`.
 * - Blocks: only before the tier is known, while another thread determines it.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_get_tier(enum thiscpu_tier *tier);

/**
 * Returns the name of a tier, as the environment variable `THISCPU_TIER` takes it.
 *
 * These names are `rseq-cid`, `rseq-cpu` and `atomic`. The result is never NULL and stays valid
 * forever. For a number that is not a tier, it says so.
 *
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
const char *thiscpu_tier_name(int32_t tier);

/**
 * Stores the degradations of this process, and their number in `*count`.
 *
 * `degradations` is an array of `capacity` elements; if there are more degradations, the first
 * `capacity` are stored. There are at most 16. On a healthy system there are none. The list has
 * all that calls have met so far, also if they have passed. A child of `fork` inherits the list of
 * its parent.
 *
 * - NULL: allowed for `degradations` if `capacity` is 0; not for `count`.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_degradations(struct thiscpu_degradation *degradations,
                                         size_t capacity,
                                         size_t *count);

/**
 * Returns how many calls have used the shared lane because their thread had no lane.
 *
 * On a healthy system few do: calls of a thread whose new CPU gets its lane while another thread
 * changes the lanes, and calls in destructors of an exiting thread or in children of `vfork`. A
 * number that grows quickly means that threads have no lane; `thiscpu_degradations` says why.
 *
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
uint64_t thiscpu_shared_lane_calls(void);

/**
 * Creates a counter of value 0 and stores its handle in `*counter`.
 *
 * Its batch is 1,024 for each CPU in use; see `thiscpu_counter_create_with_batch`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `UNKNOWN_TIER`, `TIER_UNAVAILABLE`.
 * - Blocks: only in the first use of the library, while another thread determines the tier.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_counter_create(struct thiscpu_counter **counter);

/**
 * Creates a counter of value 0 whose CPUs publish their count after adding about `batch`.
 *
 * Stores its handle in `*counter`. A smaller batch makes `thiscpu_counter_read` more exact; with n
 * CPUs in use it is off by at most 2 * n * `batch`. A larger one suits large amounts, such as
 * bytes. A batch is rounded up to a power of two, and is at least 128 and at most 2^40. With 0 or
 * 1, each add is an atomic instruction on one word, and `thiscpu_counter_read` is exact.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `UNKNOWN_TIER`, `TIER_UNAVAILABLE`.
 * - Blocks: only in the first use of the library, while another thread determines the tier.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_counter_create_with_batch(uint64_t batch,
                                                      struct thiscpu_counter **counter);

/**
 * Destroys a counter. No thread may use the handle during or after this call.
 *
 * - NULL: allowed; does nothing.
 * - Returns: `OK`.
 * - Blocks: while another thread allocates or frees per-CPU memory.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_counter_destroy(struct thiscpu_counter *counter);

/**
 * Adds `n`, which may be negative.
 *
 * Costs one restartable sequence. Inlined; see `thiscpu_inline.h`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_counter_add(struct thiscpu_counter *counter, int64_t n);

/**
 * Stores an estimate of the value in `*value`: the middle of the bounds.
 *
 * With n CPUs in use, the estimate is off by at most about 2,048 * n * n. The error grows with the
 * square, because each CPU's batch grows with the number of CPUs. Costs a few loads.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_counter_read(struct thiscpu_counter *counter, int64_t *value);

/**
 * Stores bounds in `*bounds`; the value was within them at one instant of the call.
 *
 * The bounds allow for adds that are in progress. Costs a few loads.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_counter_bounds(struct thiscpu_counter *counter,
                                           struct thiscpu_bounds *bounds);

/**
 * Stores the exact value, at one instant of the call, in `*sum`.
 *
 * Costs one fence. Adds are not delayed.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`.
 * - Blocks: while other threads are in `_sum`, `_set`, `_take` or `_compare` of this counter.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_counter_sum(struct thiscpu_counter *counter, int64_t *sum);

/**
 * Sets the value to `value`, at one instant of the call.
 *
 * Adds before that instant are discarded; later adds count from the new value. Costs one fence.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`.
 * - Blocks: while other threads are in `_sum`, `_set`, `_take` or `_compare` of this counter.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_counter_set(struct thiscpu_counter *counter, int64_t value);

/**
 * Sets the value to 0 and stores the exact previous value in `*value`, at one instant.
 *
 * No add is lost or counted twice. Costs one fence.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`.
 * - Blocks: while other threads are in `_sum`, `_set`, `_take` or `_compare` of this counter.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_counter_take(struct thiscpu_counter *counter, int64_t *value);

/**
 * Compares the exact value at one instant of the call with `rhs`.
 *
 * Stores -1 in `*ordering` if the value is less than `rhs`, 0 if it is equal, and 1 if it is
 * greater. Costs a few loads if the value is far from `rhs`; otherwise one fence.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`.
 * - Blocks: if it takes a fence, while other threads are in `_sum`, `_set`, `_take` or `_compare`
 *   of this counter.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_counter_compare(struct thiscpu_counter *counter,
                                            int64_t rhs,
                                            int32_t *ordering);

/**
 * Creates `count` counters of value 0 and stores their handle in `*counters`.
 *
 * They take 40 bytes each, and after the first add 32 bytes each on each CPU.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `UNKNOWN_TIER`, `TIER_UNAVAILABLE`; `INVALID_SIZE`
 *   if `count` is 0 or greater than `THISCPU_COUNTERS_MAX`.
 * - Blocks: only in the first use of the library, while another thread determines the tier.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_counters_create(size_t count, struct thiscpu_counters **counters);

/**
 * Destroys counters. No thread may use the handle during or after this call.
 *
 * - NULL: allowed; does nothing.
 * - Returns: `OK`.
 * - Blocks: while another thread allocates or frees per-CPU memory.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_counters_destroy(struct thiscpu_counters *counters);

/**
 * Stores the number of counters in `*count`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_counters_len(struct thiscpu_counters *counters, size_t *count);

/**
 * Adds `n`, which may be negative, to counter `index`.
 *
 * Costs one restartable sequence. Inlined; see `thiscpu_inline.h`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`; `OUT_OF_RANGE` if `index` is too large.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_counters_add(struct thiscpu_counters *counters,
                                         size_t index,
                                         int64_t n);

/**
 * Stores an estimate of counter `index` in `*value`, as `thiscpu_counter_read` does.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`; `OUT_OF_RANGE` if `index` is too large.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_counters_read(struct thiscpu_counters *counters,
                                          size_t index,
                                          int64_t *value);

/**
 * Stores the exact value of counter `index`, at one instant of the call, in `*sum`.
 *
 * Costs one fence. Adds are not delayed.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`; `OUT_OF_RANGE` if `index` is too large.
 * - Blocks: while other threads are in `_sum` or `_snapshot` of these counters.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_counters_sum(struct thiscpu_counters *counters,
                                         size_t index,
                                         int64_t *sum);

/**
 * Stores the exact values of all counters, at one instant of the call, in `values`.
 *
 * `capacity` is the number of values that `values` has room for. Costs one fence. Adds are not
 * delayed.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`; `INVALID_SIZE` if `capacity` is less than the
 *   number of counters.
 * - Blocks: while other threads are in `_sum` or `_snapshot` of these counters.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_counters_snapshot(struct thiscpu_counters *counters,
                                              int64_t *values,
                                              size_t capacity);

/**
 * Stores the exact values of many counters, in order, in `values`. Costs one fence.
 *
 * `summables` are `count` handles. `capacity` is the number of values that `values` has room for.
 * Each value is true at an instant of the call. The values of one `thiscpu_counters` share an
 * instant; others do not. So use this for many unrelated counters, such as in a scrape.
 *
 * - NULL: allowed for both arrays if `count` is 0, which does nothing.
 * - Returns: `OK`, `NO_MEMORY`, `FENCE_DENIED`; `NULL_POINTER` if a pointer to an array is NULL,
 *   or both pointers of a summable; `INVALID_SIZE` if `capacity` is less than the number of
 *   values.
 * - Blocks: while other threads are in this function, or in exact calls of these counters.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_sum_all(const struct thiscpu_summable *summables,
                                    size_t count,
                                    int64_t *values,
                                    size_t capacity);

/**
 * Creates a budget of `limit` available units and stores its handle in `*budget`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `UNKNOWN_TIER`, `TIER_UNAVAILABLE`;
 *   `OUT_OF_RANGE` if `limit` is greater than `THISCPU_BUDGET_LIMIT_MAX`.
 * - Blocks: only in the first use of the library, while another thread determines the tier.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_budget_create(uint64_t limit, struct thiscpu_budget **budget);

/**
 * Destroys the handle of a budget.
 *
 * No thread may use the handle, or wait for units, during or after this call. Leases and
 * asynchronous acquires keep the budget itself alive; they stay valid. To end them, call
 * `thiscpu_budget_close` before.
 *
 * - NULL: allowed; does nothing.
 * - Returns: `OK`.
 * - Blocks: while another thread allocates or frees per-CPU memory.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_budget_destroy(struct thiscpu_budget *budget);

/**
 * Acquires `n` units, or none. Never waits for units.
 *
 * Costs one restartable sequence while plenty of units are available; near the limit an atomic
 * instruction, or one fence. Inlined; see `thiscpu_inline.h`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `EXHAUSTED`, `CLOSED`, `FENCE_DENIED`.
 * - Blocks: near the limit, for a fence and for other threads that need one.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_budget_try_acquire(struct thiscpu_budget *budget, uint64_t n);

/**
 * Acquires as many units as are available, at most `n`.
 *
 * Stores their number in `*acquired`. If no unit is available, or the budget is closed, this is 0
 * and the call returns `OK`. Costs as much as `thiscpu_budget_try_acquire`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`.
 * - Blocks: near the limit, for a fence and for other threads that need one.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_budget_try_acquire_up_to(struct thiscpu_budget *budget,
                                                     uint64_t n,
                                                     uint64_t *acquired);

/**
 * Acquires `n` units; blocks until they are available, or the budget is closed.
 *
 * First come, first served. A request above the limit blocks until the limit is raised, and so
 * does every request that comes after it.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `CLOSED`, `FENCE_DENIED`.
 * - Blocks: until `n` units are available, or the budget is closed.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_budget_acquire(struct thiscpu_budget *budget, uint64_t n);

/**
 * Acquires `n` units; blocks until they are available, for at most `timeout_ns` nanoseconds.
 *
 * Otherwise like `thiscpu_budget_acquire`. `UINT64_MAX` is 584 years: no timeout, in practice.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`; `EXHAUSTED` if the time is over; `CLOSED`, `FENCE_DENIED`.
 * - Blocks: until `n` units are available, the budget is closed, or the time is over.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_budget_acquire_timeout(struct thiscpu_budget *budget,
                                                   uint64_t n,
                                                   uint64_t timeout_ns);

/**
 * Acquires `n` units; blocks until they are available, or until a deadline.
 *
 * `deadline_ns` is in nanoseconds of `CLOCK_MONOTONIC`. Otherwise like `thiscpu_budget_acquire`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`; `EXHAUSTED` if the deadline is over; `CLOSED`, `FENCE_DENIED`.
 * - Blocks: until `n` units are available, the budget is closed, or the deadline is over.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_budget_acquire_deadline(struct thiscpu_budget *budget,
                                                    uint64_t n,
                                                    uint64_t deadline_ns);

/**
 * Releases `n` units. Another thread may have acquired them.
 *
 * Costs one restartable sequence, or one atomic addition. Inlined; see `thiscpu_inline.h`.
 *
 * More units than are held: see `thiscpu_budget_over_released`. More than
 * `THISCPU_BUDGET_LIMIT_MAX` units are not released at all.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: allowed, if no asynchronous acquire waits: its callback would run in the
 *   handler.
 */
enum thiscpu_status thiscpu_budget_release(struct thiscpu_budget *budget, uint64_t n);

/**
 * Stores in `*available` how many units are available at one instant of the call.
 *
 * While any thread waits for units it stores 0. For a closed budget it stores how many units no
 * caller holds. Costs one fence if units are lent to CPUs.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`.
 * - Blocks: for a fence and for other threads that need one.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_budget_available(struct thiscpu_budget *budget, uint64_t *available);

/**
 * Stores in `*acquired` how many units are held at one instant of the call.
 *
 * Costs one fence if units are lent to CPUs.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`.
 * - Blocks: for a fence and for other threads that need one.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_budget_acquired(struct thiscpu_budget *budget, uint64_t *acquired);

/**
 * Stores the limit in `*limit`. Costs one load.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_budget_limit(struct thiscpu_budget *budget, uint64_t *limit);

/**
 * Stores in `*units` how many units were released although no caller held them.
 *
 * Costs one load. Such a release is a bug of its caller. The budget finds it when more units are
 * available than the limit allows, discards the excess, and adds it to this number. For each
 * budget, the first excess is also reported on standard error.
 *
 * The excess may be found late: while other callers hold as many units, or until the next fence,
 * such as that of `thiscpu_budget_available`. Until then the limit can be exceeded: if callers
 * have released `e` units too many and this number is `d`, at most `limit + e - d` units are held.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_budget_over_released(struct thiscpu_budget *budget, uint64_t *units);

/**
 * Changes the limit, at one instant of the call.
 *
 * A limit below the units held takes nothing from their holders. Then no units are granted until
 * enough units have been released. Costs one fence if units are lent to CPUs.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`; `OUT_OF_RANGE` if `limit` is greater than
 *   `THISCPU_BUDGET_LIMIT_MAX`; `FENCE_DENIED` (the limit is not changed).
 * - Blocks: for a fence and for other threads that need one.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_budget_set_limit(struct thiscpu_budget *budget, uint64_t limit);

/**
 * Closes the budget: ends all waits, and refuses all later acquires with `CLOSED`.
 *
 * Units that are held stay held; release them as usual. `thiscpu_budget_acquired` tells when the
 * last one is back. A budget cannot be opened again; closing it twice does nothing. Costs one
 * fence if units are lent to CPUs.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`; `FENCE_DENIED` (the budget is not closed).
 * - Blocks: for a fence and for other threads that need one.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_budget_close(struct thiscpu_budget *budget);

/**
 * Stores in `*closed` whether the budget is closed. Costs one load.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_budget_is_closed(struct thiscpu_budget *budget, bool *closed);

/**
 * Stores in `*waiters` how many threads and asynchronous acquires wait for units.
 *
 * Costs one load.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_budget_waiters(struct thiscpu_budget *budget, size_t *waiters);

/**
 * Acquires `n` units as a lease, whose handle it stores in `*lease`. Never waits for units.
 *
 * Costs as much as `thiscpu_budget_try_acquire`, the memory of a handle, and an atomic addition.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `EXHAUSTED`, `CLOSED`, `FENCE_DENIED`.
 * - Blocks: near the limit, for a fence and for other threads that need one.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_budget_try_lease(struct thiscpu_budget *budget,
                                             uint64_t n,
                                             struct thiscpu_lease **lease);

/**
 * Acquires `n` units as a lease; blocks until they are available, or the budget is closed.
 *
 * Otherwise like `thiscpu_budget_acquire`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `CLOSED`, `FENCE_DENIED`.
 * - Blocks: until `n` units are available, or the budget is closed.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_budget_lease(struct thiscpu_budget *budget,
                                         uint64_t n,
                                         struct thiscpu_lease **lease);

/**
 * Acquires `n` units as a lease; blocks until they are available, for at most `timeout_ns`.
 *
 * Otherwise like `thiscpu_budget_acquire_timeout`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`; `EXHAUSTED` if the time is over; `CLOSED`,
 *   `FENCE_DENIED`.
 * - Blocks: until `n` units are available, the budget is closed, or the time is over.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_budget_lease_timeout(struct thiscpu_budget *budget,
                                                 uint64_t n,
                                                 uint64_t timeout_ns,
                                                 struct thiscpu_lease **lease);

/**
 * Acquires `n` units as a lease; blocks until they are available, or until a deadline.
 *
 * Otherwise like `thiscpu_budget_acquire_deadline`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`; `EXHAUSTED` if the deadline is over; `CLOSED`,
 *   `FENCE_DENIED`.
 * - Blocks: until `n` units are available, the budget is closed, or the deadline is over.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_budget_lease_deadline(struct thiscpu_budget *budget,
                                                  uint64_t n,
                                                  uint64_t deadline_ns,
                                                  struct thiscpu_lease **lease);

/**
 * Stores in `*units` how many units the lease holds.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_lease_units(struct thiscpu_lease *lease, uint64_t *units);

/**
 * Splits off a lease of `n` units and stores its handle in `*part`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`; `OUT_OF_RANGE` if the lease holds fewer units.
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_lease_split(struct thiscpu_lease *lease,
                                        uint64_t n,
                                        struct thiscpu_lease **part);

/**
 * Adds the units of the lease `other` to `lease`, and destroys the handle `other`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`; `WRONG_BUDGET` if the leases belong to different budgets, or
 *   are one lease (neither is changed or destroyed).
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_lease_merge(struct thiscpu_lease *lease, struct thiscpu_lease *other);

/**
 * Destroys the handle of a lease but keeps its units acquired.
 *
 * Stores their number in `*units`. Release them by `thiscpu_budget_release`, or they are lost to
 * the budget. The lease does not keep the budget alive any more.
 *
 * - NULL: allowed for `units`.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: if it was the last owner of a destroyed budget, as `thiscpu_budget_destroy` does.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_lease_forget(struct thiscpu_lease *lease, uint64_t *units);

/**
 * Releases the units of a lease and destroys its handle.
 *
 * - NULL: allowed; does nothing.
 * - Returns: `OK`.
 * - Blocks: if it was the last owner of a destroyed budget, as `thiscpu_budget_destroy` does.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_lease_destroy(struct thiscpu_lease *lease);

/**
 * Requests `n` units without blocking, and stores the handle of the request in `*acquire`.
 *
 * `wake` is called with `context`, once, when the units are granted or the budget is closed. That
 * may be in this call, even before it has stored the handle. Or it is in a call of any thread on
 * the budget, because a call that changes it also does what others left to it. So `wake` must not
 * lock a mutex that a thread may hold while it calls a function on the budget. `wake` should only
 * note the event, for example by a write to an eventfd. It must return, and must not destroy or
 * take an acquire. If a request may wait, signal handlers must not release units of the budget,
 * because they would call `wake`.
 *
 * - NULL: allowed for `context`, which is only passed on.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `FENCE_DENIED`. `OK` does not mean that the units
 *   are granted; `thiscpu_acquire_take` tells.
 * - Blocks: for other threads that change the budget, and for a fence.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_budget_acquire_async(struct thiscpu_budget *budget,
                                                 uint64_t n,
                                                 void (*wake)(void *context),
                                                 void *context,
                                                 struct thiscpu_acquire **acquire);

/**
 * Stores the lease of a granted request in `*lease`. Never waits for units.
 *
 * The request still has to be destroyed, which does not affect the lease.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`; `PENDING` if the request still waits; `CLOSED` if
 *   the budget was closed before it was granted; `EMPTY` if its lease was taken before.
 * - Blocks: for other threads that change the budget.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_acquire_take(struct thiscpu_acquire *acquire,
                                         struct thiscpu_lease **lease);

/**
 * Destroys a request. If it waits, it leaves the queue.
 *
 * Units that were granted but not taken are released. After this call its callback is not running,
 * and will not be called.
 *
 * - NULL: allowed; does nothing.
 * - Returns: `OK`.
 * - Blocks: while the callback runs on another thread, and for other threads that change the
 *   budget. Must not be called from a callback.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_acquire_destroy(struct thiscpu_acquire *acquire);

/**
 * Acquires `n` units as a reserve, and stores its handle in `*reserve`.
 *
 * Never waits for units. Costs as much as `thiscpu_budget_try_acquire`, and the memory of two
 * handles.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `EXHAUSTED`, `CLOSED`, `FENCE_DENIED`.
 * - Blocks: near the limit, for a fence and for other threads that need one.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_budget_try_reserve(struct thiscpu_budget *budget,
                                               uint64_t n,
                                               struct thiscpu_reserve **reserve);

/**
 * Takes `n` units of the reserve as a lease, and stores its handle in `*lease`.
 *
 * Never waits for units.
 * Destroying the lease returns them to the reserve. If it is forgotten by `thiscpu_lease_forget`,
 * they stay acquired from the budget after the reserve is destroyed.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `FENCE_DENIED`; `EXHAUSTED` if the reserve has
 *   fewer units left.
 * - Blocks: for other threads that use the reserve.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_reserve_try_lease(struct thiscpu_reserve *reserve,
                                              uint64_t n,
                                              struct thiscpu_lease **lease);

/**
 * Stores in `*available` how many units of the reserve are left, at one instant of the call.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`.
 * - Blocks: for a fence and for other threads that use the reserve.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_reserve_available(struct thiscpu_reserve *reserve, uint64_t *available);

/**
 * Stores in `*units` how many units were set aside.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_reserve_units(struct thiscpu_reserve *reserve, uint64_t *units);

/**
 * Destroys a reserve, and releases the units that no lease holds to the budget.
 *
 * The units of its leases are released when the last of these leases is destroyed.
 *
 * - NULL: allowed; does nothing.
 * - Returns: `OK`, `FENCE_DENIED` (the reserve is destroyed, and its units are lost).
 * - Blocks: for a fence; and as `thiscpu_budget_destroy` does, if it was the last owner of a
 *   destroyed budget.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_reserve_destroy(struct thiscpu_reserve *reserve);

/**
 * Creates a rate of `units` in each `period_ns` nanoseconds.
 *
 * Stores its handle in `*rate`. It starts with `burst` units, the most that it ever has. The
 * lanes' share is an eighth of the burst.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `UNKNOWN_TIER`, `TIER_UNAVAILABLE`;
 *   `OUT_OF_RANGE` if a number is 0, `units` is greater than `THISCPU_RATE_UNITS_MAX`, `burst`
 *   is greater than `THISCPU_RATE_BURST_MAX`, or the period is 2^63 ns or longer.
 * - Blocks: only in the first use of the library, while another thread determines the tier.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_rate_create(uint64_t units,
                                        uint64_t period_ns,
                                        uint64_t burst,
                                        struct thiscpu_rate **rate);

/**
 * Destroys a rate.
 *
 * No thread may use the handle, or wait for units, during or after this call.
 *
 * - NULL: allowed; does nothing.
 * - Returns: `OK`.
 * - Blocks: while another thread allocates or frees per-CPU memory.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_rate_destroy(struct thiscpu_rate *rate);

/**
 * Acquires `n` units, or none. Never waits for units.
 *
 * If the units are refused, stores in `*retry_after_ns` after how many nanoseconds they will be
 * there, unless other calls take them. Costs one restartable sequence while plenty of units are
 * available; near the limit a clock read and an atomic instruction, or one fence.
 *
 * - NULL: allowed for `retry_after_ns`; then nothing is stored.
 * - Returns: `OK`, `NULL_POINTER`, `EXHAUSTED`, `CLOSED`, `FENCE_DENIED`; `OUT_OF_RANGE` if `n`
 *   is 0 or greater than the burst, and then `*retry_after_ns` is unchanged.
 * - Blocks: near the limit, for a fence and for other threads that need one.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_rate_try_acquire(struct thiscpu_rate *rate,
                                             uint64_t n,
                                             uint64_t *retry_after_ns);

/**
 * Acquires as many units as are available, at most `n`.
 *
 * Stores their number in `*acquired`. If no unit is available, `n` is 0, or the rate is closed,
 * this is 0 and the call returns `OK`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`.
 * - Blocks: near the limit, for a fence and for other threads that need one.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_rate_try_acquire_up_to(struct thiscpu_rate *rate,
                                                   uint64_t n,
                                                   uint64_t *acquired);

/**
 * Acquires `n` units; blocks until they are available, or the rate is closed.
 *
 * First come, first served. The thread sleeps until its units will be there.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `CLOSED`, `FENCE_DENIED`; `OUT_OF_RANGE` if `n` is 0, or
 *   greater than the burst, now or while the call waits.
 * - Blocks: until `n` units are available, or the rate is closed.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_rate_acquire(struct thiscpu_rate *rate, uint64_t n);

/**
 * Acquires `n` units; blocks until they are available, for at most `timeout_ns` nanoseconds.
 *
 * Otherwise like `thiscpu_rate_acquire`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`; `EXHAUSTED` if the time is over; `CLOSED`, `FENCE_DENIED`,
 *   `OUT_OF_RANGE`.
 * - Blocks: until `n` units are available, the rate is closed, or the time is over.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_rate_acquire_timeout(struct thiscpu_rate *rate,
                                                 uint64_t n,
                                                 uint64_t timeout_ns);

/**
 * Acquires `n` units; blocks until they are available, or until a deadline.
 *
 * `deadline_ns` is in nanoseconds of `CLOCK_MONOTONIC`. Otherwise like `thiscpu_rate_acquire`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`; `EXHAUSTED` if the deadline is over; `CLOSED`, `FENCE_DENIED`,
 *   `OUT_OF_RANGE`.
 * - Blocks: until `n` units are available, the rate is closed, or the deadline is over.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_rate_acquire_deadline(struct thiscpu_rate *rate,
                                                  uint64_t n,
                                                  uint64_t deadline_ns);

/**
 * Stores in `*available` how many units are available at one instant of the call.
 *
 * While any thread waits for units, or if the rate is closed, it stores 0. Costs one fence if
 * units are lent to CPUs.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`.
 * - Blocks: for a fence and for other threads that need one.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_rate_available(struct thiscpu_rate *rate, uint64_t *available);

/**
 * Stores the burst in `*burst`. Costs a few loads.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_rate_burst(struct thiscpu_rate *rate, uint64_t *burst);

/**
 * Stores in `*share` the most units that lanes hold. Costs a few loads.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_rate_share(struct thiscpu_rate *rate, uint64_t *share);

/**
 * Changes the pace, at one instant of the call. The rate keeps the units that it has.
 *
 * Waiting threads get new times. Costs one fence if units are lent to CPUs.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`, `OUT_OF_RANGE` as `thiscpu_rate_create`.
 * - Blocks: for a fence and for other threads that need one.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_rate_set_pace(struct thiscpu_rate *rate,
                                          uint64_t units,
                                          uint64_t period_ns);

/**
 * Changes the burst, at one instant of the call. Units above the new burst are lost.
 *
 * A higher burst brings no units at once. The share becomes an eighth of the burst, or what
 * `thiscpu_rate_set_share` has set if that is less. Costs one fence if units are lent to CPUs.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`; `OUT_OF_RANGE` if `burst` is 0 or too large.
 * - Blocks: for a fence and for other threads that need one.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_rate_set_burst(struct thiscpu_rate *rate, uint64_t burst);

/**
 * Changes the most units that lanes hold, at one instant of the call.
 *
 * With 0 refusals are exact, and each call costs a clock read and a shared line. Costs one fence
 * if units are lent to CPUs.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`; `OUT_OF_RANGE` if `share` is above an eighth of
 *   the burst.
 * - Blocks: for a fence and for other threads that need one.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_rate_set_share(struct thiscpu_rate *rate, uint64_t share);

/**
 * Closes the rate: ends all waits, and refuses all later acquires.
 *
 * A rate cannot be opened again. Closing it twice does nothing.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`.
 * - Blocks: for a fence and for other threads that need one.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_rate_close(struct thiscpu_rate *rate);

/**
 * Stores in `*closed` whether the rate is closed. Costs one load.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_rate_is_closed(struct thiscpu_rate *rate, bool *closed);

/**
 * Stores in `*waiters` how many threads wait for units. Costs one load.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_rate_waiters(struct thiscpu_rate *rate, size_t *waiters);

/**
 * Creates a window of `period_ns` nanoseconds with at most `limit` units.
 *
 * Stores its handle in `*window`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `UNKNOWN_TIER`, `TIER_UNAVAILABLE`;
 *   `OUT_OF_RANGE` if `limit` is 0 or greater than `THISCPU_RATE_BURST_MAX`, or the period is
 *   shorter than 64 ns, or 2^63 ns or longer.
 * - Blocks: only in the first use of the library, while another thread determines the tier.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_rate_window_create(uint64_t limit,
                                               uint64_t period_ns,
                                               struct thiscpu_rate_window **window);

/**
 * Destroys a window. No thread may use the handle during or after this call.
 *
 * - NULL: allowed; does nothing.
 * - Returns: `OK`.
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_rate_window_destroy(struct thiscpu_rate_window *window);

/**
 * Acquires `n` units, or none. Never waits for units.
 *
 * If the units are refused, stores in `*retry_after_ns` after how many nanoseconds they will be
 * there, unless other calls take them.
 *
 * - NULL: allowed for `retry_after_ns`; then nothing is stored.
 * - Returns: `OK`, `NULL_POINTER`, `EXHAUSTED`; `OUT_OF_RANGE` if `n` is 0 or greater than the
 *   limit, and then `*retry_after_ns` is unchanged.
 * - Blocks: for a moment, while another thread takes units back.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_rate_window_try_acquire(struct thiscpu_rate_window *window,
                                                    uint64_t n,
                                                    uint64_t *retry_after_ns);

/**
 * Acquires as many units as are available, at most `n`.
 *
 * Stores their number in `*acquired`. If no unit is available, or `n` is 0, this is 0 and the call
 * returns `OK`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: for a moment, while another thread takes units back.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_rate_window_try_acquire_up_to(struct thiscpu_rate_window *window,
                                                          uint64_t n,
                                                          uint64_t *acquired);

/**
 * Stores in `*available` how many units are available at one instant of the call.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: for a moment, while another thread takes units back.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_rate_window_available(struct thiscpu_rate_window *window,
                                                  uint64_t *available);

/**
 * Stores the limit in `*limit`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_rate_window_limit(struct thiscpu_rate_window *window, uint64_t *limit);

/**
 * Stores the length of the window in `*period_ns`, in nanoseconds.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_rate_window_period(struct thiscpu_rate_window *window,
                                               uint64_t *period_ns);

/**
 * Creates a ledger and stores its handle in `*ledger`. Accounts have `counters` counters.
 *
 * Pass false for `is_signed` if each unit is charged before it is uncharged, so that no counter
 * becomes negative. Then `thiscpu_account_read` never stores a negative value.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `UNKNOWN_TIER`, `TIER_UNAVAILABLE`; `INVALID_SIZE`
 *   if `counters` is not 1 to `THISCPU_LEDGER_COUNTERS_MAX`. `NO_MEMORY` means that no memory for
 *   the handle was available. Without memory for the ledger itself the process aborts, as with any
 *   allocation in Rust.
 * - Blocks: only in the first use of the library, while another thread determines the tier.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_ledger_create(size_t counters,
                                          bool is_signed,
                                          struct thiscpu_ledger **ledger);

/**
 * Destroys a handle of a ledger; open accounts stay open and usable.
 *
 * No thread may use the handle during or after this call. The ledger's memory is freed with its
 * last account.
 *
 * - NULL: allowed; does nothing.
 * - Returns: `OK`.
 * - Blocks: while another thread allocates or frees per-CPU memory.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_ledger_destroy(struct thiscpu_ledger *ledger);

/**
 * Stores the number of open accounts in `*len`. Costs one load.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_ledger_len(struct thiscpu_ledger *ledger, size_t *len);

/**
 * Adds to each account the charges that CPUs cache for it.
 *
 * After this call, `thiscpu_account_read` misses only charges that were made later. Costs one
 * fence for each account that any CPU caches. To read all accounts exactly, use
 * `thiscpu_ledger_for_each`, which costs one fence.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`; `FENCE_DENIED` (some accounts may have been updated).
 * - Blocks: while another thread is in the first half of `thiscpu_ledger_for_each`. That function
 *   waits for this one, too.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_ledger_sync(struct thiscpu_ledger *ledger);

/**
 * Calls `each` for every open account, with its values at one instant of the call.
 *
 * All accounts are read at the same instant; then `each` is called, in no particular order, with
 * an account's id, an array of its counters (as many as the ledger was created with), and
 * `context`. The array is valid until `each` returns. `each` may call any function of this
 * library. It must return: an exception that leaves it ends the process, and `longjmp` out of it
 * is undefined.
 *
 * Costs one fence, and about 0.15 µs for each account. Until it returns it needs memory: 24 bytes
 * for each account, and 16 for each counter of each account. Without that memory the process
 * aborts. Charges continue meanwhile, but more slowly.
 *
 * - NULL: allowed for `context`, which is only passed on.
 * - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`.
 * - Blocks: while another thread is in this function or in `thiscpu_ledger_sync`.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_ledger_for_each(struct thiscpu_ledger *ledger,
                                            void (*each)(uint64_t id,
                                                         const int64_t *counters,
                                                         void *context),
                                            void *context);

/**
 * Opens an account whose counters are 0 and stores its handle in `*account`.
 *
 * Costs about 0.1 µs.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`.
 * - Blocks: while another thread is in the first half of `thiscpu_ledger_for_each`, which takes
 *   about 60 ms for a million accounts.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_account_open(struct thiscpu_ledger *ledger,
                                         struct thiscpu_account **account);

/**
 * Closes an account; the values of its counters are discarded.
 *
 * To keep them, read them first, or transfer them to another account. No thread may use the handle
 * during or after this call.
 *
 * - NULL: allowed; does nothing.
 * - Returns: `OK`.
 * - Blocks: while another thread opens or closes an account of this ledger, or reads or transfers
 *   exact values of this one.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_account_close(struct thiscpu_account *account);

/**
 * Adds `n`, which may be negative, to counter `index`.
 *
 * Costs one restartable sequence if this CPU has the account in its cache; otherwise one atomic
 * addition. Inlined; see `thiscpu_inline.h`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`; `OUT_OF_RANGE` if `index` is too large.
 * - Blocks: only while another thread reads or transfers exact values of this account.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_account_charge(struct thiscpu_account *account,
                                           size_t index,
                                           int64_t n);

/**
 * Adds `n` to counter `index` without using this CPU's cache.
 *
 * For a thread that charges many owners' accounts once each, such as one that frees their old
 * objects: its charges displace no account from this CPU's cache. Costs one atomic addition.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`; `OUT_OF_RANGE` if `index` is too large.
 * - Blocks: only while another thread reads or transfers exact values of this account.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_account_charge_uncached(struct thiscpu_account *account,
                                                    size_t index,
                                                    int64_t n);

/**
 * Stores counter `index` in `*value`, without the charges that CPUs cache.
 *
 * A CPU caches charges of at most 1,024 for each counter, with rare exceptions. For an exact value
 * use `thiscpu_account_sum`. Costs a few loads.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`; `OUT_OF_RANGE` if `index` is too large.
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_account_read(struct thiscpu_account *account,
                                         size_t index,
                                         int64_t *value);

/**
 * Stores the exact value of counter `index`, at one instant of the call, in `*sum`.
 *
 * Costs one lock, and one fence if any CPU caches the account.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`; `OUT_OF_RANGE` if `index` is too large.
 * - Blocks: while another thread reads or transfers exact values of this account.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_account_sum(struct thiscpu_account *account,
                                        size_t index,
                                        int64_t *sum);

/**
 * Stores the exact values of all counters, at one instant of the call, in `counters`.
 *
 * `counters` is an array of `capacity` elements, at least as many as the account has counters.
 * Costs one lock, and one fence if any CPU caches the account.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`; `INVALID_SIZE` if `capacity` is too small.
 * - Blocks: while another thread reads or transfers exact values of this account.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_account_snapshot(struct thiscpu_account *account,
                                             int64_t *counters,
                                             size_t capacity);

/**
 * Moves `n` from counter `index` of `from` to the same counter of `to`.
 *
 * Both accounts must belong to the same ledger. The transfer happens at one instant: an exact read
 * of both accounts sees all of it or nothing.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`; `OUT_OF_RANGE` if `index` is too large; `WRONG_LEDGER`
 *   if the accounts belong to different ledgers.
 * - Blocks: while another thread transfers in this ledger or reads either account exactly.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_account_transfer(struct thiscpu_account *from,
                                             struct thiscpu_account *to,
                                             size_t index,
                                             int64_t n);

/**
 * Stores the account's id in `*id`. No two accounts of a ledger ever have the same id.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_account_id(struct thiscpu_account *account, uint64_t *id);

/**
 * Creates a cache of objects of `bytes` bytes and stores its handle in `*cache`.
 *
 * `bytes` is at most `THISCPU_CACHE_SIZE_MAX`; an object has at least 8. `align` is the alignment
 * of objects: a power of two, at most `THISCPU_CACHE_ALIGN_MAX`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `UNKNOWN_TIER`, `TIER_UNAVAILABLE`; `INVALID_SIZE`
 *   if `bytes` or `align` is not supported.
 * - Blocks: only in the first use of the library, while another thread determines the tier.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_cache_create(size_t bytes, size_t align, struct thiscpu_cache **cache);

/**
 * Closes a cache and frees its memory, unless any of its objects is still allocated.
 *
 * Stores the number of objects that are still allocated in `*objects`: 0 if the cache is closed.
 * No other thread may use the handle during this call, and no thread after it has returned `OK`.
 *
 * - NULL: allowed for `objects`. If `cache` is NULL, the call stores 0 and returns `OK`.
 * - Returns: `OK`; `IN_USE` if objects are still allocated (the handle stays valid).
 * - Blocks: for a fence, and while another thread allocates or frees per-CPU memory.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_cache_close(struct thiscpu_cache *cache, size_t *objects);

/**
 * Destroys a cache even if objects are still allocated; these stay valid forever.
 *
 * Such objects can no longer be freed. No thread may use the handle during or after this call.
 *
 * - NULL: allowed; does nothing.
 * - Returns: `OK`.
 * - Blocks: for a fence, and while another thread allocates or frees per-CPU memory.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_cache_destroy(struct thiscpu_cache *cache);

/**
 * Allocates an object. Its first 8 bytes are 0; the rest is uninitialized.
 *
 * Costs one restartable sequence if this CPU keeps a free object. Inlined; see `thiscpu_inline.h`.
 *
 * - NULL: not allowed.
 * - Returns: the object, not a status; NULL on lack of memory, or if `cache` is NULL or
 *   misaligned.
 * - Blocks: if this CPU keeps no free object, while other threads trade objects or get memory.
 * - Signal handlers: not allowed.
 */
void *thiscpu_cache_alloc(struct thiscpu_cache *cache);

/**
 * Frees an object of the cache, on any thread.
 *
 * The object must be from this cache and must not be used any more. Costs one restartable sequence
 * if this CPU has room for it. Inlined; see `thiscpu_inline.h`.
 *
 * - NULL: allowed for `object`, which then does nothing; not for `cache`.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: if this CPU has no room, while other threads trade objects or return memory.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_cache_free(struct thiscpu_cache *cache, void *object);

/**
 * Returns free memory of this and other caches to the system.
 *
 * Stores the number of returned bytes in `*bytes`. Costs one fence. If no fence is possible, CPUs
 * keep their objects, and the call returns `OK`.
 *
 * - NULL: allowed for `bytes`; not for `cache`.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: for a fence, and while other threads trade objects.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_cache_shrink(struct thiscpu_cache *cache, size_t *bytes);

/**
 * Stores statistics of the cache in `*stats`. Visits each of its slabs.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_cache_stats(struct thiscpu_cache *cache,
                                        struct thiscpu_cache_statistics *stats);

/**
 * Creates a cache of objects of `bytes` bytes and stores its handle in `*cache`.
 *
 * `bytes` is at most 8 less than `THISCPU_CACHE_SIZE_MAX`. `align` is the alignment of objects: a
 * power of two, at most `THISCPU_CACHE_ALIGN_MAX`. Both callbacks are called with `context`.
 *
 * - NULL: allowed for `destroy`, if objects need no destruction, and for `context`, which is only
 *   passed on.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `UNKNOWN_TIER`, `TIER_UNAVAILABLE`; `INVALID_SIZE`
 *   if `bytes` or `align` is not supported.
 * - Blocks: only in the first use of the library, while another thread determines the tier.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_constructed_cache_create(size_t bytes,
                                                     size_t align,
                                                     int (*construct)(void *object, void *context),
                                                     void (*destroy)(void *object, void *context),
                                                     void *context,
                                                     struct thiscpu_constructed_cache **cache);

/**
 * Closes a cache, destroys its objects and frees its memory, unless any is still allocated.
 *
 * Stores the number of objects that are still allocated in `*objects`: 0 if the cache is closed.
 * No other thread may use the handle during this call, and no thread after it has returned `OK`.
 *
 * - NULL: allowed for `objects`. If `cache` is NULL, the call stores 0 and returns `OK`.
 * - Returns: `OK`; `IN_USE` if objects are still allocated (the handle stays valid).
 * - Blocks: for a fence, for callbacks, and while another thread allocates or frees per-CPU
 *   memory.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_constructed_cache_close(struct thiscpu_constructed_cache *cache,
                                                    size_t *objects);

/**
 * Destroys a cache even if objects are still allocated; these stay valid forever.
 *
 * Such objects can no longer be freed. They are never destroyed, and free objects in their slabs
 * may not be. No thread may use the handle during or after this call.
 *
 * - NULL: allowed; does nothing.
 * - Returns: `OK`.
 * - Blocks: for a fence, for callbacks, and while another thread allocates or frees per-CPU
 *   memory.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_constructed_cache_destroy(struct thiscpu_constructed_cache *cache);

/**
 * Allocates an object, which is new or as its last user left it.
 *
 * Costs one restartable sequence if this CPU keeps a free object.
 *
 * - NULL: not allowed.
 * - Returns: the object, not a status; NULL on lack of memory, if `construct` failed, or if
 *   `cache` is NULL or misaligned. `thiscpu_last_error` tells which.
 * - Blocks: if this CPU keeps no free object, for callbacks, and while other threads trade objects
 *   or get memory.
 * - Signal handlers: not allowed.
 */
void *thiscpu_constructed_cache_alloc(struct thiscpu_constructed_cache *cache);

/**
 * Frees an object of the cache, which stays constructed, on any thread.
 *
 * The object must be from this cache and must not be used any more. Costs one restartable sequence
 * if this CPU has room for it.
 *
 * - NULL: allowed for `object`, which then does nothing; not for `cache`.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: if this CPU has no room, for callbacks, and while other threads trade objects or
 *   return memory.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_constructed_cache_free(struct thiscpu_constructed_cache *cache,
                                                   void *object);

/**
 * Destroys the objects of all slabs without an object in use, and returns their memory.
 *
 * Also returns free memory of other caches to the system. Stores the number of returned bytes in
 * `*bytes`. If another thread is destroying objects, it destroys these too, and this call does not
 * wait for it. Costs one fence. If no fence is possible, CPUs keep their objects, and the call
 * returns `OK`.
 *
 * - NULL: allowed for `bytes`; not for `cache`.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: for a fence, for callbacks, and while other threads trade objects.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_constructed_cache_shrink(struct thiscpu_constructed_cache *cache,
                                                     size_t *bytes);

/**
 * Stores statistics of the cache in `*stats`. Visits each of its slabs.
 *
 * The bytes of an object include the word behind it.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_constructed_cache_stats(struct thiscpu_constructed_cache *cache,
                                                    struct thiscpu_cache_statistics *stats);

/**
 * Allocates `n` objects in advance, for code in which an allocation must not fail.
 *
 * Stores the handle of the objects in `*prefilled`. The objects are constructed.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`; `NO_MEMORY` or `CONSTRUCT_FAILED`, and then none of the
 *   objects is kept.
 * - Blocks: as `thiscpu_constructed_cache_alloc` does.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_constructed_cache_prefill(struct thiscpu_constructed_cache *cache,
                                                      size_t n,
                                                      struct thiscpu_prefilled **prefilled);

/**
 * Allocates `n` objects in advance, for code in which an allocation must not fail.
 *
 * Stores the handle of the objects in `*prefilled`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`; `NO_MEMORY`, and then none of the objects is kept.
 * - Blocks: as `thiscpu_cache_alloc` does.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_cache_prefill(struct thiscpu_cache *cache,
                                          size_t n,
                                          struct thiscpu_prefilled **prefilled);

/**
 * Takes one of the objects, which is as one from the cache's `_alloc` function.
 *
 * Free it by the cache's `_free` function. Costs a few instructions, and needs no memory.
 *
 * - NULL: not allowed.
 * - Returns: the object, not a status; NULL if none is left, or if `prefilled` is NULL or
 *   misaligned.
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
void *thiscpu_prefilled_alloc(struct thiscpu_prefilled *prefilled);

/**
 * Stores in `*len` how many objects are left.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_prefilled_len(struct thiscpu_prefilled *prefilled, size_t *len);

/**
 * Frees the objects that are left, and destroys their handle.
 *
 * - NULL: allowed; does nothing.
 * - Returns: `OK`.
 * - Blocks: as the cache's `_free` function does.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_prefilled_destroy(struct thiscpu_prefilled *prefilled);

/**
 * Creates a word of `bytes` bytes that is 0 on every CPU, and stores its handle in `*word`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `NO_ADDRESS_SPACE`, `UNKNOWN_TIER`, `TIER_UNAVAILABLE`;
 *   `INVALID_SIZE` if `bytes` is not 1, 2, 4 or 8.
 * - Blocks: while another thread allocates or frees per-CPU memory.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_word_create(size_t bytes, struct thiscpu_word **word);

/**
 * Destroys a word. No thread may use the handle during or after this call.
 *
 * - NULL: allowed; does nothing.
 * - Returns: `OK`.
 * - Blocks: while another thread allocates or frees per-CPU memory.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_word_destroy(struct thiscpu_word *word);

/**
 * Adds `n` to this CPU's word, which wraps around.
 *
 * Inlined; see `thiscpu_inline.h`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_word_add(struct thiscpu_word *word, uint64_t n);

/**
 * Adds `n` to this CPU's word and stores its new value in `*sum`. The word wraps around.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_word_add_return(struct thiscpu_word *word, uint64_t n, uint64_t *sum);

/**
 * Replaces this CPU's word with `desired` and stores the previous value in `*old`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_word_xchg(struct thiscpu_word *word, uint64_t desired, uint64_t *old);

/**
 * Replaces this CPU's word with `desired` if it equals `old`.
 *
 * If it does not, stores the value that it has in `*found` and returns `MISMATCH`.
 *
 * - NULL: allowed for `found`; not for `word`.
 * - Returns: `OK`, `NULL_POINTER`, `MISMATCH`.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_word_cmpxchg(struct thiscpu_word *word,
                                         uint64_t old,
                                         uint64_t desired,
                                         uint64_t *found);

/**
 * Stores the words of all CPUs in `values`, and how many there are in `*count`.
 *
 * `values` is an array of `capacity` elements; if there are more words, the first `capacity` are
 * stored. There is one word for each CPU that was used, and one more; their number may grow. The
 * first word belongs to threads that could not use a CPU's lane. The others are in the order in
 * which CPUs were first used, not of CPU numbers. Each value is read at a different instant.
 *
 * - NULL: allowed for `values` if `capacity` is 0; not for `word` and `count`.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_word_values(struct thiscpu_word *word,
                                        uint64_t *values,
                                        size_t capacity,
                                        size_t *count);

/**
 * Creates a pair of two halves of `half_bytes` bytes each, and stores its handle in `*pair`.
 *
 * Both halves are 0 on every CPU.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `NO_ADDRESS_SPACE`, `NO_MEMORY`, `UNKNOWN_TIER`,
 *   `TIER_UNAVAILABLE`; `INVALID_SIZE` if `half_bytes` is not 4 or 8.
 * - Blocks: while another thread allocates or frees per-CPU memory.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_pair_create(size_t half_bytes, struct thiscpu_pair **pair);

/**
 * Destroys a pair. No thread may use the handle during or after this call.
 *
 * - NULL: allowed; does nothing.
 * - Returns: `OK`.
 * - Blocks: while another thread allocates or frees per-CPU memory.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_pair_destroy(struct thiscpu_pair *pair);

/**
 * Replaces this CPU's pair with `*desired` if it equals `*old`.
 *
 * If it does not, stores the pair's halves in `*found`, which may be the same as `old`, and
 * returns `MISMATCH`.
 *
 * - NULL: allowed for `found`; not for the other arguments.
 * - Returns: `OK`, `NULL_POINTER`, `MISMATCH`; `MISALIGNED` if a pointer to halves is not a
 *   multiple of 16; `OUT_OF_RANGE` if a half does not fit into its 4 bytes.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_pair_cmpxchg(struct thiscpu_pair *pair,
                                         const struct thiscpu_halves *old,
                                         const struct thiscpu_halves *desired,
                                         struct thiscpu_halves *found);

/**
 * Stores the pairs of all CPUs in `values`, and how many there are in `*count`.
 *
 * `values` is an array of `capacity` elements; if there are more pairs, the first `capacity` are
 * stored. There is one pair for each CPU that was used, and one more; their number may grow. Each
 * half is read at a different instant.
 *
 * - NULL: allowed for `values` if `capacity` is 0; not for `pair` and `count`.
 * - Returns: `OK`, `NULL_POINTER`; `MISALIGNED` if `values` is not a multiple of 16.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_pair_values(struct thiscpu_pair *pair,
                                        struct thiscpu_halves *values,
                                        size_t capacity,
                                        size_t *count);

/**
 * Creates a stack that is empty on every CPU, and stores its handle in `*stack`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `NO_ADDRESS_SPACE`, `NO_MEMORY`, `UNKNOWN_TIER`,
 *   `TIER_UNAVAILABLE`.
 * - Blocks: while another thread allocates or frees per-CPU memory.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_stack_create(struct thiscpu_stack **stack);

/**
 * Destroys a stack and forgets its nodes; to get them, call `thiscpu_stack_drain` first.
 *
 * No thread may use the handle during or after this call.
 *
 * - NULL: allowed; does nothing.
 * - Returns: `OK`.
 * - Blocks: while another thread allocates or frees per-CPU memory.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_stack_destroy(struct thiscpu_stack *stack);

/**
 * Pushes a node onto this CPU's stack.
 *
 * The node must not be in any stack. Its memory must stay readable until `_drain` or `_destroy`
 * begins, even after the node was popped: another thread's `_pop` may still read its link, and
 * discard the result. A popped node may be reused, but not passed to `free`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_stack_push(struct thiscpu_stack *stack, struct thiscpu_link *node);

/**
 * Pops the top node of this CPU's stack and stores it in `*node`.
 *
 * If this CPU's stack is empty, stores NULL and returns `EMPTY`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `EMPTY`.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_stack_pop(struct thiscpu_stack *stack, struct thiscpu_link **node);

/**
 * Takes all nodes of this CPU's stack and stores the top one in `*first`.
 *
 * The nodes are linked by `next`. If this CPU's stack is empty, stores NULL and returns `EMPTY`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `EMPTY`.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_stack_take_all(struct thiscpu_stack *stack,
                                           struct thiscpu_link **first);

/**
 * Takes the nodes of all CPUs' stacks, then calls `each` for every node, with `context`.
 *
 * No other thread may use the stack during this call. So `each` may free the node, or push it
 * again. It must return: an exception that leaves it ends the process, and `longjmp` out of it is
 * undefined.
 *
 * - NULL: allowed for `context`, which is only passed on.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never, unless `each` does.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_stack_drain(struct thiscpu_stack *stack,
                                        void (*each)(struct thiscpu_link *node, void *context),
                                        void *context);

/**
 * Creates a segment at a path where nothing is, and stores its handle in `*segment`.
 *
 * - NULL: allowed for `options`, which then has the defaults.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `UNKNOWN_TIER`, `TIER_UNAVAILABLE`; `OUT_OF_RANGE`
 *   for an option; `SYSTEM` with `errno`, such as `EEXIST`.
 * - Blocks: while the system takes memory for the file.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_segment_create(const char *path,
                                           const struct thiscpu_segment_options *options,
                                           struct thiscpu_segment **segment);

/**
 * Attaches to the segment at a path, and stores its handle in `*segment`.
 *
 * - NULL: allowed for `options`, which then has the defaults.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `UNKNOWN_TIER`, `TIER_UNAVAILABLE`,
 *   `INVALID_SEGMENT`, `UNTRUSTED_SEGMENT`; `SYSTEM` with `errno`, such as `ENOENT`.
 * - Blocks: never for long.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_segment_open(const char *path,
                                         const struct thiscpu_segment_options *options,
                                         struct thiscpu_segment **segment);

/**
 * Attaches to the segment at a path, or creates it; stores its handle in `*segment`.
 *
 * Several processes may call this at once: without `replace` all get one segment. With `replace`
 * a new segment takes the place of one that exists. Processes that are attached keep the old one.
 *
 * - NULL: allowed for `options`, which then has the defaults.
 * - Returns: as `thiscpu_segment_open` and `thiscpu_segment_create`.
 * - Blocks: while the system takes memory for the file.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_segment_open_or_create(const char *path,
                                                   bool replace,
                                                   const struct thiscpu_segment_options *options,
                                                   struct thiscpu_segment **segment);

/**
 * Creates a segment without a name, and stores its handle in `*segment`.
 *
 * Children of `fork` share it. Another program gets it by `thiscpu_segment_fd`.
 *
 * - NULL: allowed for `options`, which then has the defaults.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `UNKNOWN_TIER`, `TIER_UNAVAILABLE`; `OUT_OF_RANGE`
 *   for an option; `SYSTEM` with `errno`.
 * - Blocks: while the system takes memory for the file.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_segment_anonymous(const struct thiscpu_segment_options *options,
                                              struct thiscpu_segment **segment);

/**
 * Attaches to the segment of a descriptor, and stores its handle in `*segment`.
 *
 * The descriptor stays the caller's, and may be closed after this call. Owner and mode are not
 * checked: the process that passed it on vouches for it.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `UNKNOWN_TIER`, `TIER_UNAVAILABLE`,
 *   `INVALID_SEGMENT`; `SYSTEM` with `errno`, such as `EBADF`.
 * - Blocks: never for long.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_segment_from_fd(int32_t fd, struct thiscpu_segment **segment);

/**
 * Closes a segment. No thread may use the handle during or after this call.
 *
 * Objects that were opened in it stay usable. The file stays, if it has a name; see `unlink`.
 *
 * - NULL: allowed; does nothing.
 * - Returns: `OK`.
 * - Blocks: never for long.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_segment_close(struct thiscpu_segment *segment);

/**
 * Stores the descriptor of the file in `*fd`, to be passed to another process.
 *
 * It stays the segment's: do not close it. It is closed on exec, unless the program clears that
 * flag of a duplicate.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`; `SYSTEM` with `EBADF` if the program has closed it.
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_segment_fd(struct thiscpu_segment *segment, int32_t *fd);

/**
 * Stores in `*lost` whether a part of the file is gone, because somebody has shortened it.
 *
 * Then zeroed memory of this process replaces the segment. Calls on handles go on there, without a
 * crash, and others do not see what they count. New handles are refused.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_segment_is_lost(struct thiscpu_segment *segment, bool *lost);

/**
 * Stores the number of lanes in `*lanes`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_segment_lanes(struct thiscpu_segment *segment, uint32_t *lanes);

/**
 * Finds the counter of a name in a segment, or makes it; stores its handle in `*counter`.
 *
 * A name is UTF-8 of 1 to 200 bytes, without control characters.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `INVALID_NAME`, `INVALID_SEGMENT`, `SEGMENT_FULL`;
 *   `WRONG_KIND` if the name is that of another kind of object; `SYSTEM` with `errno`.
 * - Blocks: while the system takes memory for the file.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_shared_counter_open(struct thiscpu_segment *segment,
                                                const char *name,
                                                struct thiscpu_shared_counter **counter);

/**
 * Closes a handle, which no thread may use during or after this call. The counter stays.
 *
 * - NULL: allowed; does nothing.
 * - Returns: `OK`.
 * - Blocks: never for long.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_shared_counter_close(struct thiscpu_shared_counter *counter);

/**
 * Adds `n`, which may be negative.
 *
 * Costs one locked instruction on a cache line of this CPU; about twice that if `n` is 32,768 or
 * more, or less than -32,768.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_shared_counter_add(struct thiscpu_shared_counter *counter, int64_t n);

/**
 * Stores the exact value, at one instant of the call, in `*sum`.
 *
 * Includes the adds of all processes. Costs two exchanges for each lane. Adds go on meanwhile.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_shared_counter_sum(struct thiscpu_shared_counter *counter,
                                               int64_t *sum);

/**
 * Finds the counters of a name in a segment, or makes them, and stores their handle.
 *
 * A name is UTF-8 of 1 to 200 bytes, without control characters.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `INVALID_NAME`, `INVALID_SEGMENT`, `SEGMENT_FULL`;
 *   `INVALID_SIZE` if `count` is 0 or greater than `THISCPU_COUNTERS_MAX`; `WRONG_KIND` if the
 *   name is that of another kind of object or number of counters; `SYSTEM` with `errno`.
 * - Blocks: while the system takes memory for the file.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_shared_counters_open(struct thiscpu_segment *segment,
                                                 const char *name,
                                                 size_t count,
                                                 struct thiscpu_shared_counters **counters);

/**
 * Closes a handle, which no thread may use during or after this call. The counters stay.
 *
 * - NULL: allowed; does nothing.
 * - Returns: `OK`.
 * - Blocks: never for long.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_shared_counters_close(struct thiscpu_shared_counters *counters);

/**
 * Stores the number of counters in `*count`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_shared_counters_len(struct thiscpu_shared_counters *counters,
                                                size_t *count);

/**
 * Adds `n`, which may be negative, to counter `index`, as `thiscpu_shared_counter_add` does.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`; `OUT_OF_RANGE` if `index` is too large.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_shared_counters_add(struct thiscpu_shared_counters *counters,
                                                size_t index,
                                                int64_t n);

/**
 * Stores the exact values of all counters, at one instant of the call, in `values`.
 *
 * `capacity` is the number of values that `values` has room for. Costs two exchanges for each
 * counter and lane. Adds go on meanwhile.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`; `INVALID_SIZE` if `capacity` is less than the number of
 *   counters.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_shared_counters_snapshot(struct thiscpu_shared_counters *counters,
                                                     int64_t *values,
                                                     size_t capacity);

/**
 * Attaches to the segment at a path, to read it, and stores its handle in `*view`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `INVALID_SEGMENT`; `SYSTEM` with `errno`, such as
 *   `ENOENT`.
 * - Blocks: never for long.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_segment_view_open(const char *path, struct thiscpu_segment_view **view);

/**
 * Attaches to the segment of a descriptor, to read it, and stores its handle in `*view`.
 *
 * The descriptor stays the caller's, and may be closed after this call.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `INVALID_SEGMENT`; `SYSTEM` with `errno`, such as
 *   `EBADF`.
 * - Blocks: never for long.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_segment_view_from_fd(int32_t fd, struct thiscpu_segment_view **view);

/**
 * Closes a view. No thread may use the handle during or after this call.
 *
 * Counters that were opened in it stay usable.
 *
 * - NULL: allowed; does nothing.
 * - Returns: `OK`.
 * - Blocks: never for long.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_segment_view_close(struct thiscpu_segment_view *view);

/**
 * Stores in `*lost` whether a part of the file is gone, because somebody has shortened it.
 *
 * Then the bounds of each counter are `INT64_MIN` and `INT64_MAX`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_segment_view_is_lost(struct thiscpu_segment_view *view, bool *lost);

/**
 * Finds the counter of a name in a view, and stores its handle in `*counter`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `INVALID_NAME`, `INVALID_SEGMENT`,
 *   `NO_SUCH_OBJECT`; `WRONG_KIND` if the name is that of another kind of object.
 * - Blocks: never for long.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_counter_view_open(struct thiscpu_segment_view *view,
                                              const char *name,
                                              struct thiscpu_counter_view **counter);

/**
 * Closes a handle, which no thread may use during or after this call. The counter stays.
 *
 * - NULL: allowed; does nothing.
 * - Returns: `OK`.
 * - Blocks: never for long.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_counter_view_close(struct thiscpu_counter_view *counter);

/**
 * Stores bounds in `*bounds`; the value was within them at one instant of the call.
 *
 * Equal bounds are the exact value: nobody changed the counter meanwhile. If the counter is only
 * added to, both bounds lie between its values at the beginning and at the end of the call. If the
 * value is unknown, they are `INT64_MIN` and `INT64_MAX`: adders kept saving large amounts, a sum
 * of one sign overflowed, there was no room at the first negative amount, or the segment is lost.
 * Costs a few loads for each lane.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_counter_view_bounds(struct thiscpu_counter_view *counter,
                                                struct thiscpu_bounds *bounds);

/**
 * Finds the counters of a name in a view, and stores their handle in `*counters`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `INVALID_NAME`, `INVALID_SEGMENT`,
 *   `NO_SUCH_OBJECT`; `INVALID_SIZE` if `count` is 0 or greater than `THISCPU_COUNTERS_MAX`;
 *   `WRONG_KIND` if the name is that of another kind of object or number of counters.
 * - Blocks: never for long.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_counters_view_open(struct thiscpu_segment_view *view,
                                               const char *name,
                                               size_t count,
                                               struct thiscpu_counters_view **counters);

/**
 * Closes a handle, which no thread may use during or after this call. The counters stay.
 *
 * - NULL: allowed; does nothing.
 * - Returns: `OK`.
 * - Blocks: never for long.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_counters_view_close(struct thiscpu_counters_view *counters);

/**
 * Stores the number of counters in `*count`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_counters_view_len(struct thiscpu_counters_view *counters,
                                              size_t *count);

/**
 * Stores bounds of each counter in `bounds`, all of which hold at one instant of the call.
 *
 * `capacity` is the number of bounds that `bounds` has room for. Otherwise as
 * `thiscpu_counter_view_bounds`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`; `INVALID_SIZE` if `capacity` is less than the number of
 *   counters.
 * - Blocks: never for long.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_counters_view_bounds(struct thiscpu_counters_view *counters,
                                                 struct thiscpu_bounds *bounds,
                                                 size_t capacity);

/**
 * Finds the budget of a name in a view; stores its handle in `*budget`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `INVALID_NAME`, `INVALID_SEGMENT`,
 *   `NO_SUCH_OBJECT`, `WRONG_KIND`.
 * - Blocks: never for long.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_budget_view_open(struct thiscpu_segment_view *view,
                                             const char *name,
                                             struct thiscpu_budget_view **budget);

/**
 * Closes a handle, which no thread may use during or after this call.
 *
 * - NULL: allowed; does nothing.
 * - Returns: `OK`.
 * - Blocks: never for long.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_budget_view_close(struct thiscpu_budget_view *budget);

/**
 * Stores the processes that use budgets of the segment, in the order of their slots.
 *
 * Stores the first `capacity` of them in `processes`, and in `*count` how many there are, at
 * most 1024. Includes processes that hold nothing of this budget, and ended processes whose units
 * no other process has taken back yet. Changes nothing in the segment. If the file was shortened,
 * there are none. Costs a few loads for each process and lane, and a few system calls for each
 * process; more if it does not hold its lock. The loads for an ended process repeat while other
 * processes change the budget's pool, at most 100 times.
 *
 * - NULL: allowed for `processes` if `capacity` is 0; otherwise not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never for long.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_budget_view_participants(struct thiscpu_budget_view *budget,
                                                     struct thiscpu_budget_participant *processes,
                                                     size_t capacity,
                                                     size_t *count);

/**
 * Stores in `*state` the state that the last operation on the budget has left.
 *
 * A recall of all free units would be a write, so a view makes none. Therefore the state says
 * whether it is exact. Units of processes that have ended count as held until another process
 * takes them back. If the file was shortened, all numbers are 0, and the state is not exact. Costs
 * a few loads and a system call.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_budget_view_state(struct thiscpu_budget_view *budget,
                                              struct thiscpu_budget_state *state);

/**
 * Finds the budget of a name in a segment, or makes it; stores its handle in `*budget`.
 *
 * A budget that exists keeps its limit, whatever `limit` is; see
 * `thiscpu_shared_budget_set_limit`. The first call of a process takes one of the segment's slots
 * for it. A name is UTF-8 of 1 to 200 bytes, without control characters.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `INVALID_NAME`, `INVALID_SEGMENT`, `SEGMENT_FULL`;
 *   `OUT_OF_RANGE` if `limit` is greater than `THISCPU_SHARED_BUDGET_LIMIT_MAX`; `WRONG_KIND` if
 *   the name is that of another kind of object; `NO_SLOT`; `SYSTEM` with `errno`.
 * - Blocks: while the system takes memory for the file.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_shared_budget_open(struct thiscpu_segment *segment,
                                               const char *name,
                                               uint64_t limit,
                                               struct thiscpu_shared_budget **budget);

/**
 * Destroys a handle, which no thread may use during or after this call. The budget stays.
 *
 * - NULL: allowed; does nothing.
 * - Returns: `OK`.
 * - Blocks: never for long.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_shared_budget_destroy(struct thiscpu_shared_budget *budget);

/**
 * Acquires `n` units, or none. Never waits for units.
 *
 * Costs one locked instruction if this process has credit on this CPU; otherwise two exchanges of
 * 16 bytes. A refusal makes a system call for each process that holds units.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `EXHAUSTED`, `CLOSED`; in a child that can take no slot also
 *   `NO_SLOT`, and `SYSTEM` with `errno`.
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_shared_budget_try_acquire(struct thiscpu_shared_budget *budget,
                                                      uint64_t n);

/**
 * Acquires as many units as are available, at most `n`, and stores in `*acquired` how many.
 *
 * Stores 0 if no unit is available, if the budget is closed, or if
 * `thiscpu_shared_budget_try_acquire` would fail for another reason.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_shared_budget_try_acquire_up_to(struct thiscpu_shared_budget *budget,
                                                            uint64_t n,
                                                            uint64_t *acquired);

/**
 * Acquires `n` units; blocks until they are available, or the budget is closed.
 *
 * First come, first served, over all processes. A request above the limit blocks until the limit
 * is raised, and blocks every request that comes after it.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `CLOSED`; in a child that can take no slot also `NO_SLOT`, and
 *   `SYSTEM` with `errno`.
 * - Blocks: until `n` units are available, or the budget is closed.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_shared_budget_acquire(struct thiscpu_shared_budget *budget, uint64_t n);

/**
 * Acquires `n` units; blocks until they are available, for at most `timeout_ns` nanoseconds.
 *
 * Otherwise like `thiscpu_shared_budget_acquire`. `UINT64_MAX` is 584 years: no timeout, in
 * practice.
 *
 * - NULL: not allowed.
 * - Returns: as `thiscpu_shared_budget_acquire`; `EXHAUSTED` if the time is over.
 * - Blocks: until `n` units are available, the budget is closed, or the time is over.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_shared_budget_acquire_timeout(struct thiscpu_shared_budget *budget,
                                                          uint64_t n,
                                                          uint64_t timeout_ns);

/**
 * Acquires `n` units; blocks until they are available, or until a deadline.
 *
 * `deadline_ns` is in nanoseconds of `CLOCK_MONOTONIC`. Otherwise like
 * `thiscpu_shared_budget_acquire`.
 *
 * - NULL: not allowed.
 * - Returns: as `thiscpu_shared_budget_acquire`; `EXHAUSTED` if the deadline is over.
 * - Blocks: until `n` units are available, the budget is closed, or the deadline is over.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_shared_budget_acquire_deadline(struct thiscpu_shared_budget *budget,
                                                           uint64_t n,
                                                           uint64_t deadline_ns);

/**
 * Releases `n` units, which another thread of this process may have acquired.
 *
 * Costs one locked instruction, or two exchanges of 16 bytes near the limit; if it grants units to
 * a waiter, also a system call. If `n` is more than `THISCPU_SHARED_BUDGET_LIMIT_MAX`, the call
 * releases nothing; see `thiscpu_shared_budget_over_released`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_shared_budget_release(struct thiscpu_shared_budget *budget, uint64_t n);

/**
 * Stores in `*available` how many units are available at one instant of the call.
 *
 * While anybody waits for units it stores 0. For a closed budget it stores how many units nobody
 * holds. Takes the credit of all processes back, and asks the kernel about each that holds units.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_shared_budget_available(struct thiscpu_shared_budget *budget,
                                                    uint64_t *available);

/**
 * Stores in `*acquired` how many units all processes hold, at one instant of the call.
 *
 * Costs as much as `thiscpu_shared_budget_available`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_shared_budget_acquired(struct thiscpu_shared_budget *budget,
                                                   uint64_t *acquired);

/**
 * Stores in `*units` how many units processes have released although they did not hold them.
 *
 * Such a release is a bug of its caller. A call finds the excess when it looks at the units of
 * each process, or when the process has ended. Then the call takes the excess back, and adds it to
 * this number. The first excess of a budget is also reported on standard error. Until an excess is
 * found, the limit can be exceeded by as many units. Costs one load.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_shared_budget_over_released(struct thiscpu_shared_budget *budget,
                                                        uint64_t *units);

/**
 * Stores the limit in `*limit`. Costs two loads.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_shared_budget_limit(struct thiscpu_shared_budget *budget,
                                                uint64_t *limit);

/**
 * Changes the limit, for all processes, at one instant of the call.
 *
 * A limit below the units held takes nothing from their holders. Then no units are granted until
 * enough units have been released.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`; `OUT_OF_RANGE` if `limit` is greater than
 *   `THISCPU_SHARED_BUDGET_LIMIT_MAX`.
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_shared_budget_set_limit(struct thiscpu_shared_budget *budget,
                                                    uint64_t limit);

/**
 * Closes the budget for all processes: ends all waits, and refuses all later acquires.
 *
 * Units that are held stay held; release them as usual. A budget cannot be opened again as long as
 * the segment exists; closing it twice does nothing.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_shared_budget_close(struct thiscpu_shared_budget *budget);

/**
 * Stores in `*closed` whether the budget is closed. Costs one load.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_shared_budget_is_closed(struct thiscpu_shared_budget *budget,
                                                    bool *closed);

/**
 * Stores in `*waiters` how many threads and tasks wait for units, in all processes.
 *
 * Looks at each waiter of the segment. The number includes waiters of processes whose end nobody
 * has noticed yet.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
enum thiscpu_status thiscpu_shared_budget_waiters(struct thiscpu_shared_budget *budget,
                                                  size_t *waiters);

/**
 * Acquires `n` units as a lease, whose handle it stores in `*lease`. Never waits for units.
 *
 * Costs as much as `thiscpu_shared_budget_try_acquire`, the memory of a handle, and two atomic
 * additions.
 *
 * - NULL: not allowed.
 * - Returns: as `thiscpu_shared_budget_try_acquire`; `NO_MEMORY`.
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_shared_budget_try_lease(struct thiscpu_shared_budget *budget,
                                                    uint64_t n,
                                                    struct thiscpu_shared_lease **lease);

/**
 * Acquires `n` units as a lease; blocks until they are available, or the budget is closed.
 *
 * Otherwise like `thiscpu_shared_budget_acquire`.
 *
 * - NULL: not allowed.
 * - Returns: as `thiscpu_shared_budget_acquire`; `NO_MEMORY`.
 * - Blocks: until `n` units are available, or the budget is closed.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_shared_budget_lease(struct thiscpu_shared_budget *budget,
                                                uint64_t n,
                                                struct thiscpu_shared_lease **lease);

/**
 * Acquires `n` units as a lease; blocks until they are available, for at most `timeout_ns`.
 *
 * Otherwise like `thiscpu_shared_budget_acquire_timeout`.
 *
 * - NULL: not allowed.
 * - Returns: as `thiscpu_shared_budget_acquire_timeout`; `NO_MEMORY`.
 * - Blocks: until `n` units are available, the budget is closed, or the time is over.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_shared_budget_lease_timeout(struct thiscpu_shared_budget *budget,
                                                        uint64_t n,
                                                        uint64_t timeout_ns,
                                                        struct thiscpu_shared_lease **lease);

/**
 * Acquires `n` units as a lease; blocks until they are available, or until a deadline.
 *
 * Otherwise like `thiscpu_shared_budget_acquire_deadline`.
 *
 * - NULL: not allowed.
 * - Returns: as `thiscpu_shared_budget_acquire_deadline`; `NO_MEMORY`.
 * - Blocks: until `n` units are available, the budget is closed, or the deadline is over.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_shared_budget_lease_deadline(struct thiscpu_shared_budget *budget,
                                                         uint64_t n,
                                                         uint64_t deadline_ns,
                                                         struct thiscpu_shared_lease **lease);

/**
 * Stores in `*units` how many units the lease holds.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_shared_lease_units(struct thiscpu_shared_lease *lease, uint64_t *units);

/**
 * Splits off a lease of `n` units and stores its handle in `*part`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`; `OUT_OF_RANGE` if the lease holds fewer units.
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_shared_lease_split(struct thiscpu_shared_lease *lease,
                                               uint64_t n,
                                               struct thiscpu_shared_lease **part);

/**
 * Adds the units of the lease `other` to `lease`, and destroys the handle `other`.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`; `WRONG_BUDGET` if the leases belong to different budgets or
 *   processes, or are one lease (neither is changed or destroyed).
 * - Blocks: never.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_shared_lease_merge(struct thiscpu_shared_lease *lease,
                                               struct thiscpu_shared_lease *other);

/**
 * Destroys the handle of a lease but keeps its units acquired.
 *
 * Stores their number in `*units`. The caller may release them by `thiscpu_shared_budget_release`.
 * Otherwise they come back when the process ends, or detaches from the segment.
 *
 * - NULL: allowed for `units`.
 * - Returns: `OK`, `NULL_POINTER`.
 * - Blocks: never for long.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_shared_lease_forget(struct thiscpu_shared_lease *lease,
                                                uint64_t *units);

/**
 * Releases the units of a lease and destroys its handle.
 *
 * - NULL: allowed; does nothing.
 * - Returns: `OK`.
 * - Blocks: never for long.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_shared_lease_destroy(struct thiscpu_shared_lease *lease);

/**
 * Requests `n` units without blocking, and stores the handle of the request in `*acquire`.
 *
 * `wake` is called with `context` when the units are granted, the budget is closed, or the file
 * was shortened. It may also be called before that; then `take` returns `PENDING`, and `wake` is
 * called again. Usually it runs on a thread that the library starts, with a stack of 256 KiB. It
 * may also run in this call, even before this has stored the handle.
 *
 * If the system makes no thread, it also runs in `take`, on the thread of the caller, for any
 * request of the segment. So `wake` must not lock what a caller holds around these two functions.
 * It should only note the event, for example by a write to an eventfd. It must return soon, so it
 * must not throw or call `longjmp`. It must not destroy or take a request.
 *
 * - NULL: allowed for `context`, which is only passed on.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`. `OK` does not mean that the units are granted;
 *   `thiscpu_shared_acquire_take` tells.
 * - Blocks: never for units.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_shared_budget_acquire_async(struct thiscpu_shared_budget *budget,
                                                        uint64_t n,
                                                        void (*wake)(void *context),
                                                        void *context,
                                                        struct thiscpu_shared_acquire **acquire);

/**
 * Stores the lease of a granted request in `*lease`. Never waits for units.
 *
 * The request still has to be destroyed, which does not affect the lease.
 *
 * - NULL: not allowed.
 * - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`; `PENDING` if the request still waits; `CLOSED` if
 *   the budget was closed before it granted the request; `EMPTY` if the lease was taken before; in
 *   a child that can take no slot also `NO_SLOT`, and `SYSTEM` with `errno`; `INVALID_SEGMENT` if
 *   somebody has shortened the file.
 * - Blocks: never for units.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_shared_acquire_take(struct thiscpu_shared_acquire *acquire,
                                                struct thiscpu_shared_lease **lease);

/**
 * Destroys a request. If it waits, it leaves the queue.
 *
 * Units that were granted but not taken are released. After this call its callback is not running,
 * and will not be called.
 *
 * - NULL: allowed; does nothing.
 * - Returns: `OK`.
 * - Blocks: while the callback runs on another thread. Must not be called from a callback.
 * - Signal handlers: not allowed.
 */
enum thiscpu_status thiscpu_shared_acquire_destroy(struct thiscpu_shared_acquire *acquire);

/**
 * Prepares the calling thread for a child of `clone(CLONE_VM)` that uses the library.
 *
 * `vfork` needs no preparation if the program itself links this library, whose `vfork` calls this
 * function and `thiscpu_vfork_leave`. Other calls need both, such as `clone` with `CLONE_VM` and
 * `CLONE_VFORK`, or `vfork` if only a plugin links this library. Their child finds its parent's
 * rseq area, but the kernel has registered no area for the child. Until `thiscpu_vfork_leave`,
 * this thread and its children use the shared lane. If the thread goes on while the child runs,
 * give the child thread-local memory of its own (`CLONE_SETTLS`), and let it call this function
 * first. The child must not wait for units of a budget.
 *
 * - Returns: a value to pass to `thiscpu_vfork_leave`.
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
uint32_t thiscpu_vfork_enter(void);

/**
 * Ends what `thiscpu_vfork_enter` began, after the child has ended.
 *
 * Only the parent calls it, after the child has executed another program or exited, or after the
 * call that makes the child has failed. `previous` is the result of `thiscpu_vfork_enter`, so
 * calls may be nested.
 *
 * - Blocks: never.
 * - Signal handlers: allowed.
 */
void thiscpu_vfork_leave(uint32_t previous);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* THISCPU_H */


/* Outside of the include guard, because it has a guard of its own. */
#include "thiscpu_inline.h"
