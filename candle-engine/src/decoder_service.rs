//! A loaded model that can serve requests.

use crate::adapters::Adapters;
use crate::batch::Batch;
use crate::loading::LoadedModel;
use crate::sleep::Sleeper;
use std::sync::Arc;

/// The state of the text-generating routes; exists once the model is loaded.
pub(crate) struct DecoderService {
    pub model_name: String,
    pub model: Arc<LoadedModel>,
    pub batch: Arc<Batch>,
    pub adapters: Adapters,
    /// Components that free memory while the engine sleeps, in order.
    pub sleepers: Vec<Arc<dyn Sleeper>>,
}
