//! What has become of an engine of an earlier controller that is no replica now.

use pool::ReplicaId;

/// What happened to an engine or guardian that was not adopted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// From the journal, where it is known.
    pub model: Option<String>,
    pub replica: Option<ReplicaId>,
    pub fate: Fate,
    /// Why, for people.
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Stopped,
    /// It had already ended.
    Ended,
    LeftAlone,
}
