//! Heap profiles: the blocks that are sampled, how they count, and the text.
//!
//! One test after the other, because they are about the whole process. With an interval of 1, each
//! block of 40 bytes or more is sampled with a weight of 1, so all numbers are exact.

use std::collections::HashSet;
use std::ffi::CString;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::ffi::OsStrExt as _;
use std::ptr::NonNull;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use thiscpu_malloc::{
    allocate, allocate_aligned, allocate_aligned_zeroed, allocate_zeroed, enable_counting, free,
    profile, resize, stats, trim, usable_size,
};
use thiscpu_test_support::{child, is_quick};

/// Sums of a profile: live objects and bytes, and those that were allocated.
type Sums = [u64; 4];

/// A stack, and its sums.
struct Sample {
    sums: Sums,
    frames: Vec<usize>,
}

struct Profile {
    totals: Sums,
    samples: Vec<Sample>,
    text: String,
}

fn sums(line: &str) -> Sums {
    let words = line.split(|letter: char| !letter.is_ascii_digit());
    let numbers: Vec<u64> =
        words.filter(|word| !word.is_empty()).map(|word| word.parse().unwrap()).collect();
    numbers.try_into().unwrap_or_else(|_| panic!("not four numbers: {line}"))
}

/// Writes a profile and parses it.
fn read() -> Profile {
    let mut file = temporary_file();
    profile::write(&file).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    parse(text)
}

fn temporary_file() -> File {
    // SAFETY: the name is a C string.
    let file = unsafe { libc::memfd_create(c"profile".as_ptr(), 0) };
    assert!(file >= 0);
    // SAFETY: the descriptor was just opened, and nothing else owns it.
    unsafe { std::os::fd::FromRawFd::from_raw_fd(file) }
}

fn parse(text: String) -> Profile {
    let (head, mappings) = text.split_once("\nMAPPED_LIBRARIES:\n").unwrap();
    assert!(mappings.contains("r-xp"), "{mappings}");
    let mut lines = head.lines();
    let heading = lines.next().unwrap().strip_prefix("heap profile: ").unwrap();
    let totals = sums(heading.strip_suffix(" @ heapprofile").unwrap());
    let samples = lines.filter(|line| !line.starts_with('#') && !line.is_empty());
    let samples = samples.map(|line| {
        let (numbers, frames) = line.split_once(" @ ").unwrap();
        let address = |word: &str| usize::from_str_radix(&word[2..], 16).unwrap();
        Sample { sums: sums(numbers), frames: frames.split(' ').map(address).collect() }
    });
    Profile { totals, samples: samples.collect(), text: text.clone() }
}

/// Returns what the profile's totals change by while `work` runs.
fn change<T>(work: impl FnOnce() -> T) -> ([i64; 4], T) {
    let before = read().totals;
    let result = work();
    let after = read().totals;
    (std::array::from_fn(|at| after[at] as i64 - before[at] as i64), result)
}

fn give(block: NonNull<u8>) {
    // SAFETY: the block is allocated, and not used any more.
    unsafe { free(block) };
}

/// Fills a block, and checks that it has the alignment and enough room.
fn use_all(block: NonNull<u8>, size: usize, align: usize) {
    assert!(block.addr().get().is_multiple_of(align), "{block:?} is not aligned to {align}");
    // SAFETY: the block is allocated and has at least `size` bytes.
    unsafe {
        let usable = usable_size(block);
        assert!(usable >= size, "{usable} of {size}");
        block.write_bytes(0xa5, usable);
    }
}

fn is_zero(block: NonNull<u8>, size: usize) -> bool {
    // SAFETY: the block has `size` bytes, which are initialized.
    unsafe { std::slice::from_raw_parts(block.as_ptr(), size) }.iter().all(|&byte| byte == 0)
}

