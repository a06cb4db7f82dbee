//! Accounting for many tenants: requests and bytes, with a bill that is true at one instant.
//!
//! ```sh
//! cargo run --release -p thiscpu-examples --example tenants
//! ```

use std::thread;

use thiscpu::{Account, Ledger};

/// Counters of an account.
const REQUESTS: usize = 0;
const BYTES: usize = 1;

const TENANTS: usize = 10_000;
const REQUESTS_EACH_THREAD: usize = 200_000;
const THREADS: usize = 4;

fn serve(tenant: &Account<2>, bytes: i64) {
    tenant.charge(REQUESTS, 1);
    tenant.charge(BYTES, bytes);
}

fn main() {
    let ledger = Ledger::<2>::new();
    let tenants: Vec<Account<2>> = (0..TENANTS).map(|_| ledger.open()).collect();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let tenants = &tenants;
            scope.spawn(move || {
                for request in 0..REQUESTS_EACH_THREAD {
                    // A few tenants send most requests.
                    let tenant = request * request * (thread + 1) % TENANTS / (request % 7 + 1);
                    serve(&tenants[tenant], 100);
                }
            });
        }
        // A bill while requests arrive: every account is read at one instant.
        let mut bill = [0; 2];
        ledger.for_each(|_, counters| {
            for (total, counter) in bill.iter_mut().zip(counters) {
                *total += counter;
            }
        });
        println!("so far: {} requests, {} bytes", bill[REQUESTS], bill[BYTES]);
    });
    let mut largest: Vec<_> =
        tenants.iter().map(|tenant| (tenant.sum(BYTES), tenant.id())).collect();
    largest.sort_by_key(|&(bytes, _)| std::cmp::Reverse(bytes));
    for (bytes, id) in &largest[..3] {
        println!("tenant {}: {bytes} bytes", id.get());
    }
    let total: i64 = largest.iter().map(|(bytes, _)| bytes).sum();
    assert_eq!(total, (THREADS * REQUESTS_EACH_THREAD * 100) as i64);
    println!("{} tenants, {total} bytes, none lost", ledger.len());
}
