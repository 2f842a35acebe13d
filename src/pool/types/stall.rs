//! The reason why requests for a model still wait, for the message to a request that timed out.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::types::ids::Span;
use crate::types::obstacle::Obstacle;
use crate::types::reason::plural;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StallReason {
    /// Its weights are being fetched.
    Fetching,
    /// A replica is loading; earlier loads took `expected`.
    Loading { since: Span, expected: Span },
    /// Room has been promised to it, but victims have not left yet.
    Leaving { victims: u32 },
    /// Every seat is taken.
    Full { replicas: u32, in_flight: u32 },
    /// No allowed eviction makes enough room.
    NoRoom { obstacles: Vec<Obstacle> },
    /// A node is requested for it (S2).
    Node {
        size: String,
        since: Span,
        reason: String,
    },
    /// Other loads go first.
    Queued,
}

impl fmt::Display for StallReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StallReason::Fetching => write!(f, "its weights are being fetched"),
            StallReason::Loading { since, expected } => {
                write!(
                    f,
                    "it has been loading for {since}; earlier loads took {expected}"
                )
            }
            StallReason::Leaving { victims: 0 } => write!(f, "its load is about to start"),
            StallReason::Leaving { victims } => write!(
                f,
                "{victims} other replica{} must leave for it first",
                plural(*victims)
            ),
            StallReason::Full {
                replicas,
                in_flight,
            } => write!(
                f,
                "all seats of its {replicas} replica{} are taken, by {in_flight} request{}",
                plural(*replicas),
                plural(*in_flight)
            ),
            StallReason::NoRoom { obstacles } => {
                write!(f, "no allowed eviction makes room for it")?;
                for obstacle in obstacles {
                    write!(f, "; {obstacle}")?;
                }
                Ok(())
            }
            StallReason::Node {
                size,
                since,
                reason,
            } => {
                write!(f, "a node of size {size} has been requested for {since}")?;
                if reason.is_empty() {
                    write!(f, ", and the cluster has not reported on it")
                } else {
                    write!(f, ": {reason}")
                }
            }
            StallReason::Queued => write!(f, "other loads went first"),
        }
    }
}
