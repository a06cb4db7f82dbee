//! Whether the calls of a rate, recorded with their times, kept its guarantees.
//!
//! Each call took effect at an instant that only the rate knows, between its beginning and its end.
//! The checks find what no choice of instants explains.

/// A call of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The time before the call, in nanoseconds.
    pub began: u64,
    /// The time after the call.
    pub ended: u64,
    /// The units requested.
    pub units: u64,
    /// Whether the call got them; if not, it was refused.
    pub is_admitted: bool,
}

/// A bucket that is full when the first call begins.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    /// `pace.0` units in `pace.1` nanoseconds.
    pub pace: (u64, u64),
    /// The most units that the bucket holds.
    pub burst: u64,
}

impl Bucket {
    /// Returns the most units by which any span of time had more than `burst + pace * time`.
    ///
    /// Counts the calls that are wholly within the span. The result is 0 if the rate was kept.
    pub fn excess(&self, calls: &[Call]) -> u64 {
        let mut admitted: Vec<_> = calls.iter().filter(|call| call.is_admitted).collect();
        admitted.sort_by_key(|call| call.began);
        let mut tree = PrefixSums::new(admitted.iter().map(|call| self.earned(call.began)));
        let mut by_end: Vec<usize> = (0..admitted.len()).collect();
        by_end.sort_by_key(|&call| admitted[call].ended);
        let mut excess = 0;
        for call in by_end {
            // The spans that begin with this call, or with an earlier one, have it within.
            tree.activate(call);
            tree.add(call, self.quanta(admitted[call].units));
            let taken = tree.max() - self.earned(admitted[call].ended);
            excess = excess.max(taken - self.quanta(self.burst));
        }
        // Rounded up: a part of a unit is too much as well.
        (excess as u128).div_ceil(self.pace.1.into()) as u64
    }

    /// Returns a refused call although this bucket had its units at every instant of the call.
    ///
    /// The other calls may have taken units at any instant of theirs, so the bucket is as empty as
    /// it can have been.
    pub fn wrong_refusal(&self, calls: &[Call]) -> Option<Call> {
        let start = calls.iter().map(|call| call.began).min()?;
        let mut admitted: Vec<Call> = calls.iter().copied().filter(|c| c.is_admitted).collect();
        admitted.push(Call { began: start, ended: start, units: 0, is_admitted: true });
        let mut by_end: Vec<usize> = (0..admitted.len()).collect();
        by_end.sort_by_key(|&call| admitted[call].ended);
        let mut position = vec![0; admitted.len()];
        by_end.iter().enumerate().for_each(|(at, &call)| position[call] = at);
        let ends: Vec<u64> = by_end.iter().map(|&call| admitted[call].ended).collect();
        let mut tree = PrefixSums::new(ends.iter().map(|&end| self.earned(end)));
        let mut by_begin: Vec<usize> = (0..admitted.len()).collect();
        by_begin.sort_by_key(|&call| admitted[call].began);
        let mut refused: Vec<&Call> = calls.iter().filter(|call| !call.is_admitted).collect();
        refused.sort_by_key(|call| call.began);
        // The times at which a call begins, each with the fewest quanta that the bucket may have.
        let mut lows: Vec<(u64, i128)> = Vec::new();
        let (mut begun, mut ended, mut in_flight) = (0, 0, 0);
        let mut low_at = |time: u64| {
            while begun < by_begin.len() && admitted[by_begin[begun]].began <= time {
                let call = by_begin[begun];
                let quanta = self.quanta(admitted[call].units);
                tree.add(position[call], quanta);
                in_flight += quanta;
                begun += 1;
            }
            while ended < ends.len() && ends[ended] <= time {
                tree.activate(ended);
                if ends[ended] < time {
                    in_flight -= self.quanta(admitted[by_end[ended]].units);
                    ended += 1;
                } else {
                    // It may have taken its units at this very time, so it is still in flight.
                    break;
                }
            }
            let at_end = (tree.max() - self.earned(time)).max(in_flight);
            self.quanta(self.burst) - at_end
        };
        let mut times: Vec<u64> = calls.iter().map(|call| call.began).collect();
        times.sort_unstable();
        times.dedup();
        lows.extend(times.into_iter().map(|time| (time, low_at(time))));
        let is_right = |call: &&&Call| {
            let from = lows.partition_point(|&(time, _)| time < call.began);
            let within = lows[from..].iter().take_while(|&&(time, _)| time <= call.ended);
            within.map(|&(_, low)| low).any(|low| low < self.quanta(call.units))
        };
        refused.iter().find(|call| !is_right(call)).map(|call| **call)
    }

