//! Chats, prompts, tools and embeddings over Ollama's API.

use serde_json::{Value, json};

use super::{ask, demo, lines, pool, response_to};

fn hello(more: Value) -> Value {
    let mut body = json!({"model": "writer", "messages": [{"role": "user", "content": "Hello"}]});
    for (name, value) in more.as_object().unwrap() {
        body[name.as_str()] = value.clone();
    }
    body
}

#[test]
fn a_chat_is_streamed_as_lines_unless_one_object_is_requested() {
    let pool = pool("writer", &[]);
    let (status, text, head) =
        pool.request("POST", "/api/chat", &hello(json!({})).to_string(), None);
    assert_eq!(status, 200, "{text}");
    assert!(
        head.contains("content-type: application/x-ndjson"),
        "{head}"
    );
    let lines = lines(&text);
    let said: String = lines
        .iter()
        .map(|line| line["message"]["content"].as_str().unwrap())
        .collect();
    assert_eq!(said, "Hello from writer and goodbye");
    let (last, before) = lines.split_last().unwrap();
    assert!(
        before
            .iter()
            .all(|line| line["done"] == false && line.get("done_reason").is_none())
    );
    assert_eq!(last["message"], json!({"role": "assistant", "content": ""}));
    assert_eq!(
        (&last["done"], &last["done_reason"]),
        (&json!(true), &json!("stop"))
    );
    let whole = response_to(&pool, "/llm/api/chat", &hello(json!({"stream": false})));
    assert_eq!(
        whole["message"],
        json!({"role": "assistant", "content": said})
    );
    for response in [last, &whole] {
        assert_eq!(
            (&response["prompt_eval_count"], &response["eval_count"]),
            (&json!(3), &json!(5))
        );
        let number = |name: &str| {
            response[name]
                .as_u64()
                .unwrap_or_else(|| panic!("{name}: {response}"))
        };
        let parts = ["load_duration", "prompt_eval_duration", "eval_duration"].map(number);
        let sum: u64 = parts.iter().sum();
        assert!(sum <= number("total_duration"), "{response}");
        let created = response["created_at"].as_str().unwrap();
        assert!(created.ends_with('Z') && created.contains('T'), "{created}");
    }
}

#[test]
fn the_load_time_is_reported_in_the_response_that_waited_for_it() {
    let pool = pool("writer", &["--ready-after-ms", "600"]);
    let first = response_to(&pool, "/api/chat", &hello(json!({"stream": false})));
    let second = response_to(&pool, "/api/chat", &hello(json!({"stream": false})));
    let load = |response: &Value| response["load_duration"].as_u64().unwrap();
    assert!(load(&first) >= 500_000_000, "{first}");
    assert!(load(&second) < load(&first), "{second}");
}

#[test]
fn a_prompt_is_served_as_a_chat_and_a_raw_one_is_completed() {
    let pool = pool("writer", &[]);
    for more in [
        json!({}),
        json!({"system": "Be kind."}),
        json!({"raw": true}),
    ] {
        let mut body = json!({"model": "writer:latest", "prompt": "Hello", "stream": false});
        for (name, value) in more.as_object().unwrap() {
            body[name.as_str()] = value.clone();
        }
        let told = response_to(&pool, "/api/generate", &body);
        assert_eq!(told["response"], "Hello from writer and goodbye", "{more}");
        assert_eq!(
            (&told["model"], &told["done"]),
            (&json!("writer:latest"), &json!(true))
        );
        assert_eq!(told.get("message"), None);
        body["stream"] = json!(true);
        let (_, text, _) = pool.request("POST", "/api/generate", &body.to_string(), None);
        let pieces: String = lines(&text)
            .iter()
            .map(|line| line["response"].as_str().unwrap())
            .collect();
        assert_eq!(told["response"], pieces.as_str(), "{more}");
    }
}

