//! The source of a model's memory figure (M1).

use std::fmt;

use pool::Bytes;

/// Measurements of earlier replicas, from the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredNeed {
    /// The peak on the device that used most.
    pub bytes_per_device: Bytes,
    /// Time from launch to ready, in milliseconds.
    pub reload_ms: u64,
}

/// The source of a model's memory figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NeedSource {
    /// An administrator: the model's file or the reference.
    File,
    Measured,
    Estimate,
    /// Unknown until the weights have been fetched; the model is not placed before that.
    Unfetched,
    /// It runs in memory managed by another scheduler, invisible to the pool.
    Unseen,
    /// A rough estimate, with the reason for its inaccuracy.
    Rough {
        reason: String,
    },
}

impl NeedSource {
    /// The name in API responses: `file`, `measured`, `estimate`, `unfetched` or `unseen`.
    pub fn name(&self) -> &'static str {
        match self {
            NeedSource::File => "file",
            NeedSource::Measured => "measured",
            NeedSource::Unfetched => "unfetched",
            NeedSource::Unseen => "unseen",
            NeedSource::Estimate | NeedSource::Rough { .. } => "estimate",
        }
    }

    /// A warning about the figure for the administrator, if needed.
    pub fn warning(&self) -> Option<&str> {
        match self {
            NeedSource::Rough { reason } => Some(reason),
            _ => None,
        }
    }
}

impl fmt::Display for NeedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
