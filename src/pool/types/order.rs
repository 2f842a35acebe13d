//! An administrator's order in progress.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::types::action::{Evicted, Wish};
use crate::types::decision::Plan;
use crate::types::event::{Command, LoadOrder};
use crate::types::ids::{Priority, ReplicaId, Time};
use crate::types::model::OverrideChange;
use crate::types::order_effect::OrderEffect;
use crate::types::reason::Refusal;
use crate::types::saves::Previous;

#[derive(Clone, Debug)]
pub struct Order {
    pub(crate) command: Command,
    /// The highest priority of a model that the order may concern; `None` for orders of the pool's administrators.
    pub(crate) priority_max: Option<Priority>,
    /// The effect that its sender has seen. The order is refused if it would have another one.
    pub(crate) planned: Option<OrderEffect>,
    pub(crate) since: Time,
    /// The store holds its wish (D1). The order has no effect before.
    pub(crate) saved: bool,
    /// The target number of replicas of a load; known once it begins.
    pub(crate) replicas: u32,
    /// A replica of the load has been placed since the order began.
    pub(crate) is_placed: bool,
    /// Replicas that must be gone before it is settled.
    pub(crate) targets: BTreeSet<ReplicaId>,
    /// All targets that it has ever had.
    pub(crate) affected: Vec<ReplicaId>,
    pub(crate) evicted: Vec<Evicted>,
    /// The wish that the store was ordered to write. Exactly this takes effect once it is written.
    pub(crate) wish: Option<Wish>,
    /// Its changes of the model's override.
    pub(crate) change: OverrideChange,
    /// The state before the load took effect, in case the load is refused later.
    pub(crate) previous: Previous,
    /// The reason why it gets no further replicas.
    pub(crate) shortfall: Option<Refusal>,
    pub(crate) plan: Option<Box<Plan>>,
    /// The time at which the requests of targets that still drain are cut.
    pub(crate) drain_until: Option<Time>,
}

impl Order {
    /// `wall` is the machine's clock, from which a lease counts.
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
            priority_max: None,
            planned: None,
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

    /// The order of a group's administrator, if there is a limit.
    pub(crate) fn limited(self, priority_max: Option<Priority>) -> Order {
        Order {
            priority_max,
            ..self
        }
    }

    pub(crate) fn load(&self) -> Option<&LoadOrder> {
        match &self.command {
            Command::Load(load) if self.saved => Some(load),
            _ => None,
        }
    }
}