/// Checks that each function samples a block once, for sizes of each kind.
fn each_allocation_counts_once() {
    let sizes = [40, 64, 200, 1_000, 1_024, 1_025, 5_000, 32_000, 32_760, 32_761, 32_768, 32_769];
    let large = [65_536, 100_000, 600_000, 4 << 20, (4 << 20) + 1, 5_000_000];
    for size in sizes.into_iter().chain(large) {
        for align in [1, 8, 16, 64, 4_096, 128 << 10_usize] {
            let takes: [&dyn Fn() -> Option<NonNull<u8>>; 4] = [
                &|| allocate(size),
                &|| allocate_zeroed(size),
                &|| allocate_aligned(size, align),
                &|| allocate_aligned_zeroed(size, align),
            ];
            for (number, take) in takes.into_iter().enumerate() {
                let align = if number < 2 { 1 } else { align };
                let (counted, block) = change(|| take().unwrap());
                let size = size as i64;
                assert_eq!(counted, [1, size, 1, size], "function {number}, {size}, {align}");
                assert!(number % 2 == 0 || is_zero(block, size as usize));
                use_all(block, size as usize, align);
                let (counted, ()) = change(|| give(block));
                assert_eq!(counted, [-1, -size, 0, 0], "free of {size}, function {number}");
            }
        }
    }
}

/// Checks that blocks that move, and resized large ones, count as freed and as new.
fn resized_blocks_count_again() {
    let steps = [100_i64, 150, 2_000, 40_000, 200_000, 90_000_000, 300_000, 50_000, 100, 60];
    let mut block = allocate(steps[0] as usize).unwrap();
    for pair in steps.windows(2) {
        let (before, size) = (pair[0], pair[1]);
        let (counted, moved) =
            // SAFETY: the block is allocated, and its old address is not used after this.
            change(|| unsafe { resize(block, size as usize) }.unwrap());
        block = moved;
        use_all(block, size as usize, 16);
        // A small block that stays where it is keeps its record.
        if counted != [0; 4] {
            assert_eq!(counted, [0, size - before, 1, size], "{before} to {size}");
        } else {
            assert!(before < 32_768 && size <= before && size >= before / 2, "{before} to {size}");
        }
    }
    give(block);
    assert_eq!(read().totals[..2], [0, 0], "{}", read().text);
}

#[inline(never)]
fn first_site() -> NonNull<u8> {
    std::hint::black_box(allocate(300)).unwrap()
}

#[inline(never)]
fn second_site() -> NonNull<u8> {
    std::hint::black_box(allocate(400)).unwrap()
}

/// Checks that each sample has the stack of its allocation.
fn samples_belong_to_their_call_sites() {
    let blocks = [first_site(), first_site(), second_site()];
    let profile = read();
    for (site, expected) in [
        (first_site as fn() -> NonNull<u8>, [2, 600]),
        (second_site as fn() -> NonNull<u8>, [1, 400]),
    ] {
        let code = site as usize..site as usize + 400;
        let at_site =
            |sample: &&Sample| sample.frames.iter().any(|frame| code.contains(&(frame - 1)));
        let found: Vec<Sums> =
            profile.samples.iter().filter(at_site).map(|sample| sample.sums).collect();
        let live = found.iter().fold([0; 2], |sum, it| [sum[0] + it[0], sum[1] + it[1]]);
        // The code of the two may be adjacent, so that the range has both.
        assert!(live[0] >= expected[0] && live[1] >= expected[1], "{}", profile.text);
    }
    blocks.into_iter().for_each(give);
}

/// Checks that writing a profile allocates nothing that the profile would see.
fn writing_allocates_nothing() {
    let file = temporary_file();
    let before = read().totals;
    for _ in 0..10 {
        profile::write(&file).unwrap();
    }
    assert_eq!(read().totals, before);
}

/// Checks that a link is written through, and that it stays a link.
fn links_are_written_through() {
    let link = std::env::temp_dir().join(format!("thiscpu-link-{}", std::process::id()));
    let file = link.with_extension("file");
    std::fs::write(&file, "before\n").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let path = CString::new(link.as_os_str().as_bytes()).unwrap();
    assert_eq!(profile::write_file(&path, std::process::id() as i32), Ok(true));
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("before\nheap profile:"), "{text}");
    [link, file].into_iter().for_each(|name| std::fs::remove_file(name).unwrap());
}

