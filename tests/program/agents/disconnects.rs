//! Requests without a natural end: agents that disconnect during a tool call, endless reasoning, grammars that no text matches.
//! Seats become free, and the next request is served.

use serde_json::{Value, json};
use support::service::{Pool, wait_for};

use super::{CHAT, MESSAGES, RESPONSES, ask, chat, message, model, named, pool, response, with};

/// Number of requests that the model is serving.
fn in_flight(pool: &Pool, model: &str) -> Value {
    let admin = pool.admin_key();
    let path = format!("/llm/admin/models?model={model}");
    let (_, text, _) = pool.request("GET", &path, "", Some(&admin));
    let view: Value = serde_json::from_str(&text).unwrap();
    let one = view["models"].get(0).unwrap_or(&view);
    one["replicas"][0]["in_flight"].clone()
}

/// A model `writer` that serves one request at a time: the next request shows that its seat is free.
fn one_seat(flags: &[&str]) -> (String, String) {
    let (name, text) = model(flags);
    let seats = "deployment_config: {max_ongoing_requests: 1}\n";
    (name, text + seats)
}

/// A request in each API, and text of the event that the caller waits for.
fn bodies(tools: bool) -> [(&'static str, Value, &'static str); 3] {
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let function = json!({"name": "weather", "parameters": parameters});
    let (of_chat, of_messages, of_responses) = if !tools {
        (
            json!({}),
            json!({"thinking": {"type": "adaptive"}}),
            json!({"store": true}),
        )
    } else {
        (
            json!({"tools": [{"type": "function", "function": function}]}),
            json!({"tools": [{"name": "weather", "input_schema": parameters}]}),
            json!({"store": true, "tools": [{"type": "function", "name": "weather", "parameters": parameters}]}),
        )
    };
    let stream = json!({"stream": true});
    let seen = if !tools {
        [
            "reasoning_content",
            "thinking_delta",
            "reasoning_text.delta",
        ]
    } else {
        [
            "\"arguments\":\"w",
            "input_json_delta",
            "function_call_arguments.delta",
        ]
    };
    [
        (CHAT, with(chat(&of_chat), &stream), seen[0]),
        (MESSAGES, with(message(&of_messages), &stream), seen[1]),
        (RESPONSES, with(response(&of_responses), &stream), seen[2]),
    ]
}

#[test]
fn an_agent_that_disconnects_during_a_tool_call_frees_its_seat() {
    let arguments = json!({"city": "w".repeat(400)}).to_string();
    let flags = [
        "--arguments",
        &arguments,
        "--argument-pieces",
        "400",
        "--token-ms",
        "20",
    ];
    let pool = Pool::with_models(&[one_seat(&flags), named("other", &[], "")], "");
    for (path, body, call) in bodies(true) {
        let stream = pool.stream(path, &body.to_string());
        wait_for("a part of the call", || stream.text().contains(call));
        drop(stream);
        wait_for("its seat to be free", || in_flight(&pool, "writer") == 0);
    }
    // The next request gets a complete call.
    let (status, response, _) = ask(
        &pool,
        CHAT,
        &with(bodies(true)[0].1.clone(), &json!({"stream": false})),
    );
    let call = &response["choices"][0]["message"]["tool_calls"][0]["function"];
    assert_eq!((status, &call["arguments"]), (200, &json!(arguments)));
}

#[test]
fn endless_reasoning_is_streamed_as_it_is_generated_and_ends_with_its_client() {
    let pool = Pool::with_models(
        &[one_seat(&[
            "--reasoning",
            "On and on. ",
            "--endless-reasoning",
            "--token-ms",
            "5",
        ])],
        "",
    );
    for (path, body, thought) in bodies(false) {
        let stream = pool.stream(path, &body.to_string());
        wait_for("a hundred pieces", || {
            stream.text().matches(thought).count() > 100
        });
        drop(stream);
        wait_for("its seat to be free", || in_flight(&pool, "writer") == 0);
        // A request with a time limit ends with 504 and frees its seat.
        let plain = with(body, &json!({"stream": false})).to_string();
        let patience = [("x-request-timeout", "1")];
        let (status, text, _) = pool.request_with("POST", path, &plain, &patience);
        assert_eq!(status, 504, "{path}: {text}");
        wait_for("its seat to be free", || in_flight(&pool, "writer") == 0);
    }
}

#[test]
fn a_flood_of_reasoning_is_cut_before_it_exhausts_memory() {
    let thought = "x".repeat(100 << 10);
    let pool = pool(&["--reasoning", &thought, "--endless-reasoning"]);
    for (path, body, _) in &bodies(false)[1..] {
        let stream = pool.stream(path, &body.to_string());
        let text = stream.whole();
        assert!(
            text.contains("more than 67108864 bytes without an end"),
            "{path}"
        );
        wait_for("its seat to be free", || in_flight(&pool, "writer") == 0);
    }
}

#[test]
fn an_unsatisfiable_grammar_is_refused_or_reported_and_never_hangs() {
    let pool = pool(&[]);
    let tool = |syntax: &str, definition: &str| {
        json!({"tools": [{"type": "custom", "name": "t",
            "format": {"type": "grammar", "syntax": syntax, "definition": definition}}]})
    };
    for (syntax, definition) in [
        ("lark", "start: \"a\" start"),
        ("lark", "start: other\nother: start"),
        ("regex", "a^b$c"),
        ("regex", "(?!)x"),
    ] {
        let (status, reply, ignored) = ask(&pool, RESPONSES, &response(&tool(syntax, definition)));
        let is_named = status == 200 && ignored.starts_with("tools.format");
        let is_refused = status == 400 && reply["error"]["param"] == "tools[0].format.definition";
        assert!(
            is_named || is_refused,
            "{definition}: {status} {ignored} {reply}"
        );
    }
}
