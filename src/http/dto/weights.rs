//! Where a model's weights come from, and how far they are, as answers tell it.

use serde::Serialize;
use utoipa::ToSchema;

use controller::{FetchFacts, ModelFacts, Snapshot};

/// Of a model whose weights the pool fetches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct WeightsView {
    #[schema(example = "the hub's org/model, revision main")]
    pub from: String,
    /// All of it is on this machine.
    pub here: bool,
    /// The download that runs.
    pub fetch: Option<FetchView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct FetchView {
    pub bytes_done: u64,
    /// 0 until it is known.
    pub bytes_total: u64,
    #[schema(maximum = 100)]
    pub percent: Option<u8>,
    /// What it is doing.
    #[schema(example = "fetching")]
    pub words: String,
    /// What is left at the speed so far.
    pub left_ms: Option<u64>,
}

impl WeightsView {
    pub fn of(
        model: &pool::ModelView,
        facts: Option<&ModelFacts>,
        snapshot: &Snapshot,
    ) -> Option<WeightsView> {
        let fetch = facts?.entry.fetch.as_ref()?;
        let running = snapshot.fetches.get(&model.model);
        Some(WeightsView {
            from: fetch.describe(),
            here: !model.absent,
            fetch: running.map(FetchView::of),
        })
    }
}

impl FetchView {
    fn of(running: &FetchFacts) -> FetchView {
        FetchView {
            bytes_done: running.progress.done(),
            bytes_total: running.progress.total(),
            percent: running.progress.percent(),
            words: running.progress.stage(),
            left_ms: running.left.map(|left| left.0),
        }
    }
}
