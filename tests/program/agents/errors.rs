//! Error messages and statuses that clients depend on, keep-alives while a model is silent, and routes that clients probe before
//! they send requests.

use serde_json::json;
use support::service::{Pool, wait_for};

use super::{CHAT, MESSAGES, RESPONSES, ask, chat, message, model, named, pool, response, stream};

const LONG: &str = "This model's maximum context length is 4096 tokens. However, your messages resulted in 5000 tokens. Please reduce the length of the messages.";

#[test]
fn a_prompt_that_is_too_long_is_refused_in_the_form_of_each_api() {
    let pool = pool(&["--refuse", LONG]);
    for is_stream in [false, true] {
        let more = json!({"stream": is_stream});
        for (path, body) in [(CHAT, chat(&more)), (RESPONSES, response(&more))] {
            let (status, reply, _) = ask(&pool, path, &body);
            let error = &reply["error"];
            assert_eq!(
                (status, &error["code"]),
                (400, &json!("context_length_exceeded")),
                "{reply}"
            );
            let message = error["message"].as_str().unwrap();
            assert!(
                message.contains("maximum context length is 4096 tokens"),
                "{message}"
            );
        }
        let (status, reply, _) = ask(&pool, MESSAGES, &message(&more));
        let wanted = json!({"type": "invalid_request_error", "message": "prompt is too long: 5000 tokens > 4096 maximum"});
        assert_eq!((status, &reply["error"]), (400, &wanted));
    }
}

#[test]
fn a_response_that_would_exceed_the_context_gives_the_numbers_in_the_messages_api() {
    let words = "'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context length is 32768 tokens and your request has 2500 input tokens (32000 > 32768 - 2500).";
    let pool = pool(&["--refuse", words]);
    let (_, response, _) = ask(&pool, MESSAGES, &message(&json!({})));
    let message = response["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("exceed context limit: 2500 + 32000 > 32768"),
        "{message}"
    );
}

#[test]
fn a_refusal_before_the_first_token_of_a_stream_has_its_own_http_status() {
    for (error, status) in [
        (
            json!({"message": "bad grammar", "type": "BadRequestError", "code": 400}),
            400,
        ),
        (
            json!({"message": "no", "type": "invalid_request_error"}),
            400,
        ),
        (
            json!({"message": "slow down", "type": "rate_limit_error"}),
            429,
        ),
        (
            json!({"message": "it broke", "type": "InternalServerError", "code": 500}),
            500,
        ),
        (json!({"message": "it broke", "type": "server_error"}), 502),
        (
            json!({"message": LONG, "type": "BadRequestError", "code": 400}),
            400,
        ),
    ] {
        let text = error.to_string();
        let pool = pool(&["--error-event", &text]);
        // The first request finds the model cold. A stream that started while it waited reports the error in an event.
        let _ = ask(&pool, CHAT, &chat(&json!({})));
        for is_stream in [false, true] {
            let more = json!({"stream": is_stream});
            for (path, body) in [
                (CHAT, chat(&more)),
                (MESSAGES, message(&more)),
                (RESPONSES, response(&more)),
            ] {
                let (got, reply, _) = ask(&pool, path, &body);
                assert_eq!(got, status, "{path} {is_stream} {error}: {reply}");
                assert!(reply["error"]["message"].is_string(), "{reply}");
            }
        }
    }
}

#[test]
fn a_silent_model_sends_keep_alive_comments_to_streaming_clients() {
    let slow = ["--tokens", "2", "--token-ms", "1500"];
    let pool = pool(&slow);
    // The role comes immediately, and the first word late.
    let messages = pool.stream(MESSAGES, &message(&json!({"stream": true})).to_string());
    let text = messages.whole();
    let begun = text.find("message_start").unwrap();
    let said = text.find("content_block_delta").unwrap();
    let pings = text[begun..said]
        .matches("event: ping\ndata: {\"type\":\"ping\"}\n\n")
        .count();
    assert!(pings >= 2, "{text}");
    let responses = pool.stream(RESPONSES, &response(&json!({"stream": true})).to_string());
    let text = responses.whole();
    let said = text.find("output_text.delta").unwrap();
    assert!(
        text[..said].matches(": waiting for the model\n\n").count() >= 2,
        "{text}"
    );
    assert!(text.contains("response.completed"));
}

#[test]
fn a_message_waiting_for_its_model_receives_pings() {
    let pool = Pool::with_models(&[named("writer", &["--ready-after-ms", "1500"], "")], "");
    let waiting = pool.stream(MESSAGES, &message(&json!({"stream": true})).to_string());
    wait_for("a ping while it waits", || {
        let text = waiting.text();
        text.contains(": waiting position=")
            && text.contains("event: ping\n")
            && !text.contains("message_start")
    });
    assert!(waiting.whole().contains("message_stop"));
}

#[test]
fn continuous_usage_is_reported_as_ignored_if_the_engine_does_not_support_it() {
    let pool = pool(&[]);
    let options =
        json!({"stream_options": {"include_usage": true, "continuous_usage_stats": true}});
    let (status, chunks, ignored) = stream(&pool, CHAT, &chat(&options));
    assert_eq!(
        (status, ignored.as_str()),
        (200, "stream_options.continuous_usage_stats")
    );
    assert_eq!(chunks.last().unwrap()["usage"]["total_tokens"], 8);
    let more = json!({"stream_options": {"include_usage": true}, "ignore_eos": true});
    let (status, events, ignored) = stream(&pool, RESPONSES, &response(&more));
    assert_eq!((status, ignored.as_str()), (200, ""));
    assert_eq!(
        events.last().unwrap()["response"]["usage"]["total_tokens"],
        8
    );
}

#[test]
fn the_routes_that_clients_probe_first_exist() {
    let pool = Pool::with_models(&[model(&[]), named("other", &[], "")], "");
    let (status, text, _) = pool.request("GET", "/health", "", None);
    assert_eq!((status, text.as_str()), (200, "{\"status\":\"ok\"}"));
    let version = [("anthropic-version", "2023-06-01")];
    let get = |path: &str| {
        let (status, text, _) = pool.request_with("GET", path, "", &version);
        (
            status,
            serde_json::from_str::<serde_json::Value>(&text).unwrap(),
        )
    };
    let (status, list) = get("/v1/models?limit=1");
    assert_eq!((status, &list["has_more"]), (200, &json!(true)), "{list}");
    assert_eq!(list["data"][0]["type"], "model");
    assert_eq!(list["data"][0]["display_name"], list["first_id"]);
    let (status, one) = get("/v1/models/writer");
    assert_eq!((status, &one["id"]), (200, &json!("writer")));
    assert!(one["created_at"].as_str().unwrap().ends_with('Z'));
    let (status, error) = get("/v1/models/nobody");
    assert_eq!(
        (status, &error["error"]["type"]),
        (404, &json!("not_found_error"))
    );
    let (_, text, _) = pool.request("GET", "/v1/models", "", None);
    assert!(text.contains("\"object\":\"list\""), "{text}");
}
