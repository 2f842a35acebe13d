//! `model-pool check --pbs`: what is missing before the PBS server of the configuration can bring nodes.

use cluster::Pbs;
use config::{ClusterKind, Config};

/// Prints every finding; fails if nodes could not be requested.
pub(super) fn run(config: &Config) -> Result<(), String> {
    if config.cluster.kind != ClusterKind::Pbs {
        return Err(
            "cluster.kind is not pbs; write cluster: {kind: pbs, …} into the configuration (docs/pbs.md), then check again".to_owned(),
        );
    }
    super::findings::print("PBS", Pbs::new(&config.cluster).inspect())
}
