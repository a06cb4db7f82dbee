//! The stacks of a profile, with names, and without the allocator's own frames.

use std::collections::HashMap;

use crate::raw::{Profile, Sample};
use crate::symbols::{Function, Symbols};

/// All samples of a profile, with the functions of their frames.
pub(crate) struct Stacks<'p> {
    pub(crate) symbols: Symbols<'p>,
    pub(crate) samples: Vec<Named<'p>>,
    /// The functions at each address of a frame, the innermost first.
    functions: HashMap<u64, Vec<Function>>,
}

/// A sample, and its frames.
pub(crate) struct Named<'p> {
    pub(crate) sample: &'p Sample,
    /// The addresses of its frames without the allocator's, innermost first.
    pub(crate) frames: &'p [u64],
    /// The number of functions of the innermost frame that are the allocator's, inlined there.
    skipped: usize,
}

/// The name of the library that programs preload.
const LIBRARY: &str = "libthiscpu_malloc.so";

/// Functions of the allocator, and those that only pass calls on to it.
const ALLOCATING: [&str; 15] = [
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "__libc_malloc",
    "__libc_calloc",
    "__libc_realloc",
    "__libc_memalign",
    "alloc::alloc::alloc",
    "alloc::alloc::alloc_zeroed",
];
/// Beginnings of the names of such functions.
const ALLOCATING_BEGINNINGS: [&str; 9] = [
    "operator new",
    "thiscpu_malloc::",
    "<thiscpu_malloc::",
    "thiscpu::slab::",
    "__rust_alloc",
    "__rust_realloc",
    "__rustc::__rust_",
    "__rg_",
    "__rustc[",
];

fn is_allocating(name: &str) -> bool {
    ALLOCATING.contains(&name)
        || ALLOCATING_BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

impl<'p> Stacks<'p> {
    pub(crate) fn of(profile: &'p Profile) -> Stacks<'p> {
        let mut symbols = Symbols::of(profile);
        let mut functions: HashMap<u64, Vec<Function>> = HashMap::new();
        for &address in profile.samples.iter().flat_map(|sample| &sample.frames) {
            functions.entry(address).or_insert_with(|| symbols.functions(address));
        }
        let is_library: Vec<bool> = profile
            .mappings
            .iter()
            .map(|mapping| mapping.path.file_name().is_some_and(|name| name == LIBRARY))
            .collect();
        let skipped_of = |address: u64| {
            let all = &functions[&address];
            if symbols.mapping(address).is_some_and(|mapping| is_library[mapping]) {
                return all.len();
            }
            all.iter().take_while(|function| is_allocating(&function.name)).count()
        };
        let samples = profile
            .samples
            .iter()
            .map(|sample| {
                let is_own = |address: &&u64| skipped_of(**address) == functions[*address].len();
                let own = sample.frames.iter().take_while(is_own).count();
                let frames = &sample.frames[own..];
                Named {
                    sample,
                    frames,
                    skipped: frames.first().map_or(0, |&address| skipped_of(address)),
                }
            })
            .collect();
        Stacks { symbols, samples, functions }
    }

    /// Returns the functions of a sample, innermost first.
    pub(crate) fn functions<'s>(
        &'s self,
        named: &'s Named<'p>,
    ) -> impl Iterator<Item = &'s Function> {
        named.frames.iter().enumerate().flat_map(|(index, address)| {
            &self.functions[address][if index == 0 { named.skipped } else { 0 }..]
        })
    }

    /// Returns the functions of a frame of a sample, innermost first.
    pub(crate) fn functions_of_frame(&self, named: &Named<'p>, index: usize) -> &[Function] {
        &self.functions[&named.frames[index]][if index == 0 { named.skipped } else { 0 }..]
    }
}
