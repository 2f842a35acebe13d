//! Parses a response as it arrives: a stream's events with the times of its tokens, or one JSON object in OpenAI's format.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;

/// The result of one request.
#[derive(Debug, Default)]
pub struct RequestResult {
    /// The failure, if the request failed.
    pub fault: Option<RequestError>,
    /// From the time it was due to the last byte.
    pub took: Duration,
    /// Delay between the time it was due and the time it was sent.
    pub late: Duration,
    /// From the time it was due; only for streams.
    pub first_token: Option<Duration>,
    /// Between events with content.
    pub gaps: Vec<Duration>,
    pub bytes: u64,
    pub prompt_tokens: u64,
    /// The endpoint's count, or otherwise the number of events with content.
    pub tokens: u64,
}

/// A failure. Failures are counted by label, and the first message of each is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestError {
    pub label: String,
    pub message: String,
}

impl RequestError {
    pub fn new(label: impl Into<String>, message: impl Into<String>) -> RequestError {
        let (label, message) = (label.into(), message.into());
        RequestError { label, message }
    }
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    choices: Option<Vec<Choice<'a>>>,
    usage: Option<Usage>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Option<Cow<'a, str>>,
    #[serde(borrow)]
    reasoning_content: Option<Cow<'a, str>>,
    #[serde(borrow)]
    reasoning: Option<Cow<'a, str>>,
    tool_calls: Option<Vec<serde::de::IgnoredAny>>,
}

#[derive(Clone, Copy, Deserialize)]
struct Usage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
}

/// Returns the code of an error object, or otherwise its type, and the message.
fn read_error(error: &Value) -> (String, String) {
    let text = |name: &str| error[name].as_str();
    let label = text("code").or_else(|| text("type")).unwrap_or_default();
    let message = text("message").or_else(|| error.as_str());
    (label.to_owned(), message.unwrap_or_default().to_owned())
}

impl Chunk<'_> {
    /// Returns true if the chunk has content; roles and finish reasons do not count.
    fn has_content(&self) -> bool {
        let is_filled =
            |text: &Option<Cow<'_, str>>| text.as_ref().is_some_and(|text| !text.is_empty());
        self.choices.iter().flatten().any(|choice| {
            let delta = choice.delta.as_ref().is_some_and(|delta| {
                is_filled(&delta.content)
                    || is_filled(&delta.reasoning_content)
                    || is_filled(&delta.reasoning)
                    || delta
                        .tool_calls
                        .as_ref()
                        .is_some_and(|calls| !calls.is_empty())
            });
            delta || is_filled(&choice.text)
        })
    }
}

/// A stream in progress.
#[derive(Debug, Default)]
pub struct Events {
    rest: Vec<u8>,
    last: Option<Instant>,
    first: Option<Instant>,
    gaps: Vec<Duration>,
    events: u64,
    usage: Option<(u64, u64)>,
    fault: Option<RequestError>,
    done: bool,
}

impl Events {
    /// Adds bytes that arrived at `now`.
    pub fn push(&mut self, bytes: &[u8], now: Instant) {
        if self.rest.is_empty() {
            let used = self.lines(bytes, now);
            self.rest.extend_from_slice(&bytes[used..]);
        } else {
            let mut all = std::mem::take(&mut self.rest);
            all.extend_from_slice(bytes);
            let used = self.lines(&all, now);
            all.drain(..used);
            self.rest = all;
        }
    }

    pub fn has_begun(&self) -> bool {
        self.first.is_some()
    }

    /// The fault, if it is known before the end.
    pub fn fault(&self) -> Option<&RequestError> {
        self.fault.as_ref()
    }

    pub fn finish(self, due: Instant, response: &mut RequestResult) {
        response.first_token = self.first.map(|first| first.saturating_duration_since(due));
        response.gaps = self.gaps;
        let (prompt, completion) = self.usage.unwrap_or((0, self.events));
        (response.prompt_tokens, response.tokens) = (prompt, completion);
        response.fault = match (self.fault, self.done) {
            (Some(fault), _) => Some(fault),
            (None, true) => None,
            (None, false) => Some(RequestError::new(
                "broken off",
                "the stream ended without [DONE]",
            )),
        };
    }

    /// Parses complete lines; returns how many bytes they have.
    fn lines(&mut self, bytes: &[u8], now: Instant) -> usize {
        let mut from = 0;
        while let Some(length) = memchr::memchr(b'\n', &bytes[from..]) {
            let line = &bytes[from..from + length];
            from += length + 1;
            if let Some(data) = line.strip_prefix(b"data:") {
                self.data(data.trim_ascii(), now);
            }
        }
        from
    }

