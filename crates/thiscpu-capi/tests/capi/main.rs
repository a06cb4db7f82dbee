//! Programs in C and C++ that use the library as its users do.

mod fixture;

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use fixture::{Linked, compile, has, libraries, passes, program, run};

const C11: [&str; 2] = ["-std=c11", "-D_GNU_SOURCE"];

/// Compiled as C11 by both compilers, and linked both ways; by one of them also without inlined calls.
fn in_c(source: &str) {
    for compiler in ["gcc", "clang"].into_iter().filter(|compiler| has(compiler)) {
        for linked in [Linked::Shared, Linked::Static] {
            passes(&compile(source, compiler, &C11, linked));
        }
    }
    if has("gcc") {
        let options = [&C11[..], &["-DTHISCPU_NO_INLINE"]].concat();
        passes(&compile(source, "gcc", &options, Linked::Shared));
    }
}

/// The functions that are inlined, and how to link a program that counts calls of them.
const WRAPPED: [&str; 7] = [
    "-Wl,--wrap=thiscpu_counter_add",
    "-Wl,--wrap=thiscpu_budget_try_acquire",
    "-Wl,--wrap=thiscpu_budget_release",
    "-Wl,--wrap=thiscpu_account_charge",
    "-Wl,--wrap=thiscpu_cache_alloc",
    "-Wl,--wrap=thiscpu_cache_free",
    "-Wl,--wrap=thiscpu_word_add",
];

#[test]
fn inlined_calls_rarely_call_the_library() {
    for compiler in ["gcc", "clang"].into_iter().filter(|compiler| has(compiler)) {
        // Where the library's variable is copied into the program, and where it is not.
        for kind in [&["-O2", "-no-pie", "-fno-pie"][..], &["-O2", "-fPIC", "-pie"], &["-O0"]] {
            for linked in [Linked::Shared, Linked::Static] {
                let options = [&C11[..], kind, &WRAPPED].concat();
                passes(&compile("inlined.c", compiler, &options, linked));
            }
        }
    }
}

#[test]
fn null_handles_do_nothing_before_startup() {
    in_c("early.c");
}

#[test]
fn counter_works_from_c() {
    in_c("counter.c");
}

#[test]
fn budget_works_from_c() {
    in_c("budget.c");
}

#[test]
fn ledger_works_from_c() {
    in_c("ledger.c");
}

#[test]
fn cache_works_from_c() {
    in_c("cache.c");
}

#[test]
fn word_works_from_c() {
    in_c("word.c");
}

#[test]
fn pair_works_from_c() {
    in_c("pair.c");
}

#[test]
fn stack_works_from_c() {
    in_c("stack.c");
}

#[test]
fn errors_are_reported_as_statuses() {
    in_c("errors.c");
}

#[test]
fn calls_report_when_a_sandbox_denies_fences() {
    in_c("sandbox.c");
}

#[test]
fn classes_work_from_cpp() {
    for compiler in ["g++", "clang++"].into_iter().filter(|compiler| has(compiler)) {
        for linked in [Linked::Shared, Linked::Static] {
            passes(&compile("classes.cpp", compiler, &["-std=c++17"], linked));
        }
    }
}

/// Of an inline function, a member or a template every file has a copy, and linkers drop all but one, with its sections.
#[test]
fn inlined_functions_merge_across_object_files() {
    for compiler in ["g++", "clang++"].into_iter().filter(|compiler| has(compiler)) {
        for level in ["-O0", "-O1", "-O2"] {
            let twin = program("twin.cpp");
            passes(&compile("twins.cpp", compiler, &["-std=c++17", level, &twin], Linked::Shared));
        }
    }
}

