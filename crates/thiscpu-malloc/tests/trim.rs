//! The result of `trim`. One test, because it is about the whole process.

use thiscpu_malloc::{allocate, free, stats, trim};

const MEBIBYTE: usize = 1 << 20;

#[test]
fn trim_reports_returned_memory() {
    // With 100 MiB, the frees already purge some pages, before `trim`.
    for bytes in [2 * MEBIBYTE, 100 * MEBIBYTE] {
        let blocks: Vec<_> = (0..bytes / 512).map(|_| allocate(512).unwrap()).collect();
        // SAFETY: the blocks are allocated, and not used any more.
        blocks.into_iter().for_each(|block| unsafe { free(block) });
        assert!(trim(0), "{bytes} bytes were free");
        assert!(stats().system_bytes < MEBIBYTE, "{:?}", stats());
    }
}
