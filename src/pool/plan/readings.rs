//! The interval between readings of the devices.

use crate::types::ids::Span;

/// GPUs are shared with other processes, which come and go.
const SHARED: Span = Span::from_secs(1);
/// The host's budget belongs to the pool alone.
const OWN: Span = Span::from_secs(5);
/// Used while memory of ended processes has not come back, because loads may wait for it (M4).
const SETTLING: Span = Span(100);

/// The pause until the next reading of the devices of one machine. `settles`: a device still waits for memory of ended processes.
/// `shared`: other processes use the devices too.
pub fn reading_interval(settles: bool, shared: bool) -> Span {
    match (settles, shared) {
        (true, _) => SETTLING,
        (false, true) => SHARED,
        (false, false) => OWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_are_more_frequent_while_memory_is_awaited() {
        for shared in [false, true] {
            assert!(reading_interval(true, shared) < reading_interval(false, shared));
        }
        assert!(reading_interval(false, true) < reading_interval(false, false));
    }
}
