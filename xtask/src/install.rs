//! `cargo xtask install`: put the libraries and the program where compilers and users find them.

use std::os::unix::{ffi::OsStrExt as _, fs::symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use xshell::{Shell, cmd};

use crate::cargo;

const CRATE: &str = "crates/thiscpu-capi";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The libraries that programs with the static library need, for Rust's standard library.
const NATIVE: &str = "-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc";
/// Those libraries for static programs, for which there is no `libgcc_s`.
const NATIVE_STATIC: &str = "-lgcc_eh -lutil -lrt -lpthread -lm -ldl -lc";

/// The crate of the library of series for C.
const METRICS_CRATE: &str = "crates/thiscpu-metrics-capi";
const METRICS_LIBRARY: &str = "libthiscpu_metrics_capi.so";

const LIBRARIES: [&str; 2] = ["libthiscpu_capi.a", "libthiscpu_capi.so"];
const PROGRAM: &str = "thiscpu";
/// The program that `thiscpu profile` starts.
const PROFILE_PROGRAM: &str = "thiscpu-profile";
/// The programs for segments, with completions and man pages of their own.
const SEGMENT_PROGRAMS: [&str; 2] = ["thiscpu-top", "thiscpu-export"];
const PRELOADED: &str = "libthiscpu_malloc.so";
const PRELOADED_HEADER: &str = "crates/thiscpu-malloc-preload/include/thiscpu_malloc.h";
/// For each shell, the file that it loads completions from.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/thiscpu"),
    ("zsh", "share/zsh/site-functions/_thiscpu"),
    ("fish", "share/fish/vendor_completions.d/thiscpu.fish"),
];

/// Build and install the library for C and C++, the program, and the preloaded malloc
///
/// Includes files for pkg-config and CMake, man pages, and completions for bash, zsh and fish.
/// Installs below DESTDIR if that is set, as package builders do.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Install to DIR/bin, DIR/include, DIR/lib and DIR/share
    #[arg(long, value_name = "DIR", default_value = "/usr/local")]
    prefix: PathBuf,
    /// Build without optimization and with the library's assertions, which takes seconds
    #[arg(long)]
    debug: bool,
}

pub(crate) fn run(sh: &Shell, arguments: &Arguments) -> Result<()> {
    let prefix = std::path::absolute(&arguments.prefix)?;
    ensure!(
        !prefix.as_os_str().as_bytes().iter().any(|byte| b": \t\n".contains(byte)),
        "cannot install to {prefix:?}: it has a colon or a blank, which separate names in \
         LD_PRELOAD and flags of pkg-config; choose another place by --prefix DIR"
    );
    let profile = if arguments.debug { "dev" } else { "release" };
    let target = cargo::target_directory(sh);
    // For this machine and in this directory, whatever a configuration file says.
    let packages = [
        "thiscpu-capi",
        "thiscpu-cli",
        "thiscpu-export",
        "thiscpu-malloc-preload",
        "thiscpu-metrics-capi",
        "thiscpu-profile",
        "thiscpu-top",
    ];
    let packages = packages.iter().flat_map(|package| ["--package", package]);
    cmd!(sh, "cargo build --quiet {packages...} --profile {profile} --target-dir {target}")
        .env_remove("CARGO_BUILD_TARGET")
        .run()?;
    let built = target.join(if arguments.debug { "debug" } else { "release" });
    let programs = [PROGRAM, PROFILE_PROGRAM];
    let libraries = [METRICS_LIBRARY, PRELOADED];
    for file in [&LIBRARIES[..], &programs, &SEGMENT_PROGRAMS, &libraries].concat() {
        let file = built.join(file);
        let is_here = file.is_file();
        ensure!(is_here, "cargo has not built {}; it builds for another target", file.display());
    }
    let root = staged(&prefix, std::env::var_os("DESTDIR").map(PathBuf::from));
    let package = sh.current_dir().join(CRATE);
    install(sh, &package, &built, &root)
        .and_then(|()| install_program(sh, &built, &root))
        .with_context(|| {
            format!("installing to {}; choose another place by --prefix DIR", root.display())
        })?;
    if root == prefix {
        print_usage(&prefix);
    } else {
        println!("installed to {}; move it to {}", root.display(), prefix.display());
    }
    Ok(())
}

