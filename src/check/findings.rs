//! Prints the findings of a cluster inspection.

use cluster::Finding;

/// Prints every finding; fails if nodes could not be requested.
pub(super) fn print(
    name: &str,
    inspection: impl Future<Output = Vec<Finding>>,
) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start the runtime: {error}"))?;
    let mut problems = 0;
    for finding in runtime.block_on(inspection) {
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
