//! Recognizes an engine's error about a prompt that is too long, and translates it into the message and code that clients know.
//! Clients then shorten the conversation instead of giving up. Other errors are not changed.

use axum::http::StatusCode;
use serde_json::{Value, json};

pub const CODE: &str = "context_length_exceeded";

/// The lengths reported by the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow {
    /// The model's context length.
    pub limit: u64,
    pub prompt: Option<u64>,
    /// The requested response length, if the prompt alone would fit.
    pub response: Option<u64>,
}

impl Overflow {
    /// Reads the engine's error. `None` if it has another cause.
    pub fn from_error(error: &Value) -> Option<Overflow> {
        let message = error.get("message").and_then(Value::as_str)?;
        let message = message.to_lowercase();
        let number = |name: &str| error.get(name).and_then(Value::as_u64);
        // llama-server sends the numbers in separate fields.
        if let (Some(limit), Some(prompt)) = (number("n_ctx"), number("n_prompt_tokens")) {
            return Some(Overflow {
                limit,
                prompt: Some(prompt),
                response: None,
            });
        }
        let limit = LIMITS.iter().find_map(|pattern| after(&message, pattern))?;
        let response = ANSWERS.iter().find_map(|pattern| around(&message, pattern));
        let prompt = PROMPTS.iter().find_map(|pattern| around(&message, pattern));
        Some(Overflow {
            limit,
            prompt,
            // A prompt that is too long alone cannot be fixed by a shorter response.
            response: response.filter(|_| prompt.is_none_or(|prompt| prompt < limit)),
        })
    }

    /// The message in OpenAI's words.
    pub fn message(&self) -> String {
        let Overflow {
            limit,
            prompt,
            response,
        } = *self;
        let limit = format!("this model's maximum context length is {limit} tokens");
        match (prompt, response) {
            (Some(prompt), Some(response)) => format!(
                "{limit}, and the prompt has {prompt} tokens beside {response} for the answer: shorten the prompt, or allow a shorter answer"
            ),
            (Some(prompt), None) => {
                format!("{limit}, and the prompt has {prompt} tokens: shorten the prompt")
            }
            (None, _) => format!("{limit}, and the prompt has more: shorten the prompt"),
        }
    }

    /// The message in Anthropic's words. Its clients derive from it what to shorten, and by how much.
    pub(crate) fn message_of_anthropic(&self) -> String {
        let Overflow {
            limit,
            prompt,
            response,
        } = *self;
        match (prompt, response) {
            (Some(prompt), Some(response)) => format!(
                "input length and `max_tokens` exceed context limit: {prompt} + {response} > {limit}, decrease input length or `max_tokens` and try again"
            ),
            (Some(prompt), None) => {
                format!("prompt is too long: {prompt} tokens > {limit} maximum")
            }
            (None, _) => format!(
                "prompt is too long: at least {} tokens > {limit} maximum",
                limit.saturating_add(1)
            ),
        }
    }
}

/// The error in the form that clients know; `None` for any other error.
pub fn retold(error: &Value) -> Option<Value> {
    // Errors of the pool and of the embedded engine have this form already.
    let is_translated = error.get("code").is_some_and(|code| code == CODE);
    let overflow = Overflow::from_error(error).filter(|_| !is_translated)?;
    Some(json!({
        "message": overflow.message(), "type": "invalid_request_error", "param": "messages", "code": CODE,
    }))
}

/// The status for an error in a stream, had it been reported before the stream began.
pub fn status_of(error: &Value) -> StatusCode {
    let engines = StatusCode::BAD_GATEWAY;
    let number = error.get("code").and_then(Value::as_u64);
    let number = number.and_then(|code| u16::try_from(code).ok());
    if let Some(status) = number.and_then(|code| StatusCode::from_u16(code).ok())
        && (status.is_client_error() || status.is_server_error())
    {
        return match status {
            // The key sent to the engine is the pool's, not the client's.
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => engines,
            status => status,
        };
    }
    let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
    match (text("type"), text("code")) {
        (_, CODE) => StatusCode::BAD_REQUEST,
        ("rate_limit_error" | "RateLimitError", _) => StatusCode::TOO_MANY_REQUESTS,
        ("not_found_error" | "NotFoundError", _) => StatusCode::NOT_FOUND,
        (
            "invalid_request_error"
            | "BadRequestError"
            | "UnprocessableEntityError"
            | "exceed_context_size_error"
            | "validation",
            _,
        ) => StatusCode::BAD_REQUEST,
        _ => engines,
    }
}

/// Lower-case texts before the context length.
const LIMITS: [&str; 7] = [
    "maximum context length is ",
    "maximum context length of ",
    "model's context length (",
    "available context size (",
    "`inputs` tokens + `max_new_tokens` must be <= ",
    "`inputs` must have less than ",
    "max_seq_len (",
];