/// Returns where to install the files of a package that will be at `prefix`.
fn staged(prefix: &Path, destination: Option<PathBuf>) -> PathBuf {
    let below = prefix.strip_prefix("/").unwrap_or(prefix);
    match destination.filter(|destination| !destination.as_os_str().is_empty()) {
        Some(destination) => destination.join(below),
        None => prefix.to_owned(),
    }
}

fn print_usage(prefix: &Path) {
    let lib = prefix.join("lib");
    println!("installed to {}", prefix.display());
    if ["/usr", "/usr/local"].iter().any(|usual| prefix == Path::new(usual)) {
        println!("to run programs: ldconfig");
    } else {
        println!("for pkg-config: export PKG_CONFIG_PATH={}", lib.join("pkgconfig").display());
        println!("to run programs: export LD_LIBRARY_PATH={}", lib.display());
        println!("to run thiscpu: export PATH={}:$PATH", prefix.join("bin").display());
    }
}

fn install(sh: &Shell, package: &Path, built: &Path, prefix: &Path) -> Result<()> {
    let include = sh.create_dir(prefix.join("include"))?;
    let lib = sh.create_dir(prefix.join("lib"))?;
    for header in ["thiscpu.h", "thiscpu.hpp", "thiscpu_inline.h", "thiscpu_sections.h"] {
        copy(sh, &package.join("include").join(header), &include.join(header))?;
    }
    let [archive, shared] = LIBRARIES.map(|library| built.join(library));
    let mut objects = sh.read_binary_file(archive)?;
    thiscpu_static_library::finish(&mut objects)?;
    sh.write_file(lib.join("libthiscpu.a"), objects)?;
    let soname = install_shared(sh, &shared, &lib, "libthiscpu.so")?;
    let metrics_soname =
        install_shared(sh, &built.join(METRICS_LIBRARY), &lib, "libthiscpu_metrics.so")?;
    let metrics = sh.current_dir().join(METRICS_CRATE);
    let header = "thiscpu_metrics.h";
    copy(sh, &metrics.join("include").join(header), &include.join(header))?;
    for (package, directory, name) in [
        (package, "pkgconfig", "thiscpu.pc"),
        (&metrics, "pkgconfig", "thiscpu-metrics.pc"),
        (package, "cmake/thiscpu", "thiscpu-config.cmake"),
        (package, "cmake/thiscpu", "thiscpu-config-version.cmake"),
    ] {
        let template = sh.read_file(package.join("package").join(format!("{name}.in")))?;
        let text = template
            .replace("@VERSION@", VERSION)
            .replace("@OLDEST@", &interface())
            .replace("@SONAME@", &soname)
            .replace("@METRICS_SONAME@", &metrics_soname)
            .replace("@NATIVE_STATIC@", NATIVE_STATIC)
            .replace("@NATIVE@", NATIVE);
        sh.write_file(lib.join(directory).join(name), text)?;
    }
    Ok(())
}

/// Installs a shared library by its three names, and returns its soname.
fn install_shared(sh: &Shell, built: &Path, lib: &Path, name: &str) -> Result<String> {
    let whole = format!("{name}.{VERSION}");
    copy(sh, built, &lib.join(&whole))?;
    let soname = format!("{name}.{}", interface());
    link(&whole, &lib.join(&soname))?;
    link(&soname, &lib.join(name))?;
    Ok(soname)
}

/// Installs the program with its man pages and completions, and the library that it preloads.
fn install_program(sh: &Shell, built: &Path, prefix: &Path) -> Result<()> {
    let program = sh.create_dir(prefix.join("bin"))?.join(PROGRAM);
    copy(sh, &built.join(PROGRAM), &program)?;
    copy(sh, &built.join(PROFILE_PROGRAM), &program.with_file_name(PROFILE_PROGRAM))?;
    copy(sh, &built.join(PRELOADED), &prefix.join("lib").join(PRELOADED))?;
    let header = sh.current_dir().join(PRELOADED_HEADER);
    copy(sh, &header, &prefix.join("include/thiscpu_malloc.h"))?;
    let manual = sh.create_dir(prefix.join("share/man/man1"))?;
    cmd!(sh, "{program} man {manual}").quiet().run()?;
    for (shell, file) in COMPLETIONS {
        let script = cmd!(sh, "{program} completions {shell}").quiet().read()?;
        sh.write_file(prefix.join(file), script + "\n")?;
    }
    for name in SEGMENT_PROGRAMS {
        let installed = program.with_file_name(name);
        copy(sh, &built.join(name), &installed)?;
        cmd!(sh, "{installed} --man {manual}").quiet().run()?;
        for (shell, file) in COMPLETIONS {
            let script = cmd!(sh, "{installed} --completions {shell}").quiet().read()?;
            sh.write_file(prefix.join(file.replace(PROGRAM, name)), script + "\n")?;
        }
    }
    Ok(())
}

