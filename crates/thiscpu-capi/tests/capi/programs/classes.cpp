#include <thiscpu.hpp>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include <unistd.h>

#include "check.h"

static_assert(!std::is_copy_constructible_v<thiscpu::counter>);
static_assert(std::is_move_constructible_v<thiscpu::counter>);

static void counters() {
    thiscpu::counter one;
    std::thread other([&] { one += 5; });
    ++one;
    other.join();
    CHECK(one.sum() == 6 && one.compare(7) < 0 && one.bounds().low <= 6);
    thiscpu::counter two(std::move(one));
    CHECK(one.get() == nullptr && two.take() == 6 && two.sum() == 0);
    two.set(3);
    one = std::move(two);
    CHECK(one.sum() == 3 && one.read() <= one.bounds().high);
    // The counter that is assigned to is destroyed.
    thiscpu::counter three;
    three = std::move(one);
    CHECK(one.get() == nullptr && three.sum() == 3);
}

static void reserves() {
    thiscpu::budget blocks(100);
    auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(1);
    {
        auto emergency = blocks.try_reserve(10);
        CHECK(emergency && !blocks.try_reserve(91) && !blocks.acquire_until(91, soon));
        auto lease = emergency->try_lease(3);
        CHECK(lease && !emergency->try_lease(8));
        CHECK(emergency->available() == 7 && emergency->units() == 10);
    }
    CHECK(blocks.available() == 100 && blocks.acquire_until(100, soon));
}

static void several_counters() {
    thiscpu::counter one = thiscpu::counter::with_batch(0);
    thiscpu::counters bytes(2);
    one += 3;
    CHECK(one.bounds().low == 3 && one.bounds().high == 3);
    bytes.add(1, 1500);
    CHECK(bytes.len() == 2 && bytes.read(0) == 0 && bytes.sum(1) == 1500);
    CHECK((bytes.snapshot() == std::vector<std::int64_t>{0, 1500}));
    auto sums = thiscpu::sum_all({one.summable(), bytes.summable(), one.summable()});
    CHECK((sums == std::vector<std::int64_t>{3, 0, 1500, 3}));
    CHECK(thiscpu::sum_all({}).empty());
    {
        thiscpu::in_flight first(one), second(std::move(first));
        CHECK(one.sum() == 4);
        second = thiscpu::in_flight(one);
        CHECK(one.sum() == 4);
    }
    CHECK(one.sum() == 3);
}

static void budgets() {
    using namespace std::chrono_literals;
    thiscpu::budget budget(10);
    {
        auto lease = budget.try_lease(4);
        CHECK(lease && lease->units() == 4 && budget.available() == 6);
        CHECK(!budget.try_lease(7) && !budget.acquire_for(7, 1ms));
        auto moved = std::move(*lease);
        CHECK(budget.acquired() == 4 && moved.units() == 4);
    }
    CHECK(budget.available() == 10 && budget.try_acquire_up_to(20) == 10 && !budget.try_acquire(1));
    budget.release(10);
    CHECK(budget.acquire(10));
    budget.set_limit(11);
    CHECK(budget.try_acquire(1) && budget.limit() == 11);
    {
        // A lease of units that were acquired before.
        thiscpu::lease taken(budget.get(), 11);
        CHECK(!budget.lease_for(1, 1ms) && taken.units() == 11);
    }
    {
        auto waited = budget.lease_for(5, 1s);
        auto sure = budget.lease_when_free(6);
        CHECK(waited->units() == 5 && sure.units() == 6 && budget.available() == 0);
    }
    CHECK(budget.available() == 11);
    auto lease = budget.try_lease(2);
    CHECK(lease->forget() == 2 && budget.acquired() == 2);
    budget.release(2);
    auto kept = budget.try_lease(3);
    {
        thiscpu::budget other(10);
        auto others = other.try_lease(1);
        *others = std::move(*kept);
        CHECK(kept->units() == 0 && other.acquired() == 0 && budget.acquired() == 3);
    }
    CHECK(budget.acquired() == 0);
    CHECK(!budget.acquire_for(100, -1s));
    auto outliving = [] {
        thiscpu::budget owning(50);
        auto whole = owning.try_owned_lease(30);
        auto part = whole->split(10);
        CHECK(!owning.try_owned_lease(21) && owning.acquired() == 30);
        whole->merge(std::move(part));
        CHECK(whole->units() == 30 && part.get() == nullptr);
        auto forgotten = whole->split(7);
        CHECK(forgotten.forget() == 7 && owning.acquired() == 30);
        owning.release(7);
        CHECK(owning.acquired() == 23);
        return std::move(*whole);
    }();
    CHECK(outliving.units() == 23);
    {
        thiscpu::budget closing(5);
        auto held = closing.try_lease(2);
        closing.close();
        CHECK(closing.is_closed() && !budget.is_closed() && closing.waiters() == 0);
        CHECK(!closing.try_lease(1) && !closing.acquire(1) && !closing.acquire_for(1, 1h));
        held.reset();
        CHECK(!closing.try_owned_lease(1));
        CHECK(closing.acquired() == 0 && closing.over_released() == 0);
    }
    // A timeout that does not fit into nanoseconds is unlimited.
    auto released_late = [](auto timeout) {
        thiscpu::budget one(1);
        CHECK(one.try_acquire(1));
        std::thread other([&] {
            std::this_thread::sleep_for(30ms);
            one.release(1);
        });
        CHECK(one.acquire_for(1, timeout));
        other.join();
    };
    released_late(std::chrono::seconds::max());
    released_late(std::chrono::duration<double>(1e300));
}

