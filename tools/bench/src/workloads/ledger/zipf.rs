//! A stream of requests by very many owners, few of which make most of them.

use std::sync::OnceLock;

use rand::{SeedableRng as _, rngs::SmallRng};
use rand_distr::{Distribution as _, Zipf};

/// How much less the next owner asks than the one before: the usual exponent of such benchmarks.
const EXPONENT: f64 = 0.99;

/// What a rank is multiplied by, modulo the number of owners, to find the owner who has it. It has no
/// divisor in common with any power of ten, so each owner has one rank; and those who ask most do not
/// lie side by side.
const SCATTER: u64 = 618_033;

/// Owners, by number, in the order in which they ask.
pub(super) struct Stream {
    pub(super) owners: usize,
    pub(super) requests: Box<[u32]>,
}

impl Stream {
    /// Draws it, the same in each run.
    fn new(owners: usize, requests: usize) -> Self {
        let ranks = Zipf::new(owners as f64, EXPONENT).expect("there are owners");
        let mut random = SmallRng::seed_from_u64(0);
        let owner_of = |rank: f64| (rank as u64 * SCATTER % owners as u64) as u32;
        let requests = (0..requests).map(|_| owner_of(ranks.sample(&mut random))).collect();
        Self { owners, requests }
    }

    /// A million owners, with more requests than two threads serve in a slice. For a trial a hundredth.
    /// Drawing takes longer than a slice, so it is done once and kept.
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
    fn few_owners_make_most_requests_and_nobody_shares_a_rank() {
        let Stream { owners, requests } = Stream::get(true);
        let mut times = vec![0_u32; *owners];
        requests.iter().for_each(|&owner| times[owner as usize] += 1);
        times.sort_unstable_by(|a, b| b.cmp(a));
        let share = |of: &[u32]| f64::from(of.iter().sum::<u32>()) / requests.len() as f64;
        // The harmonic sums say 9.8 % and 51.8 %.
        assert!((0.09..0.11).contains(&share(&times[..1])), "{}", share(&times[..1]));
        assert!((0.51..0.54).contains(&share(&times[..100])), "{}", share(&times[..100]));
        let owner_of = |rank: u64| rank * SCATTER % *owners as u64;
        let mut seen: Vec<u64> = (1..=*owners as u64).map(owner_of).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), *owners);
    }
}
