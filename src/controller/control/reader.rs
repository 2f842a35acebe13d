//! Weights being read ahead, and weights read recently.

use engine::ReadAhead;
use pool::{ModelId, ReadAheadHistory};

#[derive(Debug, Default)]
pub(crate) struct Reader {
    pub now: Option<(ModelId, ReadAhead)>,
    pub history: ReadAheadHistory,
}
