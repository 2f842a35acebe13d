//! What is known of one node. Plain data.

use alloc::string::String;

use crate::types::ids::{DemandId, ShapeId, Span, Time};

/// A node that has joined at least once. The machine of the controller does not join: it is always there.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub name: String,
    pub presence: Presence,
    /// Since when it has been so.
    pub since: Time,
    /// The request of the pool that brought it.
    pub demand: Option<DemandId>,
    /// The size that was requested, if this controller did.
    pub shape: Option<ShapeId>,
}

/// How long a node is there (N7).
///
/// ```text
///  known ─────────── moves ───────────── closes ───── last ───── cut ── ends
///        as any node │ nothing new is    │ what was   │ always- │ streams
///                    │ placed; what is   │ not moved  │ hot     │ are cut
///                    │ in use moves      │ drains     │ drains  │
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeTime {
    /// Since when its end is known.
    pub known: Time,
    /// The cluster ends it then.
    pub limit: Option<Time>,
    /// It was ordered to end, and will have ended by then, whatever the limit.
    pub leaves: Option<Time>,
    /// From then on its models move.
    pub moves: Time,
}

/// Between the moment when streams are cut and the end of the node, for engines to stop and reports to arrive.
const CUT_BEFORE: Span = Span::from_secs(15);
/// The shortest time for requests in flight at the end of a node.
const LAST_DRAIN: Span = Span::from_secs(30);
/// What is in use stays at least this long, so that its successor is on its way first if there is a place for it.
const ONE_MOMENT: Span = Span::from_secs(1);

impl NodeTime {
    pub fn ends(&self) -> Time {
        let all = self.limit.into_iter().chain(self.leaves);
        all.min().unwrap_or(Time(u64::MAX))
    }

    fn length(&self) -> Span {
        self.ends().since(self.known)
    }

    /// Streams that are still in flight then are cut.
    pub fn cut(&self) -> Time {
        let before = CUT_BEFORE.0.min(self.length().0 / 8);
        Time(self.ends().0.saturating_sub(before))
    }

    /// How long requests in flight may take, of `usual`.
    fn drain(&self, usual: Span) -> Span {
        usual.min(Span(self.length().0 / 4))
    }

    /// When its models are to move if that takes so long without the drain: never in the first half of its time.
    pub fn moves(&self, takes: Span, usual: Span) -> Time {
        self.moves_before(takes + self.drain(usual) + CUT_BEFORE)
    }

    /// The same if that is to begin so long before its end. At once if it leaves.
    pub fn moves_before(&self, before: Span) -> Time {
        if self.leaves.is_some() {
            return Time(0);
        }
        let half = self.known + Span(self.length().0 / 2);
        Time(self.ends().0.saturating_sub(before.0)).max(half)
    }

    /// What has no successor drains from then on.
    pub fn closes(&self, usual: Span) -> Time {
        let least = self.moves + ONE_MOMENT;
        match self.leaves {
            Some(_) => least,
            None => Time(self.cut().0.saturating_sub(self.drain(usual).0)).max(least),
        }
    }

    /// What waits for its successor drains then even without it.
    pub fn last(&self, usual: Span) -> Time {
        let drain = self.drain(usual).min(LAST_DRAIN);
        let least = self.moves + ONE_MOMENT;
        Time(self.cut().0.saturating_sub(drain.0)).max(least)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Joined,
    /// Nothing is heard of it. Unknown is not absent: it keeps what it holds (N2).
    Silent,
    /// N3.
    Gone,
}

impl Node {
    pub fn is_joined(&self) -> bool {
        self.presence == Presence::Joined
    }
}

/// Why nothing is placed on a device for now, although it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Away {
    Silent,
    /// The node has engines that the pool has given up; what they hold is unknown (N4).
    EndsOthers,
    /// The pool gives the node back (S2).
    Released,
    /// Its time ends soon: what it has moves (N7).
    Ends,
}
