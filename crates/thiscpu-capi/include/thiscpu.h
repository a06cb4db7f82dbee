/*
 * thiscpu: per-CPU data for ordinary Linux programs.
 *
 * Every function returns a thiscpu_status, unless it says otherwise: THISCPU_STATUS_OK, which is 0, or what is
 * wrong, which thiscpu_strerror puts in words. Handles come from a `_create` or `_open` and are valid until their
 * `_destroy` or `_close`; a null handle is an error, and one that was never made or has ended must not be used.
 * Handles, and what functions write to, must be valid and aligned; nothing is written but where a call succeeds, unless
 * its documentation says so. Besides the errors that are said at a function, one that is given a pointer which is not
 * aligned returns THISCPU_STATUS_MISALIGNED, and every `_create` and `_open` THISCPU_STATUS_NO_MEMORY if there is none
 * for its handle.
 *
 * Thread safety is said at each type, errors and units at each function. After `fork` everything may be used in the child,
 * and its values are the child's own from then on; children of `vfork` and `clone(CLONE_VM)` must not use it. What a
 * structure promises and costs is the same as in Rust: see docs/guide.md, and docs/c.md.
 *
 * Linux on x86-64 and AArch64. THISCPU_TIER in the environment chooses what it runs on; unset means the best.
 */

#ifndef THISCPU_H
#define THISCPU_H

/* Made by `cargo xtask header` from the sources of thiscpu-capi. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** The version of this header; thiscpu_version() is that of the library that is running. */
#define THISCPU_VERSION "0.1.0"

#define THISCPU_ALIGNED(n) __attribute__((aligned(n)))


/**
 * The largest limit there can be, 2^56.
 */
#define THISCPU_BUDGET_LIMIT_MAX 72057594037927936

/**
 * The largest number of counters that an account can have.
 */
#define THISCPU_LEDGER_COUNTERS_MAX 8

/**
 * What became of a call. `THISCPU_STATUS_OK` is 0; after anything else nothing was changed, unless the function says so. `thiscpu_strerror` says it in words.
 */
typedef enum thiscpu_status {
  /**
   * Done.
   */
  THISCPU_STATUS_OK = 0,
  /**
   * Refused: there are not as many units as were asked for, or they are promised to somebody who waits.
   */
  THISCPU_STATUS_EXHAUSTED,
  /**
   * Refused: the value is not what the caller took it for.
   */
  THISCPU_STATUS_MISMATCH,
  /**
   * There is nothing to take.
   */
  THISCPU_STATUS_EMPTY,
  /**
   * Objects of the cache are still out.
   */
  THISCPU_STATUS_IN_USE,
  /**
   * A handle, or another pointer that is needed, is null.
   */
  THISCPU_STATUS_NULL_POINTER,
  /**
   * A pointer is not a multiple of the alignment of what it points to. Every function that is given one looks at it; inlined calls do not.
   */
  THISCPU_STATUS_MISALIGNED,
  /**
   * A size, an alignment or a number of counters that there cannot be.
   */
  THISCPU_STATUS_INVALID_SIZE,
  /**
   * A number is above the largest there is, or there is no counter of that index.
   */
  THISCPU_STATUS_OUT_OF_RANGE,
  /**
   * An account of another ledger.
   */
  THISCPU_STATUS_WRONG_LEDGER,
  /**
   * `THISCPU_TIER` names no tier.
   */
  THISCPU_STATUS_UNKNOWN_TIER,
  /**
   * `THISCPU_TIER` names a tier that this process cannot have.
   */
  THISCPU_STATUS_TIER_UNAVAILABLE,
  /**
   * The system gave no address space for lanes.
   */
  THISCPU_STATUS_NO_ADDRESS_SPACE,
  /**
   * The system gave no memory.
   */
  THISCPU_STATUS_NO_MEMORY,
  /**
   * A fence is no longer possible, which exact answers need: a sandbox that was installed after the
   * start denies `membarrier` and `sched_setaffinity`. It stays so; do not retry.
   */
  THISCPU_STATUS_FENCE_DENIED,
  /**
   * More units were released to a budget than were held, by this call or an earlier one. The excess is
   * discarded, and the budget is consistent again.
   */
  THISCPU_STATUS_OVER_RELEASED,
  /**
   * A bug of this library. Standard error has the details; please report them.
   */
  THISCPU_STATUS_INTERNAL,
} thiscpu_status;

