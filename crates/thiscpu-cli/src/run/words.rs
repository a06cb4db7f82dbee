//! The settings that stand for the options of `thiscpu run`.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

use anyhow::{Context as _, Result, bail};

use super::Args;

/// Returns the words of `THISCPU_MALLOC` for the options that are given.
pub(super) fn requested(args: &Args) -> Result<Vec<OsString>> {
    let mut words = Vec::new();
    if let Some(format) = &args.stats {
        words.push(stats(format)?);
    }
    if args.harden {
        words.push("harden".into());
    }
    words.extend(args.set.iter().map(OsString::from));
    Ok(words)
}

fn stats(format: &OsStr) -> Result<OsString> {
    match format.as_bytes() {
        b"table" => Ok("stats".into()),
        b"json" => Ok("stats=json".into()),
        other => match other.strip_prefix(b"json:") {
            Some(file) => with_file("stats=json:", "--stats=json:FILE", OsStr::from_bytes(file)),
            None => bail!("invalid --stats={}: expected json or json:FILE", format.display()),
        },
    }
}

/// Returns a word that names a file.
///
/// The path is absolute, because the program may change its directory.
fn with_file(word: &str, option: &str, file: &OsStr) -> Result<OsString> {
    let path = std::path::absolute(Path::new(file))
        .with_context(|| format!("invalid {option}: no file is given"))?;
    if path.as_os_str().as_bytes().contains(&b',') {
        bail!(
            "invalid {option}: {} has a comma, which separates settings; choose another file",
            path.display()
        );
    }
    Ok([OsStr::new(word), path.as_os_str()].into_iter().collect())
}
