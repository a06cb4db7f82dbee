//! What trim says. One test, because it is about the whole process.

use thiscpu_malloc::{allocate, free, stats, trim};

const MEBIBYTE: usize = 1 << 20;

/// Also where there is so much that pages are dropped before anybody asks for it.
#[test]
fn trim_reports_returned_memory() {
    for bytes in [2 * MEBIBYTE, 100 * MEBIBYTE] {
        let blocks: Vec<_> = (0..bytes / 512).map(|_| allocate(512).unwrap()).collect();
        // SAFETY: nobody uses them.
        blocks.into_iter().for_each(|block| unsafe { free(block) });
        assert!(trim(0), "{bytes} bytes were free");
        assert!(stats().system_bytes < MEBIBYTE, "{:?}", stats());
    }
}
