//! Calls of the allocator use little stack and are no cancellation points, the first one included.

use std::fs::File;
use std::ptr::NonNull;
use std::sync::OnceLock;

use thiscpu_malloc::{
    __test_support, allocate, allocate_aligned, allocate_zeroed, class_stats, enable_counting,
    enable_hardening, free, profile, resize, stats, stats_json, trim,
};
use thiscpu_test_support::cancellation::is_survived;
use thiscpu_test_support::{child, painted_stack};

struct Call {
    name: &'static str,
    prepare: fn(),
    run: fn(),
    /// The stack that it may use, in bytes.
    limit: usize,
}

const fn call(name: &'static str, prepare: fn(), run: fn()) -> Call {
    Call { name, prepare, run, limit: 16 << 10 }
}

/// A size of each kind of block: of classes, and of runs of chunks.
const SIZES: [usize; 7] = [1, 40, 4000, 30_000, 100_000, 3 << 20, 40 << 20];

fn give(block: Option<NonNull<u8>>) {
    let block = block.expect("memory");
    // SAFETY: the caller has allocated the block, and does not use it any more.
    unsafe { free(block) };
}

fn allocate_and_free() {
    for size in SIZES {
        let count = if size > 10_000 { 3 } else { 3000 };
        let blocks: Vec<_> = (0..count).map(|_| allocate(size)).collect();
        blocks.into_iter().for_each(give);
        give(allocate_zeroed(size));
        give(allocate_aligned(size, 4096));
    }
}

fn resize_blocks() {
    for size in SIZES {
        let block = allocate(size).expect("memory");
        // SAFETY: the block is allocated, and only its new address is used.
        let block = unsafe { resize(block, 2 * size) };
        give(block);
    }
}

/// Guards one block in a hundred.
fn guard_blocks() {
    assert!(enable_hardening(), "no hardening");
    __test_support::sample_every(100);
}

/// A file for the profile, made before the call that writes to it.
static FILE: OnceLock<File> = OnceLock::new();

fn sample_blocks() {
    FILE.set(File::create("/dev/null").expect("a device")).expect("the first file");
    profile::start(1);
    (0..1000).for_each(|_| _ = allocate(100));
}

fn write_profile() {
    profile::write(FILE.get().expect("a file")).expect("a profile");
}

const CALLS: &[Call] = &[
    call("allocate, free", || (), allocate_and_free),
    call("resize", || (), resize_blocks),
    call("allocate, free with a profile", sample_blocks, allocate_and_free),
    call("allocate, free with guarded blocks", guard_blocks, allocate_and_free),
    call("enable_hardening", || (), guard_blocks),
    call("allocate, free, class_stats with counting", enable_counting, || {
        allocate_and_free();
        std::hint::black_box(class_stats().count());
    }),
    call("stats", allocate_and_free, || _ = std::hint::black_box(stats())),
    call("trim", allocate_and_free, || _ = trim(0)),
    call("class_stats, stats_json", allocate_and_free, || {
        std::hint::black_box((class_stats().count(), stats_json()));
    }),
    // Signal handlers may make these calls.
    Call { limit: 2 << 10, ..call("profile::write", sample_blocks, write_profile) },
    Call {
        limit: 2 << 10,
        ..call("profile::write_file", sample_blocks, || {
            let path = c"/tmp/thiscpu-malloc-edges.profile";
            // SAFETY: getpid and unlink have no preconditions; the path is a C string.
            unsafe {
                let _ = profile::write_file(path, libc::getpid());
                libc::syscall(libc::SYS_unlinkat, libc::AT_FDCWD, path.as_ptr(), 0);
            }
        })
    },
];

#[test]
fn calls_need_little_stack() {
    let is_within = |call: &&Call| {
        let status = child::status_of(|| {
            (call.prepare)();
            let used = painted_stack::bytes_used(call.run);
            eprintln!("{used:6} of {:6} bytes: {}", call.limit, call.name);
            i32::from(used > call.limit)
        });
        status == 0
    };
    let exceeded = CALLS.iter().filter(|call| !is_within(call)).map(|call| call.name);
    assert_eq!(exceeded.collect::<Vec<_>>(), [""; 0], "calls that use too much stack");
}

#[test]
fn calls_survive_pending_cancel() {
    let ended = CALLS.iter().filter(|call| !is_survived(call.prepare, call.run));
    let names: Vec<_> = ended.map(|call| call.name).collect();
    assert_eq!(names, [""; 0], "calls that are cancellation points");
}
