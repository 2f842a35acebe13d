//! A running fetch of weights.

use crate::types::ids::{Span, Time};
use crate::types::reason::StopReason;

/// A running fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fetch {
    pub since: Time,
    /// Damaged weights are only checked; nothing is downloaded.
    pub only_looks: bool,
    /// The last reported remaining time.
    pub left: Option<Span>,
    /// The reason to end it before it is complete.
    pub ends: Option<StopReason>,
    /// The order to end it has been sent.
    pub cancel_sent: bool,
}
