//! Starts one engine: reserves its endpoint, has its driver build the command, and hands both to a guardian.

use std::sync::Arc;

use crate::failures::EngineError;
use crate::guardians::{Guard, Guardians, LaunchFacts, Plan, ReplicaLog, ReservedEndpoint};
use crate::launch::{EngineDriver, Launch, Listen, environment};

pub(super) async fn start(
    guardians: &Arc<Guardians>,
    launch: &Launch,
    kept: LaunchFacts,
    driver: &dyn EngineDriver,
    log: &ReplicaLog,
) -> Result<Guard, EngineError> {
    let reserved = match launch.program.listen() {
        Listen::Port => ReservedEndpoint::port()?,
        Listen::At { address, port } => ReservedEndpoint::at(address, port)?,
        Listen::Socket => ReservedEndpoint::socket(&launch.runtime_dir, launch.replica)?,
    };
    let prepared = driver.prepare(launch, &reserved.endpoint)?;
    environment::check(&launch.model_name, &prepared.env)?;
    // Otherwise the system's error would read as if the program were missing.
    if let Some(path) = prepared.working_dir.clone().filter(|path| !path.is_dir()) {
        return Err(EngineError::WorkingDir {
            model: launch.model_name.clone(),
            path,
        });
    }
    let plan = Plan {
        argv: prepared.argv,
        working_dir: prepared.working_dir,
        lifeline: prepared.lifeline,
        ready_path: prepared.ready_path,
        cleanup: prepared
            .cleanup
            .unwrap_or_default()
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        install: prepared.install,
    };
    let environment = |tag: &str| {
        let own = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        environment::complete(own, prepared.env.clone(), &launch.devices, tag)
    };
    let file = log.file().map(ToOwned::to_owned);
    Guard::launch(guardians, launch, kept, &plan, reserved, file, environment).await
}