    fn data(&mut self, data: &[u8], now: Instant) {
        if data == b"[DONE]" {
            self.done = true;
            return;
        }
        let Ok(chunk) = serde_json::from_slice::<Chunk<'_>>(data) else {
            let message = String::from_utf8_lossy(&data[..data.len().min(200)]);
            self.fault
                .get_or_insert_with(|| RequestError::new("no JSON in the stream", message));
            return;
        };
        if let Some(error) = &chunk.error {
            let (label, message) = read_error(error);
            let label = format!("in the stream: {label}");
            self.fault
                .get_or_insert_with(|| RequestError::new(label, message));
        }
        if let Some(usage) = chunk.usage {
            self.usage = Some((usage.prompt_tokens, usage.completion_tokens));
        }
        if chunk.has_content() {
            self.events += 1;
            self.first.get_or_insert(now);
            if let Some(last) = self.last.replace(now) {
                self.gaps.push(now.saturating_duration_since(last));
            }
        }
    }
}

/// Parses a non-streaming response.
pub fn read_complete(body: &[u8], response: &mut RequestResult) {
    match serde_json::from_slice::<Chunk<'_>>(body) {
        Ok(chunk) => {
            if let Some(error) = &chunk.error {
                let (label, message) = read_error(error);
                response.fault = Some(RequestError::new(
                    format!("200 with an error: {label}"),
                    message,
                ));
            }
            let usage = chunk
                .usage
                .map(|usage| (usage.prompt_tokens, usage.completion_tokens));
            (response.prompt_tokens, response.tokens) = usage.unwrap_or_default();
        }
        Err(error) => response.fault = Some(RequestError::new("no JSON", error.to_string())),
    }
}

/// The fault of an unsuccessful response: its status with the error's code, and the message.
pub fn refused(status: u16, body: &[u8]) -> RequestError {
    let parsed = serde_json::from_slice::<Chunk<'_>>(body).ok();
    match parsed.as_ref().and_then(|chunk| chunk.error.as_ref()) {
        Some(error) => {
            let (label, message) = read_error(error);
            RequestError::new(format!("{status} {label}").trim_end(), message)
        }
        None => {
            let text = String::from_utf8_lossy(&body[..body.len().min(200)]);
            RequestError::new(status.to_string(), text.trim())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "any time will do")]
    fn read(text: &str) -> (RequestResult, Instant) {
        let due = Instant::now();
        let mut events = Events::default();
        for (nth, byte) in text.as_bytes().iter().enumerate() {
            events.push(&[*byte], due + Duration::from_millis(nth as u64));
        }
        let mut response = RequestResult::default();
        events.finish(due, &mut response);
        (response, due)
    }

    #[test]
    fn tokens_are_timed_from_the_first_event_with_content() {
        let role =
            "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
        let word = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":null}\r\n\r\n";
        let usage =
            "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":2}}\n\n";
        let text = format!(": wait\n\n{role}{word}{word}{usage}data: [DONE]\n\n");
        let (response, _) = read(&text);
        assert_eq!(response.fault, None);
        assert_eq!((response.prompt_tokens, response.tokens), (4, 2));
        let end_of_first = 8 + role.len() + word.trim_end().len() + 1;
        let first = Duration::from_millis(end_of_first as u64);
        assert_eq!(response.first_token, Some(first));
        assert_eq!(response.gaps, [Duration::from_millis(word.len() as u64)]);
    }

    #[test]
    fn a_stream_without_an_end_mark_has_failed() {
        let (response, _) = read("data: {\"choices\":[{\"text\":\"a\"}]}\n\n");
        assert_eq!(response.fault.unwrap().label, "broken off");
        assert_eq!(response.tokens, 1, "without a usage events are counted");
    }

    #[test]
    fn errors_are_reported_by_status_and_code() {
        let body =
            br#"{"error":{"message":"come back","type":"t","param":null,"code":"queue_full"}}"#;
        assert_eq!(
            refused(429, body),
            RequestError::new("429 queue_full", "come back")
        );
        assert_eq!(refused(502, b"<html>"), RequestError::new("502", "<html>"));
        let (response, _) =
            read("data: {\"error\":{\"message\":\"gone\",\"code\":\"unloaded\"}}\n\n");
        assert_eq!(
            response.fault,
            Some(RequestError::new("in the stream: unloaded", "gone"))
        );
    }
}
