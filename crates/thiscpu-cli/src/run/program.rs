//! Checks that a program can be run with a library preloaded.
//!
//! The kernel and the loader would start the others too, and silently leave the library out.

use std::{
    ffi::{CString, OsStr, OsString},
    fs::{self, File},
    io::{ErrorKind, Read as _},
    mem::MaybeUninit,
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::MetadataExt as _,
    },
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, anyhow, bail};

use super::elf;

/// The longest chain of script interpreters that Linux follows.
const SCRIPTS_MAX: usize = 5;

/// How much of a script's first line Linux reads.
const LINE_BYTES_MAX: u64 = 255;

/// Finds a program as a shell does: by its path, or by its name in `PATH`.
pub(super) fn find(name: &OsStr) -> Result<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Ok(name.into());
    }
    // The C library's default where PATH is unset.
    let list = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let places = || std::env::split_paths(&list).map(|entry| directory(entry).join(name));
    let found = places().find(|path| path.is_file() && is_executable(path));
    // Without an executable file, take an entry whose check explains what is wrong.
    let is_missing = |path: &Path| {
        fs::metadata(path)
            .is_err_and(|why| matches!(why.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory))
    };
    let other = || places().find(|path| !name.is_empty() && !is_missing(path));
    found
        .or_else(other)
        .with_context(|| format!("{} is not in PATH ({})", name.display(), list.display()))
}

/// Returns the directory of an entry of `PATH`; an empty entry is the current directory.
fn directory(entry: PathBuf) -> PathBuf {
    if entry.as_os_str().is_empty() { ".".into() } else { entry }
}

/// Refuses a program that the library cannot be loaded into; returns a warning for others.
///
/// The error is a [`Sanitizer`](super::sanitizer::Sanitizer) if the program needs its own malloc.
pub(super) fn check(path: &Path) -> Result<Option<String>> {
    let mut path = path.to_owned();
    for depth in 0..=SCRIPTS_MAX {
        let about = |why: anyhow::Error| match depth {
            0 => why,
            _ => why.context(format!("its interpreter is {}", path.display())),
        };
        check_startable(&path).map_err(about)?;
        match interpreter(&path).map_err(about)? {
            None => return check_loadable(&path).map_err(about),
            Some(interpreter) => path = interpreter,
        }
    }
    bail!("its interpreters are scripts, more than the {SCRIPTS_MAX} that Linux follows")
}

fn check_startable(path: &Path) -> Result<()> {
    let metadata = fs::metadata(path).map_err(|why| match why.kind() {
        ErrorKind::NotFound => anyhow!("it does not exist"),
        _ => anyhow!("cannot look at it: {why}"),
    })?;
    match () {
        () if metadata.is_dir() => bail!("it is a directory"),
        () if !metadata.is_file() => bail!("it is not a regular file"),
        () if !is_executable(path) => bail!("you may not execute it; see `chmod +x`"),
        () => Ok(()),
    }
}

/// Returns the interpreter that a script names after `#!`, if the file is a script.
fn interpreter(path: &Path) -> Result<Option<PathBuf>> {
    let mut start = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LINE_BYTES_MAX).read_to_end(&mut start))
        .context("cannot read it")?;
    let Some(rest) = start.strip_prefix(b"#!") else { return Ok(None) };
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let line = rest.split(|&byte| byte == b'\n').next().unwrap_or_default();
    match line.split(is_blank).find(|word| !word.is_empty()) {
        Some(word) => Ok(Some(OsString::from_vec(word.to_vec()).into())),
        None => bail!("it is a script without an interpreter after #!"),
    }
}

fn check_loadable(path: &Path) -> Result<Option<String>> {
    let loadable = elf::read(path)?;
    if let Some(sanitizer) = loadable.sanitizer {
        return Err(sanitizer.into());
    }
    match loadable.loader {
        None => bail!("it is statically linked, so no loader can put a library before its malloc"),
        Some(loader) if loader.contains("ld-musl") => {
            bail!("it uses another C library (its loader is {loader}); the library needs glibc")
        }
        Some(_) if has_other_ids(path)? => bail!(
            "it has more rights than its user (it is setuid or setgid), and the \
             loader preloads nothing into such programs"
        ),
        Some(_) if has_capabilities(path)? => bail!(
            "it has more rights than its user (file capabilities, see getcap), and the \
             loader preloads nothing into such programs"
        ),
        Some(_) => Ok(loadable
            .has_malloc
            .then(|| format!("{} exports its own malloc and keeps using it", path.display()))),
    }
}

/// Returns whether the program would run as another user or group.
///
/// The file's bits alone do not decide: they may name this user, or be ignored.
fn has_other_ids(path: &Path) -> Result<bool> {
    let file = fs::metadata(path)?;
    let mode = file.mode();
    // SAFETY: these calls take no arguments and have no preconditions.
    let (user, group, now) = unsafe {
        let now = (libc::geteuid(), libc::getegid());
        (libc::getuid(), libc::getgid(), now)
    };
    let bits_count = !is_nosuid(path)? && !has_no_new_privileges();
    // Without group execute permission the setgid bit means mandatory locking.
    let group_bits = libc::S_ISGID | libc::S_IXGRP;
    let new_user = if bits_count && mode & libc::S_ISUID != 0 { file.uid() } else { now.0 };
    let new_group = if bits_count && mode & group_bits == group_bits { file.gid() } else { now.1 };
    Ok(new_user != user || new_group != group)
}

/// Returns whether the file system is mounted `nosuid`.
fn is_nosuid(path: &Path) -> Result<bool> {
    let path = c_path(path)?;
    let mut about = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path is a C string; the kernel fills in the structure if the result is 0.
    let flags = unsafe {
        match libc::statvfs(path.as_ptr(), about.as_mut_ptr()) {
            0 => about.assume_init().f_flag,
            _ => 0,
        }
    };
    Ok(flags & libc::ST_NOSUID != 0)
}

/// Returns whether `no_new_privs` is set, so that files grant no rights.
fn has_no_new_privileges() -> bool {
    // SAFETY: PR_GET_NO_NEW_PRIVS reads a flag and takes no pointers.
    unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 }
}

fn is_executable(path: &Path) -> bool {
    // SAFETY: the path is a C string.
    c_path(path).is_ok_and(|path| unsafe {
        libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::X_OK, libc::AT_EACCESS) == 0
    })
}

/// Returns whether the file grants capabilities; root has them all in any case.
fn has_capabilities(path: &Path) -> Result<bool> {
    // SAFETY: getuid has no preconditions.
    if unsafe { libc::getuid() } == 0 || is_nosuid(path)? {
        return Ok(false);
    }
    let path = c_path(path)?;
    // SAFETY: both names are C strings; a null buffer of size 0 only queries the size.
    let size = unsafe {
        let name = c"security.capability".as_ptr();
        libc::getxattr(path.as_ptr(), name, std::ptr::null_mut(), 0)
    };
    Ok(size > 0)
}

fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).context("its path contains a zero byte")
}
