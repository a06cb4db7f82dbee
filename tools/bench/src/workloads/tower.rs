//! `tower`: tasks that send requests to one service below a layer.
//!
//! | case | the layer | the limit |
//! |---|---|---|
//! | `limit-far` | makes requests wait | out of reach |
//! | `limit-reached` | makes requests wait | half of the tasks |
//! | `shed-far` | refuses requests | out of reach |
//! | `shed-reached` | refuses requests | half of the tasks |
//!
//! There are as many tasks as threads are requested, on a tokio runtime with a pinned worker on
//! each CPU, or on as many CPUs as there are tasks. An operation is a request: the service is
//! cloned, polled until it is ready, and called, as servers do. Where the limit is reached, the
//! inner service lets other tasks run once in each request, so requests overlap. A task whose
//! request was refused does so too.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use anyhow::{Context as _, ensure};
use tokio::{runtime::Builder, task::yield_now};

use super::{Measured, Setting};
use crate::{
    contenders::layers::{Contender, Inner, Limited, request},
    metric::TIME_PER_OP,
    slice,
};

/// The numbers of tasks unless others are requested.
pub(crate) const TASKS: &[usize] = &[1, 2, 8, 64];

/// The number of requests between two checks of the stop flag, and two runs of other tasks.
const STEP: u32 = 64;

/// A limit out of reach.
const FAR: usize = 1 << 20;

/// Measures a request far from a limit, at which it would wait.
pub(crate) fn limit_far<C: Contender>(setting: &Setting<'_>) -> Measured {
    measure(setting, C::waiting(FAR, Inner { yields: false }), true)
}

/// Measures a request at a limit, at which half of the tasks wait.
pub(crate) fn limit_reached<C: Contender>(setting: &Setting<'_>) -> Measured {
    measure(setting, C::waiting(half(setting), Inner { yields: true }), true)
}

/// Measures a request far from a limit, at which it would be refused.
pub(crate) fn shed_far<C: Contender>(setting: &Setting<'_>) -> Measured {
    measure(setting, C::shedding(FAR, Inner { yields: false }), true)
}

/// Measures a request at a limit, at which others are refused.
pub(crate) fn shed_reached<C: Contender>(setting: &Setting<'_>) -> Measured {
    measure(setting, C::shedding(half(setting), Inner { yields: true }), setting.threads == 1)
}

/// Returns a limit that half of the tasks reach.
fn half(setting: &Setting<'_>) -> usize {
    setting.threads.div_ceil(2)
}

/// Measures requests of all tasks. Fails if one is refused that must be served.
fn measure<S: Limited>(setting: &Setting<'_>, service: S, all_served: bool) -> Measured {
    let (tasks, workers) = (setting.threads, setting.threads.min(setting.cpus.len()));
    let pinned = Arc::new(AtomicUsize::new(0));
    let cpus = setting.cpus.clone();
    let runtime = Builder::new_multi_thread()
        .worker_threads(workers)
        // Relaxed: each worker takes a number of its own, and the number orders nothing.
        .on_thread_start(move || drop(cpus.pin(pinned.fetch_add(1, Relaxed))))
        .build()
        .context("cannot start a runtime")?;
    let stop = Arc::new(AtomicBool::new(false));
    let began = Instant::now();
    let tasks: Vec<_> =
        (0..tasks).map(|_| runtime.spawn(send_all(service.clone(), Arc::clone(&stop)))).collect();
    slice::sleep(setting.length)?;
    // Relaxed: pairs with the load in `send_all`; a late stop does no harm.
    stop.store(true, Relaxed);
    let (mut sent, mut served) = (0, 0);
    for task in tasks {
        let (all, of_them) = runtime.block_on(task).context("a task panicked")?;
        (sent, served) = (sent + all, served + of_them);
    }
    // Until the last request, since all requests count.
    let elapsed = began.elapsed();
    slice::check_stop()?;
    ensure!(served > 0, "no request was served");
    ensure!(!all_served || served == sent, "{} of {sent} requests were refused", sent - served);
    Ok(vec![TIME_PER_OP.reads(elapsed.as_nanos() as f64 * workers as f64 / sent as f64)])
}

/// Sends requests until the stop. Returns how many, and how many of them were served.
async fn send_all<S: Limited>(service: S, stop: Arc<AtomicBool>) -> (u64, u64) {
    let (mut sent, mut served) = (0, 0);
    // Relaxed: pairs with the store in `measure`.
    while !stop.load(Relaxed) {
        for _ in 0..STEP {
            match request(&service).await {
                true => served += 1,
                false => yield_now().await,
            }
        }
        sent += u64::from(STEP);
        yield_now().await;
    }
    (sent, served)
}
