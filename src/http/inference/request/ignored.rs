//! Fields of OpenAI's requests that an engine takes and ignores: they are left out on the way, and a header names them
//! to the client. A field that asks for nothing is not named.

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
/// So many names go into the header; the others are counted.
const NAMED_MAX: usize = 16;
const NAME_BYTES_MAX: usize = 64;

/// Whether the field asks for something.
pub(crate) fn has_effect(name: &str, value: &RawValue) -> bool {
    let letters = value.get().chars().filter(|letter| !letter.is_whitespace());
    let text: String = letters.take(IDLE_LETTERS_MAX).collect();
    match name {
        // Engines that ignore it do as if it were true.
        "parallel_tool_calls" => text == "false",
        "service_tier" => !["null", "\"auto\"", "\"default\""].contains(&text.as_str()),
        "verbosity" => !["null", "\"medium\""].contains(&text.as_str()),
        // Every response has the usage, and a stream that asks for it so.
        "usage" => false,
        _ => !IDLE.contains(&text.as_str()),
    }
}

/// Settings of sampling with the value that changes nothing: programs send all of theirs.
const NEUTRAL: [(&str, f64); 18] = [
    ("best_of", 1.0),
    ("diversity_penalty", 0.0),
    ("frequency_penalty", 0.0),
    ("length_penalty", 1.0),
    ("min_p", 0.0),
    ("min_tokens", 0.0),
    ("n", 1.0),
    ("no_repeat_ngram_size", 0.0),
    ("num_beams", 1.0),
    ("presence_penalty", 0.0),
    ("repeat_penalty", 1.0),
    ("repetition_penalty", 1.0),
    ("temperature", 1.0),
    ("tfs_z", 1.0),
    ("top_k", 0.0),
    ("top_logprobs", 0.0),
    ("top_p", 1.0),
    ("typical_p", 1.0),
];

/// Whether a field that the engine does not know asks for something. A number says nothing neutral of a name that is
/// unknown: it may be a known one with a slip in it.
pub(crate) fn may_have_effect(name: &str, value: &RawValue) -> bool {
    if value.get().len() <= IDLE_LETTERS_MAX
        && let Ok(number) = value.get().trim().parse::<f64>()
    {
        return !NEUTRAL.contains(&(name, number));
    }
    has_effect(name, value)
}

/// The answer, with the names of what had no effect.
pub(crate) fn note(mut response: Response, names: &[String]) -> Response {
    if names.is_empty() {
        return response;
    }
    let is_plain = |name: &&String| {
        name.len() <= NAME_BYTES_MAX && name.bytes().all(|byte| byte.is_ascii_graphic())
    };
    let named: Vec<&str> = names
        .iter()
        .filter(is_plain)
        .take(NAMED_MAX)
        .map(String::as_str)
        .collect();
    let more = names.len() - named.len();
    let mut list = named.join(", ");
    if more > 0 {
        let comma = if list.is_empty() { "" } else { ", " };
        list += &format!("{comma}{more} more");
    }
    if let Ok(value) = HeaderValue::from_str(&list) {
        response.headers_mut().insert(IGNORED, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unknown_asks(name: &str, json: &str) -> bool {
        may_have_effect(name, &RawValue::from_string(json.to_owned()).unwrap())
    }

    #[test]
    fn a_number_under_an_unknown_name_asks_for_something() {
        for name in ["temprature", "no_such_field", "max_tokenz", "seed"] {
            for number in ["0", "1", "1.0", "0.0", "-1", "1e0"] {
                assert!(unknown_asks(name, number), "{name}: {number}");
            }
        }
    }

    #[test]
    fn what_programs_send_without_meaning_anything_asks_for_nothing() {
        for (name, json) in NEUTRAL.map(|(name, number)| (name, number.to_string())) {
            assert!(!unknown_asks(name, &json), "{name}: {json}");
            assert!(
                !unknown_asks(name, &format!("{json}.0")),
                "{name}: {json}.0"
            );
            assert!(unknown_asks(name, "3"), "{name}: 3");
        }
        for nothing in ["null", "false", "[]", "{ }", "\"\""] {
            assert!(!unknown_asks("annotations", nothing), "{nothing}");
        }
    }
}
