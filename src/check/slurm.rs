//! `model-pool check --slurm`: what is missing before the Slurm cluster of the configuration can bring nodes.

use cluster::{Finding, Slurm};
use config::{ClusterKind, Config};

/// Prints every finding; fails if nodes could not be requested.
pub(super) fn run(config: &Config) -> Result<(), String> {
    if config.cluster.kind != ClusterKind::Slurm {
        return Err(
            "cluster.kind is not slurm; write cluster: {kind: slurm, …} into the configuration (docs/slurm.md), then check again".to_owned(),
        );
    }
    report("Slurm", Slurm::new(&config.cluster).inspect())
}

/// Prints what an inspection of `cluster` has found.
pub(super) fn report(
    cluster: &str,
    inspection: impl Future<Output = Vec<Finding>>,
) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start the runtime: {error}"))?;
    let findings = runtime.block_on(inspection);
    let mut problems = 0;
    for finding in findings {
        match finding {
            Finding::Good(text) => println!("ok: {text}"),
            Finding::Note(text) => println!("note: {text}"),
            Finding::Problem(text) => {
                problems += 1;
                eprintln!("error: {text}");
            }
        }
    }
    match problems {
        0 => Ok(()),
        1 => Err(format!(
            "1 problem: nodes could not be requested from {cluster}"
        )),
        many => Err(format!(
            "{many} problems: nodes could not be requested from {cluster}"
        )),
    }
}
