//! The ways in which the program ends, and the terminal that it leaves.

use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use thiscpu_test_support::{slowdown, terminal};

use crate::fixture::{PROGRAM, Place};
use crate::tmux::Tmux;

/// Returns the signal that ends a program, which must end soon.
fn signal_of(mut program: Child) -> Option<i32> {
    let begun = Instant::now();
    loop {
        if let Some(status) = program.try_wait().unwrap() {
            return status.signal();
        }
        if begun.elapsed() > Duration::from_secs(30) * slowdown() {
            program.kill().unwrap();
            program.wait().unwrap();
            panic!("the program goes on");
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Waits for the end of a program that nobody may wait for as its parent.
fn ends(pid: i32) {
    let begun = Instant::now();
    let stat = || fs::read_to_string(format!("/proc/{pid}/stat"));
    while stat().is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(begun.elapsed() < Duration::from_secs(30) * slowdown(), "the program goes on");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Starts a shell that has written something, which must still be there in the end.
fn used_shell() -> Option<Tmux> {
    let tmux = Tmux::start(80, 24)?;
    tmux.line("echo before");
    tmux.wait_for_text("\nbefore\n@");
    Some(tmux)
}

/// Starts the program as the process of a shell, and returns its ID.
fn start_as_shell(tmux: &Tmux, place: &Place) -> i32 {
    let path = place.path("shop");
    tmux.line(&format!(
        "sh -c 'echo $$ > {0}.pid; exec {PROGRAM} {0}'; echo status $?",
        path.display()
    ));
    tmux.wait_for_text("q quit");
    fs::read_to_string(place.path("shop.pid")).unwrap().trim().parse().unwrap()
}

/// Sends a signal to the program, which a shell of the test has started.
fn send(pid: i32, signal: i32) {
    // SAFETY: `kill` has no preconditions. The shell has not waited for the program, which runs or
    // is stopped, so no other process has its ID.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

/// Presses Ctrl-Z, looks at the terminal, goes on and ends the program.
fn suspend_and_go_on(tmux: &Tmux) {
    tmux.keys(&["C-z"]);
    restored(tmux, "Stopped");
    tmux.line("fg");
    tmux.wait_for_text("q quit");
    quit(tmux);
}

fn quit(tmux: &Tmux) {
    tmux.keys(&["q"]);
    tmux.wait_for("prompt", |screen| !screen.contains("q quit"));
}

fn restored(tmux: &Tmux, after: &str) {
    let screen = tmux.wait_for_text(after);
    assert!(screen.contains("@echo before\nbefore\n"), "{screen}");
    assert!(!screen.contains("q quit"), "{screen}");
    tmux.line("stty -a | tr ' ' '\\n' | grep -c -x -e icanon -e echo -e isig -e opost; echo end");
    tmux.wait_for_text("\n4\nend\n");
    assert_eq!(tmux.call(&["display-message", "-p", "#{cursor_flag} #{alternate_on}"]), "1 0\n");
}

#[test]
fn q_and_ctrl_c_end_and_restore_the_terminal() {
    let place = Place::new();
    place.create("shop").counter("requests").unwrap().inc();
    for key in ["q", "C-c"] {
        let Some(tmux) = used_shell() else { return };
        tmux.line(&format!("{PROGRAM} {}; echo status $?", place.path("shop").display()));
        tmux.wait_for_text("q quit");
        assert_eq!(
            tmux.call(&["display-message", "-p", "#{cursor_flag} #{alternate_on}"]),
            "0 1\n"
        );
        tmux.keys(&[key]);
        restored(&tmux, "status 0\n");
    }
}

#[test]
fn signal_ends_and_restores_the_terminal() {
    let place = Place::new();
    drop(place.create("shop"));
    let Some(tmux) = used_shell() else { return };
    let pid = start_as_shell(&tmux, &place);
    send(pid, libc::SIGTERM);
    restored(&tmux, "status 143\n");
}

#[test]
fn suspended_program_gives_the_terminal_back() {
    let place = Place::new();
    drop(place.create("shop"));
    let Some(tmux) = used_shell() else { return };
    tmux.line(&format!("{PROGRAM} {}", place.path("shop").display()));
    tmux.wait_for_text("q quit");
    suspend_and_go_on(&tmux);
}

#[test]
fn suspended_program_stops_the_shell_that_waits_for_it() {
    let place = Place::new();
    drop(place.create("shop"));
    let Some(tmux) = used_shell() else { return };
    tmux.line(&format!("sh -c '{PROGRAM} {}; true'", place.path("shop").display()));
    tmux.wait_for_text("q quit");
    suspend_and_go_on(&tmux);
}

#[test]
fn signals_that_stop_leave_the_terminal_as_keys_do() {
    let place = Place::new();
    drop(place.create("shop"));
    let Some(tmux) = used_shell() else { return };
    let pid = start_as_shell(&tmux, &place);
    send(pid, libc::SIGTSTP);
    restored(&tmux, "Stopped");
    tmux.line("fg");
    tmux.wait_for_text("q quit");
    // The program cannot give the terminal back before this one, but it takes all of it again.
    send(pid, libc::SIGSTOP);
    tmux.wait_for_text("Stopped");
    // The terminal is still in raw mode, where Enter ends no line.
    tmux.call(&["send-keys", "-l", "clear; stty sane; fg"]);
    tmux.keys(&["C-j"]);
    let screen = tmux.wait_for("whole screen", |screen| {
        screen.starts_with("thiscpu-top ") && screen.contains("q quit")
    });
    assert!(!screen.contains("Stopped"), "{screen}");
    quit(&tmux);
}

#[test]
fn hangup_ends_program() {
    let place = Place::new();
    drop(place.create("shop"));
    let Some(tmux) = Tmux::start(80, 24) else { return };
    tmux.line(&format!("exec {PROGRAM} {}", place.path("shop").display()));
    tmux.wait_for_text("q quit");
    let pid = tmux.pid();
    drop(tmux);
    ends(pid);
}

/// Starts the program on a terminal that sends it no signal at a hangup.
fn start(place: &Place) -> (fs::File, OwnedFd, Child) {
    let (ours, theirs) = terminal::open(80);
    let mut command = Command::new(PROGRAM);
    command.arg("--interval").arg("0.1").arg(place.path("shop")).env("TERM", "xterm");
    command.stdin(theirs.try_clone().unwrap()).stdout(theirs.try_clone().unwrap());
    (ours, theirs, command.spawn().unwrap())
}

#[test]
fn end_of_keyboard_ends_program() {
    let place = Place::new();
    drop(place.create("shop"));
    let (mut ours, theirs, program) = start(&place);
    std::io::Read::read_exact(&mut ours, &mut [0; 100]).unwrap();
    drop((ours, theirs));
    assert_eq!(signal_of(program), Some(libc::SIGHUP));
}

#[test]
fn signal_ends_program_whose_terminal_takes_nothing() {
    let place = Place::new();
    let requests = place.create("shop").counter("requests").unwrap();
    let (mut ours, theirs, program) = start(&place);
    std::io::Read::read_exact(&mut ours, &mut [0; 100]).unwrap();
    // As Ctrl-S does.
    // SAFETY: the call has no pointers.
    assert_eq!(unsafe { libc::tcflow(theirs.as_raw_fd(), libc::TCOOFF) }, 0);
    for _ in 0..1500 {
        // So the program draws, and waits for the terminal.
        requests.inc();
        // SAFETY: `kill` has no preconditions, and nobody has waited for the program.
        assert_eq!(unsafe { libc::kill(program.id() as i32, libc::SIGWINCH) }, 0);
        // One that the signal thread has not seen would be one with the next.
        thread::sleep(Duration::from_millis(1));
    }
    // SAFETY: `kill` has no preconditions, and nobody has waited for the program.
    assert_eq!(unsafe { libc::kill(program.id() as i32, libc::SIGTERM) }, 0);
    assert_eq!(signal_of(program), Some(libc::SIGTERM));
    drop((ours, theirs));
}

#[test]
fn ctrl_c_ends_program_that_is_stuck() {
    let place = Place::new();
    let requests = place.create("shop").counter("requests").unwrap();
    let Some(tmux) = Tmux::start(80, 24) else { return };
    let pid = start_as_shell(&tmux, &place);
    let name = tmux.call(&["display-message", "-p", "#{pane_tty}"]);
    let mut options = fs::File::options();
    let options = options.write(true).custom_flags(libc::O_NOCTTY);
    let terminal = options.open(name.trim()).unwrap();
    // SAFETY: the call has no pointers.
    assert_eq!(unsafe { libc::tcflow(terminal.as_raw_fd(), libc::TCOOFF) }, 0);
    let begun = Instant::now();
    // The next look, and its draw.
    while begun.elapsed() < Duration::from_secs(2) {
        requests.inc();
        thread::sleep(Duration::from_millis(10));
    }
    tmux.keys(&["C-c"]);
    ends(pid);
}

#[test]
fn missing_terminal_is_an_error() {
    let place = Place::new();
    drop(place.create("shop"));
    let (status, stdout, stderr) =
        crate::fixture::run(Command::new(PROGRAM).arg(place.path("shop")));
    assert_eq!((status, &*stdout), (Some(2), ""));
    assert!(stderr.contains("standard output is no terminal; use --once"), "{stderr}");
}
