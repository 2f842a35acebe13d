//! The token counts that an engine reports for a request.

use serde::Deserialize;
use serde_json::{Map, Value};

/// Token counts of a response, or of a stream so far.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Usage {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
}

/// More tokens than any context holds, multiplied by the most choices per request.
const TOKENS_MAX: u64 = 1 << 32;

impl Usage {
    /// Reads the counts of a `usage` object. Missing counts are 0.
    #[inline]
    pub fn from_fields(usage: &Map<String, Value>) -> Usage {
        let count = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
        Usage {
            prompt_tokens: count("prompt_tokens"),
            completion_tokens: count("completion_tokens"),
        }
    }

    /// Returns false for counts that no engine can have reached.
    #[inline]
    pub fn is_plausible(self) -> bool {
        self.prompt_tokens <= TOKENS_MAX && self.completion_tokens <= TOKENS_MAX
    }
}

#[inline]
pub fn usage_of(chunk: &Value) -> Option<Usage> {
    Some(Usage::from_fields(chunk.get("usage")?.as_object()?))
}