/**
 * What this process runs on. What is counted, and what a sum means, is the same on each; speed differs.
 */
typedef enum thiscpu_tier {
  /**
   * Restartable sequences, indexed by the number that the kernel gives each running thread (Linux 6.3).
   */
  THISCPU_TIER_RSEQ_CID = 0,
  /**
   * Restartable sequences, indexed by CPU (Linux 5.10).
   */
  THISCPU_TIER_RSEQ_CPU,
  /**
   * Ordinary atomic instructions.
   */
  THISCPU_TIER_ATOMIC,
} thiscpu_tier;

/**
 * One account of a ledger. All its functions may be called by any number of threads at once, `thiscpu_account_close` by the last.
 */
typedef struct thiscpu_account thiscpu_account;

/**
 * A limit that is never exceeded and never refused wrongly, at about a nanosecond a call while there is room. Units are
 * whatever the program counts by it: bytes, connections, tokens.
 *
 * All its functions may be called by any number of threads at once, `thiscpu_budget_destroy` by the last. Units belong to nobody: who
 * releases them need not be who acquired them. From signal handlers only `thiscpu_budget_release` may be called.
 *
 * Who releases more than is held makes an error that is found by that call or by a later one, of whomever, which returns
 * `THISCPU_STATUS_OVER_RELEASED, THISCPU_STATUS_FENCE_DENIED` then: what was too much is dropped, and the budget is right again. The same status is returned where fences have become
 * impossible, by each call that finds too little without one: the units that CPUs keep cannot be had any more. Standard error says which it is.
 *
 * A budget orders nothing but itself: unlike a mutex or a semaphore it does not have an acquire see what was written before a release.
 */
typedef struct thiscpu_budget thiscpu_budget;

/**
 * Objects of one size, allocated and freed on any CPU at about a nanosecond each: the kernel's `kmem_cache`.
 *
 * All its functions may be called by any number of threads at once, `thiscpu_cache_close` and `thiscpu_cache_destroy` by the last.
 * None may be called from signal handlers. What was done with an object before it was freed comes before what is done with it after it was
 * allocated again, on whatever CPU.
 *
 * Some mistakes are noticed, and end the process with a line that says which address it is: what is freed twice (at once as a rule, unless somebody
 * else got it in between), what is freed to another cache (when CPUs give back what they keep), and a write to the first 8 bytes of
 * a free object (when that is allocated). Reads of free objects, other writes to them, and writes beyond an object's end are not noticed.
 */
typedef struct thiscpu_cache thiscpu_cache;

/**
 * A counter: adds that cost about a nanosecond on any number of CPUs, and exact sums at any time without making the
 * writers wait. 64 bits, which wrap around.
 *
 * All its functions may be called by any number of threads at once, `thiscpu_counter_destroy` by the last. Adding never waits, and may be
 * done in signal handlers and in children of `fork`; a child goes on with a counter of its own, from what the parent had. A counter orders nothing
 * but itself: who sees a sum need not see what was written before the adds in it.
 */
typedef struct thiscpu_counter thiscpu_counter;

/**
 * Accounts for any number of owners, each with the same counters, charged in a cache on each CPU, and exact on demand. Counters are 62 bits
 * wide, from -2^61 to 2^61 - 1, and wrap around beyond.
 *
 * All its functions may be called by any number of threads at once, `thiscpu_ledger_destroy` by the last. A ledger lives on until its
 * last account is closed. None may be called from signal handlers.
 */
typedef struct thiscpu_ledger thiscpu_ledger;

/**
 * Two adjacent halves of 4 or 8 bytes of which each CPU has its own, compared and replaced as one, by one store. Halves are 64 bits in every
 * function.
 *
 * All its functions may be called by any number of threads at once, `thiscpu_pair_destroy` by the last. But for that and
 * `thiscpu_pair_create` they never wait, and may be called from signal handlers too.
 */
typedef struct thiscpu_pair thiscpu_pair;

/**
 * A stack of which each CPU has its own, last in first out, for nodes that are not needed right now: what another CPU has
 * is out of reach.
 *
 * Pushing and taking may be done by any number of threads at once, and in signal handlers; they never wait. `thiscpu_stack_drain` and
 * `thiscpu_stack_destroy` are for who is alone with the stack.
 */
typedef struct thiscpu_stack thiscpu_stack;

