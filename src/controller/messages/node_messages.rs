//! Messages from nodes' connections to the loop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::node_logs::NodeLogs;
use config::Provider;
use node_link::{
    NodeAcceptance, NodeDevice, NodeReadings, NodeRefusal, NodeRefusalKind, NodeReport, Order,
    RelayForm, RunningEngine,
};
use pool::NodeId;
use store::NodeNumbers;

/// State shared by the loop and a connection.
#[derive(Debug)]
pub(crate) struct NodeLink {
    pub orders: mpsc::UnboundedSender<Order>,
    /// Time of the node's last message.
    pub heard: AtomicU64,
    /// Number of the last report that the loop has taken.
    pub taken: AtomicU64,
    /// The loop has not processed the last reading yet.
    pub reading_waits: AtomicBool,
    pub logs: NodeLogs,
    /// Ends the connection.
    pub closed: CancellationToken,
}

pub(crate) enum NodeMessage {
    Hello(Box<JoiningNode>),
    Running {
        node: NodeId,
        generation: u64,
        running: Vec<RunningEngine>,
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

/// The origin of a node's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePeer {
    pub address: SocketAddr,
    /// The address may be that of a proxy that does not pass the node's address on.
    pub is_hidden: bool,
}

/// A node that has sent its greeting and may join.
pub(crate) struct JoiningNode {
    pub name: String,
    pub epoch: u64,
    pub place: String,
    pub version: String,
    pub relay: RelayForm,
    pub provider: Provider,
    pub devices: Vec<NodeDevice>,
    pub demand: Option<u64>,
    pub runs_members: bool,
    pub process: u64,
    pub peer: NodePeer,
    pub numbers: NodeNumbers,
    pub link: Arc<NodeLink>,
    pub reply: oneshot::Sender<Result<AdmittedNode, NodeRefusal>>,
}

/// The loop's reply to an accepted node. The connection adds the credential.
#[derive(Debug)]
pub(crate) struct AdmittedNode {
    pub node: NodeId,
    /// Number of the connection. Messages of connections with lower numbers are ignored.
    pub generation: u64,
    pub accepted: NodeAcceptance,
}

pub(crate) fn not_now(message: impl Into<String>) -> NodeRefusal {
    NodeRefusal {
        message: message.into(),
        kind: NodeRefusalKind::NotNow,
    }
}

pub(crate) fn never(message: impl Into<String>) -> NodeRefusal {
    NodeRefusal {
        message: message.into(),
        kind: NodeRefusalKind::Never,
    }
}
