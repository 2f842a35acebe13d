//! `model-pool check --kubernetes`: finds out what is missing for pods of the configuration to become nodes.

use cluster::Kubernetes;
use config::{ClusterKind, Config};

/// Prints every finding; fails if nodes could not be requested.
pub(super) fn run(config: &Config) -> Result<(), String> {
    if config.cluster.kind != ClusterKind::Kubernetes {
        return Err(
            "cluster.kind is not kubernetes; write cluster: {kind: kubernetes, …} into the configuration (docs/guides/kubernetes.md), then check again".to_owned(),
        );
    }
    super::findings::print(
        "Kubernetes",
        (config, &config.cluster),
        Kubernetes::new(&config.cluster).inspect(),
    )
}
