//! A stream of requests by many owners: a few owners make most requests.

use std::sync::OnceLock;

use rand::{SeedableRng as _, rngs::SmallRng};
use rand_distr::{Distribution as _, Zipf};

/// The exponent of the Zipf law: the usual one of such benchmarks.
const EXPONENT: f64 = 0.99;

/// The factor from a rank to its owner, modulo the number of owners.
///
/// It is coprime to any power of ten, so each owner has one rank; and the most frequent owners are
/// not neighbors.
const SCATTER: u64 = 618_033;

/// Requests, each by the number of its owner.
pub(super) struct Stream {
    pub(super) owners: usize,
    pub(super) requests: Box<[u32]>,
}

impl Stream {
    /// Draws a stream, equal in each run.
    fn new(owners: usize, requests: usize) -> Self {
        let ranks = Zipf::new(owners as f64, EXPONENT).expect("there are owners");
        let mut random = SmallRng::seed_from_u64(0);
        let owner_of = |rank: f64| (rank as u64 * SCATTER % owners as u64) as u32;
        let requests = (0..requests).map(|_| owner_of(ranks.sample(&mut random))).collect();
        Self { owners, requests }
    }

    /// Returns the stream of a million owners, or of a hundredth of them in a trial.
    ///
    /// It has more requests than two threads serve in a slice. Drawing takes longer than a slice,
    /// so the stream is drawn once and kept.
    pub(super) fn get(is_trial: bool) -> &'static Self {
        static KEPT: [OnceLock<Stream>; 2] = [const { OnceLock::new() }; 2];
        let share = if is_trial { 100 } else { 1 };
        let draw = || Self::new(1_000_000 / share, (1 << 22) / share);
        KEPT[usize::from(is_trial)].get_or_init(draw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_owners_make_most_requests_and_ranks_are_unique() {
        let Stream { owners, requests } = Stream::get(true);
        let mut times = vec![0_u32; *owners];
        requests.iter().for_each(|&owner| times[owner as usize] += 1);
        times.sort_unstable_by(|a, b| b.cmp(a));
        let share = |of: &[u32]| f64::from(of.iter().sum::<u32>()) / requests.len() as f64;
        // By the harmonic sums, 9.8 % and 51.8 %.
        assert!((0.09..0.11).contains(&share(&times[..1])), "{}", share(&times[..1]));
        assert!((0.51..0.54).contains(&share(&times[..100])), "{}", share(&times[..100]));
        let owner_of = |rank: u64| rank * SCATTER % *owners as u64;
        let mut seen: Vec<u64> = (1..=*owners as u64).map(owner_of).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), *owners);
    }
}
