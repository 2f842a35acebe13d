//! Turns events into facts. Makes no choices.

pub(crate) mod adopt;
pub(crate) mod demands;
pub(crate) mod devices;
pub(crate) mod events;
pub(crate) mod exits;
pub(crate) mod fetching;
pub(crate) mod gates;
pub(crate) mod load_estimates;
pub(crate) mod node_demand;
pub(crate) mod node_drains;
pub(crate) mod node_times;
pub(crate) mod nodes;
pub(crate) mod order_intake;
pub(crate) mod order_start;
pub(crate) mod pressure;
pub(crate) mod refusals;
pub(crate) mod remembered;
pub(crate) mod scaling;
pub(crate) mod shadow_policies;
pub(crate) mod wishes;
