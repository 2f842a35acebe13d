//! Sources of nodes: one trait over Slurm, PBS, Kubernetes, Ray and a site's own programs. A node lease is a job or a pod of the
//! cluster that runs `model-pool node`. The caller decides what to request, and when.
//!
//! `batch` has the common parts of Slurm and PBS; `end_texts` and `finding` have texts that several kinds of cluster share.

mod any_cluster;
mod backend;
mod batch;
mod command;
mod end_texts;
mod error;
mod finding;
mod follower;
mod kubernetes;
mod lease;
mod node_command;
mod pbs;
mod program;
mod ray;
mod shape;
mod slurm;
mod spending;
#[cfg(test)]
mod stand_ins;

pub use any_cluster::OpenedCluster;
pub use backend::{Cluster, Release, ShapeRoom};
pub use command::CommandCluster;
pub use error::ClusterError;
pub use finding::{Finding, shape_memory};
pub use follower::{ClusterNews, ClusterOrder, Follower, FollowerSettings};
pub use kubernetes::Kubernetes;
pub use lease::{LeaseId, LeaseSet, LeaseState, NodeLease, Outlook, is_node_of};
pub use pbs::Pbs;
pub use ray::Ray;
pub use slurm::Slurm;
pub use spending::{Period, Spending};