    fn earned(&self, time: u64) -> i128 {
        i128::from(time) * i128::from(self.pace.0)
    }

    fn quanta(&self, units: u64) -> i128 {
        i128::from(units) * i128::from(self.pace.1)
    }
}

/// A strict limit on the units in each window of time.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// The most units in a window.
    pub limit: u64,
    /// The length of a window in nanoseconds.
    pub period: u64,
}

impl Window {
    /// Returns the most units of calls that are wholly within one window.
    ///
    /// Calls that are longer than a window do not count.
    pub fn most(&self, calls: &[Call]) -> u64 {
        let is_short = |call: &&Call| call.ended - call.began <= self.period;
        let (begins, ends) =
            Sums::of(calls.iter().filter(|call| call.is_admitted).filter(is_short));
        let within = |&(from, _): &(u64, u64)| {
            ends.up_to(from.saturating_add(self.period)) - begins.before(from)
        };
        begins.0.iter().map(within).max().unwrap_or(0)
    }

    /// Returns a refused call although every window, longer by a 64th, had room for its units.
    pub fn wrong_refusal(&self, calls: &[Call]) -> Option<Call> {
        let (begins, ends) = Sums::of(calls.iter().filter(|call| call.is_admitted));
        let length = self.period + self.period / 64;
        let most = |at: u64| begins.up_to(at) - ends.before(at.saturating_sub(length));
        let is_wrong = |call: &&Call| {
            let within = begins.0.partition_point(|&(time, _)| time <= call.began);
            let times = begins.0[within..].iter().map(|&(time, _)| time);
            let mut times = times.take_while(|&time| time <= call.ended).chain([call.began]);
            times.all(|at| most(at) + call.units <= self.limit)
        };
        calls.iter().filter(|call| !call.is_admitted).find(is_wrong).copied()
    }
}

/// Times in order, each with the units up to it.
struct Sums(Vec<(u64, u64)>);

impl Sums {
    /// Returns the sums of calls by their beginnings and by their ends.
    fn of<'a>(calls: impl Iterator<Item = &'a Call>) -> (Sums, Sums) {
        let (begins, ends): (Vec<_>, Vec<_>) =
            calls.map(|call| ((call.began, call.units), (call.ended, call.units))).unzip();
        (Sums::sorted(begins), Sums::sorted(ends))
    }

    fn sorted(mut units: Vec<(u64, u64)>) -> Sums {
        units.sort_unstable();
        let mut sum = 0;
        for (_, units) in &mut units {
            sum += *units;
            *units = sum;
        }
        Sums(units)
    }

    /// Returns the units up to a time.
    fn up_to(&self, time: u64) -> u64 {
        self.first(self.0.partition_point(|&(at, _)| at <= time))
    }

    /// Returns the units before a time.
    fn before(&self, time: u64) -> u64 {
        self.first(self.0.partition_point(|&(at, _)| at < time))
    }

    fn first(&self, count: usize) -> u64 {
        if count == 0 { 0 } else { self.0[count - 1].1 }
    }
}

/// Numbers of which each prefix can be added to, and whose maximum is known.
struct PrefixSums {
    /// The numbers that count once they are activated.
    values: Vec<i128>,
    /// For each node of a tree over the numbers: the sum that was added to all below it.
    added: Vec<i128>,
    /// The maximum below the node, with the sum that was added to it.
    max: Vec<i128>,
    leaves: usize,
}

/// Less than any sum, and far from overflow.
const INACTIVE: i128 = i128::MIN / 4;

impl PrefixSums {
    fn new(values: impl Iterator<Item = i128>) -> PrefixSums {
        let values: Vec<_> = values.collect();
        let leaves = values.len().next_power_of_two();
        PrefixSums { values, added: vec![0; 2 * leaves], max: vec![INACTIVE; 2 * leaves], leaves }
    }

    fn max(&self) -> i128 {
        self.max[1]
    }

    /// Makes number `at` count.
    fn activate(&mut self, at: usize) {
        let leaf = self.leaves + at;
        if self.max[leaf] <= INACTIVE / 2 {
            self.max[leaf] = self.values[at] + self.added[leaf];
            self.update(leaf);
        }
    }

    /// Adds to the numbers from the first to number `last`.
    fn add(&mut self, last: usize, n: i128) {
        // The nodes that cover the prefix together: a left sibling for each step to the right.
        let mut node = self.leaves + last;
        self.apply(node, n);
        while node > 1 {
            if node % 2 == 1 {
                self.apply(node - 1, n);
            }
            node /= 2;
            self.refresh(node);
        }
    }

    fn apply(&mut self, node: usize, n: i128) {
        self.added[node] += n;
        self.max[node] += n;
    }

