//! Sums of the counts of all models: tokens, and requests by the time to their first token. Pure.

use std::collections::BTreeMap;

use store::PoolMinute;

/// The sums since the start of the service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub prompt: u64,
    pub completion: u64,
    /// Requests by the bucket of the time to their first token.
    pub first_tokens: Vec<u64>,
}

impl Totals {
    /// The difference to an earlier sum.
    pub(crate) fn since(&self, before: &Totals, minute: u64) -> PoolMinute {
        let mut first_tokens = BTreeMap::new();
        for (bucket, count) in self.first_tokens.iter().enumerate() {
            let known = before.first_tokens.get(bucket).copied();
            let more = count.saturating_sub(known.unwrap_or(0));
            if more > 0 {
                first_tokens.insert(bucket, more);
            }
        }
        PoolMinute {
            minute,
            prompt_tokens: self.prompt.saturating_sub(before.prompt),
            completion_tokens: self.completion.saturating_sub(before.completion),
            first_tokens,
            ..PoolMinute::default()
        }
    }
}
