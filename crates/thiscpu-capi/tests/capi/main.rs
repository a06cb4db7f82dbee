//! Compiles and runs programs in C and C++ that use the library as its users do.

mod fixture;

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use fixture::{Linked, compile, compile_both, compilers, has, libraries, passes, program, run};
use thiscpu_test_support::{is_full, preloaded_malloc};

const C11: [&str; 2] = ["-std=c11", "-D_GNU_SOURCE"];

/// Runs a program in C11, compiled by gcc and clang.
///
/// In a full run each compiler links it statically and dynamically, and gcc also compiles it
/// without inlined calls. [`compile_both`] says how other runs link it.
fn run_in_c(source: &str) {
    // Without lazy binding, whose resolver needs stack.
    let options = [&C11[..], &["-Wl,-z,now"]].concat();
    for compiler in compilers(["gcc", "clang"]) {
        compile_both(source, compiler, &options).iter().for_each(|program| passes(program));
    }
    if has("gcc") && is_full() {
        let options = [&options[..], &["-DTHISCPU_NO_INLINE"]].concat();
        passes(&compile(source, "gcc", &options, Linked::Shared));
    }
}

/// Makes a test of each program in C11.
macro_rules! programs_in_c {
    ($($name:ident: $source:literal,)*) => {$(
        #[test]
        fn $name() {
            run_in_c($source);
        }
    )*};
}

programs_in_c! {
    null_handles_do_nothing_before_startup: "early.c",
    counter_works_from_c: "counter.c",
    counters_work_from_c: "counters.c",
    budget_works_from_c: "budget.c",
    leases_work_from_c: "lease.c",
    reserves_and_deadlines_work_from_c: "reserve.c",
    rates_and_windows_work_from_c: "rate.c",
    asynchronous_acquires_work_from_c: "acquire.c",
    ledger_works_from_c: "ledger.c",
    cache_works_from_c: "cache.c",
    constructed_cache_works_from_c: "constructed.c",
    word_works_from_c: "word.c",
    pair_works_from_c: "pair.c",
    stack_works_from_c: "stack.c",
    segment_works_from_c: "segment.c",
    shared_budget_works_from_c: "shared_budget.c",
    shared_leases_and_acquires_work_from_c: "shared_acquire.c",
    errors_are_reported_as_statuses: "errors.c",
    calls_report_when_a_sandbox_denies_fences: "sandbox.c",
    handles_return_memory: "memory.c",
    tier_is_chosen_at_first_use: "late.c",
    calls_need_little_stack_and_survive_pending_cancel: "edges.c",
}

/// Options of the linker by which a program counts its calls of the inlined functions.
const WRAPPED: [&str; 8] = [
    "-Wl,--wrap=thiscpu_counter_add",
    "-Wl,--wrap=thiscpu_counters_add",
    "-Wl,--wrap=thiscpu_budget_try_acquire",
    "-Wl,--wrap=thiscpu_budget_release",
    "-Wl,--wrap=thiscpu_account_charge",
    "-Wl,--wrap=thiscpu_cache_alloc",
    "-Wl,--wrap=thiscpu_cache_free",
    "-Wl,--wrap=thiscpu_word_add",
];

#[test]
fn inlined_calls_rarely_call_the_library() {
    // `-no-pie` makes a copy relocation of the library's variable.
    let kinds = [&["-O2", "-no-pie", "-fno-pie"][..], &["-O2", "-fPIC", "-pie"], &["-O0"]];
    for compiler in compilers(["gcc", "clang"]) {
        for kind in kinds {
            let options = [&C11[..], kind, &WRAPPED].concat();
            let programs = compile_both("inlined.c", compiler, &options);
            programs.iter().for_each(|program| passes(program));
        }
    }
}

#[test]
fn classes_work_from_cpp() {
    for compiler in compilers(["g++", "clang++"]) {
        let programs = compile_both("classes.cpp", compiler, &["-std=c++17"]);
        programs.iter().for_each(|program| passes(program));
    }
}

/// Links two files that have copies of the same inline functions.
///
/// The linker drops all copies of an inline function, a member or a template but one, with their
/// sections.
#[test]
fn inlined_functions_merge_across_object_files() {
    for compiler in compilers(["g++", "clang++"]) {
        for level in ["-O0", "-O1", "-O2"] {
            let twin = program("twin.cpp");
            passes(&compile("twins.cpp", compiler, &["-std=c++17", level, &twin], Linked::Shared));
        }
    }
}

