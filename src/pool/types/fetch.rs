//! A running fetch of weights.

use crate::types::ids::{Span, Time};
use crate::types::reason::StopReason;

/// A running fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fetch {
    pub since: Time,
    /// Damaged weights are looked at; nothing is brought.
    pub only_looks: bool,
    /// The last report of how much longer it takes.
    pub left: Option<Span>,
    /// Why it is to end before it is complete.
    pub ends: Option<StopReason>,
    /// The order to end it has been given.
    pub cancel_sent: bool,
}
