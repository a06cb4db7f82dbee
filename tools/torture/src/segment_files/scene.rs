//! Images of a segment in use, some of whose processes have been killed at any moment.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use thiscpu::{Segment, SegmentError, SharedBudget};
use thiscpu_test_support::child;

/// Counters that are read together.
pub(super) const GROUP: &str = "a group of counters with a long name";
/// The limit of each budget.
pub(super) const LIMIT: u64 = 40;
/// How many images are taken of calls that a kill interrupted.
const INTERRUPTED: usize = 8;

/// Images, and the processes that must live as long as the images are used.
pub(super) struct Scene {
    pub(super) images: Vec<Vec<u8>>,
    /// Holds units, as the images say.
    _segment: Segment,
    _living: Vec<Living>,
}

/// A child that lives until this is dropped.
struct Living(i32);

impl Living {
    fn start(body: impl FnOnce()) -> Living {
        Living(child::start(|| {
            // The child ends with its parent, and not by the alarm that `child::start` has set.
            // SAFETY: both calls take numbers.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::alarm(0);
            }
            body();
            loop {
                thread::park();
            }
        }))
    }
}

impl Drop for Living {
    fn drop(&mut self) {
        // SAFETY: the child has not been waited for, so its number is not another one's.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        child::wait(self.0);
    }
}

impl Scene {
    /// Makes a segment, uses it from several processes, and takes images meanwhile.
    pub(super) fn new(random: &mut Rng) -> Result<Scene, SegmentError> {
        // The smallest file with two lanes: each of its bytes can be changed in little time.
        let options = Segment::options().max_bytes(256 << 10).lanes(2).participants(8).clone();
        let segment = options.anonymous()?;
        let mut images = vec![image_of(&segment)?];
        let mut living = Vec::new();
        fill(&segment)?;
        let [limit, second] = ["limit", "second"].map(|name| segment.budget(name, LIMIT));
        let (limit, second) = (limit?, second?);
        let acquire = |budget: &SharedBudget, n| _ = budget.try_acquire(n);
        acquire(&limit, 3);
        images.push(image_of(&segment)?);
        // Sealed counters, and a budget whose credit was recalled.
        use_counters(&segment)?;
        let _ = second.available();
        images.push(image_of(&segment)?);
        drop(Living::start(|| {
            acquire(&limit, 5);
            acquire(&second, LIMIT);
        }));
        living.push(Living::start(|| acquire(&second, 7)));
        images.push(image_of(&segment)?);
        // A waiter that lives, and one that does not.
        for _ in 0..2 {
            let before = limit.waiters();
            let waiter = Living::start(|| _ = limit.acquire(LIMIT));
            while limit.waiters() == before {
                thread::yield_now();
            }
            living.push(waiter);
        }
        living.pop();
        images.push(image_of(&segment)?);
        for _ in 0..INTERRUPTED {
            let seed = random.u64(..);
            let killed = Living::start(|| work(&segment, seed));
            thread::sleep(Duration::from_micros(random.u64(500..5000)));
            drop(killed);
            images.push(image_of(&segment)?);
        }
        second.close();
        images.push(image_of(&segment)?);
        Ok(Scene { images, _segment: segment, _living: living })
    }
}

fn fill(segment: &Segment) -> Result<(), SegmentError> {
    segment.counter("counter")?.add(1000);
    segment.counter("negative")?.add(-1 << 40);
    let group = segment.counters::<3>(GROUP)?;
    (0..3).for_each(|number| group.add(number, 1 - number as i64));
    Ok(())
}

fn use_counters(segment: &Segment) -> Result<(), SegmentError> {
    let (counter, group) = (segment.counter("counter")?, segment.counters::<3>(GROUP)?);
    for round in 0..3 {
        counter.add(1 << (15 * round));
        group.add(round, -1 << 33);
        std::hint::black_box((counter.sum(), group.sum()));
    }
    Ok(())
}

/// Uses a segment until this process is killed.
fn work(segment: &Segment, seed: u64) {
    let mut random = Rng::with_seed(seed);
    let budgets = ["limit", "second"].map(|name| segment.budget(name, LIMIT).expect("it exists"));
    loop {
        let (budget, n) = (&budgets[random.usize(..2)], random.u64(1..20));
        match random.u32(..5) {
            0 => use_counters(segment).expect("they exist"),
            1 => _ = budget.acquire_timeout(n, Duration::from_micros(n)),
            2 => budget.set_limit(LIMIT - n),
            _ if budget.try_acquire(n).is_ok() => budget.release(n),
            _ => _ = budget.available(),
        }
    }
}

fn image_of(segment: &Segment) -> Result<Vec<u8>, SegmentError> {
    let file: File = segment.as_fd()?.try_clone_to_owned().expect("a duplicate").into();
    let mut bytes = vec![0; file.metadata().expect("a file").len() as usize];
    file.read_exact_at(&mut bytes, 0).expect("its length");
    Ok(bytes)
}
