//! The configured cluster, of any kind.

use std::collections::BTreeMap;

use config::{ClusterKind, ClusterSection};

use super::{
    Cluster, ClusterError, CommandCluster, Kubernetes, LeaseId, NodeLease, Pbs, Ray, Release,
    ShapeRoom, Slurm,
};

pub enum OpenedCluster {
    Slurm(Slurm),
    Pbs(Pbs),
    Kubernetes(Box<Kubernetes>),
    Ray(Ray),
    Command(CommandCluster),
}

impl OpenedCluster {
    /// Returns `None` if the configuration has no cluster. Makes no calls.
    pub fn open(section: &ClusterSection) -> Option<OpenedCluster> {
        match section.kind {
            ClusterKind::None => None,
            ClusterKind::Slurm => Some(OpenedCluster::Slurm(Slurm::new(section))),
            ClusterKind::Pbs => Some(OpenedCluster::Pbs(Pbs::new(section))),
            ClusterKind::Kubernetes => {
                let cluster = Box::new(Kubernetes::new(section));
                Some(OpenedCluster::Kubernetes(cluster))
            }
            ClusterKind::Ray => Some(OpenedCluster::Ray(Ray::new(section))),
            ClusterKind::Command => Some(OpenedCluster::Command(CommandCluster::new(section))),
        }
    }
}

impl OpenedCluster {
    /// Marks later requests with the id of this pool. Kubernetes does not store it.
    #[must_use]
    pub fn owned_by(mut self, owner: String) -> OpenedCluster {
        let place = match &mut self {
            OpenedCluster::Slurm(cluster) => &mut cluster.owner,
            OpenedCluster::Pbs(cluster) => &mut cluster.owner,
            OpenedCluster::Ray(cluster) => &mut cluster.owner,
            OpenedCluster::Command(cluster) => &mut cluster.owner,
            OpenedCluster::Kubernetes(_) => return self,
        };
        *place = Some(owner);
        self
    }
}

impl Cluster for OpenedCluster {
    async fn request(
        &self,
        shape: &str,
        demand: Option<u64>,
        exclude: &[String],
    ) -> Result<LeaseId, ClusterError> {
        match self {
            OpenedCluster::Slurm(cluster) => cluster.request(shape, demand, exclude).await,
            OpenedCluster::Pbs(cluster) => cluster.request(shape, demand, exclude).await,
            OpenedCluster::Kubernetes(cluster) => cluster.request(shape, demand, exclude).await,
            OpenedCluster::Ray(cluster) => cluster.request(shape, demand, exclude).await,
            OpenedCluster::Command(cluster) => cluster.request(shape, demand, exclude).await,
        }
    }

    async fn request_set(
        &self,
        shape: &str,
        demands: &[u64],
        exclude: &[String],
    ) -> Option<Result<LeaseId, ClusterError>> {
        match self {
            OpenedCluster::Slurm(cluster) => cluster.request_set(shape, demands, exclude).await,
            OpenedCluster::Pbs(cluster) => cluster.request_set(shape, demands, exclude).await,
            OpenedCluster::Kubernetes(cluster) => {
                cluster.request_set(shape, demands, exclude).await
            }
            OpenedCluster::Ray(cluster) => cluster.request_set(shape, demands, exclude).await,
            OpenedCluster::Command(cluster) => cluster.request_set(shape, demands, exclude).await,
        }
    }

    async fn status(&self) -> Result<Vec<NodeLease>, ClusterError> {
        match self {
            OpenedCluster::Slurm(cluster) => cluster.status().await,
            OpenedCluster::Pbs(cluster) => cluster.status().await,
            OpenedCluster::Kubernetes(cluster) => cluster.status().await,
            OpenedCluster::Ray(cluster) => cluster.status().await,
            OpenedCluster::Command(cluster) => cluster.status().await,
        }
    }

    async fn release(&self, id: &LeaseId, how: Release) -> Result<(), ClusterError> {
        match self {
            OpenedCluster::Slurm(cluster) => cluster.release(id, how).await,
            OpenedCluster::Pbs(cluster) => cluster.release(id, how).await,
            OpenedCluster::Kubernetes(cluster) => cluster.release(id, how).await,
            OpenedCluster::Ray(cluster) => cluster.release(id, how).await,
            OpenedCluster::Command(cluster) => cluster.release(id, how).await,
        }
    }

    fn node_of(&self, id: &LeaseId) -> Option<String> {
        match self {
            OpenedCluster::Slurm(cluster) => cluster.node_of(id),
            OpenedCluster::Pbs(cluster) => cluster.node_of(id),
            OpenedCluster::Kubernetes(cluster) => cluster.node_of(id),
            OpenedCluster::Ray(cluster) => cluster.node_of(id),
            OpenedCluster::Command(cluster) => cluster.node_of(id),
        }
    }

    fn names_node(&self, node: &str) -> bool {
        match self {
            OpenedCluster::Slurm(cluster) => cluster.names_node(node),
            OpenedCluster::Pbs(cluster) => cluster.names_node(node),
            OpenedCluster::Kubernetes(cluster) => cluster.names_node(node),
            OpenedCluster::Ray(cluster) => cluster.names_node(node),
            OpenedCluster::Command(cluster) => cluster.names_node(node),
        }
    }

    fn shows_room(&self) -> bool {
        match self {
            OpenedCluster::Ray(cluster) => cluster.shows_room(),
            OpenedCluster::Slurm(_)
            | OpenedCluster::Pbs(_)
            | OpenedCluster::Kubernetes(_)
            | OpenedCluster::Command(_) => false,
        }
    }

    async fn closed(&self) -> Result<BTreeMap<String, ShapeRoom>, ClusterError> {
        match self {
            OpenedCluster::Ray(cluster) => cluster.closed().await,
            OpenedCluster::Slurm(_)
            | OpenedCluster::Pbs(_)
            | OpenedCluster::Kubernetes(_)
            | OpenedCluster::Command(_) => Ok(BTreeMap::new()),
        }
    }

    async fn log_end(&self, id: &LeaseId) -> Option<String> {
        match self {
            OpenedCluster::Slurm(cluster) => cluster.log_end(id).await,
            OpenedCluster::Pbs(cluster) => cluster.log_end(id).await,
            OpenedCluster::Kubernetes(cluster) => cluster.log_end(id).await,
            OpenedCluster::Ray(cluster) => cluster.log_end(id).await,
            OpenedCluster::Command(cluster) => cluster.log_end(id).await,
        }
    }
}
