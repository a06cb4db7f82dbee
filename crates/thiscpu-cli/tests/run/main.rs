//! `thiscpu run` as users see it: the programs it runs, their environment, and its refusals.

mod fixture;
mod sanitizers;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use fixture::{THISCPU, assert_refused, compile, directory, exclusive, run, tables, write};
use thiscpu_test_support::{preloaded_malloc, text};

#[test]
fn run_keeps_exit_status_and_signal_of_program() {
    let _exclusive = exclusive();
    for status in [0, 1, 77] {
        let script = format!("cat /proc/$$/maps; exit {status}");
        let output = run(&["--", "sh", "-c", &script]).output().unwrap();
        assert_eq!(output.status.code(), Some(status));
        assert!(text(&output.stdout).contains("libthiscpu_malloc.so"));
        assert_eq!(text(&output.stderr), "");
    }
    let killed = run(&["sh", "-c", "kill -TERM $$"]).output().unwrap();
    assert_eq!(killed.status.code(), None, "{killed:?}");
}

#[test]
fn run_passes_arguments_and_environment() {
    let _exclusive = exclusive();
    let said = |command: &mut Command| text(&command.output().unwrap().stdout);
    let script = "printf '%s,' \"$0\" \"$@\" \"$LD_PRELOAD\" \"$THISCPU_MALLOC\"";
    let plain = said(&mut run(&["sh", "-c", script, "zero", "--stats", "a b", ""]));
    let library = preloaded_malloc().canonicalize().unwrap();
    let library = library.to_str().unwrap();
    assert_eq!(plain, format!("zero,--stats,a b,,{library},,"));
    let mut both = run(&["--harden", "--stats", "--", "sh", "-c", script, "zero"]);
    both.env("LD_PRELOAD", "libm.so.6").env("THISCPU_MALLOC", "harden");
    assert_eq!(said(&mut both), format!("zero,{library}:libm.so.6,harden,stats,harden,"));
    let own_name = said(&mut run(&["sh", "-c", "tr '\\0' ',' < /proc/$$/cmdline; exit"]));
    assert!(own_name.starts_with("sh,-c,"), "{own_name}");
}

#[test]
fn run_checks_and_passes_settings() {
    let _exclusive = exclusive();
    let script = "printf '%s' \"$THISCPU_MALLOC\"";
    let settings = ["--set", "harden", "--stats", "--set=stats=off", "--", "sh", "-c", script];
    let mut command = run(&settings);
    command.env("THISCPU_MALLOC", "harden=off");
    let output = command.output().unwrap();
    assert_eq!(text(&output.stdout), "harden=off,stats,harden,stats=off");
    assert_eq!(text(&output.stderr), "");
    for (wrong, why) in [
        ("bogus", "there are: stats, harden, thp, profile"),
        ("stats=xml", "table, json"),
        ("stats=table,harden", "repeat --set"),
        ("", "NAME=VALUE"),
    ] {
        assert_refused(run(&["--set", wrong, "--", "true"]), 125, &["--set", why]);
    }
}

#[test]
fn run_passes_options_as_words() {
    let _exclusive = exclusive();
    let place = directory("words");
    let script = "echo $$ $THISCPU_MALLOC";
    let words = |options: &[&str]| {
        let mut command = run(&[options, &["--", "sh", "-c", script]].concat());
        // A shell that inherits a profile would write one.
        let output = command.current_dir(&place).output().unwrap();
        assert!(output.status.success(), "{options:?}: {}", text(&output.stderr));
        let said = text(&output.stdout);
        let (process, words) = said.trim_end().split_once(' ').unwrap();
        words.replace(process, "PID").replace(place.to_str().unwrap(), "HERE")
    };
    assert_eq!(words(&["--stats"]), "stats");
    assert_eq!(words(&["--stats=json"]), "stats=json");
    assert_eq!(words(&["--stats=json:a.json", "--harden"]), "stats=json:HERE/a.json,harden");
    // This process has become the shell, so it has its ID.
    assert_eq!(
        words(&["--heap-profile", "heap"]),
        "profile=HERE/heap,profile_interval=524288,profile_pid=PID"
    );
    let all = [
        "--heap-profile=x/../heap",
        "--heap-profile-interval=1000",
        "--heap-profile-signal=USR2",
        "--heap-profile-at-peak",
    ];
    assert_eq!(
        words(&all),
        "profile=HERE/x/../heap,profile_interval=1000,profile_pid=PID,profile_signal=USR2,\
         profile_at_peak"
    );
}

