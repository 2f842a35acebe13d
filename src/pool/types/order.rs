//! An administrator's order in progress.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::types::action::{Evicted, Wish};
use crate::types::decision::Plan;
use crate::types::event::{Command, LoadOrder};
use crate::types::ids::{ReplicaId, Time};
use crate::types::model::OverrideChange;
use crate::types::reason::Refusal;
use crate::types::saves::Previous;

#[derive(Clone, Debug)]
pub struct Order {
    pub(crate) command: Command,
    pub(crate) since: Time,
    /// The store holds its wish (D1); before that it has no effect.
    pub(crate) saved: bool,
    /// How many replicas a load is to reach; known once it begins.
    pub(crate) replicas: u32,
    /// A replica of the load has been placed since the order began.
    pub(crate) is_placed: bool,
    /// Replicas that must be gone before it is settled.
    pub(crate) targets: BTreeSet<ReplicaId>,
    /// All targets that it ever had.
    pub(crate) affected: Vec<ReplicaId>,
    pub(crate) evicted: Vec<Evicted>,
    /// What the store was ordered to keep; exactly this takes effect once it is kept.
    pub(crate) wish: Option<Wish>,
    /// Its changes of the model's override.
    pub(crate) change: OverrideChange,
    /// The state before the load took effect, in case it is refused after all.
    pub(crate) previous: Previous,
    /// Why it gets no more than it has.
    pub(crate) shortfall: Option<Refusal>,
    pub(crate) plan: Option<Box<Plan>>,
    /// When the requests of targets that still drain are cut.
    pub(crate) drain_until: Option<Time>,
}

impl Order {
    /// `wall`: the time of the machine's clock, from which a lease counts.
    pub(crate) fn new(command: Command, since: Time, wall: Time) -> Order {
        let change = match &command {
            Command::Load(load) => OverrideChange {
                priority: load.priority.map(Some),
                keep_hot: load.keep_hot.map(Some),
                expires: load.lease.map(|lease| Some(wall + lease)),
            },
            Command::Set { change, .. } => change.clone(),
            _ => OverrideChange::default(),
        };
        Order {
            command,
            since,
            saved: false,
            replicas: 0,
            is_placed: false,
            targets: BTreeSet::new(),
            affected: Vec::new(),
            evicted: Vec::new(),
            wish: None,
            change,
            previous: Previous::default(),
            shortfall: None,
            plan: None,
            drain_until: None,
        }
    }

    pub(crate) fn load(&self) -> Option<&LoadOrder> {
        match &self.command {
            Command::Load(load) if self.saved => Some(load),
            _ => None,
        }
    }
}
