//! A response in progress: its text, its reasoning, and its token counts. Pure.

use std::time::Duration;

use client::error_of;
use serde::Deserialize;
use serde_json::Value;

use super::quantity::seconds;

/// Minimum duration for a meaningful token rate.
const RATE_LEAST: Duration = Duration::from_millis(10);

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelResponse {
    pub text: String,
    pub reasoning: String,
    pub finish: Option<String>,
    pub usage: Option<Usage>,
    /// Number of pieces with text, for servers that do not count tokens.
    pub pieces: u64,
    /// Time from the request to the first and the last piece.
    pub first_at: Option<Duration>,
    pub last_at: Option<Duration>,
    /// Time that the request waited for its model.
    pub waited: Option<Duration>,
    pub is_interrupted: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Usage {
    pub prompt_tokens: Option<u64>,
    pub completion_tokens: Option<u64>,
}

/// The text that a piece adds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    pub text: String,
    pub reasoning: String,
}

/// The kind of an event's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    Piece(Piece),
    /// `[DONE]`.
    End,
    /// The stream ended with this error message.
    Error(String),
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Chunk {
    choices: Option<Vec<Choice>>,
    usage: Option<Usage>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Choice {
    delta: Option<Delta>,
    finish_reason: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Delta {
    content: Option<String>,
    reasoning_content: Option<String>,
    /// The name of the same field in some engines.
    reasoning: Option<String>,
    refusal: Option<String>,
}

impl ModelResponse {
    /// Adds the data of an event that arrived `at` after the request.
    pub fn take(&mut self, data: &str, at: Duration) -> Data {
        if data.trim() == "[DONE]" {
            return Data::End;
        }
        let Ok(value) = serde_json::from_str::<Value>(data) else {
            return Data::Error("the server sent an event that is not JSON".to_owned());
        };
        if value.get("error").is_some_and(|error| !error.is_null()) {
            let message = error_of(&value).map(|(message, _)| message);
            return Data::Error(message.unwrap_or_else(|| "the server gave no reason".to_owned()));
        }
        let chunk: Chunk = serde_json::from_value(value).unwrap_or_default();
        self.usage = chunk.usage.or(self.usage);
        let mut piece = Piece::default();
        if let Some(choice) = chunk.choices.into_iter().flatten().next() {
            self.finish = choice.finish_reason.or(self.finish.take());
            let delta = choice.delta.unwrap_or_default();
            piece.text = delta.content.or(delta.refusal).unwrap_or_default();
            let reasoning = delta.reasoning_content.or(delta.reasoning);
            piece.reasoning = reasoning.unwrap_or_default();
        }
        if piece != Piece::default() {
            self.pieces += 1;
            self.first_at.get_or_insert(at);
            self.last_at = Some(at);
            self.text.push_str(&piece.text);
            self.reasoning.push_str(&piece.reasoning);
        }
        Data::Piece(piece)
    }

    /// Formats the time to the first token, tokens and tokens per second in one line.
    pub fn figures(&self) -> String {
        let mut parts = Vec::new();
        if let Some(first) = self.first_at {
            parts.push(format!("first token after {}", seconds(first)));
        }
        let counted = self.usage.and_then(|usage| usage.completion_tokens);
        let tokens = counted.unwrap_or(self.pieces);
        let about = if counted.is_some() { "" } else { "about " };
        let word = if tokens == 1 { "token" } else { "tokens" };
        let took = self.last_at.unwrap_or_default();
        let took = took.saturating_sub(self.first_at.unwrap_or_default());
        parts.push(if tokens > 1 && took >= RATE_LEAST {
            // The rate counts from the first token.
            format!(
                "{about}{tokens} tokens in {}, {:.1} tokens/s",
                seconds(took),
                (tokens - 1) as f64 / took.as_secs_f64()
            )
        } else {
            format!("{about}{tokens} {word}")
        });
        if let Some(prompt) = self.usage.and_then(|usage| usage.prompt_tokens) {
            parts.push(format!("prompt of {prompt} tokens"));
        }
        if let Some(waited) = self.waited.filter(|waited| waited.as_millis() > 0) {
            parts.push(format!("waited {} for the model", seconds(waited)));
        }
        parts.join(", ")
    }

    /// Explains an end that was not the model's own choice.
    pub fn ending(&self) -> Option<&'static str> {
        match self.finish.as_deref() {
            Some("length") => Some(
                "The answer ends here because it reached its limit of tokens (--max-tokens, /set max_tokens, or the model's context).",
            ),
            Some("content_filter") => {
                Some("The answer ends here because the server's filter stopped it.")
            }
            Some("tool_calls") => Some("The model called a tool; conversations here have none."),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    #[test]
    fn streamed_pieces_are_counted_and_timed_from_the_first() {
        let mut response = ModelResponse::default();
        let events = [
            (
                10,
                r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#,
            ),
            (500, r#"{"choices":[{"delta":{"reasoning_content":"hm"}}]}"#),
            (
                1000,
                r#"{"choices":[{"delta":{"content":"Hel"}}],"usage":null}"#,
            ),
            (
                1500,
                r#"{"choices":[{"delta":{"content":"lo"},"finish_reason":"stop"}]}"#,
            ),
            (
                1600,
                r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5}}"#,
            ),
        ];
        for (at, data) in events {
            assert!(
                matches!(response.take(data, ms(at)), Data::Piece(_)),
                "{data}"
            );
        }
        assert_eq!(response.take("[DONE]", ms(1700)), Data::End);
        assert_eq!(
            (response.text.as_str(), response.reasoning.as_str()),
            ("Hello", "hm")
        );
        let mut burst = response.clone();
        burst.last_at = burst.first_at.map(|first| first + ms(3));
        assert_eq!(
            burst.figures(),
            "first token after 0.50 s, 5 tokens, prompt of 7 tokens"
        );
        response.waited = Some(ms(3200));
        assert_eq!(
            response.figures(),
            "first token after 0.50 s, 5 tokens in 1.0 s, 4.0 tokens/s, prompt of 7 tokens, waited 3.2 s for the model"
        );
        assert_eq!(response.ending(), None);
    }

    #[test]
    fn without_usage_the_tokens_are_estimated_from_the_pieces() {
        let mut response = ModelResponse::default();
        response.take(
            r#"{"choices":[{"delta":{"content":"a"},"finish_reason":"length"}]}"#,
            ms(30),
        );
        assert_eq!(
            response.figures(),
            "first token after 0.03 s, about 1 token"
        );
        assert!(response.ending().expect("cut").contains("max_tokens"));
        assert_eq!(ModelResponse::default().figures(), "about 0 tokens");
    }

    #[test]
    fn an_error_in_the_stream_is_recognized_in_every_form() {
        let mut response = ModelResponse::default();
        let error = |text: &str| Data::Error(text.to_owned());
        let cut = r#"{"error": {"message": "preempted by big", "code": "preempted"}}"#;
        assert_eq!(response.take(cut, ms(1)), error("preempted by big"));
        assert_eq!(
            response.take(r#"{"error": {}}"#, ms(1)),
            error("the server gave no reason")
        );
        assert!(matches!(response.take("<html>", ms(1)), Data::Error(_)));
        // Fields of an unexpected type are ignored.
        assert_eq!(
            response.take(r#"{"choices": 7, "error": null}"#, ms(1)),
            Data::Piece(Piece::default())
        );
    }
}
