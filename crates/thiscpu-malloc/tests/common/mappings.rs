//! The kernel's description of mappings, from `/proc/self/smaps`.

/// A mapping.
pub(crate) struct Mapping {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// The names and values of its fields.
    lines: Vec<(String, String)>,
}

impl Mapping {
    /// Returns the value of a field, or an empty string.
    pub(crate) fn field(&self, name: &str) -> &str {
        let line = self.lines.iter().find(|line| line.0 == name);
        line.map_or("", |line| line.1.trim())
    }

    /// Returns whether the mapping has a flag.
    pub(crate) fn has(&self, flag: &str) -> bool {
        self.field("VmFlags:").split_whitespace().any(|other| other == flag)
    }
}

/// Returns all mappings of this process whose flags the kernel reports.
pub(crate) fn mappings() -> Vec<Mapping> {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("/proc");
    let mut all: Vec<Mapping> = Vec::new();
    for line in maps.lines() {
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        if let Some((begin, end)) = first.split_once('-') {
            let address = |text| usize::from_str_radix(text, 16).expect("an address");
            all.push(Mapping { from: address(begin), to: address(end), lines: Vec::new() });
        } else if let Some(last) = all.last_mut() {
            last.lines.push((first.to_owned(), rest.to_owned()));
        }
    }
    all.retain(|mapping| !mapping.field("VmFlags:").is_empty());
    all
}
