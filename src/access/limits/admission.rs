//! An admitted request as the parts of its way share it. Without a limit nothing is counted, and nothing is shared but the estimate.

use std::sync::Arc;

use super::Admitted;

/// Cheap to clone. The request has ended for its limits when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Admission {
    /// `None`: it has no limit.
    counted: Option<Arc<Admitted>>,
    estimate: u64,
}

impl From<Admitted> for Admission {
    fn from(admitted: Admitted) -> Admission {
        Admission {
            estimate: admitted.estimate(),
            counted: (!admitted.buckets.is_empty()).then(|| Arc::new(admitted)),
        }
    }
}

impl Admission {
    /// Whether its tokens count against a limit, so that those of an answer that its client leaves do, too.
    pub fn is_limited_by_tokens(&self) -> bool {
        let counted = self.counted.as_ref();
        counted.is_some_and(|it| it.is_limited_by_tokens())
    }

    /// The tokens expected before it began.
    pub fn estimate(&self) -> u64 {
        self.estimate
    }

    /// Adds tokens that it used, prompt and answer together.
    pub fn took(&self, tokens: u64) {
        if let Some(counted) = &self.counted {
            counted.took(tokens);
        }
    }
}
