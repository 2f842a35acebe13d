//! Counts the sequences that a request generates, prompts times `n` or `best_of`, and limits them, because a request occupies one
//! seat regardless of their number.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

use api_types::error::Failure;
use dialect::CHAT;
use dialect::body::Fields;

/// Returns the largest number of sequences that the request may generate: `most` if an engine might read another number from it.
///
/// # Errors
/// The request may generate more than `most` sequences.
pub(crate) fn check(fields: &Fields<'_>, path: &str, most: u32) -> Result<u32, Failure> {
    let count = |name: &str| fields.get(name).map_or(1, responses);
    let prompts = match path {
        CHAT => 1,
        _ => fields.get("prompt").map_or(1, prompts),
    };
    let responses = count("n").max(count("best_of"));
    let sequences = prompts.saturating_mul(responses);
    if sequences <= u64::from(most) {
        let is_plain = ["n", "best_of"]
            .into_iter()
            .all(|name| fields.get(name).is_none_or(is_number));
        let sequences = u32::try_from(sequences).unwrap_or(most);
        return Ok(if is_plain { sequences.max(1) } else { most });
    }
    let field = match (prompts > u64::from(most), count("best_of") >= count("n")) {
        (true, _) => "prompt",
        (false, true) => "best_of",
        (false, false) => "n",
    };
    let plural = if prompts == 1 { "" } else { "s" };
    Err(Failure::invalid(
        field.to_owned(),
        format!(
            "{prompts} prompt{plural} with {responses} answers each are {sequences} answers; one request may ask for {most} (server.sequences_max), or fewer if the engine accepts fewer: send several requests"
        ),
    ))
}

fn is_number(value: &RawValue) -> bool {
    value.get() == "null" || serde_json::from_str::<f64>(value.get()).is_ok()
}

/// Counts anything written as a number. The engine refuses everything else.
fn responses(value: &RawValue) -> u64 {
    let number = serde_json::from_str::<f64>(value.get()).unwrap_or(1.0);
    // The cast saturates for floats beyond the range.
    number.ceil().max(1.0) as u64
}

/// The number of prompts. A text, or the token list of a single prompt, counts as one without being parsed.
fn prompts(value: &RawValue) -> u64 {
    let inner = value.get().strip_prefix('[').map(str::trim_ascii_start);
    if inner.is_some_and(|first| first.starts_with(['"', '[', '{'])) {
        serde_json::from_str::<Count>(value.get()).map_or(1, |count| count.0)
    } else {
        1
    }
}

struct Count(u64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Count, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Count;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of prompts")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Count, A::Error> {
                let mut count = 0;
                while list.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(Count(count))
            }
        }
        deserializer.deserialize_seq(List)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dialect::COMPLETIONS;
    use serde_json::{Value, json};

    fn refused(path: &str, body: Value) -> Option<(String, String)> {
        let body = body.to_string();
        let fields = Fields::read(body.as_bytes()).unwrap();
        let failure = check(&fields, path, 256).err()?;
        let error = failure.body.error;
        Some((error.param?, error.message))
    }

    #[test]
    fn the_number_of_sequences_is_prompts_times_the_larger_of_n_and_best_of() {
        for (path, body, responses) in [
            (CHAT, json!({}), 1),
            (CHAT, json!({"n": 3}), 3),
            (CHAT, json!({"n": null, "prompt": ["a", "b"]}), 1),
            (CHAT, json!({"n": "3"}), 256),
            (COMPLETIONS, json!({"prompt": []}), 1),
            (
                COMPLETIONS,
                json!({"prompt": ["a", "b"], "n": 2, "best_of": 4}),
                8,
            ),
        ] {
            let text = body.to_string();
            let fields = Fields::read(text.as_bytes()).unwrap();
            assert_eq!(check(&fields, path, 256).unwrap(), responses, "{text}");
        }
    }

    #[test]
    fn the_number_of_sequences_is_bounded_and_token_ids_are_not_counted_as_prompts() {
        let texts = |count: usize| json!(vec!["a"; count]);
        for body in [
            json!({"prompt": "a", "n": 256}),
            json!({"prompt": texts(64), "best_of": 4, "n": 2}),
            json!({"prompt": texts(256)}),
            json!({"prompt": vec![7; 100_000]}),
            json!({"prompt": vec![vec![7, 8, 9]; 256]}),
            json!({"prompt": [], "n": null, "best_of": "x"}),
            json!({}),
        ] {
            assert_eq!(refused(COMPLETIONS, body), None);
        }
        for (body, field, words) in [
            (
                json!({"prompt": texts(64), "best_of": 20}),
                "best_of",
                "1280 answers",
            ),
            (json!({"prompt": texts(2), "n": 129.0}), "n", "258 answers"),
            (json!({"prompt": texts(257)}), "prompt", "257 prompts"),
            (
                json!({"prompt": vec![[7]; 257]}),
                "prompt",
                "may ask for 256",
            ),
            (
                json!({"prompt": "a", "n": 1e300}),
                "n",
                "server.sequences_max",
            ),
        ] {
            let (param, message) = refused(COMPLETIONS, body).unwrap();
            assert_eq!(param, field, "{message}");
            assert!(message.contains(words), "{message}");
        }
        assert_eq!(refused(CHAT, json!({"n": 8, "prompt": texts(300)})), None);
        assert_eq!(refused(CHAT, json!({"n": 300})).unwrap().0, "n");
    }
}
