//! The messages of nodes' connections to the loop.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::node_link::NodeLink;
use config::Provider;
use node_link::{Accepted, NodeDevice, NodeReadings, NodeReport, Refused, RelayForm, Running};
use pool::NodeId;
use store::NodeNumbers;

pub(super) enum NodeMessage {
    Hello(Box<Joining>),
    Running {
        node: NodeId,
        generation: u64,
        running: Vec<Running>,
    },
    Report {
        node: NodeId,
        generation: u64,
        number: u64,
        report: NodeReport,
    },
    Readings {
        node: NodeId,
        generation: u64,
        readings: NodeReadings,
    },
    Disconnected {
        node: NodeId,
        generation: u64,
    },
}

/// A node that has greeted and may join.
pub(super) struct Joining {
    pub name: String,
    pub epoch: u64,
    pub place: String,
    pub version: String,
    pub relay: RelayForm,
    pub provider: Provider,
    pub devices: Vec<NodeDevice>,
    pub demand: Option<u64>,
    pub peer: SocketAddr,
    pub numbers: NodeNumbers,
    pub link: Arc<NodeLink>,
    pub reply: oneshot::Sender<Result<Admitted, Refused>>,
}

/// The loop's answer; the connection adds the credential.
#[derive(Debug)]
pub(super) struct Admitted {
    pub node: NodeId,
    /// Of the connection: an older one says nothing any more.
    pub generation: u64,
    pub accepted: Accepted,
}
