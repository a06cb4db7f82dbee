// thiscpu for C++17: what thiscpu.h has, with handles that end themselves.
//
// What goes wrong throws thiscpu::error, or, where exceptions are switched off, says so and ends the program: in constructors
// what a program cannot help (no memory, a wrong THISCPU_TIER), elsewhere what a program that is right does not do, such as to
// use a handle that was moved from. What a right program has to reckon with (a refusal, an empty stack) is what calls return.
// Threads may share a handle as they may in C; making, moving and ending it is one thread's.
// Nothing is ever thrown through the library: see thiscpu.h for what each function promises and costs.

#ifndef THISCPU_HPP
#define THISCPU_HPP

#include "thiscpu.h"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(__cpp_exceptions)
#include <exception>
#endif

namespace thiscpu {

// Both may be in one program, and are not the same functions.
#if defined(__cpp_exceptions)
inline namespace with_exceptions {
#else
inline namespace without_exceptions {
#endif

#if defined(__cpp_exceptions)
/// What is wrong, and the status that says so.
class error : public std::exception {
  public:
    explicit error(thiscpu_status status) noexcept : status_(status) {}
    const char *what() const noexcept override { return thiscpu_strerror(status_); }
    thiscpu_status status() const noexcept { return status_; }

  private:
    thiscpu_status status_;
};
#endif

namespace detail {

inline void check(thiscpu_status status) {
    if (status != THISCPU_STATUS_OK) {
#if defined(__cpp_exceptions)
        throw error(status);
#else
        std::fprintf(stderr, "thiscpu: %s\n", thiscpu_strerror(status));
        std::abort();
#endif
    }
}

/// A handle that ends itself; moved from, it is none.
template <class T, thiscpu_status (*End)(T *)> class handle {
  public:
    handle(handle &&other) noexcept : it_(std::exchange(other.it_, nullptr)) {}
    handle &operator=(handle &&other) noexcept {
        handle moved(std::move(other));
        std::swap(it_, moved.it_);
        return *this;
    }
    handle(const handle &) = delete;
    handle &operator=(const handle &) = delete;
    ~handle() { End(it_); }

    /// For the functions of thiscpu.h.
    T *get() const noexcept { return it_; }

  protected:
    handle() noexcept = default;
    T *it_ = nullptr;
};

} // namespace detail

/// What this process runs on.
inline thiscpu_tier tier() {
    thiscpu_tier tier;
    detail::check(thiscpu_get_tier(&tier));
    return tier;
}

/// A counter: adds of about a nanosecond, exact sums at any time.
class counter : public detail::handle<thiscpu_counter, thiscpu_counter_destroy> {
  public:
    counter() { detail::check(thiscpu_counter_create(&it_)); }

    void add(std::int64_t n) { detail::check(thiscpu_counter_add(it_, n)); }
    counter &operator+=(std::int64_t n) {
        add(n);
        return *this;
    }
    void operator++() { add(1); }
    void operator--() { add(-1); }

    /// An estimate.
    std::int64_t read() const {
        std::int64_t value;
        detail::check(thiscpu_counter_read(it_, &value));
        return value;
    }
    thiscpu_bounds bounds() const {
        thiscpu_bounds bounds;
        detail::check(thiscpu_counter_bounds(it_, &bounds));
        return bounds;
    }
    /// The exact value, at one instant.
    std::int64_t sum() const {
        std::int64_t sum;
        detail::check(thiscpu_counter_sum(it_, &sum));
        return sum;
    }
    void set(std::int64_t value) { detail::check(thiscpu_counter_set(it_, value)); }
    /// The exact value, which is 0 from then on.
    std::int64_t take() {
        std::int64_t value;
        detail::check(thiscpu_counter_take(it_, &value));
        return value;
    }
    /// Below 0 if the value is below `rhs`, 0 if it is the same.
    int compare(std::int64_t rhs) const {
        std::int32_t ordering;
        detail::check(thiscpu_counter_compare(it_, rhs, &ordering));
        return ordering;
    }
};

/// Units of a budget, released when this goes. The budget must outlive it.
class lease {
  public:
    lease(lease &&other) noexcept : budget_(other.budget_), units_(std::exchange(other.units_, 0)) {}
    /// Of units that were acquired already, by whatever function.
    lease(thiscpu_budget *budget, std::uint64_t units) noexcept : budget_(budget), units_(units) {}
    lease &operator=(lease &&other) noexcept {
        lease moved(std::move(other));
        std::swap(budget_, moved.budget_);
        std::swap(units_, moved.units_);
        return *this;
    }
    lease(const lease &) = delete;
    lease &operator=(const lease &) = delete;
    ~lease() {
        if (units_ > 0) {
            thiscpu_budget_release(budget_, units_);
        }
    }

    std::uint64_t units() const noexcept { return units_; }
    /// Keeps the units acquired: somebody else releases them.
    std::uint64_t forget() noexcept { return std::exchange(units_, 0); }

  private:
    thiscpu_budget *budget_;
    std::uint64_t units_;
};

/// A limit that is never exceeded and never refused wrongly.
class budget : public detail::handle<thiscpu_budget, thiscpu_budget_destroy> {
  public:
    explicit budget(std::uint64_t limit) { detail::check(thiscpu_budget_create(limit, &it_)); }

    /// Whether `n` units were acquired; else none was.
    [[nodiscard]] bool try_acquire(std::uint64_t n) { return granted(thiscpu_budget_try_acquire(it_, n)); }
    [[nodiscard]] std::uint64_t try_acquire_up_to(std::uint64_t n) {
        std::uint64_t acquired;
        detail::check(thiscpu_budget_try_acquire_up_to(it_, n, &acquired));
        return acquired;
    }
    /// Waits for them.
    void acquire(std::uint64_t n) { detail::check(thiscpu_budget_acquire(it_, n)); }
    template <class Rep, class Period>
    [[nodiscard]] bool acquire_for(std::uint64_t n, std::chrono::duration<Rep, Period> timeout) {
        return granted(thiscpu_budget_acquire_timeout(it_, n, nanoseconds(timeout)));
    }
    void release(std::uint64_t n) { detail::check(thiscpu_budget_release(it_, n)); }
    /// Units that are released when the lease goes; nothing if there are not so many.
    [[nodiscard]] std::optional<lease> try_lease(std::uint64_t n) {
        if (!try_acquire(n)) {
            return std::nullopt;
        }
        return lease(it_, n);
    }
    /// The same, waiting for them.
    [[nodiscard]] lease lease_when_free(std::uint64_t n) {
        acquire(n);
        return lease(it_, n);
    }
    /// The same, waiting at most so long; nothing if there were not so many.
    template <class Rep, class Period>
    [[nodiscard]] std::optional<lease> lease_for(std::uint64_t n, std::chrono::duration<Rep, Period> timeout) {
        if (!acquire_for(n, timeout)) {
            return std::nullopt;
        }
        return lease(it_, n);
    }

    std::uint64_t available() const { return number(thiscpu_budget_available); }
    std::uint64_t acquired() const { return number(thiscpu_budget_acquired); }
    std::uint64_t limit() const { return number(thiscpu_budget_limit); }
    void set_limit(std::uint64_t limit) { detail::check(thiscpu_budget_set_limit(it_, limit)); }

  private:
    /// As many as there are, up to 292 years.
    template <class Rep, class Period> static std::uint64_t nanoseconds(std::chrono::duration<Rep, Period> time) {
        std::chrono::duration<double, std::nano> about = time;
        if (!(about.count() > 0)) {
            return 0;
        }
        if (about.count() >= 9.2e18) {
            return UINT64_MAX;
        }
        return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
    }
    static bool granted(thiscpu_status status) {
        if (status == THISCPU_STATUS_EXHAUSTED) {
            return false;
        }
        detail::check(status);
        return true;
    }
    std::uint64_t number(thiscpu_status (*ask)(thiscpu_budget *, std::uint64_t *)) const {
        std::uint64_t number;
        detail::check(ask(it_, &number));
        return number;
    }
};

class ledger;

/// One account of a ledger, closed when this goes.
class account : public detail::handle<thiscpu_account, thiscpu_account_close> {
  public:
    void charge(std::size_t index, std::int64_t n) { detail::check(thiscpu_account_charge(it_, index, n)); }
    void charge_uncached(std::size_t index, std::int64_t n) {
        detail::check(thiscpu_account_charge_uncached(it_, index, n));
    }
    std::int64_t read(std::size_t index) const {
        std::int64_t value;
        detail::check(thiscpu_account_read(it_, index, &value));
        return value;
    }
    std::int64_t sum(std::size_t index) const {
        std::int64_t sum;
        detail::check(thiscpu_account_sum(it_, index, &sum));
        return sum;
    }
    /// As many as the ledger was made with, all at one instant; their number must be given.
    std::vector<std::int64_t> snapshot(std::size_t counters) const {
        std::vector<std::int64_t> values(counters);
        detail::check(thiscpu_account_snapshot(it_, values.data(), values.size()));
        return values;
    }
    void transfer_to(account &other, std::size_t index, std::int64_t n) {
        detail::check(thiscpu_account_transfer(it_, other.it_, index, n));
    }
    std::uint64_t id() const {
        std::uint64_t id;
        detail::check(thiscpu_account_id(it_, &id));
        return id;
    }

  private:
    friend class ledger;
    explicit account(thiscpu_ledger *ledger) { detail::check(thiscpu_account_open(ledger, &it_)); }
};

/// Accounts for any number of owners.
class ledger : public detail::handle<thiscpu_ledger, thiscpu_ledger_destroy> {
  public:
    explicit ledger(std::size_t counters, bool is_signed = false) : counters_(counters) {
        detail::check(thiscpu_ledger_create(counters, is_signed, &it_));
    }

    account open() { return account(it_); }
    std::size_t len() const {
        std::size_t len;
        detail::check(thiscpu_ledger_len(it_, &len));
        return len;
    }
    void sync() { detail::check(thiscpu_ledger_sync(it_)); }
    /// The number and the counters of each account that is open, all at one instant.
    std::vector<std::pair<std::uint64_t, std::vector<std::int64_t>>> snapshot() const {
        // What a callback throws must not pass through the library, so it only copies, and memory is asked for here.
        struct copies {
            std::size_t counters;
            std::vector<std::pair<std::uint64_t, std::vector<std::int64_t>>> accounts;
            bool is_short;
        } copies = {counters_, {}, false};
        detail::check(thiscpu_ledger_for_each(it_, copy<struct copies>, &copies));
        detail::check(copies.is_short ? THISCPU_STATUS_NO_MEMORY : THISCPU_STATUS_OK);
        return std::move(copies.accounts);
    }

  private:
    template <class Copies> static void copy(std::uint64_t number, const std::int64_t *counters, void *context) {
        auto &copies = *static_cast<Copies *>(context);
#if defined(__cpp_exceptions)
        try {
            copies.accounts.emplace_back(number, std::vector<std::int64_t>(counters, counters + copies.counters));
        } catch (...) {
            copies.is_short = true;
        }
#else
        copies.accounts.emplace_back(number, std::vector<std::int64_t>(counters, counters + copies.counters));
#endif
    }
    std::size_t counters_;
};

/// Objects of one type, allocated and freed on any CPU. Where some are still out when it goes, they stay, with what they need to be freed, for ever;
/// `close` says how many there are.
template <class T> class cache : public detail::handle<thiscpu_cache, thiscpu_cache_destroy> {
  public:
    cache() { detail::check(thiscpu_cache_create(sizeof(T), alignof(T), &it_)); }

    /// A new object. Throws std::bad_alloc where there is no memory (null without exceptions), and what the constructor throws.
    template <class... Arguments> [[nodiscard]] T *make(Arguments &&...arguments) {
        void *place = thiscpu_cache_alloc(it_);
#if defined(__cpp_exceptions)
        if (place == nullptr) {
            throw std::bad_alloc();
        }
        try {
            return ::new (place) T(std::forward<Arguments>(arguments)...);
        } catch (...) {
            thiscpu_cache_free(it_, place);
            throw;
        }
#else
        return place == nullptr ? nullptr : ::new (place) T(std::forward<Arguments>(arguments)...);
#endif
    }
    /// Destroys and frees an object of this cache; null is none.
    void destroy(T *object) noexcept {
        if (object != nullptr) {
            object->~T();
            thiscpu_cache_free(it_, object);
        }
    }
    std::size_t shrink() {
        std::size_t bytes;
        detail::check(thiscpu_cache_shrink(it_, &bytes));
        return bytes;
    }
    /// Ends it if no object is out, and then it is none. How many are.
    [[nodiscard]] std::size_t close() {
        std::size_t objects = 0;
        thiscpu_status status = thiscpu_cache_close(it_, &objects);
        if (status != THISCPU_STATUS_IN_USE) {
            detail::check(status);
            it_ = nullptr;
        }
        return objects;
    }
    thiscpu_cache_statistics stats() const {
        thiscpu_cache_statistics stats;
        detail::check(thiscpu_cache_stats(it_, &stats));
        return stats;
    }
};

/// A word of which each CPU has its own.
template <class T> class word : public detail::handle<thiscpu_word, thiscpu_word_destroy> {
    static_assert(std::is_unsigned_v<T> && !std::is_same_v<T, bool> && sizeof(T) <= 8, "words are unsigned, of 1, 2, 4 or 8 bytes");

  public:
    word() { detail::check(thiscpu_word_create(sizeof(T), &it_)); }

    void add(T n) { detail::check(thiscpu_word_add(it_, n)); }
    T add_return(T n) {
        std::uint64_t sum;
        detail::check(thiscpu_word_add_return(it_, n, &sum));
        return static_cast<T>(sum);
    }
    T exchange(T desired) {
        std::uint64_t old;
        detail::check(thiscpu_word_xchg(it_, desired, &old));
        return static_cast<T>(old);
    }
    /// Whether it was done; if not, `expected` is what is there.
    bool compare_exchange(T &expected, T desired) {
        std::uint64_t found;
        thiscpu_status status = thiscpu_word_cmpxchg(it_, expected, desired, &found);
        if (status == THISCPU_STATUS_MISMATCH) {
            expected = static_cast<T>(found);
            return false;
        }
        detail::check(status);
        return true;
    }
    /// Those of all CPUs, each as it was at some moment of its own.
    std::vector<T> values() const {
        std::size_t count = 0;
        std::vector<std::uint64_t> wide;
        do {
            wide.resize(count);
            detail::check(thiscpu_word_values(it_, wide.data(), wide.size(), &count));
        } while (count > wide.size());
        return std::vector<T>(wide.begin(), wide.end());
    }
};

/// Two adjacent halves of which each CPU has its own.
template <class T> class pair : public detail::handle<thiscpu_pair, thiscpu_pair_destroy> {
    static_assert(std::is_unsigned_v<T> && (sizeof(T) == 4 || sizeof(T) == 8), "halves are unsigned, of 4 or 8 bytes");

  public:
    pair() { detail::check(thiscpu_pair_create(sizeof(T), &it_)); }

    /// Whether it was done; if not, `expected` is what is there.
    bool compare_exchange(std::pair<T, T> &expected, std::pair<T, T> desired) {
        thiscpu_halves old = {expected.first, expected.second};
        thiscpu_halves wanted = {desired.first, desired.second};
        thiscpu_status status = thiscpu_pair_cmpxchg(it_, &old, &wanted, &old);
        if (status == THISCPU_STATUS_MISMATCH) {
            expected = {static_cast<T>(old.first), static_cast<T>(old.second)};
            return false;
        }
        detail::check(status);
        return true;
    }
    /// Those of all CPUs.
    std::vector<std::pair<T, T>> values() const {
        std::size_t count = 0;
        std::vector<thiscpu_halves> wide;
        do {
            wide.resize(count);
            detail::check(thiscpu_pair_values(it_, wide.data(), wide.size(), &count));
        } while (count > wide.size());
        std::vector<std::pair<T, T>> values;
        for (const auto &halves : wide) {
            values.emplace_back(static_cast<T>(halves.first), static_cast<T>(halves.second));
        }
        return values;
    }
};

/// A stack of which each CPU has its own, of nodes that begin with a thiscpu_link.
class stack : public detail::handle<thiscpu_stack, thiscpu_stack_destroy> {
  public:
    stack() { detail::check(thiscpu_stack_create(&it_)); }

    void push(thiscpu_link *node) { detail::check(thiscpu_stack_push(it_, node)); }
    /// Null if this CPU has none.
    [[nodiscard]] thiscpu_link *pop() { return taken(thiscpu_stack_pop); }
    [[nodiscard]] thiscpu_link *take_all() { return taken(thiscpu_stack_take_all); }
    /// Calls `each` with the nodes of all CPUs, one after the other. Nobody else may use the stack meanwhile.
    template <class Each> void drain(Each each) {
        thiscpu_link *rest = nullptr;
        // Only linked here, so that what `each` throws does not pass through the library.
        detail::check(thiscpu_stack_drain(it_, link, &rest));
        // What `each` was not given, because it threw, is in the stack again.
        struct put_back {
            thiscpu_stack *stack;
            thiscpu_link *&rest;
            ~put_back() {
                while (rest != nullptr) {
                    thiscpu_stack_push(stack, next());
                }
            }
            thiscpu_link *next() {
                thiscpu_link *node = rest;
                rest = node->next;
                return node;
            }
        } nodes{it_, rest};
        while (rest != nullptr) {
            each(nodes.next());
        }
    }

  private:
    thiscpu_link *taken(thiscpu_status (*take)(thiscpu_stack *, thiscpu_link **)) {
        thiscpu_link *node;
        thiscpu_status status = take(it_, &node);
        detail::check(status == THISCPU_STATUS_EMPTY ? THISCPU_STATUS_OK : status);
        return node;
    }
    static void link(thiscpu_link *node, void *context) {
        auto **rest = static_cast<thiscpu_link **>(context);
        node->next = *rest;
        *rest = node;
    }
};

} // namespace with_exceptions, or without_exceptions
} // namespace thiscpu

#endif
