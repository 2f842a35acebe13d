//! Retention of `/v1/responses` responses, which later requests can refer to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::problems::Problem;
use crate::values::{Length, Size};
use pool::{Bytes, Span};

/// Responses that later requests can refer to (`previous_response_id`, `item_reference`), only with the same key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ResponsesSection {
    /// Store responses. If false, stored responses are deleted.
    pub store: bool,
    /// Retention of a conversation after its last response; 1m or more.
    pub keep: Length,
    /// Maximum responses per key, 1 to 100000. Beyond it, the least recently used conversations are deleted.
    pub per_key: u32,
    /// Maximum disk space per key, of responses, conversations and background responses together; 64KiB or more.
    pub per_key_size: Size,
    /// Maximum disk space in total; at least `per_key_size`.
    pub size: Size,
    /// Maximum background responses per key that have not ended, 1 to 10000.
    pub background_per_key: u32,
    /// Time after which a background response fails if its model could not serve it; 1s or more.
    pub background_wait: Length,
    /// Retention of a response whose request omits `store`, in memory only. `0s`: not kept.
    pub unasked: Length,
    /// Memory for such responses, and for responses not yet written to disk; 1MiB or more.
    pub memory: Size,
}

impl Default for ResponsesSection {
    fn default() -> ResponsesSection {
        ResponsesSection {
            store: true,
            keep: Length::from_secs(30 * 24 * 3600),
            per_key: 1000,
            per_key_size: Size(Bytes(64 * Bytes::MIB)),
            size: Size(Bytes(4 * Bytes::GIB)),
            background_per_key: 500,
            background_wait: Length::from_secs(24 * 3600),
            unasked: Length::from_secs(3600),
            memory: Size(Bytes(64 * Bytes::MIB)),
        }
    }
}

const KEEP_MIN: Length = Length(Span::from_secs(60));
const PER_KEY_MAX: u32 = 100_000;
const BACKGROUND_PER_KEY_MAX: u32 = 10_000;
const BACKGROUND_WAIT_MIN: Length = Length(Span::from_secs(1));
const SIZE_MIN: Bytes = Bytes(64 << 10);
const MEMORY_MIN: Bytes = Bytes(Bytes::MIB);

/// All problems of this section.
pub(crate) fn problems(section: &ResponsesSection) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut unless = |holds: bool, key: &str, message: String| {
        if !holds {
            let key = format!("state.responses.{key}");
            problems.push(Problem::new(key, message));
        }
    };
    unless(
        section.keep >= KEEP_MIN,
        "keep",
        format!("is {}; allowed: 1m to 10 years", section.keep),
    );
    unless(
        (1..=PER_KEY_MAX).contains(&section.per_key),
        "per_key",
        format!("is {}; allowed: 1 to {PER_KEY_MAX}", section.per_key),
    );
    unless(
        (1..=BACKGROUND_PER_KEY_MAX).contains(&section.background_per_key),
        "background_per_key",
        format!(
            "is {}; allowed: 1 to {BACKGROUND_PER_KEY_MAX}",
            section.background_per_key
        ),
    );
    unless(
        section.background_wait >= BACKGROUND_WAIT_MIN,
        "background_wait",
        format!("is {}; allowed: 1s and more", section.background_wait),
    );
    unless(
        section.per_key_size.0 >= SIZE_MIN,
        "per_key_size",
        format!("is {}; allowed: 64KiB and more", section.per_key_size),
    );
    unless(
        section.size >= section.per_key_size,
        "size",
        format!(
            "is {}, less than state.responses.per_key_size ({})",
            section.size, section.per_key_size
        ),
    );
    unless(
        section.memory.0 >= MEMORY_MIN,
        "memory",
        format!("is {}; allowed: 1MiB and more", section.memory),
    );
    problems
}
