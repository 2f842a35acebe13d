//! Which events of an engine's stream its client gets, and what they say of the request's usage and of the engine's end.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::inference::answer::aggregate::{Usage, usage_of};
use crate::inference::answer::events::data_of;
use crate::inference::upstream::in_flight::InFlightRequest;

/// Whether the client gets this event. The usage is always requested from the engine, and shown to clients that
/// requested it.
pub(super) fn keep(
    event: &[u8],
    shows_usage: bool,
    served: &InFlightRequest,
    done: &mut bool,
) -> bool {
    let Some(data) = data_of(event) else {
        return true;
    };
    if data == b"[DONE]" {
        served.lease.token();
        *done = true;
        return true;
    }
    served.token();
    // Cheap enough to look for, and rare enough to parse.
    if !has_usage(data) {
        return true;
    }
    let (usage, only_usage) = match serde_json::from_slice::<Counted>(data) {
        Ok(chunk) => {
            let only_usage = chunk.choices.is_some_and(|choices| choices.is_empty());
            (chunk.usage, only_usage)
        }
        // With numbers that are none.
        Err(_) => match serde_json::from_slice::<serde_json::Value>(data) {
            Ok(chunk) => {
                let choices = chunk.get("choices").and_then(|it| it.as_array());
                (usage_of(&chunk), choices.is_some_and(Vec::is_empty))
            }
            Err(_) => return true,
        },
    };
    let Some(usage) = usage else {
        return true;
    };
    served.tokens(usage);
    shows_usage || !only_usage
}

/// Whether the engine says by this event that it is about to end.
pub(super) fn announces_end(event: &[u8], exit_messages: &[&str]) -> bool {
    // The same words in an answer's text are no error.
    const ERRORS: [&[u8]; 3] = [
        b"{\"error\"",
        b"{\"object\":\"error\"",
        b"{\"object\": \"error\"",
    ];
    if exit_messages.is_empty() {
        return false;
    }
    let data = data_of(event).unwrap_or_default();
    ERRORS.iter().any(|it| data.starts_with(it))
        && exit_messages
            .iter()
            .any(|it| memchr::memmem::find(data, it.as_bytes()).is_some())
}

/// Whether a chunk may say what the request took. Some engines write `"usage":null` into every other one.
fn has_usage(data: &[u8]) -> bool {
    const NAME: &[u8] = b"\"usage\"";
    // Made once: it costs more than to search an event.
    static FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(NAME));
    // Within a text its quotes have backslashes before them.
    FINDER.find_iter(data).any(|at| {
        let rest = data[at + NAME.len()..].trim_ascii_start();
        let value = rest.strip_prefix(b":").map(<[u8]>::trim_ascii_start);
        value.is_none_or(|value| !value.starts_with(b"null"))
    })
}

/// A chunk, as far as it is counted.
#[derive(Deserialize)]
struct Counted {
    usage: Option<Usage>,
    choices: Option<Vec<IgnoredAny>>,
}

#[cfg(test)]
mod tests {
    use super::{announces_end, has_usage};

    #[test]
    fn an_engines_farewell_is_an_error_with_its_words_and_no_text_of_an_answer() {
        let words = ["EngineCore encountered an issue"];
        let farewell = b"data: {\"error\": {\"message\": \"EngineCore encountered an issue. See stack trace\", \"code\": 500}}\n\n";
        assert!(announces_end(farewell, &words));
        assert!(!announces_end(farewell, &[]));
        let other = b"data: {\"error\": {\"message\": \"too long\", \"code\": 400}}\n\n";
        assert!(!announces_end(other, &words));
        let text = b"data: {\"id\":\"1\",\"choices\":[{\"delta\":{\"content\":\"EngineCore encountered an issue\"}}]}\n\n";
        assert!(!announces_end(text, &words));
        assert!(!announces_end(
            b": EngineCore encountered an issue\n\n",
            &words
        ));
    }

    #[test]
    fn only_a_usage_that_says_something_is_worth_reading() {
        for (chunk, so) in [
            (r#"{"choices":[{"delta":{"content":"x"}}]}"#, false),
            (r#"{"choices":[],"usage":null}"#, false),
            (r#"{"choices":[], "usage" : null }"#, false),
            (
                r#"{"choices":[{"text":"\"usage\": 1"}],"usage":null}"#,
                false,
            ),
            (r#"{"choices":[],"usage":{"prompt_tokens":1}}"#, true),
            (r#"{"usage":null,"x":{"usage":{"prompt_tokens":1}}}"#, true),
            (r#"{"text":"usage","x":1}"#, true),
        ] {
            assert_eq!(has_usage(chunk.as_bytes()), so, "{chunk}");
        }
    }
}
