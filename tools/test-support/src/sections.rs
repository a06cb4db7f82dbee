//! The copies of sections that a program's tables list.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, anyhow};
use object::{File, Object as _, ObjectSection as _};

const DESCRIPTOR_BYTES: usize = 32;

/// Returns the name of each copy, by the address of its descriptor in the file.
///
/// # Errors
///
/// Unless each descriptor has one name, and each name has a descriptor.
pub fn names(elf: &File<'_>) -> Result<BTreeMap<u64, String>> {
    let section =
        |name| elf.section_by_name(name).with_context(|| format!("no ELF section `{name}`"));
    let descriptors = section("__rseq_cs")?;
    let begin = descriptors.address();
    let descriptors = (begin..begin + descriptors.size()).step_by(DESCRIPTOR_BYTES);
    let mut names: BTreeMap<_, Vec<_>> = descriptors.map(|at| (at, Vec::new())).collect();
    let mut rest = section(".thiscpu_sections")?.data()?;
    while let Some((address, text)) = rest.split_first_chunk() {
        let end = text.iter().position(|&byte| byte == 0).context("names end within a name")?;
        let (address, name) = (u64::from_le_bytes(*address), String::from_utf8_lossy(&text[..end]));
        let named = names.get_mut(&address);
        named
            .with_context(|| format!("`{name}` names {address:#x}, which is not a descriptor"))?
            .push(name.into_owned());
        rest = &text[end + 1..];
    }
    let only_name = |(at, names)| match <[String; 1]>::try_from(names) {
        Ok([name]) => Ok((at, name)),
        Err(names) => Err(anyhow!("the descriptor at {at:#x} must have one name, not {names:?}")),
    };
    names.into_iter().map(only_name).collect()
}