/// Loads two copies of the library, which export the symbols of the installed one.
///
/// Inlined calls must call the library only where functions are bound to one copy and variables to
/// the other.
#[test]
fn copies_of_the_library_never_share_lanes() {
    if !has("gcc") {
        return;
    }
    let bindings = [("-Wl,-Bsymbolic-functions", 1), ("-Wl,-Bsymbolic", 0), ("-O2", 0)];
    for (number, (bound, are_calls)) in bindings.into_iter().enumerate() {
        let folder = libraries().join(format!("copies-{number}"));
        std::fs::create_dir_all(&folder).expect("a directory");
        let exported = folder.join("exported");
        std::fs::write(&exported, "{ global: thiscpu_*; one_*; two_*; local: *; };")
            .expect("a file");
        let exported = format!("-Wl,--version-script={}", exported.display());
        let copies = ["one", "two"].map(|name| {
            let (define, library) = (format!("-DNAME={name}"), folder.join(format!("{name}.so")));
            let wrapped = "-Wl,--wrap=thiscpu_counter_add";
            let options =
                [&C11[..], &["-shared", "-fPIC", bound, wrapped, &exported, &define]].concat();
            std::fs::rename(compile("copy.c", "gcc", &options, Linked::Static), &library)
                .expect("the library can be moved");
            library.to_str().expect("a UTF-8 path").to_owned()
        });
        let are_calls = format!("-DARE_CALLS={are_calls}");
        let options =
            [&C11[..], &["-Wl,--no-as-needed", &copies[0], &copies[1], &are_calls]].concat();
        passes(&compile("copies.c", "gcc", &options, Linked::Nothing));
    }
}

/// Runs the program of `cargo xtask bench-c`, which checks that it finds all of its adds.
///
/// It ends with 2 where the process does not run on the tier that it measures.
#[test]
fn bench_counts_every_add() {
    if !has("gcc") {
        return;
    }
    let source = format!("{}/bench/add.c", env!("CARGO_MANIFEST_DIR"));
    let bench = compile(&source, "gcc", &["-std=c11"], Linked::Shared);
    for contender in ["librseq-style", "word", "counter", "word-call", "counter-call", "atomic"] {
        let ended = run(&bench, &[contender, "0", "3"], &[]);
        let message = String::from_utf8_lossy(&ended.stderr);
        assert!(matches!(ended.status.code(), Some(0 | 2)), "{contender}: {message}");
    }
}

#[test]
fn classes_abort_on_error_without_exceptions() {
    if has("g++") {
        let options = ["-std=c++17", "-fno-exceptions"];
        let program = compile("plain.cpp", "g++", &options, Linked::Shared);
        passes(&program);
        let ended = run(&program, &["fail"], &[]);
        let message = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.signal() == Some(6) && message.contains("invalid size"), "{message}");
    }
}

#[test]
fn callbacks_that_throw_abort() {
    if has("g++") {
        let program = compile("throws.cpp", "g++", &["-std=c++17"], Linked::Shared);
        for callback in ["drain", "construct", "destroy"] {
            assert_eq!(run(&program, &[callback], &[]).status.signal(), Some(6), "{callback}");
        }
    }
}

#[test]
fn tier_follows_environment_variable() {
    if !has("gcc") {
        return;
    }
    let program = compile("tier.c", "gcc", &["-std=c11"], Linked::Shared);
    let atomic = run(&program, &[], &[("THISCPU_TIER", "atomic")]);
    assert_eq!(String::from_utf8_lossy(&atomic.stdout), "atomic\n");
    let wrong = run(&program, &["unknown"], &[("THISCPU_TIER", "fastest")]);
    assert!(wrong.status.success(), "{}", String::from_utf8_lossy(&wrong.stderr));
}

/// Compiles and runs the code blocks of the documents.
#[test]
fn examples_in_documents_run() {
    for (name, language, compiler, standard) in
        [("c", "c", "gcc", "-std=c11"), ("cpp", "c++", "g++", "-std=c++17")]
    {
        if !has(compiler) {
            continue;
        }
        let mut count = 0;
        for page in ["README.md", "docs/c.md", "docs/guide.md"] {
            let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
            let text = std::fs::read_to_string(page).expect("a page");
            for example in text.split(&format!("\n```{name}\n")).skip(1) {
                let (code, _) = example.split_once("\n```\n").expect("an end");
                // The tests of that library run its examples.
                if code.contains("<thiscpu_metrics.h>") {
                    continue;
                }
                let source = libraries().join(format!("example-{count}.{name}"));
                std::fs::write(&source, format!("{code}\n")).expect("a file");
                let source = source.to_str().expect("a UTF-8 path");
                passes(&compile(source, compiler, &["-x", language, standard], Linked::Shared));
                count += 1;
            }
        }
        assert!(count > 0, "no example in {language}");
    }
}

/// Checks the library in the program or beside it, alone and with another copy in malloc.
#[test]
fn children_of_vfork_use_the_library() {
    for compiler in compilers(["gcc", "clang"]) {
        let preloaded = preloaded_malloc().to_str().expect("a UTF-8 path");
        for (linked, level) in [(Linked::Static, "-O2"), (Linked::Shared, "-O0")] {
            let program = compile("vfork.c", compiler, &[&C11[..], &[level]].concat(), linked);
            passes(&program);
            let output = run(&program, &[], &[("LD_PRELOAD", preloaded)]);
            let message = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{linked:?}: {}\n{message}", output.status);
        }
    }
}

