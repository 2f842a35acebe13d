//! The only code that makes choices: it derives the next decision from the facts and changes none of them.

pub(crate) mod cheapest;
pub(crate) mod claim;
pub(crate) mod cleanup;
pub(crate) mod consolidation;
pub(crate) mod demands;
pub(crate) mod explaining;
pub(crate) mod fairness;
pub(crate) mod fetches;
pub(crate) mod free_devices;
pub(crate) mod gang;
pub(crate) mod group;
pub(crate) mod holders;
pub(crate) mod host_room;
pub(crate) mod keep_hot;
pub(crate) mod load_order;
pub(crate) mod load_planning;
pub(crate) mod measurement;
pub(crate) mod moving;
pub(crate) mod next;
pub(crate) mod node_choice;
pub(crate) mod node_demand;
pub(crate) mod node_limits;
pub(crate) mod node_set;
pub(crate) mod obstacles;
pub(crate) mod order_refusals;
pub(crate) mod orders;
pub(crate) mod parking;
pub(crate) mod place;
pub(crate) mod prefetch;
pub(crate) mod readings;
pub(crate) mod requirements;
pub(crate) mod scaling;
pub(crate) mod stall;
pub(crate) mod together;
pub(crate) mod victims;

pub(crate) use next::{due_at, next, wake};
