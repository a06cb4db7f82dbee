//! thiscpu-malloc as the global allocator, with its statistics.
//!
//! ```sh
//! cargo run --release -p thiscpu-examples --example global_allocator
//! ```

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread;

use thiscpu_malloc::ThisCpuAlloc;

#[global_allocator]
static MALLOC: ThisCpuAlloc = ThisCpuAlloc::new();

fn main() {
    thiscpu_malloc::enable_counting();
    // Strings are allocated by four threads and freed by this one.
    let (sender, receiver) = mpsc::channel::<String>();
    let mut words = BTreeMap::<usize, usize>::new();
    thread::scope(|scope| {
        for thread in 0..4 {
            let sender = sender.clone();
            scope.spawn(move || {
                for number in 0..10_000 {
                    let text = format!("thread {thread} says {number}");
                    sender.send(text).expect("the receiver lives as long as the scope");
                }
            });
        }
        drop(sender);
        for text in receiver {
            *words.entry(text.len()).or_default() += 1;
        }
    });
    let total: usize = words.values().sum();
    assert_eq!(total, 40_000);
    let stats = thiscpu_malloc::stats();
    println!("{total} strings of {} lengths", words.len());
    println!("{} bytes in use, {} from the system", stats.allocated_bytes, stats.system_bytes);
}
