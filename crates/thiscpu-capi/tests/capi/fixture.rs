//! Builds the library as users do, and programs that use it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread;

use thiscpu_test_support::{is_full, program};

/// Builds the library and returns the directory that it is in.
///
/// The directory has `libthiscpu.so`, by the names that programs look for, and `libthiscpu.a`.
pub(crate) fn libraries() -> &'static Path {
    static LIBRARIES: OnceLock<PathBuf> = OnceLock::new();
    LIBRARIES.get_or_init(|| {
        let output = thiscpu_test_support::build(env!("CARGO_PKG_NAME"));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("capi");
        std::fs::create_dir_all(&folder).expect("a directory");
        for (built, name) in
            [("libthiscpu_capi.so", "libthiscpu.so"), ("libthiscpu_capi.so", "libthiscpu.so.0.1")]
        {
            let _ = std::fs::remove_file(folder.join(name));
            symlink(output.join(built), folder.join(name)).expect("a link");
        }
        let mut objects = std::fs::read(output.join("libthiscpu_capi.a")).expect("the library");
        let hidden = thiscpu_static_library::finish(&mut objects).expect("a static library");
        assert!(hidden > 0, "no symbol of Rust's runtime was visible");
        let library = folder.join("libthiscpu.a");
        // It may be a link to the library that was just read.
        let _ = std::fs::remove_file(&library);
        std::fs::write(library, objects).expect("a file");
        folder
    })
}

/// Returns whether a tool (a compiler, or `nm`) is installed.
pub(crate) fn has(tool: &str) -> bool {
    thiscpu_test_support::has(tool, "gcc g++ clang binutils")
}

/// Returns those of some compilers that are installed; none in a quick run.
pub(crate) fn compilers(names: [&'static str; 2]) -> impl Iterator<Item = &'static str> {
    names.into_iter().filter(|compiler| has(compiler))
}

/// How a program finds the library.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Linked {
    Shared,
    Static,
    /// The program contains all libraries (`cc -static`).
    AllStatic,
    /// The program does not use it.
    Nothing,
}

/// Returns the path of a file in `programs`.
pub(crate) fn program(source: &str) -> String {
    format!("{}/tests/capi/programs/{source}", env!("CARGO_MANIFEST_DIR"))
}

/// Compiles and links a file in `programs`, or at an absolute path. All warnings are errors.
pub(crate) fn compile(source: &str, compiler: &str, options: &[&str], linked: Linked) -> PathBuf {
    let libraries = libraries();
    let (mut compile, output) = command(source, compiler, options, &format!("{linked:?}"));
    match linked {
        Linked::Nothing => {}
        Linked::Shared => {
            compile.arg("-L").arg(libraries).arg("-lthiscpu");
            compile.arg(format!("-Wl,-rpath,{}", libraries.display()));
        }
        Linked::Static => {
            // Most of the time of linking goes to the debug information of the library.
            compile.arg("-Wl,--strip-debug").arg(libraries.join("libthiscpu.a"));
            compile.args(["-lgcc_s", "-lm", "-ldl"]);
        }
        Linked::AllStatic => {
            compile.args(["-static", "-Wl,--strip-debug"]).arg(libraries.join("libthiscpu.a"));
            compile.args(["-lgcc_eh", "-lm", "-ldl"]);
        }
    }
    assert!(compile.status().expect("the compiler runs").success(), "{source}, {compiler}");
    output
}

/// Compiles a file once, and links it with the shared library, the static one, or both.
///
/// Returns both programs in a full run. In other runs, gcc links the shared library, and clang the
/// static one.
pub(crate) fn compile_both(source: &str, compiler: &str, options: &[&str]) -> Vec<PathBuf> {
    // clang warns of these where it links nothing.
    let is_for_linker = |option: &str| option.starts_with("-Wl,") || option.ends_with("-pie");
    let for_compiler = options.iter().copied().filter(|option| !is_for_linker(option));
    let for_compiler: Vec<_> = for_compiler.collect();
    let (mut compile, object) = command(source, compiler, &for_compiler, "o");
    assert!(compile.arg("-c").status().expect("the compiler runs").success(), "{source}");
    let object = object.to_str().expect("a UTF-8 path");
    let linked: &[_] = match compiler {
        _ if is_full() => &[Linked::Shared, Linked::Static],
        "clang" | "clang++" => &[Linked::Static],
        _ => &[Linked::Shared],
    };
    linked.iter().map(|&linked| self::compile(object, compiler, options, linked)).collect()
}

/// Returns a command that compiles a file, and the path of its output.
fn command(source: &str, compiler: &str, options: &[&str], kind: &str) -> (Command, PathBuf) {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = Path::new(source).file_name().expect("a file").display();
    let mut hasher = DefaultHasher::new();
    options.hash(&mut hasher);
    let name = format!("{file}-{compiler}-{kind}-{:x}", hasher.finish()).replace('.', "-");
    let output = libraries().join(name);
    let mut command = Command::new(compiler);
    command.args(["-O2", "-pthread", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow"]);
    command.args(options).arg("-Werror").arg("-I").arg(package.join("include"));
    command.arg("-o").arg(&output);
    command.arg(package.join("tests/capi/programs").join(source));
    (command, output)
}

/// The environments that a program runs in.
///
/// Each tier, and one in which the C library does not register threads for rseq.
const ENVIRONMENTS: [&[(&str, &str)]; 4] = [
    &[],
    &[("THISCPU_TIER", "rseq-cpu")],
    &[("THISCPU_TIER", "atomic")],
    &[("GLIBC_TUNABLES", "glibc.pthread.rseq=0")],
];

/// Runs a program.
pub(crate) fn run(program: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    command.env_remove("THISCPU_TIER").env_remove("GLIBC_TUNABLES");
    command.envs(environment.iter().copied());
    program::output(&mut command).expect("the program starts")
}

/// Runs a program in all environments at once. Panics if it fails in one.
pub(crate) fn passes(program: &Path) {
    thread::scope(|scope| {
        for environment in &ENVIRONMENTS {
            scope.spawn(move || {
                let Output { status, stderr, .. } = run(program, &[], environment);
                let (name, message) = (program.display(), String::from_utf8_lossy(&stderr));
                assert!(status.success(), "{name}, {environment:?}: {status}\n{message}");
            });
        }
    });
}
