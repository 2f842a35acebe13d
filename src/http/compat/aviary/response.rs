//! Translates responses into Aviary's form: complete, as lines, and as errors.

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use futures_util::{Stream, StreamExt, stream};
use serde_json::{Value, json};

use pool::Span;

/// Longest error body that is read.
const ERROR_MAX: usize = 1 << 20;
/// Longest line accepted in a stream; the gateway has a smaller limit.
const LINE_MAX: usize = 16 << 20;

/// Translates a completion, or a chat response.
pub(super) fn of_completion(completion: &Value, took: Span) -> Value {
    let choice = &completion["choices"][0];
    let text = choice["text"].as_str();
    let text = text.or_else(|| choice["message"]["content"].as_str());
    let usage = &completion["usage"];
    let [input, generated] =
        ["prompt_tokens", "completion_tokens"].map(|key| usage[key].as_u64().unwrap_or(0));
    let total = input.saturating_add(generated);
    let seconds = took.0 as f64 / 1000.0;
    let per_token = match total {
        0 => Value::Null,
        total => json!(seconds / total as f64),
    };
    json!({
        "generated_text": text.unwrap_or_default(),
        "num_input_tokens": input,
        "num_input_tokens_batch": input,
        "num_generated_tokens": generated,
        "num_generated_tokens_batch": generated,
        "preprocessing_time": 0.0,
        "generation_time": seconds,
        "error": null,
        "error_type": null,
        "total_time": seconds,
        "num_total_tokens": total,
        "num_total_tokens_batch": total,
        "total_time_per_token": per_token,
        "generation_time_per_token": per_token,
        "total_time_per_token_batch": per_token,
        "generation_time_per_token_batch": per_token,
    })
}

/// The error object of a failed prompt in a batch.
pub(super) async fn failed(response: Response) -> Value {
    let status = response.status();
    let body = to_bytes(response.into_body(), ERROR_MAX).await;
    let body: Value = serde_json::from_slice(&body.unwrap_or_default()).unwrap_or_default();
    if body["error"].is_object() {
        error_line(&body["error"])
    } else {
        error_line(&json!({"message": format!("the request was refused with {status}")}))
    }
}

/// Translates an event stream into lines of JSON.
pub(super) fn lines(response: Response) -> Response {
    let (mut head, body) = response.into_parts();
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    head.headers.insert(header::CONTENT_TYPE, plain);
    head.headers.remove(header::CONTENT_LENGTH);
    let pieces = body
        .into_data_stream()
        .map(|piece| piece.map_err(|error| error.to_string()));
    Response::from_parts(head, Body::from_stream(retold(pieces)))
}

/// Translates events, received in pieces of any size, into lines.
fn retold(
    pieces: impl Stream<Item = Result<Bytes, String>> + Send + 'static,
) -> impl Stream<Item = Result<Bytes, std::convert::Infallible>> + Send + 'static {
    let begun = (Box::pin(pieces), Vec::new(), false);
    stream::unfold(begun, |(mut pieces, mut rest, is_over)| async move {
        if is_over {
            return None;
        }
        loop {
            let piece = match pieces.next().await {
                Some(Ok(piece)) => piece,
                Some(Err(problem)) => {
                    let line = format!("{}\n", error_line(&json!({"message": problem})));
                    return Some((Ok(Bytes::from(line)), (pieces, rest, true)));
                }
                None => return None,
            };
            rest.extend_from_slice(&piece);
            let written = take_lines(&mut rest);
            if rest.len() > LINE_MAX {
                let problem = json!({"message": "the engine sent an event that is too long"});
                let line = format!("{}\n", error_line(&problem));
                return Some((Ok(Bytes::from(line)), (pieces, rest, true)));
            }
            if !written.is_empty() {
                return Some((Ok(Bytes::from(written)), (pieces, rest, false)));
            }
        }
    })
}

/// Takes the complete lines and translates those with data.
fn take_lines(rest: &mut Vec<u8>) -> String {
    let Some(end) = rest.iter().rposition(|byte| *byte == b'\n') else {
        return String::new();
    };
    let after = rest.split_off(end + 1);
    let complete = std::mem::replace(rest, after);
    let mut written = String::new();
    for line in complete.split(|byte| *byte == b'\n') {
        let data = line.strip_prefix(b"data:").map(<[u8]>::trim_ascii);
        let value = data.and_then(|data| serde_json::from_slice::<Value>(data).ok());
        if let Some(line) = value.as_ref().and_then(event_line) {
            written += &format!("{line}\n");
        }
    }
    written
}

/// The line for an event; `None` if Aviary would not show it.
fn event_line(event: &Value) -> Option<Value> {
    if event["error"].is_object() {
        return Some(error_line(&event["error"]));
    }
    let choice = &event["choices"][0];
    let text = choice["text"].as_str();
    let text = text
        .or_else(|| choice["delta"]["content"].as_str())
        .filter(|text| !text.is_empty());
    if let Some(text) = text {
        return Some(json!({"generated_text": text, "num_generated_tokens": 0}));
    }
    let usage = event["usage"].as_object()?;
    Some(json!({
        "generated_text": "",
        "num_input_tokens": usage.get("prompt_tokens"),
        "num_generated_tokens": usage.get("completion_tokens"),
    }))
}

fn error_line(error: &Value) -> Value {
    let kind = error["type"].as_str().unwrap_or("server_error");
    json!({"generated_text": null, "error": error["message"], "error_type": kind})
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn written(pieces: &[&str]) -> Vec<Value> {
        let pieces: Vec<Result<Bytes, String>> = pieces
            .iter()
            .map(|line| Ok(Bytes::from(line.to_string())))
            .collect();
        let lines: Vec<_> = retold(stream::iter(pieces)).collect().await;
        let text: String = lines
            .iter()
            .map(|line| String::from_utf8_lossy(line.as_ref().expect("bytes")).into_owned())
            .collect();
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }

    #[tokio::test]
    async fn events_become_lines_for_any_split() {
        let events = [
            ": waiting position=1\n\nda",
            "ta: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"content\":\"A \"}}]}\n\ndata: {\"choices\":[{\"text\":\"number\"}]}\n",
            "\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n",
        ];
        assert_eq!(
            written(&events).await,
            [
                json!({"generated_text": "A ", "num_generated_tokens": 0}),
                json!({"generated_text": "number", "num_generated_tokens": 0}),
                json!({"generated_text": "", "num_input_tokens": 4, "num_generated_tokens": 2}),
            ]
        );
    }

    #[tokio::test]
    async fn a_failed_stream_ends_with_a_line_that_contains_the_error() {
        let events = [
            "data: {\"choices\":[{\"text\":\"A\"}]}\n\n",
            "data: {\"error\":{\"message\":\"the engine ended\",\"type\":\"server_error\"}}\n\n",
        ];
        let lines = written(&events).await;
        assert_eq!(
            lines[1],
            json!({"generated_text": null, "error": "the engine ended", "error_type": "server_error"})
        );
    }

    #[test]
    fn a_completion_is_returned_in_aviarys_format() {
        let completion = json!({"choices": [{"message": {"content": "yes"}}], "usage": {"prompt_tokens": 3, "completion_tokens": 1}});
        let response = of_completion(&completion, Span(2000));
        assert_eq!(response["generated_text"], "yes");
        assert_eq!(
            (&response["num_total_tokens"], &response["total_time"]),
            (&json!(4), &json!(2.0))
        );
        assert_eq!(response["total_time_per_token"], 0.5);
    }
}
