//! Names, files and lines of addresses.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use addr2line::{Loader, demangle_auto};
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};

use crate::raw::{Mapping, Profile};

/// A function at an address. With inlining, an address has several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) file: String,
    pub(crate) line: u32,
}

/// The files of a profile's mappings.
pub(crate) struct Symbols<'p> {
    profile: &'p Profile,
    files: HashMap<&'p Path, Option<File>>,
    replaced: Vec<&'p Path>,
}

/// A program or library.
struct File {
    /// Its debugging information, from the file itself or from /usr/lib/debug.
    loader: Option<Loader>,
    /// For each segment: its offset in the file, its size there, and its address.
    segments: Vec<[u64; 3]>,
    /// Exported functions by address, with their ends, for files without other symbols.
    exported: Vec<(u64, u64, String)>,
    build_id: String,
}

/// The largest program or library that is read.
const FILE_BYTES_MAX: u64 = 8 << 30;

impl<'p> Symbols<'p> {
    pub(crate) fn of(profile: &'p Profile) -> Symbols<'p> {
        Symbols { profile, files: HashMap::new(), replaced: Vec::new() }
    }

    /// Returns the index of the mapping that holds an address.
    pub(crate) fn mapping(&self, address: u64) -> Option<usize> {
        let holds = |mapping: &Mapping| (mapping.start..mapping.end).contains(&address);
        self.profile.mappings.iter().position(holds)
    }

    /// Returns the functions at an address, the innermost first: at least one.
    ///
    /// Without symbols that is the name of the file and the offset in it.
    pub(crate) fn functions(&mut self, address: u64) -> Vec<Function> {
        let unknown = |name| vec![Function { name, ..Function::default() }];
        let Some(mapping) = self.mapping(address).map(|at| &self.profile.mappings[at]) else {
            return unknown(format!("{address:#x}"));
        };
        let offset = (address - mapping.start).saturating_add(mapping.offset);
        let found = self.file(mapping).and_then(|file| file.functions(offset));
        found.unwrap_or_else(|| {
            let name = mapping.path.file_name().unwrap_or(mapping.path.as_os_str());
            unknown(format!("{}+{offset:#x}", name.display()))
        })
    }

    /// Returns the paths of files that were replaced since the profile was written.
    pub(crate) fn replaced(&self) -> &[&'p Path] {
        &self.replaced
    }

    /// Returns the file of a mapping, unless it is another one by now.
    fn file(&mut self, mapping: &'p Mapping) -> Option<&File> {
        let path = mapping.path.as_path();
        self.files
            .entry(path)
            .or_insert_with(|| {
                let file = File::read(path)?;
                let is_same = mapping.build_id.is_empty() || mapping.build_id == file.build_id;
                if !is_same {
                    self.replaced.push(path);
                }
                is_same.then_some(file)
            })
            .as_ref()
    }
}

impl File {
    fn read(path: &Path) -> Option<File> {
        // Names in brackets are the kernel's, and deleted files have ` (deleted)` behind theirs.
        // Reading anything but a file of moderate size may take forever.
        let is_readable = |file: fs::Metadata| file.is_file() && file.len() <= FILE_BYTES_MAX;
        let is_object = path.is_absolute() && fs::metadata(path).is_ok_and(is_readable);
        let bytes = is_object.then(|| fs::read(path).ok()).flatten()?;
        let object = object::File::parse(&*bytes).ok()?;
        let segment = |segment: object::Segment<'_, '_>| {
            let (offset, size) = segment.file_range();
            [offset, size, segment.address()]
        };
        let build_id = object.build_id().ok().flatten().unwrap_or_default();
        let build_id: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        let separate = debug_file(&build_id).and_then(|path| Loader::new(path).ok());
        let mut exported: Vec<_> = object
            .dynamic_symbols()
            .filter(|symbol| symbol.is_definition() && symbol.kind() == object::SymbolKind::Text)
            .filter_map(|symbol| {
                let end = symbol.address().saturating_add(symbol.size());
                Some((symbol.address(), end, symbol.name().ok()?.to_owned()))
            })
            .collect();
        exported.sort_unstable();
        Some(File {
            loader: separate.or_else(|| Loader::new(path).ok()),
            segments: object.segments().map(segment).collect(),
            exported,
            build_id,
        })
    }

    /// Returns the functions at an offset of the file, the innermost first.
    fn functions(&self, offset: u64) -> Option<Vec<Function>> {
        let [start, _, base] = *self
            .segments
            .iter()
            .find(|[start, size, _]| (*start..start.saturating_add(*size)).contains(&offset))?;
        let address = (offset - start).saturating_add(base);
        self.by_debug_information(address)
            .or_else(|| self.by_symbol(address))
            .or_else(|| self.by_exported(address))
    }

    fn by_debug_information(&self, address: u64) -> Option<Vec<Function>> {
        let mut frames = self.loader.as_ref()?.find_frames(address).ok()?;
        let mut functions = Vec::new();
        while let Ok(Some(frame)) = frames.next() {
            // The outermost function may have only a symbol.
            let name = frame.function.and_then(|name| Some(name.demangle().ok()?.into_owned()));
            let Some(name) = name.or_else(|| self.symbol(address)) else { continue };
            let location = frame.location;
            functions.push(Function {
                name,
                file: location.as_ref().and_then(|it| it.file).unwrap_or_default().to_owned(),
                line: location.and_then(|it| it.line).unwrap_or_default(),
            });
        }
        (!functions.is_empty()).then_some(functions)
    }

    fn by_symbol(&self, address: u64) -> Option<Vec<Function>> {
        Some(vec![Function { name: self.symbol(address)?, ..Function::default() }])
    }

    fn symbol(&self, address: u64) -> Option<String> {
        let name = self.loader.as_ref()?.find_symbol(address)?;
        Some(demangle_auto(name.into(), None).into_owned())
    }

    fn by_exported(&self, address: u64) -> Option<Vec<Function>> {
        let behind = self.exported.partition_point(|&(start, ..)| start <= address);
        let (_, end, name) = &self.exported[..behind].last()?;
        let name = demangle_auto(name.as_str().into(), None).into_owned();
        (address < *end).then(|| vec![Function { name, ..Function::default() }])
    }
}

/// Returns the path of separate debugging information for a build ID, if that is installed.
fn debug_file(build_id: &str) -> Option<PathBuf> {
    let (first, rest) = build_id.split_at_checked(2)?;
    let path = PathBuf::from(format!("/usr/lib/debug/.build-id/{first}/{rest}.debug"));
    path.is_file().then_some(path)
}
