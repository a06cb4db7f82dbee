//! Shared objects with a copy of the library: they may be closed, and two copies may coexist.

use std::ffi::{CStr, CString, c_void};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};

use thiscpu::{Counter, Tier};

use crate::common::{Random, Scenario, TIERS, pin, scenario, signal, together_while};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(plugin::may_be_closed_after_use, TIERS).needs(cargo),
    scenario!(plugin::two_copies_count_exactly_when_program_is_first, TIERS).needs(cargo),
    scenario!(plugin::two_copies_count_exactly_when_plugin_is_first, TIERS).needs(cargo),
];

const CARGO: &str = env!("CARGO");

/// Checks that this program can build and load shared objects.
fn cargo() -> Result<(), String> {
    if cfg!(target_feature = "crt-static") {
        return Err("needs a dynamically linked test program".into());
    }
    match std::fs::exists(CARGO) {
        Ok(true) => Ok(()),
        _ => Err("needs cargo, to build a shared object".into()),
    }
}

/// Builds the shared object, unless it is up to date, and returns its path.
fn build() -> PathBuf {
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("plugin");
    let mut build = Command::new(CARGO);
    build.args(["build", "--quiet", "--offline", "--package", "thiscpu-plugin", "--target-dir"]);
    let status = build.arg(&target).current_dir(env!("CARGO_MANIFEST_DIR")).status();
    assert!(status.expect("cargo runs").success());
    target.join("debug/libthiscpu_plugin.so")
}

/// A loaded shared object, with its functions.
struct Plugin {
    handle: *mut c_void,
    add: extern "C" fn(i64),
    sum: extern "C" fn() -> i64,
    tier: extern "C" fn() -> i32,
}

// SAFETY: only `close` uses the handle, by value; the functions may be called from any thread.
unsafe impl Sync for Plugin {}

impl Plugin {
    fn load(path: &CStr) -> Plugin {
        // SAFETY: the path is NUL-terminated, and the object has no initializers but Rust's own.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "{path:?} cannot be loaded");
        // SAFETY: the object defines functions of these types under these names.
        unsafe {
            Plugin {
                handle,
                add: symbol(handle, c"thiscpu_plugin_add"),
                sum: symbol(handle, c"thiscpu_plugin_sum"),
                tier: symbol(handle, c"thiscpu_plugin_tier"),
            }
        }
    }

    /// Closes the object; no copy of its functions may be called anymore.
    fn close(self) {
        // SAFETY: the handle is open, and this call consumes it. The callers keep no function.
        assert_eq!(unsafe { libc::dlclose(self.handle) }, 0);
    }
}

/// Returns a function of an open object.
///
/// # Safety
///
/// The object defines a function of type `F` under that name.
unsafe fn symbol<F: Copy>(handle: *mut c_void, name: &CStr) -> F {
    // SAFETY: the handle is open, and the name is NUL-terminated.
    let symbol = unsafe { libc::dlsym(handle, name.as_ptr()) };
    assert!(!symbol.is_null(), "{name:?} is missing");
    // SAFETY: the caller guarantees the type.
    unsafe { std::mem::transmute_copy(&symbol) }
}

fn path() -> CString {
    CString::new(build().into_os_string().into_encoded_bytes()).expect("no zero byte")
}

static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: i32) {
    HANDLED.fetch_add(1, SeqCst);
}

// Threads are moved and interrupted after the object is closed that had their last section.
//
// The kernel still reads the descriptor of that section.
fn may_be_closed_after_use() {
    let path = path();
    for _ in 0..3 {
        let plugin = Plugin::load(&path);
        let (used, closed) = (AtomicI64::new(0), AtomicBool::new(false));
        let (add, sum) = (plugin.add, plugin.sum);
        let before = sum();
        let mut plugin = Some(plugin);
        together_while(
            3,
            |thread| {
                let mut random = Random::new(thread as u64);
                (0..2000).for_each(|_| add(1));
                assert!(sum() >= before + 2000);
                add(1);
                used.fetch_add(1, SeqCst);
                while !closed.load(SeqCst) {
                    std::hint::spin_loop();
                }
                for _ in 0..50 {
                    pin::pin(random.below(8) as usize);
                    std::thread::yield_now();
                }
                signal::handle(libc::SIGUSR1, count);
                signal::send(signal::this_thread(), libc::SIGUSR1);
            },
            || {
                while used.load(SeqCst) < 3 {
                    std::thread::yield_now();
                }
                assert_eq!(sum(), before + 3 * 2001);
                plugin.take().into_iter().for_each(Plugin::close);
                closed.store(true, SeqCst);
            },
        );
    }
    assert_eq!(HANDLED.load(SeqCst), 9);
    // The object was never unmapped, so its counter has kept its value.
    let plugin = Plugin::load(&path);
    assert_eq!((plugin.sum)(), 3 * 3 * 2001);
}

static COUNTER: Counter = Counter::new();

/// Runs threads that use one copy, the other, or both in either order.
///
/// Only one copy can have registered a thread, and both must count all adds.
fn use_both(plugin: &Plugin) {
    const ADDS: i64 = 20_000;
    let add = |thread: usize| {
        for n in 0..ADDS {
            match thread {
                0 => COUNTER.inc(),
                1 => (plugin.add)(1),
                // The copy that this thread uses first depends on its number.
                _ if (n + thread as i64) % 2 == 0 => COUNTER.inc(),
                _ => (plugin.add)(1),
            }
        }
    };
    let (mine, theirs) = (COUNTER.sum(), (plugin.sum)());
    together_while(4, add, || {
        for _ in 0..100 {
            assert!(COUNTER.sum() >= mine && (plugin.sum)() >= theirs);
        }
    });
    assert_eq!(COUNTER.sum(), mine + 2 * ADDS);
    assert_eq!((plugin.sum)(), theirs + 2 * ADDS);
    assert!((0..Tier::ALL.len() as i32).contains(&(plugin.tier)()));
}

fn two_copies_count_exactly_when_program_is_first() {
    let plugin = Plugin::load(&path());
    crate::common::to_percpu_mode(&COUNTER);
    use_both(&plugin);
    use_both(&plugin);
}

fn two_copies_count_exactly_when_plugin_is_first() {
    let plugin = Plugin::load(&path());
    (0..1000).for_each(|_| (plugin.add)(1));
    use_both(&plugin);
    use_both(&plugin);
}
