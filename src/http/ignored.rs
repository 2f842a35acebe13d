//! Fields of OpenAI's requests that an engine takes and does nothing with: they are left out on the way, and
//! the client is told which by a header. What asks for nothing is not told.

use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use serde_json::value::RawValue;

/// `x-model-pool-ignored: store, metadata`.
pub(super) const IGNORED: HeaderName = HeaderName::from_static("x-model-pool-ignored");

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

/// Whether the field asks for something.
pub(super) fn asks(name: &str, value: &RawValue) -> bool {
    let text: String = value.get().split_whitespace().collect();
    match name {
        // Engines that ignore it do as if it were true.
        "parallel_tool_calls" => text == "false",
        _ => !IDLE.contains(&text.as_str()),
    }
}

/// The answer, with the names of what had no effect.
pub(super) fn note(mut response: Response, names: &[String]) -> Response {
    // Names come from tables of ours and can stand in a header.
    if let Ok(value) = HeaderValue::from_str(&names.join(", "))
        && !names.is_empty()
    {
        response.headers_mut().insert(IGNORED, value);
    }
    response
}
