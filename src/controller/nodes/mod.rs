//! Nodes: their admission and connections, their engines and weights, and the cluster that provides them.

pub(crate) mod admission;
mod cluster;
mod engines;
mod gangs;
mod greeting;
mod link;
mod peers;
mod presence;
mod reports;

pub(crate) use link::{LinkEnd, NodeConnections};
