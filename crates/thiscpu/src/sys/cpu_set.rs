//! Sets of CPUs or NUMA nodes, and the kernel's format of them.

/// A number above any CPU's: Linux can be built for 8,192 CPUs on x86-64.
pub(crate) const CPUS_MAX: usize = 16_384;
pub(super) const WORDS: usize = CPUS_MAX / 64;

/// A set of CPU or node numbers, each below 16,384.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuSet {
    pub(super) words: [u64; WORDS],
}

impl CpuSet {
    pub(crate) const fn empty() -> Self {
        CpuSet { words: [0; WORDS] }
    }

    pub(crate) const fn full() -> Self {
        CpuSet { words: [!0; WORDS] }
    }

    /// Adds `cpu` to the set, if it is below 16,384.
    pub(crate) fn insert(&mut self, cpu: usize) {
        if let Some(word) = self.words.get_mut(cpu / 64) {
            *word |= 1 << (cpu % 64);
        }
    }

    /// Returns whether `cpu` is in the set.
    pub fn contains(&self, cpu: usize) -> bool {
        self.words.get(cpu / 64).is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    /// Returns the number of CPUs in the set.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// Returns the CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..CPUS_MAX).filter(|&cpu| self.contains(cpu))
    }
}

impl core::fmt::Display for CpuSet {
    /// Writes the kernel's list format, such as `0-4,6-15`.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while cpus.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            match last - first {
                0 => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

/// A parser of the kernel's list format, such as `0-4,6-15`, byte by byte.
pub(super) struct ListParser<F> {
    /// Called with the first and the last number of each range.
    visit: F,
    /// The first number of the range in progress, if its second number has begun.
    first: Option<usize>,
    /// The number in progress.
    number: Option<usize>,
    is_malformed: bool,
}

impl<F: FnMut(usize, usize)> ListParser<F> {
    pub(super) fn new(visit: F) -> Self {
        ListParser { visit, first: None, number: None, is_malformed: false }
    }

    pub(super) fn push(&mut self, byte: u8) {
        match byte {
            b'0'..=b'9' => {
                let number = self.number.unwrap_or(0) * 10 + usize::from(byte - b'0');
                self.is_malformed |= number >= CPUS_MAX;
                self.number = Some(number.min(CPUS_MAX));
            }
            b'-' if self.first.is_none() && self.number.is_some() => {
                self.first = self.number.take();
            }
            b',' => self.end_range(),
            _ if byte.is_ascii_whitespace() => self.end_range(),
            _ => self.is_malformed = true,
        }
    }

    fn end_range(&mut self) {
        match (self.first.take(), self.number.take()) {
            (None, None) => {}
            (None, Some(number)) => (self.visit)(number, number),
            (Some(first), Some(last)) if first <= last => (self.visit)(first, last),
            _ => self.is_malformed = true,
        }
    }

    /// Ends the list; `None` if it was malformed. Ranges before the fault have been visited.
    pub(super) fn end(mut self) -> Option<()> {
        self.end_range();
        (!self.is_malformed).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(list: &str) -> Option<CpuSet> {
        let mut set = CpuSet::empty();
        let mut parser = ListParser::new(|first, last| {
            (first..=last).for_each(|cpu| set.insert(cpu));
        });
        list.bytes().for_each(|byte| parser.push(byte));
        parser.end()?;
        Some(set)
    }

    #[test]
    fn cpu_list_parse_and_display_round_trip() {
        for list in ["0", "0-1", "0-4,6-15", "0,2,4-5,100-127", "16383"] {
            assert_eq!(parse(list).unwrap().to_string(), list);
        }
        assert_eq!(parse("0-3\n").unwrap().len(), 4);
        assert!(parse("").unwrap().is_empty());
        for bad in ["x", "3-1", "1-", "-1", "1-2-3", "16384", "0-99999999999999999999"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