/// Checks that a thread that is to be canceled writes a profile to its end.
fn writing_is_no_cancellation_point() {
    let file = temporary_file();
    let write = || {
        // SAFETY: the thread disables cancellation before it reaches another point of it.
        unsafe { libc::pthread_cancel(libc::pthread_self()) };
        let is_written = profile::write(&file).is_ok();
        let mut before = 0;
        // SAFETY: `before` is a place for an integer. 1 is PTHREAD_CANCEL_DISABLE.
        unsafe { pthread_setcancelstate(1, &raw mut before) };
        is_written
    };
    assert!(thread::scope(|scope| scope.spawn(write).join().unwrap()));
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
}

/// Checks that a pipe without a reader is an error, and ends nothing.
fn closed_pipes_are_errors() {
    child::assert_holds(|| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        // SAFETY: the action is a constant.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let written = profile::write(&writer);
        written.is_err_and(|error| error.raw_os_error() == Some(libc::EPIPE))
    });
}

/// Checks profiles that are written while threads allocate.
fn profiles_are_written_while_threads_allocate() {
    let is_done = AtomicBool::new(false);
    let before = read().totals[0];
    thread::scope(|scope| {
        for number in 1..=8_usize {
            let is_done = &is_done;
            scope.spawn(move || {
                let mut blocks = Vec::new();
                while !is_done.load(Relaxed) {
                    for round in 0..100 {
                        blocks.push(allocate(50 * number + round).unwrap());
                    }
                    blocks.drain(..).for_each(give);
                }
            });
        }
        let mut allocated = 0;
        for _ in 0..100 {
            let profile = read();
            for Sample { sums: [live, live_bytes, all, all_bytes], .. } in &profile.samples {
                assert!(live <= all && live_bytes <= all_bytes, "{}", profile.text);
            }
            assert!(profile.totals[2] >= allocated, "{}", profile.text);
            allocated = profile.totals[2];
        }
        is_done.store(true, Relaxed);
    });
    assert_eq!(read().totals[0], before);
}

/// Checks that sampled blocks have contents of their own, and that none is lost.
fn sampled_blocks_do_not_overlap() {
    let sizes = (0..2_000).map(|number| number * 7 % 1_500);
    let blocks: Vec<_> = sizes.map(|size| (allocate(size).unwrap(), size)).collect();
    let addresses: HashSet<_> = blocks.iter().map(|block| block.0).collect();
    assert_eq!(addresses.len(), blocks.len());
    for &(block, size) in &blocks {
        // SAFETY: the block is allocated with `size` bytes.
        unsafe { block.write_bytes(size as u8, size) };
    }
    for &(block, size) in &blocks {
        // SAFETY: the block has `size` initialized bytes.
        let bytes = unsafe { std::slice::from_raw_parts(block.as_ptr(), size) };
        assert!(bytes.iter().all(|&byte| byte == size as u8), "{size}");
    }
    let used = stats().allocated_bytes;
    let bytes: usize = blocks.iter().map(|block| block.1).sum();
    assert!(used >= bytes, "{used} of {bytes}");
    blocks.into_iter().for_each(|block| give(block.0));
    trim(0);
    assert!(stats().allocated_bytes + bytes <= used, "{:?}, {used}", stats());
}

/// Checks that misuse of sampled blocks ends the process, like that of others.
fn misuse_aborts() {
    let aborts = |misuse: &dyn Fn()| {
        let status = child::status_of(|| {
            misuse();
            0
        });
        libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT
    };
    for size in [40, 1_000, 20_000, 200_000] {
        assert!(aborts(&|| {
            let block = allocate(size).unwrap();
            give(block);
            give(block);
        }));
        assert!(aborts(&|| {
            let block = allocate(size).unwrap();
            // SAFETY: the address is in the block.
            give(unsafe { block.add(16) });
        }));
    }
    // A write past the end loses the record, with a warning, and nothing else.
    let block = allocate(64).unwrap();
    for bytes in [1, 4, 5, 8] {
        child::assert_holds(|| {
            // SAFETY: none: this is what a faulty program does. The bytes are of the footer.
            unsafe {
                let footer = block.add(usable_size(block)).cast::<[u8; 8]>();
                let mut changed = footer.read();
                changed[..bytes].iter_mut().for_each(|byte| *byte ^= 0xff);
                footer.write(changed);
            }
            let live = read().totals[0];
            give(block);
            read().totals[0] == live && allocate(64).is_some()
        });
    }
    give(block);
}

