//! Turns events into facts. Makes no choices and orders nothing: an event that requires an action calls `commit`.

pub(crate) mod adopt;
pub(crate) mod batches;
pub(crate) mod demands;
pub(crate) mod devices;
pub(crate) mod events;
pub(crate) mod exits;
pub(crate) mod fetching;
pub(crate) mod gates;
pub(crate) mod keys;
pub(crate) mod load_estimates;
pub(crate) mod node_demand;
pub(crate) mod node_drains;
pub(crate) mod node_times;
pub(crate) mod nodes;
pub(crate) mod remembered;
pub(crate) mod room_hours;
pub(crate) mod scaling;
pub(crate) mod shadow_policies;
pub(crate) mod sleep;