/// Returns the functions that the headers declare.
fn declared() -> BTreeSet<String> {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/thiscpu.h");
    let text = std::fs::read_to_string(header).expect("the header");
    let lines = text.lines().filter(|line| !line.starts_with([' ', '/', '#', '}']));
    let calls = lines.filter_map(|line| line.split_once('('));
    let names = calls.filter_map(|(before, _)| before.rsplit([' ', '*']).next());
    let names = names.filter(|name| name.starts_with("thiscpu_")).map(str::to_owned);
    // thiscpu_inline.h declares these.
    let inline_abi =
        ["thiscpu_inline_abi_5", "thiscpu_inline_abi_5_finish_alloc", "thiscpu_inline_abi_5_table"];
    names.chain(inline_abi.map(str::to_owned)).collect()
}

/// The exported functions that programs do not call by a header of this library.
const UNDECLARED: [&str; 2] = ["thiscpu_vfork_join_1", "vfork"];

/// Returns the symbols that a shared object exports, as `nm` lists them.
fn exported(object: &Path) -> BTreeSet<String> {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(object).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let symbols = String::from_utf8(output.stdout).unwrap();
    symbols.lines().filter_map(|line| line.rsplit(' ').next().map(str::to_owned)).collect()
}

#[test]
fn library_exports_exactly_the_declared_functions() {
    if !has("nm") {
        return;
    }
    let expected = &declared() | &UNDECLARED.map(str::to_owned).into();
    assert_eq!(exported(&libraries().join("libthiscpu.so")), expected);
    assert!(declared().len() > 50, "{:?}", declared());
}

/// Checks the size of the thread-local block.
///
/// All libraries that are loaded late share 1,664 bytes for theirs, with glibc's default.
#[test]
fn several_copies_can_be_loaded_late() {
    if !has("readelf") {
        return;
    }
    let library = libraries().join("libthiscpu.so");
    let output = Command::new("readelf").arg("-lW").arg(library).output().expect("readelf");
    let headers = String::from_utf8(output.stdout).expect("UTF-8");
    let block = headers.lines().find(|line| line.trim_start().starts_with("TLS"));
    let bytes = block.and_then(|line| line.split_whitespace().nth(5)?.strip_prefix("0x"));
    let bytes = usize::from_str_radix(bytes.expect("a thread-local block"), 16).expect("a number");
    assert!((1..=400).contains(&bytes), "{bytes} bytes");
}

/// Links a plugin with the static library, as its users do, and runs a program that loads it.
///
/// The plugin has functions of its own, and its calls of `vfork` are those of its copy.
#[test]
fn plugin_with_static_library_exports_only_thiscpu_functions() {
    if !has("nm") {
        return;
    }
    let own = BTreeSet::from(["plugin_run".to_owned()]);
    // The linker exports no symbol of any static library with this option.
    let kinds = [&[][..], &["-Wl,--exclude-libs,ALL"], &["-Wl,--exclude-libs,libthiscpu.a"]];
    for compiler in compilers(["gcc", "clang"]) {
        for (kind, options) in kinds.iter().enumerate() {
            let options = [&C11[..], &["-shared", "-fPIC", "-Wl,--fatal-warnings"], options];
            let plugin = compile("plugin.c", compiler, &options.concat(), Linked::Static);
            let (exported, mut allowed) = (exported(&plugin), own.clone());
            if kind == 0 {
                // The linker takes the objects of the library that the plugin needs: more of them
                // if they are larger, as without incremental compilation.
                allowed.extend(declared());
                allowed.insert("thiscpu_vfork_join_1".into());
                assert!(exported.contains("thiscpu_counter_add"), "{compiler}: {exported:?}");
            }
            let others: Vec<_> = exported.difference(&allowed).collect();
            assert!(others.is_empty() && exported.is_superset(&own), "{compiler}: {exported:?}");
            let plugin = format!("-DPLUGIN=\"{}\"", plugin.display());
            let options = [&C11[..], &[&plugin, "-ldl"]].concat();
            passes(&compile("loads.c", compiler, &options, Linked::Nothing));
        }
    }
}

/// Linkers warn of functions that need shared libraries at run time, such as `dlopen`.
#[test]
fn static_program_links_without_warnings() {
    for compiler in compilers(["gcc", "clang"]) {
        let options = [&C11[..], &["-Wl,--fatal-warnings"]].concat();
        for source in ["counter.c", "vfork.c"] {
            passes(&compile(source, compiler, &options, Linked::AllStatic));
        }
    }
}
