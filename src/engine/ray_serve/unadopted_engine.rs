//! The fate of engines of an earlier controller that were not adopted.

use pool::ReplicaId;

/// An engine or guardian that was not adopted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnadoptedEngine {
    /// As recorded in the journal, if known.
    pub model: Option<String>,
    pub replica: Option<ReplicaId>,
    pub fate: Fate,
    /// The reason, as text.
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Stopped,
    /// The engine had already ended.
    Ended,
    LeftAlone,
}
