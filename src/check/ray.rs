//! `model-pool check --ray [ADDRESS]`: finds out what is missing for a Ray cluster to start nodes.

use cluster::Ray;
use config::{ClusterKind, Config, ray_address};

/// Prints every finding; fails if nodes could not be requested. `address` is the address of Ray's dashboard; if empty, the
/// configured one is used.
pub(super) fn run(config: &Config, address: &str) -> Result<(), String> {
    let mut section = config.cluster.clone();
    if !address.is_empty() {
        let address = ray_address(address).map_err(|why| format!("--ray {address} {why}"))?;
        section.kind = ClusterKind::Ray;
        section.ray.address = Some(address);
    }
    if section.kind != ClusterKind::Ray {
        return Err(
            "cluster.kind is not ray; write cluster: {kind: ray, …} into the configuration (docs/guides/ray.md), or pass the address of Ray's dashboard to --ray".to_owned(),
        );
    }
    super::findings::print("Ray", (config, &section), Ray::new(&section).inspect())
}
