//! The types of the core, as plain data: ids, events, actions, decisions, reasons, and the small machines that hold no
//! fact of the pool itself.

pub(crate) mod action;
pub(crate) mod attempts;
pub(crate) mod autoscaling;
pub(crate) mod cause;
pub(crate) mod choice;
pub(crate) mod decision;
pub(crate) mod demand;
pub(crate) mod event;
pub(crate) mod explanation;
pub(crate) mod fetch;
pub(crate) mod ids;
pub(crate) mod keep_alive;
pub(crate) mod lead;
pub(crate) mod link;
pub(crate) mod load_times;
pub(crate) mod market;
pub(crate) mod meaning;
pub(crate) mod model;
pub(crate) mod node;
pub(crate) mod node_demand;
pub(crate) mod obstacle;
pub(crate) mod occupancy;
pub(crate) mod order;
pub(crate) mod queue;
pub(crate) mod rank;
pub(crate) mod reason;
pub(crate) mod refusal_sums;
pub(crate) mod replica;
pub(crate) mod replica_state;
pub(crate) mod requirements;
pub(crate) mod resident_adapters;
pub(crate) mod saves;
pub(crate) mod share;
pub(crate) mod stall;
