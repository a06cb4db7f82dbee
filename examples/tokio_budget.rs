//! Tasks that share a limit on memory: each waits for its units before it allocates.
//!
//! ```sh
//! cargo run --release -p thiscpu-examples --example tokio_budget
//! ```

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use thiscpu::Budget;

/// Bytes that all tasks together may hold.
const LIMIT: u64 = 1 << 20;

static MEMORY: Budget = Budget::new(LIMIT);

/// The most bytes that were held at once, by the tasks' own count.
static HELD: AtomicU64 = AtomicU64::new(0);
static PEAK: AtomicU64 = AtomicU64::new(0);

async fn work(task: u64) -> u64 {
    let bytes = 64 * 1024 * (task % 4 + 1);
    // Tasks wait first come, first served. A task that is dropped here leaves the queue.
    let lease = MEMORY.acquire_async(bytes).await.expect("the budget is never closed");
    // Relaxed: statistics, read after the tasks have ended.
    PEAK.fetch_max(HELD.fetch_add(bytes, Relaxed) + bytes, Relaxed);
    let buffer = vec![1_u8; bytes as usize];
    tokio::time::sleep(Duration::from_millis(1)).await;
    HELD.fetch_sub(bytes, Relaxed);
    drop(lease);
    buffer.iter().map(|&byte| u64::from(byte)).sum()
}

#[tokio::main]
async fn main() {
    let tasks: Vec<_> = (0..200).map(|task| tokio::spawn(work(task))).collect();
    let mut total = 0;
    for task in tasks {
        total += task.await.expect("no task panics");
    }
    println!("{total} bytes processed, at most {} of {LIMIT} held at once", PEAK.load(Relaxed));
    assert!(PEAK.load(Relaxed) <= LIMIT);
    assert_eq!(MEMORY.available(), LIMIT);
}
