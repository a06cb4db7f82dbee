// thiscpu for C++17: a class for each type of thiscpu.h, which owns its handle.
//
// A class can be moved, not copied; get() returns the handle for functions of thiscpu.h. Using an
// object that was moved from is an error. Guarantees, costs, and which functions may be called from
// where, are those of thiscpu.h.
//
// Errors: an expected outcome (a refusal, an empty stack) is a return value. Any other status
// throws thiscpu::error; with exceptions disabled it prints the message and aborts. No exception
// passes through the library.
//
// Threads: an object may be shared as a handle may be in C. No other thread may use it while it is
// constructed, moved or destroyed.

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

// A program may have both versions, which are different functions.
#if defined(__cpp_exceptions)
inline namespace with_exceptions {
#else
inline namespace without_exceptions {
#endif

#if defined(__cpp_exceptions)
/// The error that a failed call throws.
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

/// Converts a duration; one of 292 years or more is unlimited.
template <class Rep, class Period>
std::uint64_t nanoseconds(std::chrono::duration<Rep, Period> time) {
    // In `double` first, which cannot overflow.
    std::chrono::duration<double, std::nano> about = time;
    if (!(about.count() > 0)) {
        return 0;
    }
    if (about.count() >= 9.2e18) {
        return UINT64_MAX;
    }
    auto exact = std::chrono::duration_cast<std::chrono::nanoseconds>(time);
    return static_cast<std::uint64_t>(exact.count());
}

/// Returns whether units were acquired, or throws.
inline bool granted(thiscpu_status status) {
    if (status == THISCPU_STATUS_EXHAUSTED || status == THISCPU_STATUS_CLOSED) {
        return false;
    }
    detail::check(status);
    return true;
}

/// Owns a handle and destroys it. After a move there is no handle.
template <class T, thiscpu_status (*Destroy)(T *)> class handle {
  public:
    handle(handle &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    handle &operator=(handle &&other) noexcept {
        handle moved(std::move(other));
        std::swap(handle_, moved.handle_);
        return *this;
    }
    handle(const handle &) = delete;
    handle &operator=(const handle &) = delete;
    ~handle() { Destroy(handle_); }

    /// Returns the handle, for functions of thiscpu.h.
    T *get() const noexcept { return handle_; }

  protected:
    handle() noexcept = default;
    T *handle_ = nullptr;
};

} // namespace detail

/// Returns the tier that this process runs on.
inline thiscpu_tier tier() {
    thiscpu_tier tier;
    detail::check(thiscpu_get_tier(&tier));
    return tier;
}

/// A counter with per-CPU adds and exact sums. See thiscpu_counter.
class counter : public detail::handle<thiscpu_counter, thiscpu_counter_destroy> {
  public:
    counter() { detail::check(thiscpu_counter_create(&handle_)); }
    /// Creates a counter whose CPUs publish their count after adding about `batch`.
    static counter with_batch(std::uint64_t batch) {
        thiscpu_counter *created;
        detail::check(thiscpu_counter_create_with_batch(batch, &created));
        return counter(created);
    }

    /// Adds `n`, which may be negative.
    void add(std::int64_t n) { detail::check(thiscpu_counter_add(handle_, n)); }
    counter &operator+=(std::int64_t n) {
        add(n);
        return *this;
    }
    void operator++() { add(1); }
    void operator--() { add(-1); }

    /// Returns an estimate of the value.
    std::int64_t read() const {
        std::int64_t value;
        detail::check(thiscpu_counter_read(handle_, &value));
        return value;
    }
    /// Returns bounds that the value was within at one instant.
    thiscpu_bounds bounds() const {
        thiscpu_bounds bounds;
        detail::check(thiscpu_counter_bounds(handle_, &bounds));
        return bounds;
    }
    /// Returns the exact value at one instant.
    std::int64_t sum() const {
        std::int64_t sum;
        detail::check(thiscpu_counter_sum(handle_, &sum));
        return sum;
    }
    /// Sets the value, at one instant.
    void set(std::int64_t value) { detail::check(thiscpu_counter_set(handle_, value)); }
    /// Sets the value to 0 and returns the exact previous value, at one instant.
    std::int64_t take() {
        std::int64_t value;
        detail::check(thiscpu_counter_take(handle_, &value));
        return value;
    }
    /// Returns a number less than, equal to or greater than 0, as the exact value is to `rhs`.
    int compare(std::int64_t rhs) const {
        std::int32_t ordering;
        detail::check(thiscpu_counter_compare(handle_, rhs, &ordering));
        return ordering;
    }
    /// Returns what thiscpu::sum_all takes. The counter must live until then.
    thiscpu_summable summable() const noexcept { return {handle_, nullptr}; }

  private:
    explicit counter(thiscpu_counter *owned) noexcept { handle_ = owned; }
};

/// Adds 1 to a counter, and subtracts it on destruction. The counter must outlive it.
class in_flight {
  public:
    explicit in_flight(counter &of) : counter_(of.get()) {
        detail::check(thiscpu_counter_add(counter_, 1));
    }
    in_flight(in_flight &&other) noexcept : counter_(std::exchange(other.counter_, nullptr)) {}
    in_flight &operator=(in_flight &&other) noexcept {
        in_flight moved(std::move(other));
        std::swap(counter_, moved.counter_);
        return *this;
    }
    in_flight(const in_flight &) = delete;
    in_flight &operator=(const in_flight &) = delete;
    ~in_flight() {
        if (counter_ != nullptr) {
            thiscpu_counter_add(counter_, -1);
        }
    }

  private:
    thiscpu_counter *counter_;
};

/// Counters that can be read at one instant. See thiscpu_counters.
class counters : public detail::handle<thiscpu_counters, thiscpu_counters_destroy> {
  public:
    explicit counters(std::size_t count) {
        detail::check(thiscpu_counters_create(count, &handle_));
    }

    /// Returns the number of counters.
    std::size_t len() const {
        std::size_t len;
        detail::check(thiscpu_counters_len(handle_, &len));
        return len;
    }
    /// Adds `n`, which may be negative, to counter `index`.
    void add(std::size_t index, std::int64_t n) {
        detail::check(thiscpu_counters_add(handle_, index, n));
    }
    /// Returns an estimate of counter `index`.
    std::int64_t read(std::size_t index) const {
        std::int64_t value;
        detail::check(thiscpu_counters_read(handle_, index, &value));
        return value;
    }
    /// Returns the exact value of counter `index` at one instant.
    std::int64_t sum(std::size_t index) const {
        std::int64_t sum;
        detail::check(thiscpu_counters_sum(handle_, index, &sum));
        return sum;
    }
    /// Returns the exact values of all counters at one instant.
    std::vector<std::int64_t> snapshot() const {
        std::vector<std::int64_t> values(len());
        detail::check(thiscpu_counters_snapshot(handle_, values.data(), values.size()));
        return values;
    }
    /// Returns what thiscpu::sum_all takes. The counters must live until then.
    thiscpu_summable summable() const noexcept { return {nullptr, handle_}; }
};

/// Returns the exact values of counters, in order, for one fence. See thiscpu_sum_all.
inline std::vector<std::int64_t> sum_all(const std::vector<thiscpu_summable> &summables) {
    std::size_t length = 0;
    for (const auto &summable : summables) {
        std::size_t len = 0;
        if (summable.counters != nullptr) {
            detail::check(thiscpu_counters_len(summable.counters, &len));
        }
        length += len + (summable.counter != nullptr ? 1 : 0);
    }
    std::vector<std::int64_t> values(length);
    detail::check(
        thiscpu_sum_all(summables.data(), summables.size(), values.data(), values.size()));
    return values;
}

class segment;

/// A counter that processes share. segment::counter makes it. See thiscpu_shared_counter.
class shared_counter : public detail::handle<thiscpu_shared_counter, thiscpu_shared_counter_close> {
  public:
    shared_counter(const segment &segment, const char *name);

    /// Adds `n`, which may be negative.
    void add(std::int64_t n) { detail::check(thiscpu_shared_counter_add(handle_, n)); }
    shared_counter &operator+=(std::int64_t n) {
        add(n);
        return *this;
    }
    void operator++() { add(1); }
    void operator--() { add(-1); }

    /// Returns the exact value at one instant.
    std::int64_t sum() const {
        std::int64_t sum;
        detail::check(thiscpu_shared_counter_sum(handle_, &sum));
        return sum;
    }
};

/// Counters that processes share, and that are read at one instant. See thiscpu_shared_counters.
class shared_counters
    : public detail::handle<thiscpu_shared_counters, thiscpu_shared_counters_close> {
  public:
    shared_counters(const segment &segment, const char *name, std::size_t count);

    /// Returns the number of counters.
    std::size_t len() const {
        std::size_t len;
        detail::check(thiscpu_shared_counters_len(handle_, &len));
        return len;
    }
    /// Adds `n`, which may be negative, to counter `index`.
    void add(std::size_t index, std::int64_t n) {
        detail::check(thiscpu_shared_counters_add(handle_, index, n));
    }
    /// Returns the exact values of all counters at one instant.
    std::vector<std::int64_t> snapshot() const {
        std::vector<std::int64_t> values(len());
        detail::check(thiscpu_shared_counters_snapshot(handle_, values.data(), values.size()));
        return values;
    }
};

/// Units of a shared budget, released on destruction. See thiscpu_shared_lease.
class shared_lease : public detail::handle<thiscpu_shared_lease, thiscpu_shared_lease_destroy> {
  public:
    /// Takes over a handle, such as one from thiscpu_shared_acquire_take.
    explicit shared_lease(thiscpu_shared_lease *lease) noexcept { handle_ = lease; }

    /// Returns how many units the lease holds.
    std::uint64_t units() const {
        std::uint64_t units;
        detail::check(thiscpu_shared_lease_units(handle_, &units));
        return units;
    }
    /// Splits off a lease of `n` units. Throws if this lease holds fewer.
    [[nodiscard]] shared_lease split(std::uint64_t n) {
        thiscpu_shared_lease *part;
        detail::check(thiscpu_shared_lease_split(handle_, n, &part));
        return shared_lease(part);
    }
    /// Adds the units of another lease. Throws if it is one of another budget, which keeps it.
    void merge(shared_lease &&other) {
        detail::check(thiscpu_shared_lease_merge(handle_, other.handle_));
        other.handle_ = nullptr;
    }
    /// Keeps the units acquired, and returns their number.
    std::uint64_t forget() {
        std::uint64_t units;
        detail::check(thiscpu_shared_lease_forget(handle_, &units));
        handle_ = nullptr;
        return units;
    }
};

/// Units up to a limit that processes share. segment::budget makes it. See thiscpu_shared_budget.
class shared_budget : public detail::handle<thiscpu_shared_budget, thiscpu_shared_budget_destroy> {
  public:
    shared_budget(const segment &segment, const char *name, std::uint64_t limit);

    /// Acquires `n` units or none. Returns whether it did. Never waits for units.
    [[nodiscard]] bool try_acquire(std::uint64_t n) {
        return detail::granted(thiscpu_shared_budget_try_acquire(handle_, n));
    }
    /// Acquires as many units as are available, at most `n`, and returns how many.
    [[nodiscard]] std::uint64_t try_acquire_up_to(std::uint64_t n) {
        std::uint64_t acquired;
        detail::check(thiscpu_shared_budget_try_acquire_up_to(handle_, n, &acquired));
        return acquired;
    }
    /// Acquires `n` units as a lease, or nothing. Never waits for units.
    [[nodiscard]] std::optional<shared_lease> try_lease(std::uint64_t n) {
        thiscpu_shared_lease *lease;
        if (!detail::granted(thiscpu_shared_budget_try_lease(handle_, n, &lease))) {
            return std::nullopt;
        }
        return shared_lease(lease);
    }
    /// Acquires `n` units as a lease; blocks until then. Returns nothing if the budget is closed.
    [[nodiscard]] std::optional<shared_lease> lease(std::uint64_t n) {
        thiscpu_shared_lease *lease;
        if (!detail::granted(thiscpu_shared_budget_lease(handle_, n, &lease))) {
            return std::nullopt;
        }
        return shared_lease(lease);
    }
    /// Acquires `n` units; blocks until they are available. Returns false if the budget is closed.
    [[nodiscard]] bool acquire(std::uint64_t n) {
        return detail::granted(thiscpu_shared_budget_acquire(handle_, n));
    }
    /// Acquires `n` units; blocks for at most `timeout`. Returns whether it did.
    template <class Rep, class Period>
    [[nodiscard]] bool acquire_for(std::uint64_t n, std::chrono::duration<Rep, Period> timeout) {
        auto ns = detail::nanoseconds(timeout);
        return detail::granted(thiscpu_shared_budget_acquire_timeout(handle_, n, ns));
    }
    /// Acquires `n` units; blocks until `deadline`. Returns whether it did.
    [[nodiscard]] bool acquire_until(std::uint64_t n,
                                     std::chrono::steady_clock::time_point deadline) {
        // This clock is CLOCK_MONOTONIC on Linux.
        auto since_start = detail::nanoseconds(deadline.time_since_epoch());
        return detail::granted(thiscpu_shared_budget_acquire_deadline(handle_, n, since_start));
    }
    /// Releases `n` units that this process has acquired.
    void release(std::uint64_t n) { detail::check(thiscpu_shared_budget_release(handle_, n)); }
    /// Returns how many units are available at one instant; 0 while anybody waits.
    std::uint64_t available() const { return number(thiscpu_shared_budget_available); }
    /// Returns how many units are held, in all processes, at one instant.
    std::uint64_t acquired() const { return number(thiscpu_shared_budget_acquired); }
    /// Returns how many units processes have released but did not hold.
    std::uint64_t over_released() const { return number(thiscpu_shared_budget_over_released); }
    /// Returns the limit.
    std::uint64_t limit() const { return number(thiscpu_shared_budget_limit); }
    /// Changes the limit, for all processes.
    void set_limit(std::uint64_t limit) {
        detail::check(thiscpu_shared_budget_set_limit(handle_, limit));
    }
    /// Ends all waits, and refuses all later acquires, of all processes.
    void close() { detail::check(thiscpu_shared_budget_close(handle_)); }
    /// Returns whether the budget is closed.
    bool is_closed() const {
        bool closed;
        detail::check(thiscpu_shared_budget_is_closed(handle_, &closed));
        return closed;
    }
    /// Returns how many threads and tasks wait, in all processes.
    std::size_t waiters() const {
        std::size_t waiters;
        detail::check(thiscpu_shared_budget_waiters(handle_, &waiters));
        return waiters;
    }

  private:
    std::uint64_t number(thiscpu_status (*query)(thiscpu_shared_budget *, std::uint64_t *)) const {
        std::uint64_t number;
        detail::check(query(handle_, &number));
        return number;
    }
};

/// Memory that processes share, and the objects in it. See thiscpu_segment.
class segment : public detail::handle<thiscpu_segment, thiscpu_segment_close> {
  public:
    /// Creates a segment at a path where nothing is.
    static segment create(const char *path, const thiscpu_segment_options &options = {}) {
        segment created;
        detail::check(thiscpu_segment_create(path, &options, &created.handle_));
        return created;
    }
    /// Attaches to the segment at a path.
    static segment open(const char *path, const thiscpu_segment_options &options = {}) {
        segment opened;
        detail::check(thiscpu_segment_open(path, &options, &opened.handle_));
        return opened;
    }
    /// Attaches to the segment at a path, or creates it.
    static segment open_or_create(const char *path, const thiscpu_segment_options &options = {}) {
        segment opened;
        detail::check(thiscpu_segment_open_or_create(path, false, &options, &opened.handle_));
        return opened;
    }
    /// Creates a segment at a path, and replaces one that exists.
    static segment replace(const char *path, const thiscpu_segment_options &options = {}) {
        segment created;
        detail::check(thiscpu_segment_open_or_create(path, true, &options, &created.handle_));
        return created;
    }
    /// Creates a segment without a name.
    static segment anonymous(const thiscpu_segment_options &options = {}) {
        segment created;
        detail::check(thiscpu_segment_anonymous(&options, &created.handle_));
        return created;
    }
    /// Attaches to the segment of a descriptor, which stays the caller's.
    static segment from_fd(int fd) {
        segment opened;
        detail::check(thiscpu_segment_from_fd(fd, &opened.handle_));
        return opened;
    }

    /// Returns the descriptor of the file, which stays the segment's.
    int fd() const {
        std::int32_t fd;
        detail::check(thiscpu_segment_fd(handle_, &fd));
        return fd;
    }
    /// Returns whether a part of the file is gone, because somebody has shortened it.
    bool is_lost() const {
        bool lost;
        detail::check(thiscpu_segment_is_lost(handle_, &lost));
        return lost;
    }
    /// Returns the number of lanes.
    std::uint32_t lanes() const {
        std::uint32_t lanes;
        detail::check(thiscpu_segment_lanes(handle_, &lanes));
        return lanes;
    }
    /// Returns the counter of a name, and makes it if there is none.
    shared_counter counter(const char *name) const { return shared_counter(*this, name); }
    /// Returns the counters of a name, and makes them if there are none.
    shared_counters counters(const char *name, std::size_t count) const {
        return shared_counters(*this, name, count);
    }
    /// Returns the budget of a name, and makes it with `limit` units if there is none.
    shared_budget budget(const char *name, std::uint64_t limit) const {
        return shared_budget(*this, name, limit);
    }

  private:
    segment() noexcept = default;
};

inline shared_counter::shared_counter(const segment &segment, const char *name) {
    detail::check(thiscpu_shared_counter_open(segment.get(), name, &handle_));
}

inline shared_budget::shared_budget(const segment &segment, const char *name,
                                    std::uint64_t limit) {
    detail::check(thiscpu_shared_budget_open(segment.get(), name, limit, &handle_));
}

inline shared_counters::shared_counters(const segment &segment, const char *name,
                                        std::size_t count) {
    detail::check(thiscpu_shared_counters_open(segment.get(), name, count, &handle_));
}

class segment_view;

/// A counter of a segment that this process can only read. See thiscpu_counter_view.
class counter_view : public detail::handle<thiscpu_counter_view, thiscpu_counter_view_close> {
  public:
    counter_view(const segment_view &view, const char *name);

    /// Returns bounds of the value; equal ones are the exact value.
    thiscpu_bounds bounds() const {
        thiscpu_bounds bounds;
        detail::check(thiscpu_counter_view_bounds(handle_, &bounds));
        return bounds;
    }
};

/// Counters of a segment that this process can only read. See thiscpu_counters_view.
class counters_view : public detail::handle<thiscpu_counters_view, thiscpu_counters_view_close> {
  public:
    counters_view(const segment_view &view, const char *name, std::size_t count);

    /// Returns the number of counters.
    std::size_t len() const {
        std::size_t len;
        detail::check(thiscpu_counters_view_len(handle_, &len));
        return len;
    }
    /// Returns bounds of all counters, which hold at one instant.
    std::vector<thiscpu_bounds> bounds() const {
        std::vector<thiscpu_bounds> bounds(len());
        detail::check(thiscpu_counters_view_bounds(handle_, bounds.data(), bounds.size()));
        return bounds;
    }
};

/// A budget of a segment that this process can only read. See thiscpu_budget_view.
class budget_view : public detail::handle<thiscpu_budget_view, thiscpu_budget_view_close> {
  public:
    budget_view(const segment_view &view, const char *name);

    /// Returns the state that the last operation has left; it says whether it is exact.
    thiscpu_budget_state state() const {
        thiscpu_budget_state state;
        detail::check(thiscpu_budget_view_state(handle_, &state));
        return state;
    }
    /// Returns the processes that use budgets of the segment, and what they hold of this one.
    std::vector<thiscpu_budget_participant> participants() const {
        std::vector<thiscpu_budget_participant> all;
        std::size_t count = 0;
        do {
            all.resize(count);
            detail::check(thiscpu_budget_view_participants(handle_, all.data(), count, &count));
        } while (count > all.size());
        all.resize(count);
        return all;
    }
};

/// A segment that this process can read, but not change. See thiscpu_segment_view.
class segment_view : public detail::handle<thiscpu_segment_view, thiscpu_segment_view_close> {
  public:
    /// Attaches to the segment at a path.
    static segment_view open(const char *path) {
        segment_view opened;
        detail::check(thiscpu_segment_view_open(path, &opened.handle_));
        return opened;
    }
    /// Attaches to the segment of a descriptor, which stays the caller's.
    static segment_view from_fd(int fd) {
        segment_view opened;
        detail::check(thiscpu_segment_view_from_fd(fd, &opened.handle_));
        return opened;
    }

    /// Returns whether a part of the file is gone, because somebody has shortened it.
    bool is_lost() const {
        bool lost;
        detail::check(thiscpu_segment_view_is_lost(handle_, &lost));
        return lost;
    }
    /// Returns the counter of a name.
    counter_view counter(const char *name) const { return counter_view(*this, name); }
    /// Returns the counters of a name.
    counters_view counters(const char *name, std::size_t count) const {
        return counters_view(*this, name, count);
    }
    /// Returns the budget of a name.
    budget_view budget(const char *name) const { return budget_view(*this, name); }

  private:
    segment_view() noexcept = default;
};

inline counter_view::counter_view(const segment_view &view, const char *name) {
    detail::check(thiscpu_counter_view_open(view.get(), name, &handle_));
}

inline budget_view::budget_view(const segment_view &view, const char *name) {
    detail::check(thiscpu_budget_view_open(view.get(), name, &handle_));
}

inline counters_view::counters_view(const segment_view &view, const char *name, std::size_t count) {
    detail::check(thiscpu_counters_view_open(view.get(), name, count, &handle_));
}

/// Units of a budget, released on destruction. The budget must outlive the lease.
class lease {
  public:
    lease(lease &&other) noexcept
        : budget_(other.budget_), units_(std::exchange(other.units_, 0)) {}
    /// Takes over units that were acquired before.
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

    /// Returns how many units the lease holds.
    std::uint64_t units() const noexcept { return units_; }
    /// Returns how many units there were and keeps them acquired; the caller has to release them.
    std::uint64_t forget() noexcept { return std::exchange(units_, 0); }

  private:
    thiscpu_budget *budget_;
    std::uint64_t units_;
};

/// Units of a budget, released on destruction. Keeps the budget alive. See thiscpu_lease.
class owned_lease : public detail::handle<thiscpu_lease, thiscpu_lease_destroy> {
  public:
    /// Takes over a handle, such as one from thiscpu_acquire_take.
    explicit owned_lease(thiscpu_lease *lease) noexcept { handle_ = lease; }

    /// Returns how many units the lease holds.
    std::uint64_t units() const {
        std::uint64_t units;
        detail::check(thiscpu_lease_units(handle_, &units));
        return units;
    }
    /// Splits off a lease of `n` units. Throws if this lease holds fewer.
    [[nodiscard]] owned_lease split(std::uint64_t n) {
        thiscpu_lease *part;
        detail::check(thiscpu_lease_split(handle_, n, &part));
        return owned_lease(part);
    }
    /// Adds the units of another lease. Throws if it is one of another budget, which keeps it.
    void merge(owned_lease &&other) {
        detail::check(thiscpu_lease_merge(handle_, other.handle_));
        other.handle_ = nullptr;
    }
    /// Keeps the units acquired, and returns how many they are; the caller has to release them.
    std::uint64_t forget() {
        std::uint64_t units;
        detail::check(thiscpu_lease_forget(handle_, &units));
        handle_ = nullptr;
        return units;
    }
};

/// Units of a budget that are set aside, and released on destruction. See thiscpu_reserve.
class reserve : public detail::handle<thiscpu_reserve, thiscpu_reserve_destroy> {
  public:
    /// Takes over a handle from thiscpu_budget_try_reserve.
    explicit reserve(thiscpu_reserve *units) noexcept { handle_ = units; }

    /// Takes `n` units as a lease, or nothing. Never waits for units.
    [[nodiscard]] std::optional<owned_lease> try_lease(std::uint64_t n) {
        thiscpu_lease *lease;
        thiscpu_status status = thiscpu_reserve_try_lease(handle_, n, &lease);
        if (status == THISCPU_STATUS_EXHAUSTED) {
            return std::nullopt;
        }
        detail::check(status);
        return owned_lease(lease);
    }
    /// Returns how many units are left.
    std::uint64_t available() const {
        std::uint64_t available;
        detail::check(thiscpu_reserve_available(handle_, &available));
        return available;
    }
    /// Returns how many units were set aside.
    std::uint64_t units() const {
        std::uint64_t units;
        detail::check(thiscpu_reserve_units(handle_, &units));
        return units;
    }
};

/// Units up to a limit that is never exceeded. See thiscpu_budget.
class budget : public detail::handle<thiscpu_budget, thiscpu_budget_destroy> {
  public:
    explicit budget(std::uint64_t limit) { detail::check(thiscpu_budget_create(limit, &handle_)); }

    /// Acquires `n` units or none. Returns whether it did. Never waits for units.
    [[nodiscard]] bool try_acquire(std::uint64_t n) {
        return detail::granted(thiscpu_budget_try_acquire(handle_, n));
    }
    /// Acquires as many units as are available, at most `n`. Returns how many.
    [[nodiscard]] std::uint64_t try_acquire_up_to(std::uint64_t n) {
        std::uint64_t acquired;
        detail::check(thiscpu_budget_try_acquire_up_to(handle_, n, &acquired));
        return acquired;
    }
    /// Acquires `n` units; blocks until they are available. Returns false if the budget is closed.
    [[nodiscard]] bool acquire(std::uint64_t n) {
        return detail::granted(thiscpu_budget_acquire(handle_, n));
    }
    /// Acquires `n` units; blocks for at most `timeout`. Returns whether it did.
    template <class Rep, class Period>
    [[nodiscard]] bool acquire_for(std::uint64_t n, std::chrono::duration<Rep, Period> timeout) {
        auto ns = detail::nanoseconds(timeout);
        return detail::granted(thiscpu_budget_acquire_timeout(handle_, n, ns));
    }
    /// Acquires `n` units; blocks until `deadline`. Returns whether it did.
    [[nodiscard]] bool acquire_until(std::uint64_t n,
                                     std::chrono::steady_clock::time_point deadline) {
        // This clock is CLOCK_MONOTONIC on Linux.
        auto since_start = detail::nanoseconds(deadline.time_since_epoch());
        return detail::granted(thiscpu_budget_acquire_deadline(handle_, n, since_start));
    }
    /// Releases `n` units, which any thread acquired.
    void release(std::uint64_t n) { detail::check(thiscpu_budget_release(handle_, n)); }
    /// Acquires `n` units as a lease, or nothing. Never waits for units.
    [[nodiscard]] std::optional<lease> try_lease(std::uint64_t n) {
        if (!try_acquire(n)) {
            return std::nullopt;
        }
        return lease(handle_, n);
    }
    /// Acquires `n` units as a lease that keeps the budget alive, or nothing. Never waits.
    [[nodiscard]] std::optional<owned_lease> try_owned_lease(std::uint64_t n) {
        thiscpu_lease *lease;
        if (!detail::granted(thiscpu_budget_try_lease(handle_, n, &lease))) {
            return std::nullopt;
        }
        return owned_lease(lease);
    }
    /// Sets `n` units aside, or none. Never waits for units.
    [[nodiscard]] std::optional<reserve> try_reserve(std::uint64_t n) {
        thiscpu_reserve *units;
        if (!detail::granted(thiscpu_budget_try_reserve(handle_, n, &units))) {
            return std::nullopt;
        }
        return reserve(units);
    }
    /// Acquires `n` units as a lease; blocks until they are available. Throws if the budget is
    /// closed.
    [[nodiscard]] lease lease_when_free(std::uint64_t n) {
        detail::check(thiscpu_budget_acquire(handle_, n));
        return lease(handle_, n);
    }
    /// Acquires `n` units as a lease, or nothing; blocks for at most `timeout`.
    template <class Rep, class Period>
    [[nodiscard]] std::optional<lease> lease_for(std::uint64_t n,
                                                 std::chrono::duration<Rep, Period> timeout) {
        if (!acquire_for(n, timeout)) {
            return std::nullopt;
        }
        return lease(handle_, n);
    }

    /// Returns how many units are available at one instant; 0 while any thread waits.
    std::uint64_t available() const { return number(thiscpu_budget_available); }
    /// Returns how many units are held at one instant.
    std::uint64_t acquired() const { return number(thiscpu_budget_acquired); }
    /// Returns the limit.
    std::uint64_t limit() const { return number(thiscpu_budget_limit); }
    /// Returns how many units were released although no caller held them.
    std::uint64_t over_released() const { return number(thiscpu_budget_over_released); }
    /// Changes the limit, at one instant.
    void set_limit(std::uint64_t limit) { detail::check(thiscpu_budget_set_limit(handle_, limit)); }
    /// Closes the budget: ends all waits, and refuses all later acquires.
    void close() { detail::check(thiscpu_budget_close(handle_)); }
    /// Returns whether the budget is closed.
    bool is_closed() const {
        bool closed;
        detail::check(thiscpu_budget_is_closed(handle_, &closed));
        return closed;
    }
    /// Returns how many threads and asynchronous acquires wait for units.
    std::size_t waiters() const {
        std::size_t waiters;
        detail::check(thiscpu_budget_waiters(handle_, &waiters));
        return waiters;
    }

  private:
    std::uint64_t number(thiscpu_status (*query)(thiscpu_budget *, std::uint64_t *)) const {
        std::uint64_t number;
        detail::check(query(handle_, &number));
        return number;
    }
};

class ledger;

/// An account of a ledger, closed on destruction. See thiscpu_account.
class account : public detail::handle<thiscpu_account, thiscpu_account_close> {
  public:
    /// Adds `n`, which may be negative, to counter `index`.
    void charge(std::size_t index, std::int64_t n) {
        detail::check(thiscpu_account_charge(handle_, index, n));
    }
    /// Adds `n` to counter `index` without using this CPU's cache.
    void charge_uncached(std::size_t index, std::int64_t n) {
        detail::check(thiscpu_account_charge_uncached(handle_, index, n));
    }
    /// Returns counter `index`, without the charges that CPUs cache.
    std::int64_t read(std::size_t index) const {
        std::int64_t value;
        detail::check(thiscpu_account_read(handle_, index, &value));
        return value;
    }
    /// Returns the exact value of counter `index` at one instant.
    std::int64_t sum(std::size_t index) const {
        std::int64_t sum;
        detail::check(thiscpu_account_sum(handle_, index, &sum));
        return sum;
    }
    /// Returns the exact values of all counters at one instant. `counters` is their number.
    std::vector<std::int64_t> snapshot(std::size_t counters) const {
        std::vector<std::int64_t> values(counters);
        detail::check(thiscpu_account_snapshot(handle_, values.data(), values.size()));
        return values;
    }
    /// Moves `n` from counter `index` to that of `other`, an account of the same ledger.
    void transfer_to(account &other, std::size_t index, std::int64_t n) {
        detail::check(thiscpu_account_transfer(handle_, other.handle_, index, n));
    }
    /// Returns the account's id, which no other account of the ledger ever has.
    std::uint64_t id() const {
        std::uint64_t id;
        detail::check(thiscpu_account_id(handle_, &id));
        return id;
    }

  private:
    friend class ledger;
    explicit account(thiscpu_ledger *ledger) {
        detail::check(thiscpu_account_open(ledger, &handle_));
    }
};

/// Accounts for any number of owners. See thiscpu_ledger.
class ledger : public detail::handle<thiscpu_ledger, thiscpu_ledger_destroy> {
  public:
    explicit ledger(std::size_t counters, bool is_signed = false) : counters_(counters) {
        detail::check(thiscpu_ledger_create(counters, is_signed, &handle_));
    }

    /// Opens an account whose counters are 0.
    account open() { return account(handle_); }
    /// Returns the number of open accounts.
    std::size_t len() const {
        std::size_t len;
        detail::check(thiscpu_ledger_len(handle_, &len));
        return len;
    }
    /// Adds the charges that CPUs cache to their accounts.
    void sync() { detail::check(thiscpu_ledger_sync(handle_)); }
    /// Returns the id and the counters of each open account, all at one instant.
    std::vector<std::pair<std::uint64_t, std::vector<std::int64_t>>> snapshot() const {
        // No exception may pass through the library, so the callback records a lack of memory.
        struct copies {
            std::size_t counters;
            std::vector<std::pair<std::uint64_t, std::vector<std::int64_t>>> accounts;
            bool lacks_memory;
        } copies = {counters_, {}, false};
        detail::check(thiscpu_ledger_for_each(handle_, copy<struct copies>, &copies));
        detail::check(copies.lacks_memory ? THISCPU_STATUS_NO_MEMORY : THISCPU_STATUS_OK);
        return std::move(copies.accounts);
    }

  private:
    template <class Copies>
    static void copy(std::uint64_t id, const std::int64_t *counters, void *context) {
        auto &copies = *static_cast<Copies *>(context);
        const std::int64_t *end = counters + copies.counters;
#if defined(__cpp_exceptions)
        try {
            copies.accounts.emplace_back(id, std::vector<std::int64_t>(counters, end));
        } catch (...) {
            copies.lacks_memory = true;
        }
#else
        copies.accounts.emplace_back(id, std::vector<std::int64_t>(counters, end));
#endif
    }
    std::size_t counters_;
};

namespace detail {

/// What caches of all kinds have.
template <class Handle, thiscpu_status (*Destroy)(Handle *),
          thiscpu_status (*Shrink)(Handle *, std::size_t *),
          thiscpu_status (*Close)(Handle *, std::size_t *),
          thiscpu_status (*Stats)(Handle *, thiscpu_cache_statistics *)>
class any_cache : public handle<Handle, Destroy> {
  public:
    /// Returns free memory to the system. Returns how many bytes that were.
    std::size_t shrink() {
        std::size_t bytes;
        check(Shrink(this->handle_, &bytes));
        return bytes;
    }
    /// Closes the cache if no object is allocated, after which there is no handle. Returns how many
    /// objects are still allocated.
    [[nodiscard]] std::size_t close() {
        std::size_t objects = 0;
        thiscpu_status status = Close(this->handle_, &objects);
        if (status != THISCPU_STATUS_IN_USE) {
            check(status);
            this->handle_ = nullptr;
        }
        return objects;
    }
    /// Returns statistics.
    thiscpu_cache_statistics stats() const {
        thiscpu_cache_statistics stats;
        check(Stats(this->handle_, &stats));
        return stats;
    }
};

} // namespace detail

/// Objects of one type, allocated and freed on any CPU. See thiscpu_cache.
///
/// If objects are still allocated when the cache is destroyed, they stay valid forever and can no
/// longer be freed; close() reports their number.
template <class T>
class cache : public detail::any_cache<thiscpu_cache, thiscpu_cache_destroy, thiscpu_cache_shrink,
                                       thiscpu_cache_close, thiscpu_cache_stats> {
  public:
    cache() { detail::check(thiscpu_cache_create(sizeof(T), alignof(T), &this->handle_)); }

    /// Constructs an object. Throws std::bad_alloc if there is no memory (returns null without
    /// exceptions), and what the constructor throws.
    template <class... Arguments> [[nodiscard]] T *make(Arguments &&...arguments) {
        void *memory = thiscpu_cache_alloc(this->handle_);
#if defined(__cpp_exceptions)
        if (memory == nullptr) {
            throw std::bad_alloc();
        }
        try {
            return ::new (memory) T(std::forward<Arguments>(arguments)...);
        } catch (...) {
            thiscpu_cache_free(this->handle_, memory);
            throw;
        }
#else
        return memory == nullptr ? nullptr
                                 : ::new (memory) T(std::forward<Arguments>(arguments)...);
#endif
    }
    /// Destroys and frees an object of this cache. Null is allowed and does nothing.
    void destroy(T *object) noexcept {
        if (object != nullptr) {
            object->~T();
            thiscpu_cache_free(this->handle_, object);
        }
    }
};

/// Objects of one type that stay constructed while they are free. See thiscpu_constructed_cache.
///
/// T's default constructor makes an object, and its destructor destroys it when its memory is
/// freed. An object is as its last user left it.
template <class T>
class constructed_cache
    : public detail::any_cache<thiscpu_constructed_cache, thiscpu_constructed_cache_destroy,
                               thiscpu_constructed_cache_shrink, thiscpu_constructed_cache_close,
                               thiscpu_constructed_cache_stats> {
  public:
    constructed_cache() {
        detail::check(thiscpu_constructed_cache_create(sizeof(T), alignof(T), construct, destroy,
                                                       nullptr, &this->handle_));
    }

    /// Allocates an object. Throws std::bad_alloc if there is no memory (returns null without
    /// exceptions), and what the constructor throws.
    [[nodiscard]] T *alloc() {
        void *object = thiscpu_constructed_cache_alloc(this->handle_);
#if defined(__cpp_exceptions)
        if (object == nullptr) {
            if (std::exception_ptr thrown = std::exchange(failure(), nullptr)) {
                std::rethrow_exception(thrown);
            }
            throw std::bad_alloc();
        }
#endif
        return static_cast<T *>(object);
    }
    /// Frees an object of this cache, which stays constructed. Null is allowed and does nothing.
    void free(T *object) noexcept { thiscpu_constructed_cache_free(this->handle_, object); }

  private:
#if defined(__cpp_exceptions)
    /// Returns what the constructor has thrown in this thread's call of alloc().
    static std::exception_ptr &failure() {
        thread_local std::exception_ptr thrown;
        return thrown;
    }
#endif
    static int construct(void *memory, void *) noexcept {
#if defined(__cpp_exceptions)
        try {
            ::new (memory) T();
        } catch (...) {
            failure() = std::current_exception();
            return 1;
        }
#else
        ::new (memory) T();
#endif
        return 0;
    }
    static void destroy(void *object, void *) noexcept { static_cast<T *>(object)->~T(); }
};

/// A word per CPU. See thiscpu_word.
template <class T> class word : public detail::handle<thiscpu_word, thiscpu_word_destroy> {
    static_assert(std::is_unsigned_v<T> && !std::is_same_v<T, bool> && sizeof(T) <= 8,
                  "a word is an unsigned integer of 1, 2, 4 or 8 bytes");

  public:
    word() { detail::check(thiscpu_word_create(sizeof(T), &handle_)); }

    /// Adds `n` to this CPU's word, which wraps around.
    void add(T n) { detail::check(thiscpu_word_add(handle_, n)); }
    /// Adds `n` to this CPU's word and returns the word's new value.
    T add_return(T n) {
        std::uint64_t sum;
        detail::check(thiscpu_word_add_return(handle_, n, &sum));
        return static_cast<T>(sum);
    }
    /// Replaces this CPU's word with `desired` and returns the previous value.
    T exchange(T desired) {
        std::uint64_t old;
        detail::check(thiscpu_word_xchg(handle_, desired, &old));
        return static_cast<T>(old);
    }
    /// Replaces this CPU's word with `desired` if it equals `expected`, and returns whether it did.
    /// If not, stores the word's value in `expected`.
    bool compare_exchange(T &expected, T desired) {
        std::uint64_t found;
        thiscpu_status status = thiscpu_word_cmpxchg(handle_, expected, desired, &found);
        if (status == THISCPU_STATUS_MISMATCH) {
            expected = static_cast<T>(found);
            return false;
        }
        detail::check(status);
        return true;
    }
    /// Returns the words of all CPUs, each read at a different instant.
    std::vector<T> values() const {
        std::size_t count = 0;
        std::vector<std::uint64_t> wide;
        do {
            wide.resize(count);
            detail::check(thiscpu_word_values(handle_, wide.data(), wide.size(), &count));
        } while (count > wide.size());
        return std::vector<T>(wide.begin(), wide.end());
    }
};

/// A pair of adjacent halves per CPU, exchanged as one. See thiscpu_pair.
template <class T> class pair : public detail::handle<thiscpu_pair, thiscpu_pair_destroy> {
    static_assert(std::is_unsigned_v<T> && (sizeof(T) == 4 || sizeof(T) == 8),
                  "a half is an unsigned integer of 4 or 8 bytes");

  public:
    pair() { detail::check(thiscpu_pair_create(sizeof(T), &handle_)); }

    /// Replaces this CPU's pair with `desired` if it equals `expected`, and returns whether it did.
    /// If not, stores the pair's halves in `expected`.
    bool compare_exchange(std::pair<T, T> &expected, std::pair<T, T> desired) {
        thiscpu_halves old = {expected.first, expected.second};
        thiscpu_halves next = {desired.first, desired.second};
        thiscpu_status status = thiscpu_pair_cmpxchg(handle_, &old, &next, &old);
        if (status == THISCPU_STATUS_MISMATCH) {
            expected = {static_cast<T>(old.first), static_cast<T>(old.second)};
            return false;
        }
        detail::check(status);
        return true;
    }
    /// Returns the pairs of all CPUs, each half read at a different instant.
    std::vector<std::pair<T, T>> values() const {
        std::size_t count = 0;
        std::vector<thiscpu_halves> wide;
        do {
            wide.resize(count);
            detail::check(thiscpu_pair_values(handle_, wide.data(), wide.size(), &count));
        } while (count > wide.size());
        std::vector<std::pair<T, T>> values;
        for (const auto &halves : wide) {
            values.emplace_back(static_cast<T>(halves.first), static_cast<T>(halves.second));
        }
        return values;
    }
};

/// A stack per CPU, of nodes whose first member is a thiscpu_link. See thiscpu_stack.
class stack : public detail::handle<thiscpu_stack, thiscpu_stack_destroy> {
  public:
    stack() { detail::check(thiscpu_stack_create(&handle_)); }

    /// Pushes a node onto this CPU's stack.
    void push(thiscpu_link *node) { detail::check(thiscpu_stack_push(handle_, node)); }
    /// Pops the top node of this CPU's stack; null if that is empty.
    [[nodiscard]] thiscpu_link *pop() { return taken(thiscpu_stack_pop); }
    /// Takes all nodes of this CPU's stack, linked by `next`; null if it is empty.
    [[nodiscard]] thiscpu_link *take_all() { return taken(thiscpu_stack_take_all); }
    /// Takes the nodes of all CPUs and calls `each` for every node.
    ///
    /// No other thread may use the stack during this call. If `each` throws, the nodes that it was
    /// not given are pushed again.
    template <class Each> void drain(Each each) {
        thiscpu_link *rest = nullptr;
        // The library only links the nodes, so that no exception of `each` passes through it.
        detail::check(thiscpu_stack_drain(handle_, link, &rest));
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
        } nodes{handle_, rest};
        while (rest != nullptr) {
            each(nodes.next());
        }
    }

  private:
    thiscpu_link *taken(thiscpu_status (*take)(thiscpu_stack *, thiscpu_link **)) {
        thiscpu_link *node;
        thiscpu_status status = take(handle_, &node);
        detail::check(status == THISCPU_STATUS_EMPTY ? THISCPU_STATUS_OK : status);
        return node;
    }
    static void link(thiscpu_link *node, void *context) {
        auto **rest = static_cast<thiscpu_link **>(context);
        node->next = *rest;
        *rest = node;
    }
};

} // namespace with_exceptions or without_exceptions
} // namespace thiscpu

#endif