    fn refresh(&mut self, node: usize) {
        self.max[node] = self.max[2 * node].max(self.max[2 * node + 1]) + self.added[node];
    }

    fn update(&mut self, leaf: usize) {
        let mut node = leaf / 2;
        while node >= 1 {
            self.refresh(node);
            node /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn excess_by_definition(bucket: &Bucket, calls: &[Call]) -> u64 {
        let admitted: Vec<_> = calls.iter().filter(|call| call.is_admitted).collect();
        let spans = admitted.iter().flat_map(|a| admitted.iter().map(|b| (a.began, b.ended)));
        let excess = spans.filter(|(from, to)| from <= to).map(|(from, to)| {
            let within = admitted.iter().filter(|call| call.began >= from && call.ended <= to);
            let taken: i128 = within.map(|call| bucket.quanta(call.units)).sum();
            taken - bucket.quanta(bucket.burst) - bucket.earned(to) + bucket.earned(from)
        });
        (excess.max().unwrap_or(0).max(0) as u128).div_ceil(bucket.pace.1.into()) as u64
    }

    fn is_wrong_by_definition(bucket: &Bucket, calls: &[Call], refused: &Call) -> bool {
        let start = calls.iter().map(|call| call.began).min().unwrap();
        (refused.began..=refused.ended).all(|at| {
            let taken = |from: u64| -> i128 {
                let may = calls.iter().filter(|call| call.is_admitted);
                let may = may.filter(|call| call.began <= at && call.ended >= from);
                may.map(|call| bucket.quanta(call.units)).sum()
            };
            let full = bucket.quanta(bucket.burst);
            let levels = (start..=at)
                .map(|from| full + bucket.earned(at) - bucket.earned(from) - taken(from));
            levels.min().unwrap() >= bucket.quanta(refused.units)
        })
    }

    fn random_calls(random: &mut Random) -> Vec<Call> {
        let call = |random: &mut Random| {
            let began = random.below(12);
            let ended = began + random.below(4);
            Call { began, ended, units: 1 + random.below(3), is_admitted: random.below(3) > 0 }
        };
        (0..1 + random.below(10)).map(|_| call(random)).collect()
    }

    #[test]
    fn windows_agree_with_their_definitions() {
        let mut random = Random::new(8);
        let mut wrongs = 0;
        for _ in 0..3_000 {
            let window = Window { limit: 1 + random.below(9), period: 4 + random.below(9) };
            let calls = random_calls(&mut random);
            let admitted: Vec<_> = calls.iter().filter(|call| call.is_admitted).collect();
            let sum = |from: u64, to: u64| -> u64 {
                let within = admitted.iter().filter(|call| call.began >= from && call.ended <= to);
                within.map(|call| call.units).sum()
            };
            let most = (0..20).map(|from| sum(from, from + window.period)).max();
            assert_eq!(Some(window.most(&calls)), most, "{window:?} {calls:?}");
            let may = |at: u64| -> u64 {
                let from = at.saturating_sub(window.period);
                let may = admitted.iter().filter(|call| call.began <= at && call.ended >= from);
                may.map(|call| call.units).sum()
            };
            let is_wrong = |call: &&Call| {
                !call.is_admitted
                    && (call.began..=call.ended).all(|at| may(at) + call.units <= window.limit)
            };
            let expected = calls.iter().filter(is_wrong).count() > 0;
            assert_eq!(window.wrong_refusal(&calls).is_some(), expected, "{window:?} {calls:?}");
            wrongs += u64::from(expected);
        }
        assert!(wrongs > 300, "{wrongs}");
    }

    #[test]
    fn checks_agree_with_their_definitions() {
        let mut random = Random::new(7);
        let (mut excesses, mut wrongs) = (0, 0);
        for _ in 0..3_000 {
            let pace = (1 + random.below(3), 1 + random.below(5));
            let bucket = Bucket { pace, burst: 1 + random.below(6) };
            let calls = random_calls(&mut random);
            let excess = bucket.excess(&calls);
            assert_eq!(excess, excess_by_definition(&bucket, &calls), "{bucket:?} {calls:?}");
            excesses += u64::from(excess > 0);
            let wrong = bucket.wrong_refusal(&calls);
            let is_wrong =
                |call: &&Call| !call.is_admitted && is_wrong_by_definition(&bucket, &calls, call);
            let expected = calls.iter().filter(is_wrong).count();
            assert_eq!(wrong.is_some(), expected > 0, "{bucket:?} {calls:?}");
            wrongs += u64::from(wrong.is_some());
        }
        assert!(excesses > 300 && wrongs > 300, "{excesses} and {wrongs}");
    }
}
