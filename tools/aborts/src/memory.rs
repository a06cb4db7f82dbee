//! This process's memory, as a file in `/proc`.
//!
//! Code that is mapped for execution only can be written there, and the kernel makes processors
//! execute what was written.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;

use anyhow::{Context as _, Result};

const PATH: &str = "/proc/self/mem";

#[derive(Debug)]
pub(crate) struct Memory(File);

impl Memory {
    pub(crate) fn open() -> Result<Memory> {
        let file = OpenOptions::new().write(true).open(PATH);
        file.map(Memory).with_context(|| format!("breakpoints need {PATH}"))
    }

    /// Writes bytes with one `pwrite`, so it is async-signal-safe.
    pub(crate) fn write(&self, address: usize, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, address as u64)
    }
}