#[test]
fn run_refuses_options_that_cannot_be_words() {
    let _exclusive = exclusive();
    for (options, reason) in [
        (&["--heap-profile=a,b"][..], "has a comma"),
        (&["--stats=json:a,b"], "has a comma"),
        (&["--stats=xml"], "its values are: table, json, json:FILE, off"),
        (&["--stats=json:"], "no file is given"),
        (&["--heap-profile-interval=5"], "--heap-profile"),
        (&["--heap-profile=a", "--heap-profile-interval=0"], "0 is not in"),
        (&["--heap-profile=a", "--heap-profile-signal=KILL"], "possible values"),
    ] {
        assert_refused(run(&[options, &["true"]].concat()), 125, &[reason]);
    }
}

#[test]
fn run_stats_prints_table_at_exit() {
    let _exclusive = exclusive();
    let output = run(&["--stats", "--", "ls", "/"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(tables(&output), 1, "{}", text(&output.stderr));
    for part in ["(ls)", "size", "allocations", "hit rate", "trades", "slabs", "at the peaks"] {
        assert!(text(&output.stderr).contains(part), "{part:?} is not in {}", text(&output.stderr));
    }
    let plain = Command::new("ls").arg("/").output().unwrap();
    assert_eq!(output.stdout, plain.stdout);
    assert_eq!(tables(&run(&["ls", "/"]).output().unwrap()), 0);
}

#[test]
fn run_warns_when_tier_is_unknown() {
    let _exclusive = exclusive();
    let output = run(&["echo", "word"]).env("THISCPU_TIER", "fast").output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "word\n"));
    assert!(text(&output.stderr).contains("THISCPU_TIER=fast names no tier"));
}

#[test]
fn run_follows_script_interpreters() {
    let _exclusive = exclusive();
    let place = directory("scripts");
    let script = write(&place.join("script"), b"#! /bin/sh -e\necho \"$1\"; exit 9\n");
    let output = run(&[&script, "word"]).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(9), "word\n"));
    let by_name = run(&["script", "word"]).env("PATH", &place).output().unwrap();
    assert_eq!(by_name.status.code(), Some(9));

    let nested = write(&place.join("nested"), format!("#!{script}\n").as_bytes());
    assert_eq!(run(&[&nested]).output().unwrap().status.code(), Some(9));
    let missing = write(&place.join("missing"), b"#!/no/such/interpreter\n");
    assert_refused(
        run(&[&missing]),
        126,
        &["its interpreter is /no/such/interpreter", "does not exist"],
    );
    let nameless = write(&place.join("nameless"), b"#!  \n");
    assert_refused(run(&[&nameless]), 126, &["without an interpreter after #!"]);
    let endless = place.join("endless");
    let content = format!("#!{}\n", endless.display());
    let endless = write(&endless, content.as_bytes());
    assert_refused(run(&[&endless]), 126, &["its interpreters are scripts"]);
}

#[test]
fn run_refuses_files_that_are_not_programs() {
    let _exclusive = exclusive();
    let place = directory("refused");
    let in_place = |name: &str| place.join(name).to_str().expect("a UTF-8 path").to_owned();
    assert_refused(run(&["no-such-program"]), 127, &["no-such-program is not in PATH"]);
    assert_refused(run(&[&in_place("missing")]), 127, &["cannot run", "does not exist"]);
    assert_refused(run(&[&in_place("")]), 126, &["it is a directory"]);
    assert_refused(run(&["/dev/null"]), 126, &["it is not a regular file"]);
    fs::write(place.join("plain"), "text").unwrap();
    assert_refused(run(&[&in_place("plain")]), 126, &["may not execute", "chmod +x"]);
    let no_program = write(&place.join("text"), b"echo word\n");
    assert_refused(run(&[&no_program]), 126, &["neither an ELF file nor a script"]);
    assert_refused(run(&["--no-such-option", "ls"]), 125, &["--no-such-option"]);
    assert_refused(run(&[]), 125, &["PROGRAM"]);
}

#[test]
fn run_refuses_programs_for_other_machines() {
    let _exclusive = exclusive();
    let place = directory("machines");
    let shell = fs::read("/bin/sh").unwrap();
    let changed = |name: &str, at: usize, value: u8| {
        let mut content = shell.clone();
        content[at] = value;
        write(&place.join(name), &content)
    };
    // EI_CLASS: 32 bits; e_machine: RISC-V; e_type: an object file.
    assert_refused(run(&[&changed("class", 4, 1)]), 126, &["32-bit"]);
    assert_refused(run(&[&changed("machine", 18, 243)]), 126, &["another architecture"]);
    assert_refused(run(&[&changed("type", 16, 1)]), 126, &["not a program"]);
    let loader = b"/lib/ld-musl-x86_64.so.1";
    let at = shell
        .windows(5)
        .position(|bytes| bytes == b"/lib6")
        .or_else(|| shell.windows(8).position(|bytes| bytes == b"/lib/ld-"));
    let mut content = shell.clone();
    let at = at.expect("/bin/sh has a loader");
    content[at..at + loader.len()].copy_from_slice(loader);
    let musl = write(&place.join("musl"), &content);
    assert_refused(run(&[&musl]), 126, &["another C library", "ld-musl"]);
}

