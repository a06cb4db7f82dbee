// Accounts of tenants, charged by several threads and billed at one instant.

#include <iostream>
#include <thread>
#include <vector>

#include <thiscpu.hpp>

namespace {

enum counters : std::size_t { requests, bytes, counters };

constexpr std::size_t tenants = 100;
constexpr int threads = 4;
constexpr int requests_each = 50'000;

} // namespace

int main() try {
    thiscpu::ledger ledger(counters);
    std::vector<thiscpu::account> accounts;
    for (std::size_t i = 0; i < tenants; i++)
        accounts.push_back(ledger.open());

    std::vector<std::thread> workers;
    for (int worker = 0; worker < threads; worker++)
        workers.emplace_back([&accounts, worker] {
            for (int i = 0; i < requests_each; i++) {
                thiscpu::account &account = accounts[(i * (worker + 1)) % tenants];
                account.charge(requests, 1);
                account.charge(bytes, 100);
            }
        });
    for (std::thread &worker : workers)
        worker.join();

    std::int64_t total = 0;
    for (const auto &[id, values] : ledger.snapshot())
        total += values[requests];
    std::cout << ledger.len() << " tenants, " << total << " requests\n";
    return total == std::int64_t{threads} * requests_each ? 0 : 1;
} catch (const thiscpu::error &error) {
    std::cerr << "tenants: " << error.what() << '\n';
    return 1;
}
