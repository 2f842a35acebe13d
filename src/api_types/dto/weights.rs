//! Source and download progress of a model's weights.

use serde::Serialize;
use utoipa::ToSchema;

use controller::{FetchFacts, ModelFacts, Snapshot};

/// Weights that the pool downloads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct WeightsView {
    #[schema(example = "the hub's org/model, revision main")]
    pub from: String,
    /// True if all files are on this machine.
    pub here: bool,
    /// The running download.
    pub fetch: Option<FetchView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct FetchView {
    pub bytes_done: u64,
    /// 0 until the size is known.
    pub bytes_total: u64,
    #[schema(maximum = 100)]
    pub percent: Option<u8>,
    /// Current activity.
    #[schema(example = "fetching")]
    pub words: String,
    /// Expected remaining time at the current speed.
    pub left_ms: Option<u64>,
}

impl WeightsView {
    pub fn new(
        model: &pool::ModelView,
        facts: Option<&ModelFacts>,
        snapshot: &Snapshot,
    ) -> Option<WeightsView> {
        let fetch = facts?.entry.fetch.as_ref()?;
        let running = snapshot.fetches.get(&model.model);
        Some(WeightsView {
            from: fetch.describe(),
            here: !model.absent,
            fetch: running.map(FetchView::new),
        })
    }
}

impl FetchView {
    fn new(running: &FetchFacts) -> FetchView {
        FetchView {
            bytes_done: running.progress.done(),
            bytes_total: running.progress.total(),
            percent: running.progress.percent(),
            words: running.progress.stage(),
            left_ms: running.left.map(|left| left.0),
        }
    }
}