#[test]
fn run_refuses_static_programs() {
    let _exclusive = exclusive();
    let place = directory("static");
    let source = place.join("program.c");
    fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    for kind in ["-static", "-static-pie"] {
        let program = place.join(&kind[1..]);
        if !compile(&source, &program, kind) {
            return;
        }
        let program = program.to_str().expect("a UTF-8 path");
        assert_refused(run(&[program]), 126, &["statically linked"]);
        let script = write(&place.join("script"), format!("#!{program}\n").as_bytes());
        assert_refused(run(&[&script]), 126, &["its interpreter is", "statically linked"]);
    }
}

#[test]
fn run_ends_as_env_does_when_program_cannot_be_started() {
    let _exclusive = exclusive();
    let place = directory("unreachable");
    fs::write(place.join("plain"), "text").unwrap();
    symlink("loop", place.join("loop")).unwrap();
    fs::create_dir(place.join("folder")).unwrap();
    fs::create_dir(place.join("closed")).unwrap();
    fs::set_permissions(place.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
    let closed = place.join("closed/program");
    for (name, status) in [
        ("plain", 126),
        ("folder", 126),
        ("loop", 126),
        ("missing", 127),
        ("", 127),
        ("./plain/below", 126),
        ("./loop/below", 126),
        ("./folder", 126),
        ("./missing/below", 127),
        (closed.to_str().expect("a UTF-8 path"), 126),
    ] {
        let mut env = Command::new("/usr/bin/env");
        env.args(["--", name]);
        for mut command in [env, run(&["--", name])] {
            command.env("PATH", &place);
            match Path::new(name).is_absolute() && is_root() {
                // Root may look into every directory.
                true => command.uid(NOBODY).gid(NOBODY),
                false => command.current_dir(&place),
            };
            let Ok(output) = command.output() else {
                eprintln!("skipped: other users cannot execute {THISCPU}");
                continue;
            };
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(status), "{command:?}: {said}");
        }
    }
    // The next run of this test removes it.
    fs::set_permissions(place.join("closed"), fs::Permissions::from_mode(0o755)).unwrap();
}

/// The user and group that own nothing.
const NOBODY: u32 = 65_534;

/// Copies the shell into a directory that every user may read.
fn shell(name: &str) -> (PathBuf, String) {
    let place = std::env::temp_dir().join(format!("thiscpu-{name}-{}", std::process::id()));
    fs::create_dir_all(&place).unwrap();
    fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
    let program = write(&place.join("program"), &fs::read("/bin/sh").unwrap());
    (place, program)
}

fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions.
    unsafe { libc::geteuid() == 0 }
}