/// Texts around the prompt's length, which `#` stands for.
const PROMPTS: [&str; 10] = [
    "has # input tokens",
    "(# in the messages",
    "messages resulted in # tokens",
    "the prompt has # tokens",
    "given: # `inputs` tokens",
    "the input (# tokens)",
    "request (# tokens)",
    "prompt contains at least # input tokens",
    "prompt contains # input tokens",
    "given: #",
];

/// Texts around the response length.
const ANSWERS: [&str; 4] = [
    "is too large: #",
    ", # in the completion",
    "and # `max_new_tokens`",
    "beside # for the answer",
];

fn after(message: &str, pattern: &str) -> Option<u64> {
    let place = message.find(pattern)? + pattern.len();
    leading(&message[place..])
}

/// Finds the number at the `#` of `pattern` in the message.
fn around(message: &str, pattern: &str) -> Option<u64> {
    let (before, behind) = pattern.split_once('#')?;
    message.match_indices(before).find_map(|(place, _)| {
        let rest = &message[place + before.len()..];
        let digits = rest.len()
            - rest
                .trim_start_matches(|digit: char| digit.is_ascii_digit())
                .len();
        let number = leading(rest)?;
        rest[digits..].starts_with(behind).then_some(number)
    })
}

fn leading(text: &str) -> Option<u64> {
    let end = text.find(|letter: char| !letter.is_ascii_digit());
    text[..end.unwrap_or(text.len())].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overflow(limit: u64, prompt: Option<u64>, response: Option<u64>) -> Option<Overflow> {
        Some(Overflow {
            limit,
            prompt,
            response,
        })
    }

    #[test]
    fn context_overflow_is_recognized_in_the_messages_of_each_engine() {
        for (message, wanted) in [
            (
                "This model's maximum context length is 4096 tokens. However, you requested 5100 tokens (5000 in the messages, 100 in the completion). Please reduce the length of the messages or completion.",
                overflow(4096, Some(5000), None),
            ),
            (
                "'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context length is 32768 tokens and your request has 2500 input tokens (32000 > 32768 - 2500).",
                overflow(32768, Some(2500), Some(32000)),
            ),
            (
                "This model's maximum context length is 512 tokens. However, your messages resulted in 600 tokens.",
                overflow(512, Some(600), None),
            ),
            (
                "The input (600 tokens) is longer than the model's context length (512 tokens).",
                overflow(512, Some(600), None),
            ),
            (
                "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 512. Given: 600 `inputs` tokens and 20 `max_new_tokens`",
                overflow(512, Some(600), None),
            ),
            (
                "request (600 tokens) exceeds the available context size (512 tokens), try increasing it",
                overflow(512, Some(600), None),
            ),
            (
                "the prompt has 600 tokens; this model's maximum context length is 512 tokens, for prompt and answer together: shorten the prompt",
                overflow(512, Some(600), None),
            ),
            (
                "the prompt has more than 600 tokens; this model's maximum context length is 512 tokens, for prompt and answer together: shorten the prompt",
                overflow(512, None, None),
            ),
            ("temperature must be at most 2", None),
            ("the maximum context length is long", None),
        ] {
            assert_eq!(
                Overflow::from_error(&json!({"message": message})),
                wanted,
                "{message}"
            );
        }
        let beside = json!({"message": "the request exceeds the available context size", "n_ctx": 512, "n_prompt_tokens": 600});
        assert_eq!(
            Overflow::from_error(&beside),
            overflow(512, Some(600), None)
        );
    }

    #[test]
    fn an_overflow_message_sent_to_clients_can_be_parsed_again() {
        for known in [
            overflow(512, Some(600), None).unwrap(),
            overflow(512, Some(500), Some(100)).unwrap(),
            overflow(512, None, None).unwrap(),
        ] {
            let shown = retold(&json!({"message": known.message()})).unwrap();
            assert_eq!(shown["code"], CODE);
            assert_eq!(Overflow::from_error(&shown), Some(known), "{shown}");
            assert_eq!(retold(&shown), None);
            let pattern = format!("maximum context length is {} tokens", known.limit);
            assert!(known.message().contains(&pattern));
        }
        let long = overflow(512, Some(600), None).unwrap();
        assert_eq!(
            long.message_of_anthropic(),
            "prompt is too long: 600 tokens > 512 maximum"
        );
        let unknown = overflow(512, None, None).unwrap();
        assert!(
            unknown
                .message_of_anthropic()
                .contains("at least 513 tokens > 512")
        );
    }

    #[test]
    fn the_status_of_a_stream_error_is_derived_from_its_code() {
        for (error, status) in [
            (json!({"code": 400, "type": "BadRequestError"}), 400),
            (json!({"type": "invalid_request_error"}), 400),
            (json!({"code": 422}), 422),
            (json!({"code": 503}), 503),
            (json!({"type": "rate_limit_error"}), 429),
            (json!({"type": "NotFoundError"}), 404),
            (json!({"code": 401}), 502),
            (
                json!({"type": "server_error", "code": "internal_error"}),
                502,
            ),
            (json!({"code": 200}), 502),
            (json!("odd"), 502),
        ] {
            assert_eq!(status_of(&error).as_u16(), status, "{error}");
        }
    }
}
