//! A fetch of weights that runs.

use crate::types::ids::{Span, Time};
use crate::types::reason::StopReason;

/// A fetch that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fetch {
    pub since: Time,
    /// What was last said of how long it still takes.
    pub left: Option<Span>,
    /// Why it is to end before it is complete.
    pub ends: Option<StopReason>,
    /// Whoever fetches has been told to end.
    pub told: bool,
}
