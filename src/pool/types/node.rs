//! The facts about a node. Plain data.

use alloc::string::String;

use crate::types::gang::GangReach;
use crate::types::ids::{DemandId, ShapeId, Span, Time};

/// A node that has joined at least once. The controller's own machine does not join; it is always present.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub name: String,
    pub presence: Presence,
    /// The time since which this is its presence.
    pub since: Time,
    /// The request of the pool that brought it.
    pub demand: Option<DemandId>,
    /// The requested size, if it is known.
    pub shape: Option<ShapeId>,
    /// The lease of several nodes that it belongs to, by its first request. Such nodes end together.
    pub lease: Option<DemandId>,
    /// Unknown, and not used, until the node joins.
    pub reach: GangReach,
}

/// The times of a node's life (N7).
///
/// ```text
///  known ─────────── moves ───────────── closes ───── last ───── cut ── ends
///        as any node │ nothing new is    │ what was   │ always- │ streams
///                    │ placed; what is   │ not moved  │ hot     │ are cut
///                    │ in use moves      │ drains     │ drains  │
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeTime {
    /// The time since which its end is known.
    pub known: Time,
    /// The time at which the cluster ends it.
    pub limit: Option<Time>,
    /// The time by which it will have ended, because it was ordered to, whatever the limit.
    pub leaves: Option<Time>,
    /// The time from which its models move.
    pub moves: Time,
}

/// The time between cutting streams and the end of the node, for engines to stop and reports to arrive.
const CUT_BEFORE: Span = Span::from_secs(15);
/// The shortest time for requests in flight at the end of a node.
const LAST_DRAIN: Span = Span::from_secs(30);
/// Replicas in use stay at least this long, so their successors are on their way first if there is a place for them.
const ONE_MOMENT: Span = Span::from_secs(1);

impl NodeTime {
    pub fn ends(&self) -> Time {
        let all = self.limit.into_iter().chain(self.leaves);
        all.min().unwrap_or(Time(u64::MAX))
    }

    fn length(&self) -> Span {
        self.ends().since(self.known)
    }

    /// The time at which streams still in flight are cut.
    pub fn cut(&self) -> Time {
        let before = CUT_BEFORE.0.min(self.length().0 / 8);
        Time(self.ends().0.saturating_sub(before))
    }

    /// The time requests in flight may take, at most `usual`.
    fn drain(&self, usual: Span) -> Span {
        usual.min(Span(self.length().0 / 4))
    }

    /// The time at which its models start to move if moving takes `takes` in addition to the drain. Never in the first half of the
    /// node's time.
    pub fn moves(&self, takes: Span, usual: Span) -> Time {
        self.moves_before(takes + self.drain(usual) + CUT_BEFORE)
    }

    /// The time at which its models start to move if that is `before` its end. Immediately if it was ordered to leave.
    pub fn moves_before(&self, before: Span) -> Time {
        if self.leaves.is_some() {
            return Time(0);
        }
        let half = self.known + Span(self.length().0 / 2);
        Time(self.ends().0.saturating_sub(before.0)).max(half)
    }

    /// The time from which replicas without a successor drain.
    pub fn closes(&self, usual: Span) -> Time {
        let least = self.moves + ONE_MOMENT;
        match self.leaves {
            Some(_) => least,
            None => Time(self.cut().0.saturating_sub(self.drain(usual).0)).max(least),
        }
    }

    /// The time from which replicas that wait for a successor drain even without it.
    pub fn last(&self, usual: Span) -> Time {
        let drain = self.drain(usual).min(LAST_DRAIN);
        let least = self.moves + ONE_MOMENT;
        Time(self.cut().0.saturating_sub(drain.0)).max(least)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Joined,
    /// The node does not respond. Unknown is not absent: it keeps what it holds (N2).
    Silent,
    /// N3.
    Gone,
}

impl Node {
    pub fn is_joined(&self) -> bool {
        self.presence == Presence::Joined
    }
}

/// The reason why nothing is placed on a serving device for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Away {
    Silent,
    /// The node has engines that the pool has given up; the memory they hold is unknown (N4).
    EndsOthers,
    /// The pool gives the node back (S2, B8).
    Released,
    /// It was requested with others for a replica that spans them, and some of them are still to come (M8).
    Gathers,
    /// The node's time ends soon, and its replicas move (N7).
    Ends,
    /// Its replicas move to a cheaper place (S3).
    Emptied,
}
