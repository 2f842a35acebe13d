//! Where the figure of a model's memory comes from (M1).

use std::fmt;

use pool::Bytes;

/// What earlier replicas of the model took, from the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The peak on the device that held most.
    pub bytes_per_device: Bytes,
    /// From launch to ready.
    pub reload_ms: u64,
}

/// Where the figure of a model's memory comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NeedSource {
    /// An administrator's: the model's file, or the reference.
    File,
    Measured,
    Estimate,
    /// Nothing tells before the weights are here, and it is not placed before.
    Unfetched,
    /// It runs in another scheduler's memory, of which the pool sees nothing.
    Unseen,
    /// A rough estimate, with the reason why there is no better one.
    Rough {
        reason: String,
    },
}

impl NeedSource {
    /// The word in answers: `file`, `measured`, `estimate`, `unfetched` or `unseen`.
    pub fn name(&self) -> &'static str {
        match self {
            NeedSource::File => "file",
            NeedSource::Measured => "measured",
            NeedSource::Unfetched => "unfetched",
            NeedSource::Unseen => "unseen",
            NeedSource::Estimate | NeedSource::Rough { .. } => "estimate",
        }
    }

    /// What an administrator should hear about the figure, if anything.
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
