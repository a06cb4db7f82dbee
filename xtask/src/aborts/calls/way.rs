//! Ways through the instructions of a function.

use std::collections::VecDeque;

use thiscpu_test_support::sections::Copy;

use crate::aborts::code::Step;

/// Returns the shortest way from the first instruction over a section's range to a return.
pub(super) fn through<'s>(steps: &'s [Step], copy: &Copy) -> Option<Vec<&'s Step>> {
    let at = |address: u64| steps.binary_search_by_key(&address, |step| step.address).ok();
    let (begin, end) = (at(copy.start)?, at(copy.end)?);
    let before = shortest(steps, 0, |index| index == begin)?;
    let section = shortest(steps, begin, |index| index == end)?;
    let after = shortest(steps, end, |index| steps[index].returns)?;
    let last = *after.last()?;
    // Each part ends where the next one begins.
    let parts = [before, section, after].map(|mut part| {
        part.pop();
        part
    });
    let indexes = parts.into_iter().flatten().chain([last]);
    Some(indexes.map(|index| &steps[index]).collect())
}

/// Returns the indexes on the shortest way from `from` to an instruction that is an end.
fn shortest(steps: &[Step], from: usize, is_end: impl Fn(usize) -> bool) -> Option<Vec<usize>> {
    let mut came_from = vec![None; steps.len()];
    let mut queue = VecDeque::from([from]);
    *came_from.get_mut(from)? = Some(from);
    while let Some(index) = queue.pop_front() {
        if is_end(index) {
            let mut way = vec![index];
            while *way.last()? != from {
                way.push(came_from[*way.last()?]?);
            }
            way.reverse();
            return Some(way);
        }
        for next in successors(steps, index) {
            if came_from[next].is_none() {
                came_from[next] = Some(index);
                queue.push_back(next);
            }
        }
    }
    None
}

/// Returns the indexes of the instructions of the function that may follow one.
fn successors(steps: &[Step], index: usize) -> impl Iterator<Item = usize> {
    let step = &steps[index];
    let next = Some(index + 1).filter(|&next| step.goes_on && next < steps.len());
    let at = |address| steps.binary_search_by_key(&address, |step| step.address).ok();
    next.into_iter().chain(step.target.and_then(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(address: u64, goes_on: bool, target: Option<u64>) -> Step {
        Step { address, goes_on, target, returns: false, loads: false }
    }

    #[test]
    fn way_is_the_shortest_that_commits() {
        let copy = Copy::at("add", 3..5);
        // Jumps over an instruction, and to another function; behind the section, a call and a jump
        // over it.
        let mut steps = vec![
            step(0, true, Some(2)),
            step(1, true, None),
            step(2, true, Some(900)),
            step(3, true, Some(6)),
            step(4, true, None),
            step(5, true, Some(7)),
            step(6, false, None),
            step(7, false, None),
        ];
        assert!(through(&steps, &copy).is_none(), "it does not return");
        steps[7].returns = true;
        let addresses = |steps: &[Step]| -> Option<Vec<u64>> {
            Some(through(steps, &copy)?.iter().map(|step| step.address).collect())
        };
        assert_eq!(addresses(&steps), Some(vec![0, 2, 3, 4, 5, 7]));
        steps[5].target = None;
        assert_eq!(addresses(&steps), None);
    }
}