/// Returns the version of the interface, as in the library's soname.
pub(crate) fn interface() -> String {
    match VERSION.split('.').collect::<Vec<_>>()[..] {
        ["0", minor, ..] => format!("0.{minor}"),
        [major, ..] => major.into(),
        [] => unreachable!("a version has a number"),
    }
}

/// Copies a file to a new file, because programs may be running the old one.
fn copy(sh: &Shell, from: &Path, to: &Path) -> Result<()> {
    let _ = std::fs::remove_file(to);
    Ok(sh.copy_file(from, to)?)
}

fn link(to: &str, from: &Path) -> Result<()> {
    let _ = std::fs::remove_file(from);
    symlink(to, from).with_context(|| format!("linking {}", from.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::{Tool, are_here};
    use xshell::TempDir;

    /// The C++ example, linked to the static library.
    const STATIC_PROJECT: &str = "cmake_minimum_required(VERSION 3.16)\n\
        project(uses CXX)\n\
        find_package(thiscpu 0.1 REQUIRED)\n\
        find_package(Threads REQUIRED)\n\
        add_executable(tenants EXAMPLE/tenants.cpp)\n\
        target_link_libraries(tenants thiscpu::static thiscpu::metrics Threads::Threads)\n";

    /// Installs a debug build into a new directory, or returns `None` if a tool is missing.
    fn installed(sh: &Shell, task: &str, programs: &[&'static str]) -> Option<TempDir> {
        sh.change_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let package = |program| if program == "readelf" { "binutils" } else { program };
        let tools = programs.iter().map(|&program| Tool { program, package: package(program) });
        if !are_here(sh, task, &tools.collect::<Vec<_>>()).unwrap() {
            return None;
        }
        let prefix = sh.create_temp_dir().unwrap();
        run(sh, &Arguments { prefix: prefix.path().to_owned(), debug: true }).unwrap();
        Some(prefix)
    }

    #[test]
    fn packages_are_staged_below_destdir() {
        let staged =
            |destination: Option<&str>| staged(Path::new("/usr"), destination.map(PathBuf::from));
        assert_eq!(staged(Some("/stage")), Path::new("/stage/usr"));
        assert_eq!(staged(Some("")), Path::new("/usr"));
        assert_eq!(staged(None), Path::new("/usr"));
    }

    #[test]
    fn prefixes_with_blanks_are_refused() {
        let sh = Shell::new().unwrap();
        let place = sh.create_temp_dir().unwrap();
        let prefix = place.path().join("two words");
        let refused = run(&sh, &Arguments { prefix: prefix.clone(), debug: true }).unwrap_err();
        assert!(refused.to_string().contains("a colon or a blank"), "{refused}");
        assert!(!prefix.exists());
    }

    #[test]
    fn program_finds_installed_library() {
        let sh = Shell::new().unwrap();
        let Some(prefix) = installed(&sh, "installing", &[]) else { return };
        let prefix = prefix.path().to_owned();
        assert!(prefix.join("include/thiscpu_malloc.h").is_file());
        // Again, over existing files.
        run(&sh, &Arguments { prefix: prefix.clone(), debug: true }).unwrap();
        let program = prefix.join("bin/thiscpu");
        let table = cmd!(sh, "{program} run --stats -- ls").quiet().ignore_stdout().read_stderr();
        let table = table.unwrap();
        assert!(table.contains("thiscpu-malloc, process "), "{table}");
        cmd!(sh, "{program} profile --help").quiet().ignore_stdout().run().unwrap();
        let [top, export] = SEGMENT_PROGRAMS;
        for page in ["thiscpu", "thiscpu-run", "thiscpu-doctor", top, export] {
            let page = prefix.join("share/man/man1").join(format!("{page}.1"));
            assert!(sh.read_file(page).unwrap().contains(".SH NAME"));
        }
        for (shell, file) in COMPLETIONS {
            let script = sh.read_file(prefix.join(file)).unwrap();
            assert!(script.contains("doctor"), "{shell}: {script}");
            for (name, option) in [(top, "interval"), (export, "listen")] {
                let file = prefix.join(file.replace(PROGRAM, name));
                assert!(sh.read_file(file).unwrap().contains(option));
            }
        }
    }

    /// Builds the examples like their readers: in C by make and pkg-config, in both by CMake.
    #[test]
    fn compilers_find_installed_files() {
        let sh = Shell::new().unwrap();
        let tools = ["gcc", "g++", "pkg-config", "cmake", "make", "readelf"];
        let Some(prefix) = installed(&sh, "compiling with installed files", &tools) else { return };
        let (prefix, lib) = (prefix.path(), prefix.path().join("lib"));
        let examples = sh.current_dir().join("examples");
        let place = sh.create_temp_dir().unwrap();
        sh.change_dir(place.path());
        let _packages = sh.push_env("PKG_CONFIG_PATH", lib.join("pkgconfig"));
        let _libraries = sh.push_env("LD_LIBRARY_PATH", &lib);

        let c = examples.join("c");
        // Each run fails unless all requests are counted and all units come back.
        let run_in = |directory: &str| {
            for program in ["requests", "workers"] {
                cmd!(sh, "{directory}/{program}").quiet().ignore_stdout().run().unwrap();
            }
        };
        let make = || cmd!(sh, "make --always-make -f {c}/Makefile VPATH={c}").quiet();
        let uses_shared = || {
            run_in(".");
            // The name changes with the interface.
            let needs = cmd!(sh, "readelf -d requests").quiet().read().unwrap();
            needs.contains(&format!("[libthiscpu.so.{}]", interface()))
        };
        make().ignore_stdout().run().unwrap();
        assert!(uses_shared());
        let flags = cmd!(sh, "pkg-config --static --libs thiscpu").quiet().read().unwrap();
        make()
            .arg(format!("LDLIBS={flags} -static -Wl,--fatal-warnings"))
            .ignore_stdout()
            .run()
            .unwrap();
        assert!(!uses_shared());

        let build = |project: &Path, built: &str| {
            let found = "-DCMAKE_PREFIX_PATH";
            cmd!(sh, "cmake -S {project} -B {built} {found}={prefix}")
                .quiet()
                .ignore_stdout()
                .run()
                .unwrap();
            cmd!(sh, "cmake --build {built}").quiet().ignore_stdout().run().unwrap();
        };
        build(&c, "c");
        run_in("c");

        // Series, by pkg-config and by CMake.
        let source = "#include <thiscpu_metrics.h>\nint main(void) {\n\
            thiscpu_metrics_registry *registry;\n\
            return thiscpu_metrics_registry_create(NULL, &registry) != 0;\n}\n";
        sh.write_file("series.c", source).unwrap();
        let flags = cmd!(sh, "pkg-config --cflags --libs thiscpu-metrics").quiet().read().unwrap();
        let flags = flags.split_whitespace();
        cmd!(sh, "gcc series.c {flags...} -o series").quiet().run().unwrap();
        cmd!(sh, "./series").quiet().run().unwrap();
        let needs = cmd!(sh, "readelf -d series").quiet().read().unwrap();
        assert!(needs.contains(&format!("[libthiscpu_metrics.so.{}]", interface())), "{needs}");

        let cpp = examples.join("cpp");
        let project = STATIC_PROJECT.replace("EXAMPLE", &cpp.display().to_string());
        sh.write_file("CMakeLists.txt", project).unwrap();
        for (project, built) in [(&*cpp, "shared"), (place.path(), "static")] {
            build(project, built);
            cmd!(sh, "{built}/tenants").quiet().ignore_stdout().run().unwrap();
        }
    }
}
