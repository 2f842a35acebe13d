//! Prints the findings of a cluster inspection.

use cluster::Finding;
use config::{ClusterSection, Config};

/// Prints every finding of the inspection and of the pool's state; fails if nodes could not be requested.
pub(super) fn print(
    name: &str,
    (config, section): (&Config, &ClusterSection),
    inspection: impl Future<Output = Vec<Finding>>,
) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start the runtime: {error}"))?;
    let mut problems = 0;
    let all = runtime.block_on(async {
        let mut findings = inspection.await;
        findings.extend(super::cluster_state::inspect(config, section).await);
        findings
    });
    for finding in all {
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
            "1 problem: nodes could not be requested from {name}"
        )),
        many => Err(format!(
            "{many} problems: nodes could not be requested from {name}"
        )),
    }
}