static void ledgers() {
    thiscpu::ledger ledger(2);
    auto one = ledger.open(), two = ledger.open();
    one.charge(0, 5);
    one.charge_uncached(1, 7);
    one.transfer_to(two, 0, 2);
    CHECK(one.sum(0) == 3 && two.sum(0) == 2 && ledger.len() == 2);
    CHECK((one.snapshot(2) == std::vector<std::int64_t>{3, 7}));
    std::int64_t all = 0;
    for (auto &[id, counters] : ledger.snapshot()) {
        CHECK(id == one.id() || id == two.id());
        all += counters.at(0) + counters.at(1);
    }
    CHECK(all == 12);
    ledger.sync();
    CHECK(one.read(1) == 7);
}

struct may_throw {
    static inline int alive = 0;
    explicit may_throw(bool is_bad) {
        if (is_bad) {
            throw 1;
        }
        alive++;
    }
    ~may_throw() { alive--; }
    alignas(64) char bytes[64];
};

static void caches() {
    thiscpu::cache<may_throw> cache;
    may_throw *one = cache.make(false);
    CHECK(may_throw::alive == 1 && reinterpret_cast<std::uintptr_t>(one) % 64 == 0);
    bool has_thrown = false;
    try {
        cache.destroy(cache.make(true));
    } catch (int) {
        has_thrown = true;
    }
    CHECK(has_thrown);
    cache.destroy(one);
    cache.destroy(nullptr);
    CHECK(may_throw::alive == 0 && cache.stats().object_bytes == sizeof(may_throw));
    cache.shrink();
    one = cache.make(false);
    CHECK(cache.close() == 1);
    cache.destroy(one);
    CHECK(cache.close() == 0 && cache.get() == nullptr);
}

// A type whose first object cannot be made.
struct fails_once {
    static inline int calls = 0, alive = 0;
    fails_once() {
        if (++calls == 1) {
            throw 1;
        }
        alive++;
    }
    ~fails_once() { alive--; }
    alignas(64) int uses = 0;
};

static void constructed_caches() {
    thiscpu::constructed_cache<fails_once> cache;
    bool has_thrown = false;
    try {
        cache.free(cache.alloc());
    } catch (int) {
        has_thrown = true;
    }
    CHECK(has_thrown && fails_once::alive == 0);
    fails_once *one = cache.alloc();
    CHECK(reinterpret_cast<std::uintptr_t>(one) % 64 == 0 && one->uses == 0);
    one->uses++;
    cache.free(one);
    cache.free(nullptr);
    // The object stays constructed, and as its user left it.
    CHECK(fails_once::alive == 1 && cache.stats().object_bytes >= sizeof(fails_once) + 8);
    one = cache.alloc();
    CHECK(one->uses == 1 && fails_once::calls == 2 && cache.close() == 1);
    cache.free(one);
    CHECK(cache.close() == 0 && cache.get() == nullptr && fails_once::alive == 0);
    auto uses_and_drops = [] {
        thiscpu::constructed_cache<fails_once> dropped;
        dropped.free(dropped.alloc());
        CHECK(fails_once::alive == 1);
        dropped.shrink();
        CHECK(fails_once::alive == 0);
        dropped.free(dropped.alloc());
    };
    uses_and_drops();
    CHECK(fails_once::alive == 0);
}

static void words() {
    thiscpu::word<std::uint16_t> word;
    word.add(65535);
    std::uint64_t all = 0;
    for (auto value : word.values()) {
        all += value;
    }
    CHECK(all == 65535);
    std::uint16_t expected = 1;
    while (!word.compare_exchange(expected, 9)) {
    }
    CHECK(word.exchange(0) <= 65535);
}

static void pairs() {
    thiscpu::pair<std::uint32_t> pair;
    std::pair<std::uint32_t, std::uint32_t> seen{0, 0};
    while (!pair.compare_exchange(seen, {seen.first + 1, 7})) {
    }
    bool is_found = false;
    for (auto halves : pair.values()) {
        is_found |= halves == std::pair<std::uint32_t, std::uint32_t>(1, 7);
    }
    CHECK(is_found);
}

