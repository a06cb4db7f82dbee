//! The processes that have a file mapped, as far as `/proc` tells.

use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;

use thiscpu_program::find;

/// Processes that have a file mapped, besides this one.
#[derive(Debug, Default)]
pub(super) struct Users {
    pub(super) processes: Vec<u32>,
    /// The number of processes that this user may not look into.
    pub(super) unknown: usize,
}

impl Users {
    /// Finds the processes; `None` without `/proc`.
    pub(super) fn of(file: &Metadata) -> Option<Users> {
        let device = find::device_of(file);
        let mut users = Users::default();
        for entry in fs::read_dir("/proc").ok()?.flatten() {
            let Some(process) = entry.file_name().to_str().and_then(|it| it.parse().ok()) else {
                continue;
            };
            match fs::read(entry.path().join("maps")) {
                Ok(_) if process == std::process::id() => {}
                Ok(maps) if has_file(&String::from_utf8_lossy(&maps), &device, file.ino()) => {
                    users.processes.push(process);
                }
                Err(error) if error.kind() == ErrorKind::PermissionDenied => users.unknown += 1,
                // It uses other files, or has ended.
                _ => {}
            }
        }
        users.processes.sort_unstable();
        Some(users)
    }

    /// Returns how many processes have the file mapped, and which ones.
    pub(super) fn describe(users: Option<&Users>) -> String {
        let Some(Users { processes, unknown }) = users else {
            return "unknown: no /proc".to_owned();
        };
        let mut text = processes.len().to_string();
        if !processes.is_empty() {
            let numbers: Vec<_> = processes.iter().map(u32::to_string).collect();
            text += &format!(" ({})", numbers.join(", "));
        }
        if *unknown > 0 {
            let processes = super::counted(*unknown, "process is", "processes are");
            // The owner of the directory is the user of this process.
            let is_root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
            let advice = if is_root { "" } else { " (run as root to see them)" };
            text += &format!("; {processes} hidden in /proc and may use it too{advice}");
        }
        text
    }
}

/// Returns whether one of the lines of `/proc/PID/maps` is about a file.
fn has_file(maps: &str, device: &str, inode: u64) -> bool {
    find::mapped_files(maps).any(|file| file.device == device && file.inode == inode)
}
