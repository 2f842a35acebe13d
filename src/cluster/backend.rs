//! The interface that every kind of cluster implements.

use std::collections::BTreeMap;
use std::future::Future;

use super::{ClusterError, LeaseId, NodeLease};

/// The way to give back a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// Sends SIGTERM to the node, which finishes its requests and exits on its own.
    Drain,
    /// Lets the cluster end the job its own way.
    Now,
}

/// The room of a cluster that cannot grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeRoom {
    /// The number of further nodes of the shape that the cluster can bring.
    pub nodes: u32,
    /// The reason why it can bring no more.
    pub why: String,
}

/// Software that provides nodes. An error never means that a job is gone: unknown leases stay as they were.
pub trait Cluster: Send + Sync {
    /// Requests one node of this shape. `demand` is the number of the pool's request, with which the node joins; `None` for a
    /// person's request. `exclude` lists nodes to avoid in addition to the configured ones, on clusters that support it.
    fn request(
        &self,
        shape: &str,
        demand: Option<u64>,
        exclude: &[String],
    ) -> impl Future<Output = Result<LeaseId, ClusterError>> + Send;

    /// Requests one lease of several nodes of this shape, one for each of `demands`, which are consecutive. All of its nodes start,
    /// or none. `None` if the cluster has no such leases: the nodes are then requested one after another.
    fn request_set(
        &self,
        _shape: &str,
        _demands: &[u64],
        _exclude: &[String],
    ) -> impl Future<Output = Option<Result<LeaseId, ClusterError>>> + Send {
        async { None }
    }

    /// All leases of this pool that the cluster still lists, including recently ended ones. A lease missing from the list has
    /// ended.
    fn status(&self) -> impl Future<Output = Result<Vec<NodeLease>, ClusterError>> + Send;

    /// Gives back all nodes of a lease, or withdraws a pending request. Succeeds if the lease has already ended.
    fn release(
        &self,
        id: &LeaseId,
        how: Release,
    ) -> impl Future<Output = Result<(), ClusterError>> + Send;

    /// The name with which the node of a lease joins, or its prefix ([`is_node_of`](super::is_node_of)), if it is known before the
    /// cluster lists the lease.
    fn node_of(&self, _: &LeaseId) -> Option<String> {
        None
    }

    /// Returns true if only nodes of this cluster have names like this one. If such a node's lease is not listed, it has ended.
    fn names_node(&self, _: &str) -> bool {
        false
    }

    /// Returns true if [`closed`](Cluster::closed) reports shapes. It is then polled without an open request.
    fn shows_room(&self) -> bool {
        false
    }

    /// The shapes of which the cluster can bring only a limited number of nodes at present. Empty on clusters that have queues.
    fn closed(
        &self,
    ) -> impl Future<Output = Result<BTreeMap<String, ShapeRoom>, ClusterError>> + Send {
        async { Ok(BTreeMap::new()) }
    }

    /// The last line of output of the lease's node, if the cluster shows it.
    fn log_end(&self, id: &LeaseId) -> impl Future<Output = Option<String>> + Send;
}
