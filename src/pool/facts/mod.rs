//! The facts: the pool with its models, devices and hosts, and the indices derived from them. Makes no choices.

pub(crate) mod agenda;
pub(crate) mod closings;
pub(crate) mod demand_index;
pub(crate) mod device;
pub(crate) mod devices;
pub(crate) mod disks;
pub(crate) mod expected;
pub(crate) mod expected_times;
pub(crate) mod host;
pub(crate) mod key_service;
pub(crate) mod load_estimates;
pub(crate) mod memory;
pub(crate) mod models;
pub(crate) mod moving;
pub(crate) mod node;
pub(crate) mod node_demand;
pub(crate) mod nodes;
pub(crate) mod orders;
pub(crate) mod queues;
pub(crate) mod record;
pub(crate) mod replicas;
pub(crate) mod service;
pub(crate) mod shadow_sample;
pub(crate) mod shadows;
pub(crate) mod sleeper;
pub(crate) mod state;
