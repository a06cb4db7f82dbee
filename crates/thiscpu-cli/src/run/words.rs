//! The settings that stand for the options of `thiscpu run`.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::Path,
};

use anyhow::{Context as _, Result, bail};
use thiscpu_malloc::export::Assignment;

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
    if let Some(file) = &args.heap_profile {
        words.push(with_file("profile=", "--heap-profile FILE", file)?);
        words.push(format!("profile_interval={}", args.heap_profile_interval).into());
        // This process becomes the program, with its ID. Others inherit the words.
        words.push(format!("profile_pid={}", std::process::id()).into());
        if let Some(signal) = &args.heap_profile_signal {
            words.push(format!("profile_signal={signal}").into());
        }
        if args.heap_profile_at_peak {
            words.push("profile_at_peak".into());
        }
    }
    words.extend(args.set.iter().map(OsString::from));
    Ok(words)
}

fn stats(format: &OsStr) -> Result<OsString> {
    if let Some(file) = format.as_bytes().strip_prefix(b"json:") {
        return with_file("stats=json:", "--stats=json:FILE", OsStr::from_bytes(file));
    }
    match Assignment::new(b"stats", Some(format.as_bytes())) {
        Ok(Assignment { value: b"table", .. }) => Ok("stats".into()),
        Ok(Assignment { value, .. }) => Ok(OsString::from_vec([b"stats=", value].concat())),
        Err(why) => bail!("invalid --stats={}: {why}", format.display()),
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