/**
 * A word of 1, 2, 4 or 8 bytes of which each CPU has its own: what is done to one happens in one restartable sequence, without
 * an atomic instruction. It is no atomic operation towards other CPUs, which have their own words; and the thread may be on another by the time
 * the call returns. An inlined add to a word of less than 8 bytes takes two sections, the first of which is refused. Values are 64 bits in every function; of those that go into a narrower word the lower bits are taken.
 * A handle says where the word is, and is no address of anything itself.
 *
 * All its functions may be called by any number of threads at once, `thiscpu_word_destroy` by the last. But for that and
 * `thiscpu_word_create` they never wait, and may be called from signal handlers too.
 */
typedef struct thiscpu_word thiscpu_word;

/**
 * What a counter's value was within, at one instant of the call.
 */
typedef struct thiscpu_bounds {
  /**
   * The value was not below this.
   */
  int64_t low;
  /**
   * The estimate that `thiscpu_counter_read` gives.
   */
  int64_t estimate;
  /**
   * The value was not above this.
   */
  int64_t high;
} thiscpu_bounds;

/**
 * What a cache has, about, and what it has done.
 */
typedef struct thiscpu_cache_statistics {
  /**
   * The bytes of an object.
   */
  size_t object_bytes;
  /**
   * Slabs, which hold the objects.
   */
  size_t slabs;
  /**
   * The bytes of those.
   */
  size_t slab_bytes;
  /**
   * Objects that are not free in a slab: those in use, and those that CPUs and their shared stores keep.
   */
  size_t objects_outside_slabs;
  /**
   * Objects that the shared stores keep.
   */
  size_t objects_in_barns;
  /**
   * How many objects a CPU trades with its store at a time.
   */
  size_t sheaf_capacity;
  /**
   * How often that was done.
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
   * The next node of a stack that `thiscpu_stack_take_all` has given out; null if that was the last.
   */
  struct thiscpu_link *next;
} thiscpu_link;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * A status in words, for a person: what is wrong, and what to do. Never null, and valid for ever; a number that is no status
 * is said to be none. May be called from anywhere.
 */
const char *thiscpu_strerror(int32_t status);

/**
 * The version of the library that is running, as `THISCPU_VERSION` is that of the header. Never null, and valid for ever. May be
 * called from anywhere.
 */
const char *thiscpu_version(void);

/**
 * Finds out what this process runs on, which the first use of anything else does too; all later calls say the same. To be called
 * at the start of a program that wants to know a wrong `THISCPU_TIER` then, and not by the first `_create`.
 *
 * Thread safe. Errors: `THISCPU_STATUS_NULL_POINTER`, `THISCPU_STATUS_UNKNOWN_TIER`, `THISCPU_STATUS_TIER_UNAVAILABLE`.
 */
enum thiscpu_status thiscpu_get_tier(enum thiscpu_tier *tier);

/**
 * Makes a counter that is 0, and puts its handle into `*counter`. The handle is valid until `thiscpu_counter_destroy`.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER`, `THISCPU_STATUS_UNKNOWN_TIER`, `THISCPU_STATUS_TIER_UNAVAILABLE`.
 */
enum thiscpu_status thiscpu_counter_create(struct thiscpu_counter **counter);

/**
 * Ends a counter. Null is none, and `THISCPU_STATUS_OK`. Nobody may use the handle any more, nor be using it.
 */
enum thiscpu_status thiscpu_counter_destroy(struct thiscpu_counter *counter);

/**
 * Adds `n`, which may be negative. One restartable sequence; never waits.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER`.
 */
enum thiscpu_status thiscpu_counter_add(struct thiscpu_counter *counter, int64_t n);

/**
 * An estimate of the value, into `*value`: the middle of the bounds, which are about 2,048 times the square of the CPUs in use apart. A few loads;
 * never waits.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER`.
 */
enum thiscpu_status thiscpu_counter_read(struct thiscpu_counter *counter,
                                         int64_t *value);

/**
 * Limits that the value was within at one instant of the call, updates in flight included, into `*bounds`. A few
 * loads; never waits.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER`.
 */
enum thiscpu_status thiscpu_counter_bounds(struct thiscpu_counter *counter,
                                           struct thiscpu_bounds *bounds);

/**
 * The exact value at one instant of the call, into `*sum`. One fence (0.2 us in an idle process, 10 to 30 us where other CPUs
 * run it); those who add are not held up. Not from signal handlers.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER`; `THISCPU_STATUS_FENCE_DENIED` if fences have become impossible.
 */
