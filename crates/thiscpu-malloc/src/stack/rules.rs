//! Unwind rules of call sites, kept so that a walk finds most callers without tables.
//!
//! In most functions the caller's stack pointer is a constant away from the stack pointer or the
//! frame pointer, and the return address and the caller's frame pointer are at constant distances
//! from there. Such a rule fits a word. Finding it takes nanoseconds, and reading the tables about
//! a microsecond. A step by a rule restores only these registers, so a walk whose tables then ask
//! for another one starts over without rules.
//!
//! If an object is unloaded and another one takes its addresses, rules of the first must not be
//! applied to the second. So the preloaded library forgets all rules before an object is loaded. A
//! program that links this crate has no such moment. Then frames may be wrong; [`Memory`] prevents
//! wild reads. So reports of errors are made without rules.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use gimli::{CfaRule, Register, RegisterRule};

use super::arch::{FRAME_POINTER, STACK_POINTER, strip_pac};
use super::frame::{Frame, Row};
use super::memory::Memory;

/// Places for rules. A rule replaces the one of another call site that has the same place.
const PLACES: usize = 4096;

/// A rule, and the address of its call site, which is stored combined with the rule.
///
/// So a reader that sees the words of two writers finds that they do not fit.
struct Place {
    mixed: AtomicU64,
    rule: AtomicU64,
}

static TABLE: [Place; PLACES] =
    [const { Place { mixed: AtomicU64::new(0), rule: AtomicU64::new(0) } }; PLACES];

/// How often all rules were forgotten.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Forgets all rules.
pub fn forget() {
    // Relaxed: the caller loads an object after this, and its code is called after that.
    GENERATION.fetch_add(1, Relaxed);
}

/// Returns a call site, mixed with the number of times that rules were forgotten.
fn key(call_site: usize) -> u64 {
    // Addresses of code have less than 48 bits.
    call_site as u64 ^ GENERATION.load(Relaxed) << 48
}

/// A rule: how to find the caller of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    /// Whether the caller's stack pointer is relative to the frame pointer.
    is_by_frame_pointer: bool,
    /// The distance to the caller's stack pointer, in words; 0 if there is no caller.
    ///
    /// All other distances are positive.
    top: u16,
    /// The distance of the return address below that.
    return_address: u16,
    /// The distance of the caller's frame pointer below that; 0 if it is unchanged.
    frame_pointer: u16,
}

const WORD: usize = size_of::<usize>();

impl Rule {
    /// The rule of a function that has no caller, as threads begin with.
    const OUTERMOST: Rule =
        Rule { is_by_frame_pointer: false, top: 0, return_address: 0, frame_pointer: 0 };

    /// Returns the rule of a row of unwind tables, if it has the usual form.
    pub(super) fn of(row: &Row, return_address: Register) -> Option<Rule> {
        if matches!(row.register(return_address), Some(RegisterRule::Undefined)) {
            return Some(Rule::OUTERMOST);
        }
        let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else { return None };
        let is_by_frame_pointer = match usize::from(register.0) {
            FRAME_POINTER => true,
            STACK_POINTER => false,
            _ => return None,
        };
        let below = |register| match row.register(register) {
            Some(RegisterRule::Offset(offset)) => words(offset.checked_neg()?),
            _ => None,
        };
        let pointer = Register(FRAME_POINTER as u16);
        let is_unchanged = matches!(row.register(pointer), None | Some(RegisterRule::SameValue));
        Some(Rule {
            is_by_frame_pointer,
            top: words(offset)?,
            return_address: below(return_address)?,
            frame_pointer: if is_unchanged { 0 } else { below(pointer)? },
        })
    }

    fn encode(self) -> u64 {
        // Never 0, which stands for no rule.
        1 << 63
            | u64::from(self.is_by_frame_pointer) << 48
            | u64::from(self.top) << 32
            | u64::from(self.return_address) << 16
            | u64::from(self.frame_pointer)
    }

    fn decode(rule: u64) -> Rule {
        Rule {
            is_by_frame_pointer: rule >> 48 & 1 != 0,
            top: (rule >> 32) as u16,
            return_address: (rule >> 16) as u16,
            frame_pointer: rule as u16,
        }
    }

    /// Returns the caller of a frame, with a stale value for all but three registers.
    pub(super) fn apply(self, frame: &Frame, memory: &mut Memory) -> Option<Frame> {
        if self == Rule::OUTERMOST {
            return None;
        }
        let base = if self.is_by_frame_pointer { FRAME_POINTER } else { STACK_POINTER };
        let top = frame.registers[base].wrapping_add(usize::from(self.top) * WORD);
        let at = |words: u16| top.wrapping_sub(usize::from(words) * WORD);
        let mut registers = frame.registers;
        registers[STACK_POINTER] = top;
        if self.frame_pointer != 0 {
            registers[FRAME_POINTER] = memory.word(at(self.frame_pointer))?;
        }
        let pc = strip_pac(memory.word(at(self.return_address))?);
        Some(Frame { registers, pc, is_call: true, is_partial: true })
    }
}

/// Returns a distance in words, if it is positive, a multiple of a word, and fits.
fn words(bytes: i64) -> Option<u16> {
    let words = u16::try_from(bytes / WORD as i64).ok()?;
    (words > 0 && bytes % WORD as i64 == 0).then_some(words)
}

fn place(call_site: usize) -> &'static Place {
    let hash = (call_site as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &TABLE[(hash >> 52) as usize % PLACES]
}

/// Returns the rule of a call site, if it is known.
pub(super) fn find(call_site: usize) -> Option<Rule> {
    let place = place(call_site);
    // Relaxed: two words that do not fit each other are of two rules.
    let rule = place.rule.load(Relaxed);
    let is_found = rule != 0 && place.mixed.load(Relaxed) ^ rule == key(call_site);
    is_found.then(|| Rule::decode(rule))
}

/// Keeps the rule of a call site.
pub(super) fn keep(call_site: usize, rule: Rule) {
    let (place, rule) = (place(call_site), rule.encode());
    place.mixed.store(key(call_site) ^ rule, Relaxed);
    place.rule.store(rule, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_found_at_their_call_sites_only() {
        let rule = Rule { is_by_frame_pointer: true, top: 2, return_address: 1, frame_pointer: 2 };
        assert_eq!(Rule::decode(rule.encode()), rule);
        keep(0x1234_5678, rule);
        assert_eq!(find(0x1234_5678).unwrap_or(rule), rule);
        assert_eq!(find(0x1234_5679), None);
        assert_eq!(Rule::decode(Rule::OUTERMOST.encode()), Rule::OUTERMOST);
        // A rule of another call site replaces it, or lies elsewhere. Walks of other tests may
        // replace some of these.
        let other = Rule { top: 77, is_by_frame_pointer: false, ..rule };
        let is_found = |site: usize| {
            keep(site << 4, other);
            find(site << 4).inspect(|found| assert_eq!(*found, other)).is_some()
        };
        assert!((1..50_000).filter(|&site| is_found(site)).count() > 40_000);
        assert_ne!(find(0x1234_5678), Some(other));
    }
}
