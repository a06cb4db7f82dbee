//! A terminal whose screen tests can read.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use thiscpu_test_support::{in_ci, slowdown, text};

/// How long a screen may take to show something; most take a second.
const PATIENCE: Duration = Duration::from_secs(30);

/// A terminal with a shell, which is ended when this is dropped.
pub(crate) struct Tmux {
    directory: TempDir,
}

impl Tmux {
    /// Starts a shell on a terminal; `None` if tmux is missing, which is an error in CI.
    pub(crate) fn start(columns: u16, rows: u16) -> Option<Tmux> {
        let mut version = Command::new("tmux");
        version.arg("-V").stdout(Stdio::null());
        if !version.status().is_ok_and(|status| status.success()) {
            assert!(!in_ci(), "tmux is missing; run `apt-get install tmux`");
            eprintln!("skipped: tmux is missing; run `apt-get install tmux`");
            return None;
        }
        let tmux = Tmux { directory: tempfile::tempdir().unwrap() };
        let [columns, rows] = [columns, rows].map(|number| number.to_string());
        let shell = "env -u NO_COLOR -u ENV PS1=@ sh";
        tmux.call(&["new-session", "-d", "-x", &columns, "-y", &rows, shell]);
        tmux.wait_for("a prompt", |screen| screen.starts_with('@'));
        Some(tmux)
    }

    /// Runs a command of tmux.
    pub(crate) fn call(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.args(["-u", "-f", "/dev/null", "-S"]).arg(self.directory.path().join("socket"));
        let output = command.args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Types a line.
    pub(crate) fn line(&self, line: &str) {
        self.call(&["send-keys", "-l", line]);
        self.keys(&["Enter"]);
    }

    /// Types keys, which have tmux's names.
    pub(crate) fn keys(&self, keys: &[&str]) {
        self.call(&[&["send-keys"], keys].concat());
    }

    /// Returns the text on the screen.
    pub(crate) fn screen(&self) -> String {
        self.call(&["capture-pane", "-p"])
    }

    /// Returns the text on the screen with the sequences for colors and the like.
    pub(crate) fn screen_with_styles(&self) -> String {
        self.call(&["capture-pane", "-p", "-e"])
    }

    /// Waits until the screen is as wanted, and returns it.
    #[track_caller]
    pub(crate) fn wait_for(&self, what: &str, is_wanted: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.screen();
            if is_wanted(&screen) {
                return screen;
            }
            let patience = PATIENCE * slowdown();
            assert!(begun.elapsed() < patience, "no {what}:\n{}", self.screen_with_styles());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the screen has a text.
    #[track_caller]
    pub(crate) fn wait_for_text(&self, wanted: &str) -> String {
        self.wait_for(wanted, |screen| screen.contains(wanted))
    }

    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        let [columns, rows] = [columns, rows].map(|number| number.to_string());
        self.call(&["resize-window", "-x", &columns, "-y", &rows]);
    }

    /// Returns the ID of the process that the shell has become.
    pub(crate) fn pid(&self) -> i32 {
        self.call(&["display-message", "-p", "#{pane_pid}"]).trim().parse().unwrap()
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.directory.path().join("socket")).arg("kill-server");
        let _ = command.stderr(Stdio::null()).status();
    }
}