enum thiscpu_status thiscpu_counter_sum(struct thiscpu_counter *counter,
                                        int64_t *sum);

/**
 * Makes the value `value`, at one instant: what was added before is forgotten, what is added after counts on. Costs a fence, and
 * waits for other callers of this, `_sum`, `_take` and `_compare`. Not from signal handlers.
 *
 * Errors: as for `thiscpu_counter_sum`.
 */
enum thiscpu_status thiscpu_counter_set(struct thiscpu_counter *counter,
                                        int64_t value);

/**
 * Makes the value 0, and puts what it was into `*value`, at one instant: nothing that is added is lost or counted twice. Otherwise as
 * `thiscpu_counter_set`.
 *
 * Errors: as for `thiscpu_counter_sum`.
 */
enum thiscpu_status thiscpu_counter_take(struct thiscpu_counter *counter,
                                         int64_t *value);

/**
 * Compares the value with `rhs`, as it was at one instant of the call: -1 into `*ordering` if it is below, 0 if it is the same, 1 if it is
 * above. A few loads if it is far; near, a fence. Otherwise as `thiscpu_counter_set`.
 *
 * Errors: as for `thiscpu_counter_sum`.
 */
enum thiscpu_status thiscpu_counter_compare(struct thiscpu_counter *counter,
                                            int64_t rhs,
                                            int32_t *ordering);

/**
 * Makes a budget of `limit` units, all of them free, and puts its handle into `*budget`. The handle is valid until
 * `thiscpu_budget_destroy`.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER`; `THISCPU_STATUS_OUT_OF_RANGE` if the limit is above `THISCPU_BUDGET_LIMIT_MAX`;
 * `THISCPU_STATUS_UNKNOWN_TIER`, `THISCPU_STATUS_TIER_UNAVAILABLE`.
 */
enum thiscpu_status thiscpu_budget_create(uint64_t limit,
                                          struct thiscpu_budget **budget);

/**
 * Ends a budget. Null is none, and `THISCPU_STATUS_OK`. Nobody may use the handle any more, nor wait for units.
 */
enum thiscpu_status thiscpu_budget_destroy(struct thiscpu_budget *budget);

/**
 * Acquires `n` units, or none. One restartable sequence while there is room; near the limit an atomic instruction, or a fence.
 * Never waits for units.
 *
 * Errors: `THISCPU_STATUS_EXHAUSTED`; `THISCPU_STATUS_NULL_POINTER`; `THISCPU_STATUS_OVER_RELEASED, THISCPU_STATUS_FENCE_DENIED` if it is found now that more was released than
 * acquired, and then it is to be tried again; or if fences have become impossible, and then it is not. Nothing is acquired in either case.
 */
enum thiscpu_status thiscpu_budget_try_acquire(struct thiscpu_budget *budget,
                                               uint64_t n);

/**
 * Acquires as many units as there are, at most `n`, and puts their number into `*acquired`; 0 is no error.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER`, `THISCPU_STATUS_OVER_RELEASED, THISCPU_STATUS_FENCE_DENIED`, as above.
 */
enum thiscpu_status thiscpu_budget_try_acquire_up_to(struct thiscpu_budget *budget,
                                                     uint64_t n,
                                                     uint64_t *acquired);

/**
 * Acquires `n` units, and waits until there are so many: first come, first served. Waits for ever for more than the limit,
 * and those who come later with it, unless the limit is raised. Not from signal handlers.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER`, `THISCPU_STATUS_OVER_RELEASED, THISCPU_STATUS_FENCE_DENIED`, as above.
 */
enum thiscpu_status thiscpu_budget_acquire(struct thiscpu_budget *budget,
                                           uint64_t n);

/**
 * The same, for at most so many nanoseconds; `UINT64_MAX` are 584 years.
 *
 * Errors: `THISCPU_STATUS_EXHAUSTED` if the time is over, and nothing was acquired; `THISCPU_STATUS_NULL_POINTER`, `THISCPU_STATUS_OVER_RELEASED, THISCPU_STATUS_FENCE_DENIED`, as above.
 */
enum thiscpu_status thiscpu_budget_acquire_timeout(struct thiscpu_budget *budget,
                                                   uint64_t n,
                                                   uint64_t timeout_ns);

