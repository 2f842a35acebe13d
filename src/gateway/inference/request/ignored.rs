//! Fields of OpenAI's requests that an engine accepts but ignores. They are removed from the request and named to the client in a
//! header, unless their value has no effect anyway.

use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use serde_json::value::RawValue;

/// A header such as `x-model-pool-ignored: store, metadata`.
pub(crate) const IGNORED: HeaderName = HeaderName::from_static("x-model-pool-ignored");

/// Values that request an engine's default behaviour.
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

/// The known values of `service_tier`.
const TIERS: [&str; 5] = [
    "null",
    "\"auto\"",
    "\"default\"",
    "\"flex\"",
    "\"priority\"",
];

/// Longer than any of `IDLE`.
const IDLE_LETTERS_MAX: usize = 16;
/// Number of names in the header; further ones are only counted.
const NAMED_MAX: usize = 16;
const NAME_BYTES_MAX: usize = 64;

/// Returns true if the field requests anything.
pub(crate) fn has_effect(name: &str, value: &RawValue) -> bool {
    let letters = value.get().chars().filter(|letter| !letter.is_whitespace());
    let text: String = letters.take(IDLE_LETTERS_MAX).collect();
    match name {
        // Engines that ignore it behave as if it were true.
        "parallel_tool_calls" => text == "false",
        // The pool serves these classes itself.
        "service_tier" => !TIERS.contains(&text.as_str()),
        "priority" => false,
        "verbosity" => !["null", "\"medium\""].contains(&text.as_str()),
        // Every response has the usage, and so does a stream that requests it.
        "usage" => false,
        _ => !IDLE.contains(&text.as_str()),
    }
}

/// Returns true if the field chooses a class, which only chats and completions have.
pub(crate) fn chooses_class(name: &str, value: &RawValue) -> bool {
    match name {
        "priority" => !["null", "0"].contains(&value.get()),
        "service_tier" => !["null", "\"auto\"", "\"default\""].contains(&value.get()),
        _ => false,
    }
}

/// Sampling parameters with their neutral values, because clients often send all of them.
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

/// Returns true if a field that the engine does not know may request anything. For an unknown name, no number is neutral: it may be
/// a misspelled known field.
pub(crate) fn may_have_effect(name: &str, value: &RawValue) -> bool {
    if value.get().len() <= IDLE_LETTERS_MAX
        && let Ok(number) = value.get().trim().parse::<f64>()
    {
        return !NEUTRAL.contains(&(name, number));
    }
    has_effect(name, value)
}

/// Adds the names of ignored fields to the response.
pub fn note(mut response: Response, names: &[String]) -> Response {
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
    fn a_class_is_chosen_by_all_values_but_the_default() {
        let chooses = |name: &str, json: &str| {
            chooses_class(name, &RawValue::from_string(json.to_owned()).unwrap())
        };
        for (name, json) in [
            ("priority", "1"),
            ("priority", "-1"),
            ("service_tier", "\"flex\""),
        ] {
            assert!(chooses(name, json), "{name}: {json}");
        }
        for (name, json) in [
            ("priority", "0"),
            ("priority", "null"),
            ("service_tier", "\"auto\""),
            ("user", "\"u\""),
        ] {
            assert!(!chooses(name, json), "{name}: {json}");
        }
    }

    #[test]
    fn a_number_in_an_unknown_field_has_an_effect() {
        for name in ["temprature", "no_such_field", "max_tokenz", "seed"] {
            for number in ["0", "1", "1.0", "0.0", "-1", "1e0"] {
                assert!(unknown_asks(name, number), "{name}: {number}");
            }
        }
    }

    #[test]
    fn neutral_values_that_clients_send_by_default_have_no_effect() {
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
