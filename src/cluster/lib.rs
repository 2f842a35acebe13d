//! Who brings nodes: one trait over Slurm and a site's own programs. A node lease is a job of the cluster in which
//! `model-pool node` runs. What to request, and when, is decided by the caller.

mod backend;
mod command;
mod error;
mod follower;
mod lease;
mod opened;
mod program;
mod shape;
mod slurm;

pub use backend::{Cluster, Release};
pub use command::CommandCluster;
pub use error::ClusterError;
pub use follower::{ClusterNews, ClusterOrder, Follower};
pub use lease::{LeaseId, LeaseState, NodeLease};
pub use opened::OpenedCluster;
pub use slurm::{Finding, Slurm};