/**
 * Gives `n` units back. One restartable sequence, or one atomic addition. Waits for nobody, unless it finds that more is released than is
 * held.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER`; `THISCPU_STATUS_OVER_RELEASED, THISCPU_STATUS_FENCE_DENIED` if more is released than is held, by this call or an earlier one. What
 * is held of it is released all the same, or nothing if it is more than all that is held. Also if that has to be found out and fences have
 * become impossible, and then the units are lost. Not to be tried again.
 */
enum thiscpu_status thiscpu_budget_release(struct thiscpu_budget *budget,
                                           uint64_t n);

/**
 * How many units are free, at one instant of the call, into `*available`; 0 while somebody waits. Costs a fence if CPUs hold
 * credit. Not from signal handlers.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER`, `THISCPU_STATUS_OVER_RELEASED, THISCPU_STATUS_FENCE_DENIED`, as above.
 */
enum thiscpu_status thiscpu_budget_available(struct thiscpu_budget *budget,
                                             uint64_t *available);

/**
 * How many units are held, at one instant of the call, into `*acquired`. Otherwise as `thiscpu_budget_available`.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER`, `THISCPU_STATUS_OVER_RELEASED, THISCPU_STATUS_FENCE_DENIED`, as above.
 */
enum thiscpu_status thiscpu_budget_acquired(struct thiscpu_budget *budget,
                                            uint64_t *acquired);

/**
 * The limit, into `*limit`. One load.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER`.
 */
enum thiscpu_status thiscpu_budget_limit(struct thiscpu_budget *budget, uint64_t *limit);

/**
 * Changes the limit, at one instant. Below what is held nothing is taken from anybody, and nothing is granted until enough
 * has been released. Costs a fence if CPUs hold credit. Not from signal handlers.
 *
 * Errors: `THISCPU_STATUS_OUT_OF_RANGE` if the limit is above `THISCPU_BUDGET_LIMIT_MAX`; `THISCPU_STATUS_NULL_POINTER`; `THISCPU_STATUS_OVER_RELEASED, THISCPU_STATUS_FENCE_DENIED` if it is
 * found now that more was released than acquired, and the limit is changed all the same; or if fences have become impossible, and it is not.
 */
enum thiscpu_status thiscpu_budget_set_limit(struct thiscpu_budget *budget,
                                             uint64_t limit);

/**
 * Makes a ledger whose accounts have so many counters, from 1 to `THISCPU_LEDGER_COUNTERS_MAX`, and puts its handle into `*ledger`. If
 * counters are never negative, because whoever uncharges has charged before, `is_signed` is false, and then
 * `thiscpu_account_read` shows no negative values either.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER`; `THISCPU_STATUS_INVALID_SIZE` if there cannot be so many counters; `THISCPU_STATUS_UNKNOWN_TIER`,
 * `THISCPU_STATUS_TIER_UNAVAILABLE`.
 */
enum thiscpu_status thiscpu_ledger_create(size_t counters,
                                          bool is_signed,
                                          struct thiscpu_ledger **ledger);

/**
 * Ends a handle of a ledger; accounts stay open. Null is none, and `THISCPU_STATUS_OK`. Nobody may use the handle any more, nor
 * be using it.
 */
enum thiscpu_status thiscpu_ledger_destroy(struct thiscpu_ledger *ledger);

/**
 * How many accounts are open, into `*len`. A load.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER`.
 */
enum thiscpu_status thiscpu_ledger_len(struct thiscpu_ledger *ledger, size_t *len);

/**
 * Adds what CPUs hold to the accounts it belongs to, so that `thiscpu_account_read` misses only what is charged afterwards. A
 * fence for each account that a CPU holds something of. Waits for reports, and they for it.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER`; `THISCPU_STATUS_FENCE_DENIED` if fences have become impossible: some accounts may have got what is theirs.
 */
enum thiscpu_status thiscpu_ledger_sync(struct thiscpu_ledger *ledger);

/**
 * Calls `each` for each open account with its number, its counters (as many as the ledger was created with), and `context`: all as they were at
 * one instant of the call, in no order that means anything. Takes about 0.15 us an account and 16 bytes a counter meanwhile; charges go on. `each`
 * may do anything, but it must return, and not by an exception (which ends the process) or `longjmp`. Where there is no memory for it the process
 * ends.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER` if the handle or `each` is; `THISCPU_STATUS_FENCE_DENIED` if fences have become impossible.
 */
