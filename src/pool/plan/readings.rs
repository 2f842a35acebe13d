//! How soon the devices are read again.

use crate::types::ids::Span;

/// GPUs are shared with processes of others, which come and go.
const SHARED: Span = Span::from_secs(1);
/// The host's budget is the pool's own.
const OWN: Span = Span::from_secs(5);
/// While memory of ended processes has not come back: loads may wait for it (M4).
const SETTLING: Span = Span(100);

/// The pause until the next reading of the devices of one machine. `settles`: memory of ended processes is expected back on
/// one of them. `shared`: other processes use them, too.
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
    fn memory_that_is_awaited_is_looked_for_more_often() {
        for shared in [false, true] {
            assert!(reading_interval(true, shared) < reading_interval(false, shared));
        }
        assert!(reading_interval(false, true) < reading_interval(false, false));
    }
}
