//! Whether a program can be run with a library preloaded. The kernel and the loader would start it in any case, and
//! silently leave the library out.

use std::{
    ffi::{CString, OsStr, OsString},
    fs::{self, File},
    io::Read as _,
    mem::MaybeUninit,
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::MetadataExt as _,
    },
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

use super::elf;

/// How many interpreters of interpreters Linux follows.
const SCRIPTS_MAX: usize = 5;

/// How much of a script's first line Linux looks at.
const LINE_BYTES_MAX: u64 = 255;

/// Finds what `name` stands for, as a shell does: with a slash it is a path, else it is looked for in `PATH`.
pub(super) fn find(name: &OsStr) -> Result<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Ok(name.into());
    }
    // What the C library takes where it is not set.
    let list = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let places = || std::env::split_paths(&list).map(|place| here(place).join(name));
    let found = places().find(|path| path.is_file() && is_executable(path));
    // If there is none that could be run: one that says why.
    found
        .or_else(|| places().find(|path| path.is_file()))
        .with_context(|| format!("{} is not in PATH ({})", name.display(), list.display()))
}

/// An empty entry of `PATH` is the current directory.
fn here(place: PathBuf) -> PathBuf {
    if place.as_os_str().is_empty() { ".".into() } else { place }
}

/// Refuses what the library cannot be loaded into, with the reason. What it says to who runs it all the same, if it has something to say.
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
    bail!("its interpreter is a script, and so on; Linux follows {SCRIPTS_MAX}")
}

fn check_startable(path: &Path) -> Result<()> {
    let metadata = fs::metadata(path).context("it cannot be found")?;
    match () {
        () if metadata.is_dir() => bail!("it is a directory"),
        () if !metadata.is_file() => bail!("it is not a regular file"),
        () if !is_executable(path) => bail!("it is not executable for you; see `chmod +x`"),
        () => Ok(()),
    }
}

/// The interpreter that a script names after `#!`; `None` if this is no script.
fn interpreter(path: &Path) -> Result<Option<PathBuf>> {
    let mut start = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LINE_BYTES_MAX).read_to_end(&mut start))
        .context("it cannot be read, so nobody knows what it is")?;
    let Some(rest) = start.strip_prefix(b"#!") else { return Ok(None) };
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let line = rest.split(|&byte| byte == b'\n').next().unwrap_or_default();
    match line.split(is_blank).find(|word| !word.is_empty()) {
        Some(word) => Ok(Some(OsString::from_vec(word.to_vec()).into())),
        None => bail!("it is a script that names no interpreter after #!"),
    }
}

fn check_loadable(path: &Path) -> Result<Option<String>> {
    let loadable = elf::read(path)?;
    match loadable.loader {
        None => bail!(
            "it is statically linked: there is no loader that could put a library before its malloc"
        ),
        Some(loader) if loader.contains("ld-musl") => {
            bail!("it is for another C library (its loader is {loader}); the library is for glibc")
        }
        Some(_) if has_other_ids(path)? => bail!(
            "it has more rights than its user (it is setuid or setgid), and the \
             loader preloads nothing into such programs"
        ),
        Some(_) if has_capabilities(path)? => bail!(
            "it has more rights than its user (file capabilities, see getcap), and the \
             loader preloads nothing into such programs"
        ),
        Some(_) => Ok(loadable.has_malloc.then(|| {
            format!(
                "{} has a malloc of its own, and uses that and not the library's",
                path.display()
            )
        })),
    }
}

/// Whether it would run with a user or group that its user is not. The file's bits alone do not say: they may name this very user, or not be
/// listened to.
fn has_other_ids(path: &Path) -> Result<bool> {
    let file = fs::metadata(path)?;
    let mode = file.mode();
    // SAFETY: none of them has preconditions.
    let (user, group, now) = unsafe {
        let now = (libc::geteuid(), libc::getegid());
        (libc::getuid(), libc::getgid(), now)
    };
    let are_heard = !is_nosuid(path)? && !has_no_new_privileges();
    // Without the right to execute it for the group, the bit means something else.
    let group_bits = libc::S_ISGID | libc::S_IXGRP;
    let new_user = if are_heard && mode & libc::S_ISUID != 0 { file.uid() } else { now.0 };
    let new_group = if are_heard && mode & group_bits == group_bits { file.gid() } else { now.1 };
    Ok(new_user != user || new_group != group)
}

/// Whether it is where nobody gets rights from files.
fn is_nosuid(path: &Path) -> Result<bool> {
    let path = c_path(path)?;
    let mut about = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path ends with a zero byte; the structure is filled in where the result is 0.
    let flags = unsafe {
        match libc::statvfs(path.as_ptr(), about.as_mut_ptr()) {
            0 => about.assume_init().f_flag,
            _ => 0,
        }
    };
    Ok(flags & libc::ST_NOSUID != 0)
}

/// Whether this process, and what it starts, gets no rights from files.
fn has_no_new_privileges() -> bool {
    // SAFETY: asks for a number.
    unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 }
}

fn is_executable(path: &Path) -> bool {
    // SAFETY: the path ends with a zero byte.
    c_path(path).is_ok_and(|path| unsafe {
        libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::X_OK, libc::AT_EACCESS) == 0
    })
}

/// Whether it would run with rights from the file, of which root has all anyway.
fn has_capabilities(path: &Path) -> Result<bool> {
    // SAFETY: it has no preconditions.
    if unsafe { libc::getuid() } == 0 || is_nosuid(path)? {
        return Ok(false);
    }
    let path = c_path(path)?;
    // SAFETY: both names end with a zero byte, and a buffer of no bytes asks for the size only.
    let size = unsafe {
        let name = c"security.capability".as_ptr();
        libc::getxattr(path.as_ptr(), name, std::ptr::null_mut(), 0)
    };
    Ok(size > 0)
}

fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).context("its path has a zero byte in it")
}