/// Asserts that the shell runs and has the library loaded.
fn assert_loaded(mut command: Command) {
    let output = command.args(["-c", "cat /proc/$$/maps; exit 3"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(
        text(&output.stdout).contains("libthiscpu_malloc.so"),
        "the program runs without the library"
    );
}

#[test]
fn run_refuses_setuid_and_setgid_programs() {
    let _exclusive = exclusive();
    let (place, program) = shell("privileged");
    assert_loaded(run(&[&program]));
    for mode in [0o4755, 0o2755] {
        // The bits name the calling user, so the program gains no rights.
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
        assert_loaded(run(&[&program]));
        if !is_root() {
            continue;
        }
        chown(&program, Some(NOBODY), Some(NOBODY)).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
        assert_refused(run(&[&program]), 126, &["more rights than its user", "setuid or setgid"]);
        // Linux ignores the bits of a script; only those of its interpreter count.
        let script = write(&place.join("script"), b"#!/bin/sh\nexit 4\n");
        chown(&script, Some(NOBODY), Some(NOBODY)).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(run(&[&script]).status().unwrap().code(), Some(4));
        chown(&program, Some(0), Some(0)).unwrap();
    }
    // Without group execute permission the bit means mandatory locking.
    fs::set_permissions(&program, fs::Permissions::from_mode(0o2745)).unwrap();
    assert_loaded(run(&[&program]));
    fs::remove_dir_all(&place).unwrap();
}

#[test]
fn run_refuses_programs_with_capabilities() {
    // Only other users gain rights from capabilities, because root has them all.
    let _exclusive = exclusive();
    let (place, program) = shell("capable");
    // SAFETY: both names are C strings, and `value` has the length that is passed: an empty
    // capability set of version 2.
    let given = unsafe {
        let path = std::ffi::CString::new(program.as_str()).unwrap();
        let value = [0, 0, 0, 2_u8].into_iter().chain([0; 16]).collect::<Vec<u8>>();
        let name = c"security.capability".as_ptr();
        libc::setxattr(path.as_ptr(), name, value.as_ptr().cast(), value.len(), 0)
    };
    if given != 0 {
        eprintln!("skipped: setting file capabilities needs root and a file system that has them");
    } else {
        assert_loaded(run(&[&program]));
        let mut others = run(&[&program]);
        match others.uid(NOBODY).gid(NOBODY).output() {
            Ok(_) => assert_refused(others, 126, &["more rights than its user", "capabilities"]),
            Err(why) => eprintln!("skipped: other users cannot execute {THISCPU}: {why}"),
        }
    }
    fs::remove_dir_all(&place).unwrap();
}

#[test]
fn run_warns_when_program_has_own_malloc() {
    let _exclusive = exclusive();
    let place = directory("own");
    let source = place.join("program.c");
    let own = "#include <stddef.h>\n\
               static char memory[1 << 20];\n\
               static size_t used;\n\
               void *malloc(size_t size) {\n\
                   void *block = memory + used;\n\
                   used += size + 15 & ~15;\n\
                   return block;\n\
               }\n\
               void free(void *block) {}\n\
               int main(void) { return malloc(1) == memory + used ? 1 : 5; }\n";
    fs::write(&source, own).unwrap();
    let program = place.join("program");
    // -rdynamic exports the program's malloc, which the C library then uses.
    if !compile(&source, &program, "-rdynamic") {
        return;
    }
    let program = program.to_str().expect("a UTF-8 path");
    let output = run(&[program]).output().unwrap();
    assert_eq!(output.status.code(), Some(5));
    let said = text(&output.stderr);
    assert!(said.starts_with("thiscpu: warning:") && said.contains("its own malloc"), "{said}");
    // It runs, too, when the warning cannot be written.
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    assert_eq!(run(&[program]).stderr(full).status().unwrap().code(), Some(5));
}

#[test]
fn run_searches_library_beside_program_and_in_lib() {
    let _exclusive = exclusive();
    let library = preloaded_malloc();
    let prefix = directory("prefix");
    for directory in ["bin", "lib", "odd:name"] {
        fs::create_dir(prefix.join(directory)).unwrap();
    }
    let program = prefix.join("bin/thiscpu");
    fs::copy(THISCPU, &program).unwrap();
    let installed = |args: &[&str]| {
        let mut command = Command::new(&program);
        command.arg("run").args(args).env_remove("LD_PRELOAD");
        command
    };
    let loaded = |command: &mut Command| text(&command.output().unwrap().stdout);
    let show = ["--", "sh", "-c", "echo $LD_PRELOAD"];
    assert_refused(
        installed(&show),
        125,
        &[
            "bin/libthiscpu_malloc.so",
            "bin/../lib/libthiscpu_malloc.so",
            "cargo build --release -p thiscpu-malloc-preload",
            "--library",
        ],
    );
    let named = library.to_str().expect("a UTF-8 path");
    let explicit = loaded(installed(&["--library", named]).args(show));
    assert_eq!(explicit.trim_end(), library.canonicalize().unwrap().to_str().unwrap());
    for directory in ["lib", "bin"] {
        let path = prefix.canonicalize().unwrap().join(directory).join("libthiscpu_malloc.so");
        fs::copy(library, &path).unwrap();
        assert_eq!(loaded(&mut installed(&show)).trim_end(), path.to_str().unwrap());
    }
    let odd = prefix.join("odd:name/libthiscpu_malloc.so");
    fs::copy(library, &odd).unwrap();
    let odd = odd.to_str().expect("a UTF-8 path");
    assert_refused(run(&["--library", odd, "ls"]), 125, &["cannot preload", "a colon or a blank"]);
    let link = prefix.join("link.so");
    symlink(odd, &link).unwrap();
    let link = link.to_str().expect("a UTF-8 path");
    assert_eq!(loaded(run(&["--library", link]).args(show)).trim_end(), link);
    assert_refused(run(&["--library", "/etc/passwd", "ls"]), 125, &["cannot preload /etc/passwd"]);
    assert_refused(
        run(&["--library", "/no/such/file", "ls"]),
        125,
        &["cannot find --library /no/such/file"],
    );
}

/// Checks that the allocator's warning leaves the error to a program that uses thiscpu.
#[test]
fn wrong_tier_stays_wrong_for_the_program_itself() {
    let _guard = exclusive();
    let output = run(&["--", THISCPU, "doctor"]).env("THISCPU_TIER", "bogus").output().unwrap();
    let said = text(&output.stderr);
    assert!(!output.status.success(), "{}", text(&output.stdout));
    assert!(said.contains("THISCPU_TIER=bogus") && said.contains("?ogus"), "{said}");
}
