//! A loaded model that answers.

use crate::adapters::Adapters;
use crate::batch::Batch;
use crate::loading::LoadedModel;
use crate::sleep::Sleeper;
use std::sync::Arc;

/// What the generating routes need; it exists when the model is loaded.
pub(crate) struct Ready {
    pub model_name: String,
    pub model: Arc<LoadedModel>,
    pub batch: Arc<Batch>,
    pub adapters: Adapters,
    /// What gives memory back while the engine sleeps, in the order of it.
    pub sleepers: Vec<Arc<dyn Sleeper>>,
}
