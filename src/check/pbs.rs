//! `model-pool check --pbs`: finds out what is missing for the configured PBS server to start nodes.

use cluster::Pbs;
use config::{ClusterKind, Config};

/// Prints every finding; fails if nodes could not be requested.
pub(super) fn run(config: &Config) -> Result<(), String> {
    if config.cluster.kind != ClusterKind::Pbs {
        return Err(
            "cluster.kind is not pbs; write cluster: {kind: pbs, …} into the configuration (docs/guides/pbs.md), then check again".to_owned(),
        );
    }
    super::findings::print(
        "PBS",
        (config, &config.cluster),
        Pbs::new(&config.cluster).inspect(),
    )
}
