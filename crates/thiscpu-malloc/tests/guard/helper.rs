//! The shared object built from `helper.c`, whose functions appear in reports by name.

use std::ffi::{CStr, CString, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A function that the C functions are given and call.
pub(crate) type Step = extern "C" fn(usize) -> usize;
type Named = extern "C" fn(Step, usize) -> usize;

/// Compiler options for unwind tables without frame pointers.
pub(crate) const WITHOUT_FRAME_POINTERS: &[&str] = &["-O2", "-fomit-frame-pointer"];
/// Compiler options for frame pointers without unwind tables.
pub(crate) const WITHOUT_TABLES: &[&str] = &[
    "-O2",
    "-fno-omit-frame-pointer",
    "-fno-asynchronous-unwind-tables",
    "-fno-unwind-tables",
    "-fno-exceptions",
];

/// Builds the object with these options, and returns its path.
pub(crate) fn build(name: &str, options: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guard/helper.c");
    let object = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("lib{name}.so"));
    let mut compiler = Command::new("cc");
    compiler.args(options).args(["-shared", "-fPIC", "-o"]).arg(&object).arg(source);
    assert!(compiler.status().expect("a C compiler is installed").success());
    object
}

/// The object, loaded into this process until it exits.
pub(crate) struct Helper(*mut c_void);

impl Helper {
    pub(crate) fn load(path: &str) -> Helper {
        let path = CString::new(path).unwrap();
        // SAFETY: the object has no initializers.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "{path:?} cannot be loaded");
        Helper(handle)
    }

    fn call(&self, name: &CStr, step: Step, with: usize) -> usize {
        // SAFETY: the handle is open, and the functions of these names have this type.
        let function = unsafe {
            let symbol = libc::dlsym(self.0, name.as_ptr());
            assert!(!symbol.is_null(), "{name:?} is missing");
            std::mem::transmute::<*mut c_void, Named>(symbol)
        };
        function(step, with)
    }

    pub(crate) fn allocates(&self, step: Step, with: usize) -> usize {
        self.call(c"helper_allocates", step, with)
    }

    pub(crate) fn frees(&self, step: Step, with: usize) -> usize {
        self.call(c"helper_frees", step, with)
    }

    pub(crate) fn errs(&self, step: Step, with: usize) -> usize {
        self.call(c"helper_errs", step, with)
    }
}
