//! What is built for the tests: the library, as users are told to, and the programs that use it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// A directory with `libthiscpu.so`, by the names that programs look for, and `libthiscpu.a`.
pub(crate) fn libraries() -> &'static Path {
    static LIBRARIES: OnceLock<PathBuf> = OnceLock::new();
    LIBRARIES.get_or_init(|| {
        let output = thiscpu_test_support::build(env!("CARGO_PKG_NAME"));
        let here = Path::new(env!("CARGO_TARGET_TMPDIR")).join("capi");
        std::fs::create_dir_all(&here).expect("a directory");
        for (built, name) in [
            ("libthiscpu_capi.so", "libthiscpu.so"),
            ("libthiscpu_capi.so", "libthiscpu.so.0.1"),
            ("libthiscpu_capi.a", "libthiscpu.a"),
        ] {
            let _ = std::fs::remove_file(here.join(name));
            symlink(output.join(built), here.join(name)).expect("a link");
        }
        here
    })
}

/// Whether a compiler, or `nm`, is here.
pub(crate) fn has(tool: &str) -> bool {
    thiscpu_test_support::has(tool, "gcc g++ clang binutils")
}

/// How a program finds the library.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Linked {
    Shared,
    Static,
    /// It does not need it.
    Nothing,
}

/// Where one of `programs` is.
pub(crate) fn program(source: &str) -> String {
    format!("{}/tests/capi/programs/{source}", env!("CARGO_MANIFEST_DIR"))
}

/// One of `programs`, or the file of that name, compiled: all warnings are errors.
pub(crate) fn compile(source: &str, compiler: &str, options: &[&str], linked: Linked) -> PathBuf {
    let (libraries, here) = (libraries(), Path::new(env!("CARGO_MANIFEST_DIR")));
    let file = Path::new(source).file_name().expect("a file").display();
    let mut hasher = DefaultHasher::new();
    options.hash(&mut hasher);
    let name = format!("{file}-{compiler}-{linked:?}-{:x}", hasher.finish()).replace('.', "-");
    let output = libraries.join(name);
    let mut compile = Command::new(compiler);
    compile.args(["-O2", "-g", "-pthread", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
    compile.args(options).arg("-I").arg(here.join("include")).arg("-o").arg(&output);
    compile.arg(here.join("tests/capi/programs").join(source));
    match linked {
        Linked::Nothing => {}
        Linked::Shared => {
            compile.arg("-L").arg(libraries).arg("-lthiscpu");
            compile.arg(format!("-Wl,-rpath,{}", libraries.display()));
        }
        Linked::Static => {
            compile.arg(libraries.join("libthiscpu.a")).args(["-lgcc_s", "-lm", "-ldl"]);
        }
    }
    assert!(compile.status().expect("the compiler runs").success(), "{source}, {compiler}");
    output
}

/// What a program is run in: each tier, and where the library has to register its threads.
const ENVIRONMENTS: [&[(&str, &str)]; 4] = [
    &[],
    &[("THISCPU_TIER", "rseq-cpu")],
    &[("THISCPU_TIER", "atomic")],
    &[("GLIBC_TUNABLES", "glibc.pthread.rseq=0")],
];

pub(crate) fn run(program: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    command.env_remove("THISCPU_TIER").env_remove("GLIBC_TUNABLES");
    command.envs(environment.iter().copied()).output().expect("it can be started")
}

/// It ends well, in every environment.
pub(crate) fn passes(program: &Path) {
    for environment in ENVIRONMENTS {
        let output = run(program, &[], environment);
        let said = String::from_utf8_lossy(&output.stderr);
        let name = program.display();
        assert!(output.status.success(), "{name}, {environment:?}: {}\n{said}", output.status);
    }
}