static void stacks() {
    thiscpu::stack stack;
    thiscpu_link nodes[3];
    for (auto &node : nodes) {
        stack.push(&node);
    }
    int count = 0;
    stack.drain([&](thiscpu_link *) { count++; });
    CHECK(count == 3 && stack.pop() == nullptr && stack.take_all() == nullptr);
#if defined(__cpp_exceptions)
    // The nodes that the function was not given are pushed again.
    for (auto &node : nodes) {
        stack.push(&node);
    }
    count = 0;
    try {
        stack.drain([&](thiscpu_link *) {
            if (++count == 2) {
                throw 1;
            }
        });
        CHECK(false);
    } catch (int) {
    }
    stack.drain([&](thiscpu_link *) { count++; });
    CHECK(count == 3);
#endif
}

static void segments() {
    thiscpu_segment_options options = {};
    options.max_bytes = 1 << 20;
    options.lanes = 2;
    auto segment = thiscpu::segment::anonymous(options);
    CHECK(segment.lanes() == 2);
    auto requests = segment.counter("requests");
    requests += 3;
    ++requests;
    auto again = thiscpu::segment::from_fd(segment.fd()).counter("requests");
    CHECK(again.sum() == 4);
    --again;
    CHECK(requests.sum() == 3);
    auto pair = segment.counters("pair", 2);
    pair.add(1, 9);
    CHECK(pair.len() == 2 && (pair.snapshot() == std::vector<std::int64_t>{0, 9}));
    auto limit = segment.budget("limit", 5);
    CHECK(limit.try_acquire(3) && !limit.try_acquire(3));
    CHECK(!limit.acquire_for(3, std::chrono::milliseconds(1)));
    CHECK(limit.acquire(2));
    CHECK(!limit.acquire_until(1, std::chrono::steady_clock::now()));
    CHECK(limit.available() == 0 && limit.acquired() == 5 && limit.waiters() == 0);
    limit.set_limit(6);
    CHECK(segment.budget("limit", 1).limit() == 6);
    limit.release(5);
    {
        auto lease = limit.try_lease(3), other = limit.lease(1);
        CHECK(lease->units() == 3 && !limit.try_lease(3) && limit.try_acquire_up_to(9) == 2);
        auto part = lease->split(2);
        part.merge(std::move(*other));
        CHECK(part.units() == 3 && part.forget() == 3 && limit.acquired() == 6);
    }
    limit.release(5);
    CHECK(limit.acquired() == 0 && limit.over_released() == 0);
    limit.close();
    CHECK(limit.is_closed() && limit.acquired() == 0);
    std::string path = "/dev/shm/thiscpu-classes-" + std::to_string(getpid());
    auto named = thiscpu::segment::create(path.c_str());
    named.counter("requests").add(1);
    CHECK(thiscpu::segment::open(path.c_str()).counter("requests").sum() == 1);
    auto same = thiscpu::segment::open_or_create(path.c_str());
    CHECK(same.counter("requests").sum() == 1);
    auto fresh = thiscpu::segment::replace(path.c_str());
    CHECK(fresh.counter("requests").sum() == 0);
    fresh.counter("requests").add(-2);
    auto view = thiscpu::segment_view::open(path.c_str());
    CHECK(view.counter("requests").bounds().low == -2 && !view.is_lost());
    fresh.budget("limit", 5);
    CHECK(view.budget("limit").state().limit == 5);
    auto participants = view.budget("limit").participants();
    CHECK(participants.size() == 1 && participants[0].is_alive && participants[0].held == 0);
    auto both = thiscpu::segment_view::from_fd(segment.fd()).counters("pair", 2);
    CHECK(both.len() == 2 && both.bounds()[1].high == 9);
    CHECK(truncate(path.c_str(), 0) == 0 && view.is_lost() && fresh.is_lost());
    CHECK(unlink(path.c_str()) == 0);
}

// A type whose own `operator new` must not be used.
struct own {
    static void *operator new(std::size_t) = delete;
    int value = 4;
};

static void types_with_operator_new() {
    thiscpu::cache<own> cache;
    own *one = cache.make();
    CHECK(one->value == 4);
    cache.destroy(one);
}

static void errors() {
    bool has_thrown = false;
    try {
        thiscpu::ledger none(0);
    } catch (const thiscpu::error &error) {
        has_thrown = error.status() == THISCPU_STATUS_INVALID_SIZE && std::strlen(error.what()) > 3;
    }
    CHECK(has_thrown);
}

int main() {
    CHECK(thiscpu::tier() <= THISCPU_TIER_ATOMIC);
    counters();
    several_counters();
    reserves();
    budgets();
    ledgers();
    caches();
    constructed_caches();
    words();
    pairs();
    stacks();
    segments();
    types_with_operator_new();
    errors();
    return 0;
}