#[test]
fn a_tool_is_called_with_object_arguments_and_its_result_continues_the_chat() {
    let pool = pool("writer", &[]);
    let tool = json!({"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}});
    let tools = json!([tool]);
    let whole = response_to(
        &pool,
        "/api/chat",
        &hello(json!({"tools": tools, "stream": false})),
    );
    let call = &whole["message"]["tool_calls"][0];
    assert_eq!(call["function"]["name"], "weather");
    assert_eq!(call["function"]["arguments"], json!({"city": "Ulm"}));
    assert_eq!(whole["done_reason"], "stop");
    let (_, text, _) = pool.request(
        "POST",
        "/api/chat",
        &hello(json!({"tools": tools})).to_string(),
        None,
    );
    let streamed = lines(&text);
    assert_eq!(streamed[0]["message"]["tool_calls"], json!([call]));
    assert_eq!((streamed.len(), &streamed[1]["done"]), (2, &json!(true)));
    let messages = json!([
        {"role": "user", "content": "Weather?"}, whole["message"],
        {"role": "tool", "tool_name": "weather", "content": "rain"},
    ]);
    let told = response_to(
        &pool,
        "/api/chat",
        &hello(json!({"messages": messages, "tools": tools, "stream": false})),
    );
    assert_eq!(told["message"]["content"], "Hello from writer and goodbye");
}

#[test]
fn embeddings_are_normalized_and_the_older_route_returns_them_unchanged() {
    let pool = pool("writer", &[]);
    let body = json!({"model": "writer", "input": ["abc defg", "x"], "options": {"num_ctx": 9}});
    let (status, told, head) = ask(&pool, "/api/embed", &body, None);
    assert_eq!(status, 200, "{told}");
    assert!(
        head.contains("x-model-pool-ignored: options.num_ctx"),
        "{head}"
    );
    let vectors = told["embeddings"].as_array().unwrap();
    assert_eq!(vectors.len(), 2);
    for vector in vectors {
        let numbers = vector.as_array().unwrap().iter();
        let square: f64 = numbers.map(|number| number.as_f64().unwrap().powi(2)).sum();
        assert!((square - 1.0).abs() < 1e-3, "{vector}");
    }
    assert!(
        told["total_duration"].is_u64() && told["load_duration"].is_u64(),
        "{told}"
    );
    let one = response_to(
        &pool,
        "/api/embed",
        &json!({"model": "writer", "input": "x"}),
    );
    assert_eq!(one["embeddings"][0], vectors[1]);
    let older = response_to(
        &pool,
        "/api/embeddings",
        &json!({"model": "writer", "prompt": "abc defg"}),
    );
    assert_eq!(older, json!({"embedding": [8, 2]}));
    for (path, empty) in [
        ("/api/embed", json!({"model": "writer", "embeddings": []})),
        ("/api/embeddings", json!({"embedding": []})),
    ] {
        assert_eq!(response_to(&pool, path, &json!({"model": "writer"})), empty);
    }
}

#[test]
fn ollama_and_openai_clients_get_the_same_responses_from_the_embedded_engine() {
    let pool = demo();
    let messages = json!([{"role": "user", "content": "What is keep-hot?"}]);
    let openai = json!({"model": "tiny-guide", "messages": messages, "temperature": 0});
    let wanted = response_to(&pool, "/v1/chat/completions", &openai);
    let wanted = wanted["choices"][0]["message"]["content"].as_str().unwrap();
    let cold = json!({"temperature": 0, "num_ctx": 4096, "top_k": 40, "repeat_penalty": 1.0, "num_gpu": 1});
    let body = json!({"model": "tiny-guide:latest", "messages": messages, "options": cold, "stream": false});
    let (status, told, head) = ask(&pool, "/api/chat", &body, None);
    assert_eq!(
        (status, told["message"]["content"].as_str()),
        (200, Some(wanted)),
        "{told}"
    );
    assert!(
        head.contains("x-model-pool-ignored: options.num_ctx, options.num_gpu"),
        "{head}"
    );
    let short = json!({"model": "tiny-guide", "prompt": "What is keep-hot?", "stream": false,
        "options": {"num_predict": 3, "temperature": 0}});
    let told = response_to(&pool, "/api/generate", &short);
    assert_eq!(
        (&told["done_reason"], &told["eval_count"]),
        (&json!("length"), &json!(3))
    );
    assert!(
        wanted.starts_with(told["response"].as_str().unwrap()),
        "{told}"
    );
    let seeded = json!({"model": "tiny-guide", "prompt": "Tell", "stream": false, "raw": true,
        "options": {"temperature": 1.5, "seed": 7, "num_predict": 12}});
    let twice = [0, 1].map(|_| response_to(&pool, "/api/generate", &seeded)["response"].clone());
    assert_eq!(twice[0], twice[1]);
    let schema = json!({"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"], "additionalProperties": false});
    for (format, has) in [(schema, true), (json!("json"), false)] {
        let body = json!({"model": "tiny-guide", "prompt": "Say yes.", "stream": false, "format": format,
            "options": {"temperature": 0, "num_predict": 200}});
        let told = response_to(&pool, "/api/generate", &body);
        if has {
            let object: Value = serde_json::from_str(told["response"].as_str().unwrap()).unwrap();
            assert!(object["yes"].is_boolean(), "{told}");
        } else {
            assert!(
                told["response"].as_str().unwrap().starts_with('{'),
                "{told}"
            );
        }
    }
}

#[test]
fn ollama_settings_reach_the_engine_in_its_own_fields() {
    let pool = pool("writer", &["--echo"]);
    let picture = "iVBORw0KGgo=";
    let body = hello(
        json!({"stream": false, "think": "high", "format": "json", "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "What is this?", "images": [picture]},
        ],
        "options": {"temperature": 0.5, "top_p": 0.9, "num_predict": 9, "seed": 7, "stop": ["."], "num_ctx": 64}}),
    );
    let told = response_to(&pool, "/api/chat", &body);
    let seen: Value = serde_json::from_str(told["message"]["content"].as_str().unwrap()).unwrap();
    let url = format!("data:image/png;base64,{picture}");
    assert_eq!(
        seen["messages"],
        json!([
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": url}},
            ]},
        ])
    );
    for (field, value) in [
        ("model", json!("writer")),
        ("temperature", json!(0.5)),
        ("top_p", json!(0.9)),
        ("max_tokens", json!(9)),
        ("seed", json!(7)),
        ("stop", json!(["."])),
        ("reasoning_effort", json!("high")),
        ("response_format", json!({"type": "json_object"})),
    ] {
        assert_eq!(seen[field], value, "{field}: {seen}");
    }
    for field in ["options", "think", "format", "num_ctx", "keep_alive"] {
        assert_eq!(seen.get(field), None, "{seen}");
    }
}

#[test]
fn thinking_is_returned_separately_from_the_response() {
    let pool = pool("writer", &["--reasoning", "First I greet"]);
    let whole = response_to(&pool, "/api/chat", &hello(json!({"stream": false})));
    assert_eq!(
        whole["message"],
        json!({"role": "assistant", "content": "Hello from writer and goodbye", "thinking": "First I greet"})
    );
    let (_, text, _) = pool.request("POST", "/api/chat", &hello(json!({})).to_string(), None);
    let streamed = lines(&text);
    let of = |field: &str| -> String {
        let pieces = streamed.iter().map(|line| &line["message"][field]);
        pieces.filter_map(Value::as_str).collect()
    };
    assert_eq!(
        (of("thinking").as_str(), of("content").as_str()),
        ("First I greet", "Hello from writer and goodbye")
    );
    let body = json!({"model": "writer", "prompt": "Hello", "stream": false});
    let told = response_to(&pool, "/api/generate", &body);
    assert_eq!(told["thinking"], "First I greet", "{told}");
}
