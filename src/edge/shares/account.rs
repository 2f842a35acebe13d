//! One caller's amounts and waiting requests in the books of a shared quantity.

use std::collections::BTreeMap;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{CLASSES, Class};
use pool::{Span, Time};

/// Amounts that arrive more slowly than this, in bytes per second, are evicted before larger ones.
const PER_SECOND_MIN: u64 = 16 << 10;

/// A request for an amount.
#[derive(Clone, Copy, Debug)]
pub(super) enum Want {
    Hold {
        class: Class,
        amount: u64,
    },
    Promise {
        number: u64,
        amount: u64,
    },
    Grow {
        number: u64,
        class: Class,
        held: u64,
    },
}

#[derive(Debug, Default)]
pub(super) struct Account {
    pub held: [u64; CLASSES],
    /// Announced but not received yet.
    pub promised: u64,
    /// Number of amounts held or arriving.
    pub count: u32,
    pub arriving: BTreeMap<u64, Arriving>,
    pub waiting: BTreeMap<u64, Waiting>,
}

#[derive(Debug)]
pub(super) struct Arriving {
    pub class: Class,
    pub held: u64,
    pub promised: u64,
    pub begun: Time,
    pub evicted: CancellationToken,
}

impl Arriving {
    pub fn is_slow(&self, now: Time) -> bool {
        let seconds = now.since(self.begun).0 / Span::from_secs(1).0;
        self.held < seconds * PER_SECOND_MIN
    }
}

#[derive(Debug)]
pub(super) struct Waiting {
    pub want: Want,
    pub granted: oneshot::Sender<()>,
}

/// The sum of a class and the classes below it.
pub(super) fn sum(held: &[u64; CLASSES], tier: usize) -> u64 {
    held[..=tier].iter().sum()
}

/// The needs of a request.
pub(super) struct Needs {
    pub class: Class,
    /// Needed from the shared quantity.
    pub memory: u64,
    /// Needed from the caller's share.
    pub share: u64,
    /// Number of the caller's amounts that belong to this request.
    pub itself: u32,
}