enum thiscpu_status thiscpu_ledger_for_each(struct thiscpu_ledger *ledger,
                                            void (*each)(uint64_t number,
                                                         const int64_t *counters,
                                                         void *context),
                                            void *context);

/**
 * Opens an account whose counters are 0, and puts its handle into `*account`. The handle is valid until `thiscpu_account_close`. About
 * 0.1 us; but while `thiscpu_ledger_for_each` looks at all accounts it waits for the first half of that, some 60 ms where there are a million.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER`; `THISCPU_STATUS_NO_MEMORY`.
 */
enum thiscpu_status thiscpu_account_open(struct thiscpu_ledger *ledger,
                                         struct thiscpu_account **account);

/**
 * Closes an account; what is in its counters is gone. Null is none, and `THISCPU_STATUS_OK`. Nobody may use the handle any more, nor be
 * using it.
 */
enum thiscpu_status thiscpu_account_close(struct thiscpu_account *account);

/**
 * Adds `n`, which may be negative, to counter `index`. One restartable sequence if this CPU has the account in its cache, else an atomic
 * addition. Waits only for exact answers about this account.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER`; `THISCPU_STATUS_OUT_OF_RANGE` if there is no counter `index`.
 */
enum thiscpu_status thiscpu_account_charge(struct thiscpu_account *account,
                                           size_t index,
                                           int64_t n);

/**
 * The same for who charges somebody else's account: it does not get into this CPU's cache, in the place of accounts that belong there. One
 * atomic addition.
 *
 * Errors: as for `thiscpu_account_charge`.
 */
enum thiscpu_status thiscpu_account_charge_uncached(struct thiscpu_account *account,
                                                    size_t index,
                                                    int64_t n);

/**
 * Counter `index` without what CPUs hold of it, into `*value`: seldom more than 1,024 for each. A few loads; never waits.
 *
 * Errors: as for `thiscpu_account_charge`.
 */
enum thiscpu_status thiscpu_account_read(struct thiscpu_account *account,
                                         size_t index,
                                         int64_t *value);

/**
 * Counter `index`, exactly, at one instant of the call, into `*sum`. One lock, and one fence if a CPU holds some of it.
 *
 * Errors: as for `thiscpu_account_charge`; `THISCPU_STATUS_FENCE_DENIED` if fences have become impossible.
 */
enum thiscpu_status thiscpu_account_sum(struct thiscpu_account *account,
                                        size_t index,
                                        int64_t *sum);

/**
 * All counters, exactly, at one instant of the call, into `counters`, where there has to be room for all.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER`; `THISCPU_STATUS_INVALID_SIZE` if there is not room for all; `THISCPU_STATUS_FENCE_DENIED` as above.
 */
enum thiscpu_status thiscpu_account_snapshot(struct thiscpu_account *account,
                                             int64_t *counters,
                                             size_t capacity);

/**
 * Takes `n` from counter `index` of one account and adds it to that of another of the same ledger, at one instant: whoever looks at both
 * sees both or neither.
 *
 * Errors: as for `thiscpu_account_charge`; `THISCPU_STATUS_WRONG_LEDGER` if they are not of one ledger.
 */
enum thiscpu_status thiscpu_account_transfer(struct thiscpu_account *from,
                                             struct thiscpu_account *to,
                                             size_t index,
                                             int64_t n);

/**
 * The account's number, into `*id`: no other account of its ledger ever had the same.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER`.
 */
enum thiscpu_status thiscpu_account_id(struct thiscpu_account *account, uint64_t *id);

/**
 * Makes a cache of objects of so many bytes, at most 1,048,576, at multiples of `align`, a power of two of at most 65,536, and puts its handle into
 * `*cache`. The handle is valid until `thiscpu_cache_close` or `thiscpu_cache_destroy`.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER`; `THISCPU_STATUS_INVALID_SIZE` if there is no such size or alignment; `THISCPU_STATUS_UNKNOWN_TIER`,
 * `THISCPU_STATUS_TIER_UNAVAILABLE`.
 */
enum thiscpu_status thiscpu_cache_create(size_t bytes,
                                         size_t align,
                                         struct thiscpu_cache **cache);

/**
 * Ends a cache that no object is out of, and gives its memory back. Nobody may use the handle any more, nor be using it. Null is none,
 * and `THISCPU_STATUS_OK`.
 *
 * `*objects` (which may be null) becomes the number of objects that are still allocated: 0 if the cache is gone.
 *
 * Errors: `THISCPU_STATUS_IN_USE` if there are some: the handle stays valid then.
 */
