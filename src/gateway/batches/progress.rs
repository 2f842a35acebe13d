//! The figures of running batches that their holders see.

use std::collections::BTreeMap;

use super::job::Job;
use crate::inference::understood::real_name;
use crate::open_batches::OpenBatch;
use crate::state::App;
use pool::{ModelId, ModelState};

/// Shows the figures of the running batches.
pub(super) fn show(app: &App, jobs: &BTreeMap<String, Job>) {
    let snapshot = app.handle.snapshot();
    let failing = snapshot.pool.models.iter().filter_map(|view| {
        // Failures are forgotten some time after a load that succeeded.
        let is_failing = view.failures > 0 && !matches!(view.state, ModelState::Ready);
        let reason = view.last_failure.as_ref().filter(|_| is_failing)?;
        Some((view.model, (view.failures, reason.as_str())))
    });
    let failing = failing.collect();
    let without_node = snapshot.pool.models.iter().filter_map(|view| {
        let reason = view.no_batch_node.as_deref()?;
        Some((view.model, reason))
    });
    let without_node = without_node.collect();
    app.batches.with_open(|open| {
        for (id, batch) in open {
            let job = jobs.get(id);
            batch.running.in_flight = job.map_or(0, |job| job.in_flight);
            // The results stay on disk while the files of the batch are closed.
            if let Some(job) = job {
                batch.running.result_bytes = job.result_bytes;
                batch.left = job.models.iter().map(|work| work.left).collect();
            }
            batch.running.load_failure = load_failure(app, batch, &failing);
            batch.running.no_node = no_node(app, batch, &without_node);
        }
    });
}

/// The failure of the first model whose requests wait because it does not load. `failing` has the failures in a row and the last
/// reason of each model.
fn load_failure(
    app: &App,
    batch: &OpenBatch,
    failing: &BTreeMap<ModelId, (u32, &str)>,
) -> Option<String> {
    let (name, (failures, reason)) = first_of(app, batch, failing)?;
    Some(format!(
        "{name} does not load ({failures} failures in a row): {reason}"
    ))
}

/// The reason why no node is requested for the first model whose requests wait for one (B8). `without_node` has the reasons by model.
fn no_node(app: &App, batch: &OpenBatch, without_node: &BTreeMap<ModelId, &str>) -> Option<String> {
    let (name, reason) = first_of(app, batch, without_node)?;
    Some(format!("{name} waits for memory, and {reason}"))
}

/// The entry of the first model that has one, among those with requests that wait, and its name.
fn first_of<T: Copy>(
    app: &App,
    batch: &OpenBatch,
    entries: &BTreeMap<ModelId, T>,
) -> Option<(String, T)> {
    if entries.is_empty() {
        return None;
    }
    let models = batch.record.state.models.iter().zip(&batch.left);
    let mut waiting = models.filter(|(_, left)| **left > 0);
    waiting.find_map(|(model, _)| {
        let name = real_name(app, &model.name).unwrap_or(&model.name);
        let route = app.handle.route(name)?;
        let entry = entries.get(&route.model)?;
        Some((name.to_owned(), *entry))
    })
}