/// Checks that a forked child goes on with a copy of its parent's profile.
fn children_go_on_with_their_own_profile() {
    let kept = allocate(500).unwrap();
    let before = read().totals;
    child::assert_holds(|| {
        let own = allocate(700).unwrap();
        give(kept);
        let now = read().totals;
        give(own);
        now == [before[0], before[1] + 200, before[2] + 1, before[3] + 700]
    });
    assert_eq!(read().totals, before);
    give(kept);
}

/// Checks that blocks of a stopped profile are still counted when they are freed.
fn stopped_profile_counts_frees() {
    let kept = allocate(123).unwrap();
    profile::stop();
    assert!(!profile::is_on());
    let (counted, others) = change(|| [100, 5_000, 100_000].map(|size| allocate(size).unwrap()));
    assert_eq!(counted, [0; 4]);
    let (counted, ()) = change(|| give(kept));
    assert_eq!(counted, [-1, -123, 0, 0]);
    others.into_iter().for_each(give);
    profile::start(1);
}

/// Checks that the first block of a countdown is sampled as rarely as any other.
fn first_blocks_are_not_sampled_more_often() {
    let before = read().totals[2];
    for _ in 0..10_000 {
        // The thread's countdown starts over.
        profile::start(1 << 30);
        give(allocate(16).unwrap());
    }
    // One sample is expected in 6,000 runs of this.
    assert!(read().totals[2] - before <= 2 << 26, "{}", read().text);
    profile::start(1);
}

/// Checks that a thread whose distance is of a former interval does not sample by it.
fn other_threads_use_the_new_interval() {
    let before = read().totals[3];
    let barrier = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            give(allocate(64).unwrap());
            barrier.wait();
            barrier.wait();
            give(allocate(16).unwrap());
        });
        barrier.wait();
        profile::start(1 << 40);
        barrier.wait();
    });
    assert!(read().totals[3] - before < 1 << 30, "{}", read().text);
    profile::start(1);
}

/// Checks that counted calls are sampled, and sampled calls counted.
fn counting_and_profiles_work_together() {
    enable_counting();
    let counts = || {
        let all = thiscpu_malloc::class_stats();
        all.fold([0, 0], |sum, class| [sum[0] + class.allocations, sum[1] + class.frees])
    };
    let before = counts();
    let (counted, blocks) = change(|| [50, 500, 5_000].map(|size| allocate(size).unwrap()));
    assert_eq!(counted, [3, 5_550, 3, 5_550]);
    blocks.into_iter().for_each(give);
    assert_eq!(counts(), [before[0] + 3, before[1] + 3]);
}

/// Checks that a peak soon after another calls the function later, without a further peak.
fn growth_within_a_second_is_written_later() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    profile::call_at_peaks(Some(|| {
        CALLS.fetch_add(1, Relaxed);
    }));
    let blocks = [256, 512].map(|mib: usize| allocate(mib << 20).unwrap());
    let calls = CALLS.load(Relaxed);
    assert!(calls > 0);
    blocks.into_iter().for_each(give);
    for _ in 0..3_000 {
        if CALLS.load(Relaxed) > 1 {
            break;
        }
        give(allocate(100).unwrap());
        thread::sleep(Duration::from_millis(20));
    }
    assert!(CALLS.load(Relaxed) > 1);
    profile::call_at_peaks(None);
}

#[test]
fn profile_counts_blocks_by_stack() {
    let kept_from_before = allocate(64).unwrap();
    profile::start(1);
    assert!(profile::is_on());
    each_allocation_counts_once();
    resized_blocks_count_again();
    samples_belong_to_their_call_sites();
    writing_allocates_nothing();
    links_are_written_through();
    writing_is_no_cancellation_point();
    closed_pipes_are_errors();
    profiles_are_written_while_threads_allocate();
    sampled_blocks_do_not_overlap();
    misuse_aborts();
    children_go_on_with_their_own_profile();
    stopped_profile_counts_frees();
    first_blocks_are_not_sampled_more_often();
    other_threads_use_the_new_interval();
    counting_and_profiles_work_together();
    if !is_quick() {
        growth_within_a_second_is_written_later();
    }
    let (counted, ()) = change(|| give(kept_from_before));
    assert_eq!(counted, [0; 4]);
}
