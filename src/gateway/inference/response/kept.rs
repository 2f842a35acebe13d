//! Selects the events of an engine's stream that the client receives, and reads the usage and the engine's exit message from them.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::Value;

use crate::inference::in_flight::InFlightRequest;
use dialect::events::data_of;
use dialect::usage::{Usage, usage_of};

/// The progress of a stream.
#[derive(Debug)]
pub struct Progress {
    /// The number of choices that were requested.
    choices: usize,
    /// The engine has ended the stream.
    pub done: bool,
    /// Choices with a finish reason.
    finished: BTreeSet<u64>,
}

impl Progress {
    pub fn new(choices: usize) -> Progress {
        Progress {
            choices: choices.max(1),
            done: false,
            finished: BTreeSet::new(),
        }
    }

    /// Returns true if all choices are finished.
    pub fn is_finished(&self) -> bool {
        self.finished.len() >= self.choices
    }
}

/// Returns true if the client receives this event. The usage is always requested from the engine but only passed on to clients that
/// requested it.
pub fn keep(
    event: &[u8],
    shows_usage: bool,
    served: &InFlightRequest,
    progress: &mut Progress,
) -> bool {
    let Some(data) = data_of(event) else {
        return true;
    };
    if *data == *b"[DONE]" {
        served.lease.token();
        progress.done = true;
        return true;
    }
    served.token();
    // A search is cheap, and few events match and need to be parsed.
    let has_usage = has_value(&USAGE, &data);
    // Most token events end like this and need no second search.
    let is_token = progress.choices == 1 && data.ends_with(b"\"finish_reason\":null}]}");
    if !has_usage && (is_token || !has_value(&FINISH, &data)) {
        return true;
    }
    let (usage, only_usage) = match serde_json::from_slice::<Counted>(&data) {
        Ok(chunk) => {
            let choices = chunk.choices.as_deref();
            let finished = choices
                .into_iter()
                .flatten()
                .filter(|choice| choice.is_finished());
            progress
                .finished
                .extend(finished.map(|choice| choice.index));
            (chunk.usage, choices.is_some_and(<[_]>::is_empty))
        }
        // The numbers do not have the expected type.
        Err(_) => match serde_json::from_slice::<Value>(&data) {
            Ok(chunk) => {
                let choices = chunk.get("choices").and_then(Value::as_array);
                (usage_of(&chunk), choices.is_some_and(Vec::is_empty))
            }
            Err(_) => return true,
        },
    };
    let Some(usage) = usage.filter(|_| has_usage) else {
        return true;
    };
    served.tokens(usage);
    shows_usage || !only_usage
}

/// Returns true if the event says that the engine is about to exit.
pub(crate) fn announces_end(event: &[u8], exit_messages: &[&str]) -> bool {
    // The exit message may also occur in generated text, which is not an error.
    const ERRORS: [&[u8]; 3] = [
        b"{\"error\"",
        b"{\"object\":\"error\"",
        b"{\"object\": \"error\"",
    ];
    if exit_messages.is_empty() {
        return false;
    }
    let data = data_of(event).unwrap_or_default();
    ERRORS.iter().any(|prefix| data.starts_with(prefix))
        && exit_messages
            .iter()
            .any(|words| memchr::memmem::find(&data, words.as_bytes()).is_some())
}

// Built once, because building a finder costs more than searching an event.
static USAGE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"usage\""));
static FINISH: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"finish_reason\""));

/// Returns true if a chunk may have a non-null value in this field. Some engines send null in all other chunks.
fn has_value(field: &Finder<'static>, data: &[u8]) -> bool {
    // Inside a string, the quotes would be escaped.
    field.find_iter(data).any(|at| {
        let rest = data[at + field.needle().len()..].trim_ascii_start();
        let value = rest.strip_prefix(b":").map(<[u8]>::trim_ascii_start);
        value.is_none_or(|value| !value.starts_with(b"null"))
    })
}

/// The fields of a chunk that are counted.
#[derive(Deserialize)]
struct Counted<'a> {
    usage: Option<Usage>,
    #[serde(borrow)]
    choices: Option<Vec<CountedChoice<'a>>>,
}

#[derive(Deserialize)]
struct CountedChoice<'a> {
    #[serde(default)]
    index: u64,
    #[serde(borrow, default)]
    finish_reason: Option<Cow<'a, str>>,
}

impl CountedChoice<'_> {
    fn is_finished(&self) -> bool {
        self.finish_reason
            .as_ref()
            .is_some_and(|reason| !reason.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::{USAGE, announces_end, has_value};

    #[test]
    fn an_engines_shutdown_message_is_recognized_only_in_an_error_event() {
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
    fn only_a_usage_that_is_not_null_is_parsed() {
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
            assert_eq!(has_value(&USAGE, chunk.as_bytes()), so, "{chunk}");
        }
    }
}
