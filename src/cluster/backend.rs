//! What every kind of cluster can do.

use std::future::Future;

use super::{ClusterError, LeaseId, NodeLease};

/// How a node is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The node gets SIGTERM, lets its requests end, and ends by itself.
    Drain,
    /// The cluster ends the job in its own way.
    Now,
}

/// Software that hands out nodes. An error never means that a job is gone: what is unknown stays as it was.
pub trait Cluster: Send + Sync {
    /// Asks for one node of this shape. `demand`: the number of the pool's request, with which the node joins; `None` for
    /// a person's request. `exclude`: nodes that are not used, in addition to those in the configuration, where the
    /// cluster lets its users choose.
    fn request(
        &self,
        shape: &str,
        demand: Option<u64>,
        exclude: &[String],
    ) -> impl Future<Output = Result<LeaseId, ClusterError>> + Send;

    /// All leases of this pool that the cluster still knows, those that ended lately included. A lease that is missing in
    /// an answer has ended.
    fn status(&self) -> impl Future<Output = Result<Vec<NodeLease>, ClusterError>> + Send;

    /// Gives a node back, or takes a request back that waits. It succeeds if the lease has ended already.
    fn release(
        &self,
        id: &LeaseId,
        how: Release,
    ) -> impl Future<Output = Result<(), ClusterError>> + Send;

    /// The name by which the node of a lease joins, or the beginning of it ([`is_node_of`](super::is_node_of)), where that
    /// is certain before the cluster has listed the lease.
    fn node_of(&self, _: &LeaseId) -> Option<String> {
        None
    }

    /// The last line that the node of a lease has printed, where the cluster shows it.
    fn log_end(&self, id: &LeaseId) -> impl Future<Output = Option<String>> + Send;
}
