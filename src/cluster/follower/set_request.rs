//! Requests for sets of nodes, on clusters that have leases of several nodes.

use super::Follower;
use super::messages::ClusterNews;
use super::open_request::Open;
use crate::Cluster;

impl<C: Cluster, N: Fn(ClusterNews)> Follower<C, N> {
    /// Requests one lease for all of `demands`. Returns false if the cluster has no leases of several nodes.
    pub(super) async fn request_set(&mut self, demands: &[u64], shape: &str) -> bool {
        let open = |demand: &u64| Open::of_set(*demand, shape);
        let mut all: Vec<Open> = demands.iter().map(open).collect();
        let Some(leases) = self.left_over.take_set(shape, demands.len()) else {
            return self.submitted_set(all).await;
        };
        for (open, lease) in all.iter_mut().zip(leases) {
            tracing::info!(
                "node {} of lease {}, which exists already, serves the request",
                lease.node,
                lease.id
            );
            open.name_node(lease.node, &self.news);
            open.lease = Some(lease.id);
        }
        self.open.extend(all);
        true
    }

    /// Sends one request for a set. Returns false if the cluster has no leases of several nodes.
    pub(super) async fn submitted_set(&mut self, mut all: Vec<Open>) -> bool {
        let Some(first) = all.first() else {
            return true;
        };
        let (demand, shape) = (first.demand, first.shape.clone());
        let demands: Vec<u64> = all.iter().map(|open| open.demand).collect();
        let hosts = self.hosts_to_avoid();
        let Some(result) = self.cluster.request_set(&shape, &demands, &hosts).await else {
            return false;
        };
        let mut unknown = None;
        let mut lease = None;
        match result {
            Ok(id) => {
                let count = demands.len();
                tracing::info!("lease {id}: {count} nodes of shape {shape} are requested");
                lease = Some(id);
            }
            Err(error) if error.is_unknown() => {
                tracing::warn!(
                    "cannot tell whether the request for {} nodes of shape {shape} was accepted: {error}",
                    demands.len()
                );
                unknown = Some(error.to_string());
            }
            Err(error) => {
                let why = error.to_string();
                (self.news)(ClusterNews::Refused { demand, why });
                return true;
            }
        }
        for open in &mut all {
            open.begin();
            open.lease.clone_from(&lease);
            open.unknown.clone_from(&unknown);
        }
        self.open.extend(all);
        true
    }
}
