//! `model-pool check --slurm`: finds out what is missing for the configured Slurm cluster to start nodes.

use cluster::Slurm;
use config::{ClusterKind, Config};

/// Prints every finding; fails if nodes could not be requested.
pub(super) fn run(config: &Config) -> Result<(), String> {
    if config.cluster.kind != ClusterKind::Slurm {
        return Err(
            "cluster.kind is not slurm; write cluster: {kind: slurm, …} into the configuration (docs/guides/slurm.md), then check again".to_owned(),
        );
    }
    super::findings::print(
        "Slurm",
        (config, &config.cluster),
        Slurm::new(&config.cluster).inspect(),
    )
}