/// Two copies of the library, which export what the optimized one does. Only where their functions are their own and their variables are not, inlined
/// calls are calls.
#[test]
fn copies_of_the_library_never_share_lanes() {
    if !has("gcc") {
        return;
    }
    let ways = [("-Wl,-Bsymbolic-functions", 1), ("-Wl,-Bsymbolic", 0), ("-g", 0)];
    for (number, (bound, are_calls)) in ways.into_iter().enumerate() {
        let here = libraries().join(format!("copies-{number}"));
        std::fs::create_dir_all(&here).expect("a directory");
        let exported = here.join("exported");
        std::fs::write(&exported, "{ global: thiscpu_*; one_*; two_*; local: *; };")
            .expect("a file");
        let exported = format!("-Wl,--version-script={}", exported.display());
        let copies = ["one", "two"].map(|name| {
            let (define, library) = (format!("-DNAME={name}"), here.join(format!("{name}.so")));
            let wrapped = "-Wl,--wrap=thiscpu_counter_add";
            let options =
                [&C11[..], &["-shared", "-fPIC", bound, wrapped, &exported, &define]].concat();
            std::fs::rename(compile("copy.c", "gcc", &options, Linked::Static), &library)
                .expect("it can be moved");
            library.to_str().expect("a name in letters").to_owned()
        });
        let are_calls = format!("-DARE_CALLS={are_calls}");
        let options =
            [&C11[..], &["-Wl,--no-as-needed", &copies[0], &copies[1], &are_calls]].concat();
        passes(&compile("copies.c", "gcc", &options, Linked::Nothing));
    }
}

/// `cargo xtask bench-c` measures adds that happen. The program ends with 2 where it cannot be about its tier.
#[test]
fn bench_counts_every_add() {
    if !has("gcc") {
        return;
    }
    let source = format!("{}/bench/add.c", env!("CARGO_MANIFEST_DIR"));
    let bench = compile(&source, "gcc", &["-std=c11"], Linked::Shared);
    for contender in ["librseq-style", "word", "counter", "word-call", "counter-call", "atomic"] {
        let ended = run(&bench, &[contender, "0", "3"], &[]);
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(matches!(ended.status.code(), Some(0 | 2)), "{contender}: {said}");
    }
}

#[test]
fn tier_is_chosen_at_first_use() {
    in_c("late.c");
}

#[test]
fn classes_abort_on_error_without_exceptions() {
    if has("g++") {
        let options = ["-std=c++17", "-fno-exceptions"];
        let program = compile("plain.cpp", "g++", &options, Linked::Shared);
        passes(&program);
        let ended = run(&program, &["fail"], &[]);
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.signal() == Some(6) && said.contains("invalid size"), "{said}");
    }
}

#[test]
fn callbacks_that_throw_abort() {
    if has("g++") {
        let program = compile("throws.cpp", "g++", &["-std=c++17"], Linked::Shared);
        assert_eq!(run(&program, &[], &[]).status.signal(), Some(6));
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

/// The examples that users read.
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
                let source = libraries().join(format!("example-{count}.{name}"));
                std::fs::write(&source, format!("{code}\n")).expect("a file");
                let source = source.to_str().expect("a name in letters");
                passes(&compile(source, compiler, &["-x", language, standard], Linked::Shared));
                count += 1;
            }
        }
        assert!(count > 0, "no example in {language}");
    }
}

/// The functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/thiscpu.h");
    let text = std::fs::read_to_string(header).expect("the header");
    let lines = text.lines().filter(|line| !line.starts_with([' ', '/', '#', '}']));
    let calls = lines.filter_map(|line| line.split_once('('));
    let names = calls.filter_map(|(before, _)| before.rsplit([' ', '*']).next());
    let names = names.filter(|name| name.starts_with("thiscpu_")).map(str::to_owned);
    // Those that only inlined calls know.
    let inline_abi =
        ["thiscpu_inline_abi_3", "thiscpu_inline_abi_3_finish_alloc", "thiscpu_inline_abi_3_table"];
    names.chain(inline_abi.map(str::to_owned)).collect()
}

#[test]
fn library_exports_exactly_the_declared_functions() {
    if !has("nm") {
        return;
    }
    let library = libraries().join("libthiscpu.so");
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().unwrap();
    let symbols = String::from_utf8(output.stdout).unwrap();
    let names = symbols.lines().filter_map(|line| line.rsplit(' ').next().map(str::to_owned));
    assert_eq!(names.collect::<BTreeSet<_>>(), declared());
    assert!(declared().len() > 50, "{:?}", declared());
}
