//! `cargo xtask install`: put the library for C and C++ where compilers find it.

use std::fs;
use std::os::unix::fs::symlink;
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

const LIBRARIES: [&str; 2] = ["libthiscpu_capi.a", "libthiscpu_capi.so"];

/// Build and install the library for C and C++, for pkg-config and CMake
///
/// Installs below DESTDIR if that is set, as package builders do.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Install to DIR/include and DIR/lib
    #[arg(long, value_name = "DIR", default_value = "/usr/local")]
    prefix: PathBuf,
    /// Build without optimization and with the library's assertions, which takes seconds
    #[arg(long)]
    debug: bool,
}

pub(crate) fn run(sh: &Shell, arguments: &Arguments) -> Result<()> {
    let profile = if arguments.debug { "dev" } else { "release" };
    let target = cargo::target_directory(sh);
    // For this machine and in this directory, whatever a configuration file says.
    cmd!(
        sh,
        "cargo build --quiet --package thiscpu-capi --profile {profile} --target-dir {target}"
    )
    .env_remove("CARGO_BUILD_TARGET")
    .run()?;
    let built = target.join(if arguments.debug { "debug" } else { "release" });
    for library in LIBRARIES.map(|library| built.join(library)) {
        let is_here = library.is_file();
        ensure!(is_here, "cargo has not built {}; it builds for another target", library.display());
    }
    let prefix = std::path::absolute(&arguments.prefix)?;
    let root = staged(&prefix, std::env::var_os("DESTDIR").map(PathBuf::from));
    let package = sh.current_dir().join(CRATE);
    install(&package, &built, &root).with_context(|| {
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
    }
}

fn install(package: &Path, built: &Path, prefix: &Path) -> Result<()> {
    let [include, lib] = ["include", "lib"].map(|name| prefix.join(name));
    let [for_pkg_config, for_cmake] = ["pkgconfig", "cmake/thiscpu"].map(|name| lib.join(name));
    for directory in [&include, &lib, &for_pkg_config, &for_cmake] {
        fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    }
    for header in ["thiscpu.h", "thiscpu.hpp", "thiscpu_inline.h", "thiscpu_sections.h"] {
        copy(&package.join("include").join(header), &include.join(header))?;
    }
    let [archive, shared] = LIBRARIES.map(|library| built.join(library));
    copy(&archive, &lib.join("libthiscpu.a"))?;
    let whole = format!("libthiscpu.so.{VERSION}");
    copy(&shared, &lib.join(&whole))?;
    let soname = format!("libthiscpu.so.{}", interface());
    link(&whole, &lib.join(&soname))?;
    link(&soname, &lib.join("libthiscpu.so"))?;
    let fill = |name: &str, directory: &Path| -> Result<()> {
        let template = fs::read_to_string(package.join("package").join(format!("{name}.in")))?;
        let text = template
            .replace("@VERSION@", VERSION)
            .replace("@OLDEST@", &interface())
            .replace("@SONAME@", &soname)
            .replace("@NATIVE_STATIC@", NATIVE_STATIC)
            .replace("@NATIVE@", NATIVE);
        Ok(fs::write(directory.join(name), text)?)
    };
    fill("thiscpu.pc", &for_pkg_config)?;
    fill("thiscpu-config.cmake", &for_cmake)?;
    fill("thiscpu-config-version.cmake", &for_cmake)
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
fn copy(from: &Path, to: &Path) -> Result<()> {
    let _ = fs::remove_file(to);
    fs::copy(from, to)
        .with_context(|| format!("copying {} to {}", from.display(), to.display()))?;
    Ok(())
}

fn link(to: &str, from: &Path) -> Result<()> {
    let _ = fs::remove_file(from);
    symlink(to, from).with_context(|| format!("linking {}", from.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::{Tool, are_here};

    const PROGRAM: &str = "#include <thiscpu.h>\n\
        int main(void) { thiscpu_tier tier; return (int)thiscpu_get_tier(&tier); }\n";
    const CLASSES: &str = "#include <thiscpu.hpp>\n\
        int main() { thiscpu::counter all; ++all; return all.sum() != 1; }\n";
    const PROJECT: &str = "cmake_minimum_required(VERSION 3.16)\n\
        project(uses C)\n\
        find_package(thiscpu 0.1 REQUIRED)\n\
        add_executable(uses main.c)\n\
        target_link_libraries(uses thiscpu::thiscpu)\n\
        add_executable(alone main.c)\n\
        target_link_libraries(alone thiscpu::static)\n";

    #[test]
    fn packages_are_staged_below_destdir() {
        let staged =
            |destination: Option<&str>| staged(Path::new("/usr"), destination.map(PathBuf::from));
        assert_eq!(staged(Some("/stage")), Path::new("/stage/usr"));
        assert_eq!(staged(Some("")), Path::new("/usr"));
        assert_eq!(staged(None), Path::new("/usr"));
    }

    #[test]
    fn compilers_find_installed_files() {
        let needed = ["gcc", "g++", "pkg-config", "cmake", "make"];
        let needed = needed.map(|program| Tool { program, package: program });
        let binutils = Tool { program: "readelf", package: "binutils" };
        let needed = [&needed[..], &[binutils]].concat();
        let sh = Shell::new().unwrap();
        sh.change_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        if !are_here(&sh, "installing", &needed).unwrap() {
            return;
        }
        let place = sh.create_temp_dir().unwrap();
        let prefix = place.path().join("prefix");
        run(&sh, &Arguments { prefix: prefix.clone(), debug: true }).unwrap();
        // Again, over existing files.
        run(&sh, &Arguments { prefix: prefix.clone(), debug: true }).unwrap();

        sh.change_dir(place.path());
        sh.write_file("main.c", PROGRAM).unwrap();
        sh.write_file("main.cpp", CLASSES).unwrap();
        let packages = prefix.join("lib/pkgconfig");
        let _path = sh.push_env("PKG_CONFIG_PATH", packages);
        for linked in [None, Some("-static")] {
            let flags =
                cmd!(sh, "pkg-config --cflags --libs thiscpu").args(linked.map(|_| "--static"));
            let flags = flags.quiet().read().unwrap();
            let flags = flags.split_whitespace();
            let rpath = format!("-Wl,-rpath,{}", prefix.join("lib").display());
            let linked = linked.map_or_else(|| vec![&*rpath], |linked| vec![linked]);
            let flags: Vec<_> = flags.collect();
            for [compiler, source] in [["gcc", "main.c"], ["g++", "main.cpp"]] {
                let (flags, linked) = (&flags, &linked);
                cmd!(sh, "{compiler} {source} -o main {flags...} {linked...}")
                    .quiet()
                    .run()
                    .unwrap();
                cmd!(sh, "./main").quiet().run().unwrap();
                // The name changes with the interface.
                let needs = cmd!(sh, "readelf -d main").quiet().read().unwrap();
                let name = format!("[libthiscpu.so.{}]", interface());
                assert_eq!(needs.contains(&name), linked[0] == rpath, "{needs}");
            }
        }

        sh.write_file("CMakeLists.txt", PROJECT).unwrap();
        cmd!(sh, "cmake -S . -B built -DCMAKE_PREFIX_PATH={prefix}")
            .quiet()
            .ignore_stdout()
            .run()
            .unwrap();
        cmd!(sh, "cmake --build built").quiet().ignore_stdout().run().unwrap();
        cmd!(sh, "built/uses").quiet().run().unwrap();
        cmd!(sh, "built/alone").quiet().run().unwrap();
    }
}
