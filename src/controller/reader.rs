//! Which weights are being read ahead, and which were read lately.

use std::collections::BTreeMap;

use engine::ReadAhead;
use pool::{ModelId, Time};

/// What is being read, and what was.
#[derive(Debug, Default)]
pub(super) struct Reader {
    pub now: Option<(ModelId, ReadAhead)>,
    pub read: BTreeMap<ModelId, Time>,
}
