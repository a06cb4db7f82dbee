//! `mixed-small`, `simulated` and `large-random`: objects of mixed sizes, by a script.
//!
//! A script has the sizes of objects, and the places that they are kept at. Each thread makes its
//! own before time is taken, so that random numbers cost nothing.

use anyhow::Result;
use fastrand::Rng;

use super::{ChildSpec, places::Places, timed::op_ns};
use crate::{contenders::allocators::Allocator, cpus::Cpus};

/// A place, and the size of the next object there.
#[derive(Clone, Copy)]
struct Step {
    place: u32,
    size: u32,
}

/// Measures a habit of many small sizes, most of whose objects are freed soon.
///
/// A logic minimizer has it: it makes and drops short lists of bit sets, and keeps a few. Nine of
/// ten objects live for some thirty calls, the others for thousands.
pub(super) fn mixed_small<A: Allocator>(cpus: &Cpus, spec: &ChildSpec) -> Result<f64> {
    /// The places of objects that are freed soon; those of others follow.
    const YOUNG: u32 = 32;
    const ALL: u32 = YOUNG + 4096;
    replace::<A>(cpus, spec, ALL, |random| {
        let (is_tiny, is_young) = (random.u8(..4) > 0, random.u8(..10) > 0);
        Step {
            place: if is_young { random.u32(..YOUNG) } else { random.u32(YOUNG..ALL) },
            size: random.u32(if is_tiny { 8..=64 } else { 8..=400 }),
        }
    })
}

/// Measures sizes of 4 bytes to 32 KiB, whose probability falls as the inverse square.
///
/// glibc's benchmark of threads has such sizes, at places that are chosen at random.
pub(super) fn simulated<A: Allocator>(cpus: &Cpus, spec: &ChildSpec) -> Result<f64> {
    const PLACES: u32 = 1024;
    const MIN: f64 = 4.0;
    const MAX: f64 = 32_768.0;
    replace::<A>(cpus, spec, PLACES, |random| {
        // The share of sizes above `s` is (1 / s - 1 / MAX) / (1 / MIN - 1 / MAX).
        let size = (1.0 / MAX + random.f64() * (1.0 / MIN - 1.0 / MAX)).recip();
        Step { place: random.u32(..PLACES), size: size as u32 }
    })
}

/// Measures the time of freeing an object and allocating another at its place.
fn replace<A: Allocator>(
    cpus: &Cpus,
    spec: &ChildSpec,
    places: u32,
    next: impl Fn(&mut Rng) -> Step + Sync,
) -> Result<f64> {
    /// The steps after which the script begins again.
    const STEPS: usize = 1 << 14;
    let allocator = &A::new(8);
    let prepare = |index| {
        allocator.enter();
        let mut random = Rng::with_seed(index as u64);
        let script: Vec<Step> = (0..STEPS).map(|_| next(&mut random)).collect();
        let mut places = Places::new(allocator, places as usize);
        let mut replace = move |step: Step| places.alloc(step.place as usize, step.size as usize);
        // Time is taken of places that are full.
        script.iter().for_each(|&step| replace(step));
        let mut steps = 0;
        move || {
            replace(script[steps % STEPS]);
            steps += 1;
            Ok(())
        }
    };
    op_ns(cpus, spec, 64, prepare)
}

/// The objects of a thread in `large-random` that come and go; those that are kept follow.
const LARGE: usize = 12;
const LARGE_KEPT: usize = 2;

/// The steps of `large-random`: three times, each place gets an object and loses it.
const LARGE_STEPS: usize = LARGE * 6;

/// Measures the time of a step, which allocates an object of 5 to 25 MiB or frees it.
///
/// After the script, a thread has the same objects as before it. So the peak of memory does not
/// depend on how often the script runs.
pub(super) fn large_random<A: Allocator>(cpus: &Cpus, spec: &ChildSpec) -> Result<f64> {
    let allocator = &A::new(8);
    let prepare = |index| {
        allocator.enter();
        let mut random = Rng::with_seed(index as u64);
        let script = large_script(&mut random);
        let mut places = Places::new(allocator, LARGE + LARGE_KEPT);
        (0..LARGE_KEPT)
            .for_each(|kept| places.alloc(LARGE + kept, large_size(&mut random) as usize));
        let mut steps = 0;
        move || {
            let Step { place, size } = script[steps % LARGE_STEPS];
            if !places.free(place as usize) {
                places.alloc(place as usize, size as usize);
            }
            steps += 1;
            Ok(())
        }
    };
    op_ns(cpus, spec, LARGE_STEPS as u32, prepare)
}

fn large_size(random: &mut Rng) -> u32 {
    random.u32(5 << 20..=25 << 20)
}

/// Returns places in random order, each with the size of an object if the place has none.
fn large_script(random: &mut Rng) -> Vec<Step> {
    let place = |step| (step % LARGE) as u32;
    let step = |step| Step { place: place(step), size: large_size(random) };
    let mut script: Vec<Step> = (0..LARGE_STEPS).map(step).collect();
    random.shuffle(&mut script);
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_of_large_objects_ends_as_it_began() {
        let mut has_object = [false; LARGE];
        let (mut most, mut live) = (0_usize, 0_usize);
        for Step { place, size } in large_script(&mut Rng::with_seed(1)) {
            assert!((5 << 20..=25 << 20).contains(&size));
            let has_object = &mut has_object[place as usize];
            *has_object = !*has_object;
            live = if *has_object { live + 1 } else { live - 1 };
            most = most.max(live);
        }
        assert_eq!(has_object, [false; LARGE]);
        assert!((LARGE / 2..=LARGE).contains(&most), "{most}");
    }
}