enum thiscpu_status thiscpu_cache_close(struct thiscpu_cache *cache,
                                        size_t *objects);

/**
 * Ends a cache, also if objects are still out: they stay valid for ever. Nobody may use the handle any more, nor be using it, and nobody can free
 * those objects then. Null is none, and `THISCPU_STATUS_OK`.
 */
enum thiscpu_status thiscpu_cache_destroy(struct thiscpu_cache *cache);

/**
 * An object that nobody else has until it is freed, uninitialized but for its first 8 bytes, which are 0. Null if there is no memory, or the
 * handle is null or misaligned: this returns no status. One restartable sequence, as long as this CPU has some.
 */
void *thiscpu_cache_alloc(struct thiscpu_cache *cache);

/**
 * Frees an object of the cache, on any thread. Null is none, and `THISCPU_STATUS_OK`. One restartable sequence, as long as this CPU has
 * room.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER` if the handle is null.
 */
enum thiscpu_status thiscpu_cache_free(struct thiscpu_cache *cache,
                                       void *object);

/**
 * Gives what is free back to the system, of this cache and of others; how many bytes that were into `*bytes`, which may be null. A fence.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER` if the handle is null.
 */
enum thiscpu_status thiscpu_cache_shrink(struct thiscpu_cache *cache,
                                         size_t *bytes);

/**
 * What the cache has and has done, into `*stats`. Looks at all of its slabs; numbers that change meanwhile do not belong to one instant.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER`.
 */
enum thiscpu_status thiscpu_cache_stats(struct thiscpu_cache *cache,
                                        struct thiscpu_cache_statistics *stats);

/**
 * Makes a word of so many bytes that is 0 on every CPU, and puts its handle into `*word`. The handle is valid until
 * `thiscpu_word_destroy`. May wait for another thread that creates something.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER`; `THISCPU_STATUS_INVALID_SIZE` if `bytes` is not 1, 2, 4 or 8; `THISCPU_STATUS_NO_ADDRESS_SPACE`;
 * `THISCPU_STATUS_UNKNOWN_TIER`, `THISCPU_STATUS_TIER_UNAVAILABLE`.
 */
enum thiscpu_status thiscpu_word_create(size_t bytes,
                                        struct thiscpu_word **word);

/**
 * Ends a word. Null is none, and `THISCPU_STATUS_OK`. Nobody may use the handle any more, nor be using it.
 */
enum thiscpu_status thiscpu_word_destroy(struct thiscpu_word *word);

/**
 * Adds `n` to this CPU's word, which wraps around.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER`.
 */
enum thiscpu_status thiscpu_word_add(struct thiscpu_word *word, uint64_t n);

/**
 * The same, and what the word is then into `*sum`.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER`.
 */
enum thiscpu_status thiscpu_word_add_return(struct thiscpu_word *word, uint64_t n, uint64_t *sum);

/**
 * Replaces this CPU's word by `desired`, and puts what it was into `*old`.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER`.
 */
enum thiscpu_status thiscpu_word_xchg(struct thiscpu_word *word, uint64_t desired, uint64_t *old);

/**
 * Replaces this CPU's word by `desired` if it is `old`.
 *
 * Errors: `THISCPU_STATUS_MISMATCH` if it is something else, which is put into `*found` (that may be null); `THISCPU_STATUS_NULL_POINTER`.
 */
enum thiscpu_status thiscpu_word_cmpxchg(struct thiscpu_word *word,
                                         uint64_t old,
                                         uint64_t desired,
                                         uint64_t *found);

/**
 * The words of all CPUs, each as it was at some moment of its own. The first is that of threads which had no CPU of their own to work on; the
 * others are in the order in which they were first used, and have nothing to do with the numbers of CPUs. As many as there is capacity for into `values`, and how many
 * there are into `*count`. There is one for each CPU that was used, and one more, and their number may grow; with a `capacity` of 0 `values` may be null.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER`.
 */
enum thiscpu_status thiscpu_word_values(struct thiscpu_word *word,
                                        uint64_t *values,
                                        size_t capacity,
                                        size_t *count);

