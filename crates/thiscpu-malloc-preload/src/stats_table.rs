//! The table of `--stats`: statistics of each size class, and totals.
//!
//! It is written at the very end of a process, or by `malloc_stats` at any time. So writing it does
//! not allocate, and takes one system call per line.

use core::ffi::{CStr, c_char};
use core::fmt;

use thiscpu::__internal::write_line;
use thiscpu_malloc::{ClassStats, class_stats, is_counting, stats};

unsafe extern "C" {
    static program_invocation_short_name: *const c_char;
}

/// Writes the table to the descriptor `to`.
pub(crate) fn print(to: i32) {
    // SAFETY: getpid has no preconditions. The C library has set the name, which ends with a zero
    // byte.
    let (process, name) =
        unsafe { (libc::getpid(), CStr::from_ptr(program_invocation_short_name)) };
    write_line(
        to,
        format_args!("thiscpu-malloc, process {process} ({}):", name.to_bytes().escape_ascii()),
    );
    print_classes(to);
    write_line(
        to,
        format_args!(
            "(hit rate: allocations and frees that the CPU's lane served; trades: whole sheaves \
             swapped with a barn; slabs: 64 KiB or more each)"
        ),
    );
    print_totals(to);
}

fn print_classes(to: i32) {
    let [size, allocations, frees, hits, trades, slabs, used] =
        ["size", "allocations", "frees", "hit rate", "trades", "slabs", "used bytes"];
    write_line(
        to,
        format_args!(
            "{size:>8} {allocations:>13} {frees:>13} {hits:>8} {trades:>10} {slabs:>7} {used:>13}"
        ),
    );
    for class in class_stats().filter(ClassStats::is_used) {
        let ClassStats { size, allocations, frees, trades, slabs, allocated_bytes, .. } = class;
        let hits = HitRate(&class);
        write_line(
            to,
            format_args!(
                "{size:>8} {allocations:>13} {frees:>13} {hits:>8} {trades:>10} {slabs:>7} \
                 {allocated_bytes:>13}"
            ),
        );
    }
}

fn print_totals(to: i32) {
    let now = stats();
    write_line(to, format_args!("large blocks: {}, {} bytes", now.large_blocks, now.large_bytes));
    if now.guarded_blocks_total > 0 {
        write_line(
            to,
            format_args!(
                "guarded blocks: {} in use, {} so far (not part of the other numbers)",
                now.guarded_blocks, now.guarded_blocks_total
            ),
        );
    }
    let line = |when, used, system| {
        write_line(to, format_args!("{when}: {used} bytes in use, {system} bytes from the system"));
    };
    match is_counting() {
        true => line("at the peaks", now.peak_allocated_bytes, now.peak_system_bytes),
        false => {
            write_line(to, format_args!("calls and peaks: not counted (set THISCPU_MALLOC=stats)"))
        }
    }
    line("at the end", now.allocated_bytes, now.system_bytes);
    write_line(
        to,
        format_args!(
            "memory: {} bytes resident, {} mapped, {} retained, {} purged so far",
            now.resident_bytes, now.mapped_bytes, now.retained_bytes, now.purged_bytes
        ),
    );
    write_line(to, format_args!("remote frees: {} so far", now.remote_frees));
}

/// The share of calls that their CPU's lane served, shown in percent.
struct HitRate<'a>(&'a ClassStats);

impl fmt::Display for HitRate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls = self.0.allocations + self.0.frees;
        match self.0.hits.saturating_mul(1000).checked_div(calls) {
            // The integer part is 4 wide, so that the whole fills the 8 of the column.
            Some(rate) => write!(f, "{:>4}.{} %", rate / 10, rate % 10),
            None => f.pad("-"),
        }
    }
}
