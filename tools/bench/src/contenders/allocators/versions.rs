//! The versions of other projects' allocators in this program.

use std::ffi::CStr;

pub(crate) fn versions() -> Vec<String> {
    vec![
        glibc(),
        #[cfg(feature = "other-allocators")]
        mimalloc(),
        #[cfg(feature = "other-allocators")]
        jemalloc(),
        // The crate's version is that of its snmalloc; snmalloc itself reports none.
        #[cfg(feature = "other-allocators")]
        "snmalloc 0.7.6".to_owned(),
        // The crate was made from this commit; rpmalloc itself reports no version.
        #[cfg(feature = "other-allocators")]
        "rpmalloc 1.4.3 and later commits to b097fd0".to_owned(),
    ]
}

fn glibc() -> String {
    // SAFETY: the function has no preconditions and returns a string that lives as long as the
    // program.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    format!("glibc {}", version.to_string_lossy())
}

#[cfg(feature = "other-allocators")]
fn mimalloc() -> String {
    unsafe extern "C" {
        /// Returns the version, with two digits each for its second and third number.
        safe fn mi_version() -> libc::c_int;
    }
    let number = mi_version();
    format!("mimalloc {}.{}.{}", number / 10_000, number / 100 % 100, number % 100)
}

#[cfg(feature = "other-allocators")]
fn jemalloc() -> String {
    let mut version: *const libc::c_char = std::ptr::null();
    let mut length = size_of_val(&version);
    // SAFETY: the name ends with a zero, `version` has room for the pointer that jemalloc stores,
    // and no new value is passed.
    let status = unsafe {
        tikv_jemalloc_sys::mallctl(
            c"version".as_ptr(),
            (&raw mut version).cast(),
            &mut length,
            std::ptr::null_mut(),
            0,
        )
    };
    if status != 0 || version.is_null() {
        return "jemalloc".to_owned();
    }
    // SAFETY: jemalloc has stored a pointer to a static string.
    let version = unsafe { CStr::from_ptr(version) };
    let text = version.to_string_lossy();
    format!("jemalloc {}", text.split('-').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::versions;

    #[test]
    fn all_allocators_report_a_version() {
        let versions = versions();
        assert_eq!(versions.len(), if cfg!(feature = "other-allocators") { 5 } else { 1 });
        for version in versions {
            let (name, number) = version.split_once(' ').unwrap();
            assert!(
                !name.is_empty() && number.starts_with(|c: char| c.is_ascii_digit()),
                "{version}"
            );
        }
    }
}
