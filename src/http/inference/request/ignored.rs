//! Fields of OpenAI's requests that an engine takes and does nothing with: they are left out on the way, and
//! the client is told which by a header. What asks for nothing is not told.

use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use serde_json::value::RawValue;

/// `x-model-pool-ignored: store, metadata`.
pub(crate) const IGNORED: HeaderName = HeaderName::from_static("x-model-pool-ignored");

/// Values that ask for what an engine does anyway.
const IDLE: [&str; 9] = [
    "null",
    "false",
    "1",
    "0",
    "\"\"",
    "[]",
    "{}",
    "\"auto\"",
    "[\"text\"]",
];

/// More letters than any of these has.
const IDLE_LETTERS_MAX: usize = 16;
/// So many names are told, where they can stand in a header; the others are counted.
const NAMED_MAX: usize = 16;
const NAME_BYTES_MAX: usize = 64;

/// Whether the field asks for something.
pub(crate) fn asks(name: &str, value: &RawValue) -> bool {
    let letters = value.get().chars().filter(|letter| !letter.is_whitespace());
    let text: String = letters.take(IDLE_LETTERS_MAX).collect();
    match name {
        // Engines that ignore it do as if it were true.
        "parallel_tool_calls" => text == "false",
        "service_tier" => !["null", "\"auto\"", "\"default\""].contains(&text.as_str()),
        "verbosity" => !["null", "\"medium\""].contains(&text.as_str()),
        _ => !IDLE.contains(&text.as_str()),
    }
}

/// The answer, with the names of what had no effect.
pub(crate) fn note(mut response: Response, names: &[String]) -> Response {
    let is_plain = |name: &&String| {
        name.len() <= NAME_BYTES_MAX && name.bytes().all(|byte| byte.is_ascii_graphic())
    };
    let told: Vec<&str> = names
        .iter()
        .filter(is_plain)
        .take(NAMED_MAX)
        .map(String::as_str)
        .collect();
    let more = names.len() - told.len();
    let mut words = told.join(", ");
    if more > 0 {
        let comma = if words.is_empty() { "" } else { ", " };
        words += &format!("{comma}{more} more");
    }
    if let Ok(value) = HeaderValue::from_str(&words)
        && !names.is_empty()
    {
        response.headers_mut().insert(IGNORED, value);
    }
    response
}