/**
 * Makes a pair of halves of so many bytes, (0, 0) on every CPU, and puts its handle into `*pair`. The handle is valid until
 * `thiscpu_pair_destroy`. May wait for another thread that creates something.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER`; `THISCPU_STATUS_INVALID_SIZE` if `half_bytes` is not 4 or 8; `THISCPU_STATUS_NO_ADDRESS_SPACE`;
 * `THISCPU_STATUS_UNKNOWN_TIER`, `THISCPU_STATUS_TIER_UNAVAILABLE`.
 */
enum thiscpu_status thiscpu_pair_create(size_t half_bytes,
                                        struct thiscpu_pair **pair);

/**
 * Ends a pair. Null is none, and `THISCPU_STATUS_OK`. Nobody may use the handle any more, nor be using it.
 */
enum thiscpu_status thiscpu_pair_destroy(struct thiscpu_pair *pair);

/**
 * Replaces this CPU's pair by `*desired` if it is `*old`.
 *
 * Errors: `THISCPU_STATUS_MISMATCH` if it is something else, which is put into `*found` (that may be null, or `old`);
 * `THISCPU_STATUS_MISALIGNED` if a pointer is no multiple of 16; `THISCPU_STATUS_OUT_OF_RANGE` if a half does not fit into its
 * bytes; `THISCPU_STATUS_NULL_POINTER`.
 */
enum thiscpu_status thiscpu_pair_cmpxchg(struct thiscpu_pair *pair,
                                         const struct thiscpu_halves *old,
                                         const struct thiscpu_halves *desired,
                                         struct thiscpu_halves *found);

/**
 * The pairs of all CPUs, each half as it was at some moment of its own: as many as there is room for into `values`, and how many
 * there are into `*count`. There is one for each CPU that was used, and one more, and their number may grow; with a `capacity` of 0 `values` may be null.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER`, `THISCPU_STATUS_MISALIGNED`.
 */
enum thiscpu_status thiscpu_pair_values(struct thiscpu_pair *pair,
                                        struct thiscpu_halves *values,
                                        size_t capacity,
                                        size_t *count);

/**
 * Makes a stack that is empty on every CPU, and puts its handle into `*stack`. The handle is valid until
 * `thiscpu_stack_destroy`. May wait for another thread that creates something.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER`; `THISCPU_STATUS_NO_ADDRESS_SPACE`; `THISCPU_STATUS_UNKNOWN_TIER`,
 * `THISCPU_STATUS_TIER_UNAVAILABLE`.
 */
enum thiscpu_status thiscpu_stack_create(struct thiscpu_stack **stack);

/**
 * Ends a stack; nodes that are in it are forgotten, see `thiscpu_stack_drain`. Null is none, and `THISCPU_STATUS_OK`. Nobody may use the handle
 * any more, nor be using it.
 */
enum thiscpu_status thiscpu_stack_destroy(struct thiscpu_stack *stack);

/**
 * Puts a node in front of this CPU's stack. The node must be in no stack, and its memory must stay readable as long as the stack lives, also
 * after it was taken out: another thread may still look at its link, and discard what it saw.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER`; `THISCPU_STATUS_MISALIGNED`.
 */
enum thiscpu_status thiscpu_stack_push(struct thiscpu_stack *stack,
                                       struct thiscpu_link *node);

/**
 * Takes the first node off this CPU's stack, into `*node`.
 *
 * Errors: `THISCPU_STATUS_EMPTY`, and `*node` is null then; `THISCPU_STATUS_NULL_POINTER`.
 */
enum thiscpu_status thiscpu_stack_pop(struct thiscpu_stack *stack, struct thiscpu_link **node);

/**
 * Takes this CPU's whole stack, its first node into `*first`.
 *
 * Errors: `THISCPU_STATUS_EMPTY`, and `*first` is null then; `THISCPU_STATUS_NULL_POINTER`.
 */
enum thiscpu_status thiscpu_stack_take_all(struct thiscpu_stack *stack, struct thiscpu_link **first);

/**
 * Takes the nodes of all CPUs' stacks, and then calls `each` with one after the other and with `context`. Nobody else may use the stack
 * meanwhile. `each` may free the node, or push it again; it must return, and not by an exception (which ends the process) or `longjmp`.
 *
 * Errors: `THISCPU_STATUS_NULL_POINTER` if the handle or `each` is.
 */
enum thiscpu_status thiscpu_stack_drain(struct thiscpu_stack *stack,
                                        void (*each)(struct thiscpu_link *node, void *context),
                                        void *context);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* THISCPU_H */


#include "thiscpu_inline.h"
