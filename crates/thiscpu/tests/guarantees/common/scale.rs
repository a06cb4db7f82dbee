//! How much slower than usual this machine is: emulated, or watched over by another program.

use std::sync::OnceLock;

/// What `THISCPU_TEST_SLOWDOWN` says, at least 1: so many times longer everything may take, and so many times
/// less often what is repeated needs to be.
pub(crate) fn factor() -> u32 {
    static FACTOR: OnceLock<u32> = OnceLock::new();
    *FACTOR.get_or_init(|| match std::env::var("THISCPU_TEST_SLOWDOWN") {
        Err(_) => 1,
        Ok(text) => match text.parse() {
            Ok(factor @ 1..) => factor,
            _ => panic!(
                "THISCPU_TEST_SLOWDOWN is how many times slower this machine is; not {text:?}"
            ),
        },
    })
}

/// How often to do what is done `usual` times elsewhere.
pub(crate) fn rounds(usual: u64) -> u64 {
    usual.div_ceil(factor().into())
}
