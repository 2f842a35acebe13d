//! The routes of Aviary, and LLM Serving's list and test of models, called as their clients do: the real binary over HTTP.

use serde_json::{Value, json};
use support::service::{Pool, wait_for};
use support::stub::stub_engine;

/// A model whose engine is the stub.
fn stub(name: &str, more: &str) -> (String, String) {
    let program = stub_engine().display().to_string();
    let file = format!(
        "engine_config:\n  model_id: {name}\n  type: CommandEngine\n  listen: port\n  model_description: A stub\n  env: {{TOKEN: secret-of-the-engine}}\n  command: [{program:?}, \"--port\", \"{{{{ port }}}}\"]\n{more}pool_config: {{memory_gib: 1}}\n"
    );
    (format!("{}.yaml", name.replace('/', "-")), file)
}

fn post(pool: &Pool, path: &str, body: &Value) -> (u16, Value) {
    let (status, text) = pool.post(path, &body.to_string());
    let value = serde_json::from_str(&text);
    (status, value.unwrap_or(Value::String(text)))
}

fn get(pool: &Pool, path: &str) -> (u16, Value) {
    let (status, text, _) = pool.request("GET", path, "", None);
    (status, serde_json::from_str(&text).unwrap_or_default())
}

#[test]
fn the_requests_of_aviarys_client_are_served_plain_in_batches_and_as_lines() {
    let files = [stub("org/one", ""), stub("two", "")];
    let pool = Pool::with_models(&files, "compat: {aviary: true}\n");
    for base in ["", "/llm"] {
        assert_eq!(
            get(&pool, &format!("{base}/models")),
            (200, json!(["org/one", "two"]))
        );
        let asked = json!({"prompt": "Hello"});
        let (status, response) = post(&pool, &format!("{base}/query/org--one"), &asked);
        assert_eq!(
            (status, &response["generated_text"]),
            (200, &json!("Hello from org/one and goodbye"))
        );
        // In the form that the client of 0.0 reads.
        assert_eq!(
            response["org/one"]["generated_text"],
            response["generated_text"]
        );
        assert_eq!(response["num_generated_tokens"], 5);
        assert!(response["total_time"].is_f64(), "{response}");
    }
    let prompts = json!([{"prompt": "Hello"}, {"prompt": "Again", "use_prompt_format": false,
        "parameters": {"max_new_tokens": 2, "do_sample": true}}]);
    let (status, responses) = post(&pool, "/query/batch/two", &prompts);
    let texts: Vec<&Value> = responses
        .as_array()
        .unwrap()
        .iter()
        .map(|result| &result["generated_text"])
        .collect();
    assert_eq!(status, 200, "{responses}");
    assert_eq!(texts[0], "Hello from two and goodbye");
    assert!(
        texts[1].as_str().unwrap().starts_with("Hello"),
        "{responses}"
    );
    let lines = pool
        .stream("/stream/two", &json!({"prompt": "Hello"}).to_string())
        .whole();
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let text: String = lines
        .iter()
        .filter_map(|line| line["generated_text"].as_str())
        .collect();
    assert_eq!(text, "Hello from two and goodbye");
    assert_eq!(lines.last().unwrap()["num_generated_tokens"], 5);
    let (status, metadata) = get(&pool, "/metadata/org--one");
    let model = &metadata["metadata"]["model_config"];
    assert_eq!((status, &model["model_id"]), (200, &json!("org/one")));
    assert_eq!(model["model_description"], "A stub");
    assert!(!metadata.to_string().contains("secret"), "{metadata}");
}

/// Requests from Aviary's own client (`aviary/sdk.py` of 0.1, `aviary/common/backend.py` of 0.0), with the headers of Python's
/// `requests`.
#[test]
fn the_exact_requests_of_aviarys_clients_are_served() {
    let pool = Pool::with_models(&[stub("org/one", "")], "compat: {aviary: true}\n");
    // Without AVIARY_TOKEN the client sends an empty token.
    let headers = [
        ("Authorization", ""),
        ("User-Agent", "python-requests/2.31.0"),
        ("Accept-Encoding", "gzip, deflate"),
        ("Accept", "*/*"),
    ];
    let send = |method: &str, path: &str, body: &str| {
        let (status, text, _) = pool.request_with(method, path, body, &headers);
        assert_eq!(status, 200, "{path} {body}: {text}");
        text
    };
    let value = |text: &str| -> Value { serde_json::from_str(text).unwrap() };
    // `Model.list()` rejects a model without these keys.
    let listed = value(&send("GET", "/v1/models", ""));
    let model = listed["data"][0].as_object().unwrap();
    for key in ["id", "object", "owned_by", "permission"] {
        assert!(model.contains_key(key), "{key} is missing in {listed}");
    }
    assert!(model["permission"].is_array());
    assert_eq!(value(&send("GET", "/models", "")), json!(["org/one"]));
    let metadata = value(&send("GET", "/metadata/org--one", ""));
    assert!(
        metadata["metadata"]["model_config"].is_object(),
        "{metadata}"
    );
    // `completions(model, prompt)` and `query`: 0.0 has no `use_prompt_format`, and reads the response by the model's name.
    let old = value(&send("POST", "/query/org--one", r#"{"prompt": "Hello"}"#));
    assert_eq!(
        old["org/one"]["generated_text"],
        "Hello from org/one and goodbye"
    );
    let new = r#"{"prompt": "Hello", "use_prompt_format": true}"#;
    let response = value(&send("POST", "/query/org--one", new));
    for key in [
        "generated_text",
        "num_input_tokens",
        "num_generated_tokens",
        "total_time",
        "num_total_tokens",
        "error",
    ] {
        assert!(
            response.get(key).is_some(),
            "{key} is missing in {response}"
        );
    }
    // Its keyword arguments are sent with the prompt.
    let more = r#"{"prompt": "Hello", "use_prompt_format": true, "parameters": {"temperature": 0.5, "top_k": 0}, "stopping_sequences": ["goodbye"]}"#;
    send("POST", "/query/org--one", more);
    // `batch_completions(model, prompts)`.
    let several = r#"[{"prompt": "Hello", "use_prompt_format": true}, {"prompt": "Again", "use_prompt_format": false}]"#;
    let responses = value(&send("POST", "/query/batch/org--one", several));
    assert_eq!(responses.as_array().unwrap().len(), 2);
    // `stream(model, prompt)` treats a line with an `error`, even null, as the end.
    let lines = send("POST", "/stream/org--one", new);
    let lines: Vec<Value> = lines
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(value)
        .collect();
    assert!(
        lines.len() > 2 && lines.iter().all(|line| line.get("error").is_none()),
        "{lines:?}"
    );
}

#[test]
fn stops_next_to_the_prompt_reach_the_engine_and_invalid_ones_are_refused() {
    let mut model = stub("one", "");
    model.1 = model.1.replace("\"--port\"", "\"--echo\", \"--port\"");
    let pool = Pool::with_models(&[model], "compat: {aviary: true}\n");
    let engine_got = |asked: Value| -> Value {
        let (status, response) = post(&pool, "/query/one", &asked);
        assert_eq!(status, 200, "{response}");
        serde_json::from_str(response["generated_text"].as_str().unwrap()).unwrap()
    };
    let got = engine_got(json!({"prompt": "x", "stopping_sequences": ["###"]}));
    assert_eq!(got["stop"], json!(["###"]), "{got}");
    let both = json!({"prompt": "x", "stopping_sequences": ["###"], "parameters": {"stopping_sequences": ["!"]}});
    assert_eq!(engine_got(both)["stop"], json!(["!"]));
    let (status, refused) = post(
        &pool,
        "/query/one",
        &json!({"prompt": "x", "stopping_sequences": "###"}),
    );
    assert_eq!(
        (status, &refused["error"]["param"]),
        (400, &json!("stopping_sequences")),
        "{refused}"
    );
}

#[test]
fn wrong_requests_of_aviarys_client_get_the_real_status() {
    let pool = Pool::with_models(&[stub("one", "")], "compat: {aviary: true}\n");
    for (path, body, status, word) in [
        (
            "/query/nobody",
            json!({"prompt": "x"}),
            404,
            "no model is called nobody",
        ),
        ("/query/one", json!({}), 400, "prompt: is missing"),
        ("/query/one", json!({"promt": "x"}), 400, "prompt"),
        (
            "/query/one",
            json!({"prompt": "x", "parameters": {"beam_width": 3}}),
            400,
            "parameters.beam_width",
        ),
        (
            "/query/one",
            json!({"prompt": "x", "parameters": {"stopping_sequences": ["1", "2", "3", "4", "5", "6", "7", "8", "9"]}}),
            400,
            "9 stops",
        ),
        (
            "/query/batch/one",
            json!({"prompt": "x"}),
            400,
            "must be a list of prompts",
        ),
        (
            "/query/batch/one",
            json!([]),
            400,
            "0 prompts; allowed: 1 to 256",
        ),
        (
            "/stream/nobody",
            json!({"prompt": "x"}),
            404,
            "no model is called nobody",
        ),
    ] {
        let (got, response) = post(&pool, path, &body);
        let message = response["error"]["message"].as_str().unwrap_or_default();
        assert!(
            got == status && message.contains(word),
            "{path} {body}: {got} {response}"
        );
    }
    assert_eq!(get(&pool, "/metadata/nobody").0, 404);
    // In a batch, each prompt has its own response or error.
    let mixed = json!([{"prompt": "x"}, {"prompt": "x", "parameters": {"stopping_sequences": ["1", "2", "3", "4", "5", "6", "7", "8", "9"]}}]);
    let (status, responses) = post(&pool, "/query/batch/one", &mixed);
    assert_eq!(status, 200, "{responses}");
    assert_eq!(responses[0]["generated_text"], "Hello from one and goodbye");
    assert!(
        responses[1]["generated_text"].is_null() && responses[1]["error"].is_string(),
        "{responses}"
    );
}

#[test]
fn aviary_routes_do_not_exist_without_the_compatibility_setting() {
    let pool = Pool::with_models(&[stub("one", "")], "");
    for path in [
        "/query/one",
        "/llm/query/one",
        "/query/batch/one",
        "/stream/one",
        "/v1/chat/completions/one",
        "/v1/completions/one",
        "/llm/test",
    ] {
        assert_eq!(pool.post(path, "{\"prompt\": \"x\"}").0, 404, "{path}");
    }
    for path in ["/models", "/llm/models", "/metadata/one"] {
        assert_eq!(get(&pool, path).0, 404, "{path}");
    }
}

#[test]
fn openai_routes_with_the_model_in_the_path_equal_those_with_it_in_the_body() {
    let files = [stub("org/one", ""), stub("two", "")];
    let pool = Pool::with_models(&files, "compat: {aviary: true}\n");
    let chat = json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4});
    let text = json!({"prompt": "Hi", "max_tokens": 4});
    for (path, body, object) in [
        ("/v1/chat/completions/org--one", &chat, "chat.completion"),
        (
            "/llm/v1/chat/completions/org--one",
            &chat,
            "chat.completion",
        ),
        ("/v1/completions/org--one", &text, "text_completion"),
    ] {
        let mut named = body.clone();
        for repeated in ["", "org--one", "org/one"] {
            if !repeated.is_empty() {
                named["model"] = json!(repeated);
            }
            let (status, response) = post(&pool, path, &named);
            assert_eq!(status, 200, "{path} {repeated}: {response}");
            assert_eq!(response["object"], object, "{response}");
            assert_eq!(response["model"], "org/one", "{response}");
        }
        named["model"] = json!("two");
        let (status, response) = post(&pool, path, &named);
        assert_eq!(status, 400, "{response}");
        let message = response["error"]["message"].as_str().unwrap();
        assert!(
            message.contains("is two, and the path names org--one"),
            "{message}"
        );
        named["model"] = json!(7);
        assert_eq!(post(&pool, path, &named).0, 400);
    }
    let mut stream = chat.clone();
    stream["stream"] = json!(true);
    let (status, text) = pool.post("/v1/chat/completions/two", &stream.to_string());
    assert_eq!(status, 200, "{text}");
    assert!(text.trim_end().ends_with("data: [DONE]"), "{text}");
    assert_eq!(post(&pool, "/v1/chat/completions/nobody", &chat).0, 404);
    assert_eq!(pool.post("/v1/chat/completions/two", "[1").0, 400);
}

#[test]
fn the_llm_serving_list_shows_hot_models_and_test_does_not_load_a_model() {
    let files = [stub("org/one", ""), stub("two", "")];
    let pool = Pool::with_models(&files, "compat: {ncsa: true, aviary: true}\n");
    let (status, lists) = get(&pool, "/llm/models");
    assert_eq!((status, &lists["hot_models"]), (200, &json!([])), "{lists}");
    let (status, response) = post(&pool, "/llm/test", &json!({"model": "two"}));
    assert_eq!(
        (status, &response["error"]["code"]),
        (503, &json!("not_loaded")),
        "{response}"
    );
    assert_eq!(
        get(&pool, "/llm/models").1["hot_models"],
        json!([]),
        "nothing is loaded for a test"
    );
    let chat = json!({"model": "two", "messages": [{"role": "user", "content": "x"}]});
    assert_eq!(post(&pool, "/v1/chat/completions", &chat).0, 200);
    let hot = || get(&pool, "/llm/models").1["hot_models"].clone();
    wait_for("the model to be hot", || hot()[0]["status"] == "Running");
    let mut model = hot()[0].clone();
    let created = model["created_time"].take();
    assert_eq!(
        model,
        json!({"model_name": "two", "model_type": "vllm_openai", "status": "Running", "num_replicas": 1, "priority": 0,
            "gpus_per_replica": 1, "route_prefix": "/llm", "created_time": null})
    );
    assert_eq!(created.as_str().unwrap().len(), "2026-01-31 08:15".len());
    let body = json!({"model": "two", "num_replicas": 4, "gpus_per_replica": 9, "priority": 5});
    assert_eq!(
        post(&pool, "/llm/test", &body),
        (200, json!("Model two answers."))
    );
    assert_eq!(post(&pool, "/llm/test", &json!({"model": "nobody"})).0, 404);
    assert_eq!(post(&pool, "/llm/test", &json!({"modell": "two"})).0, 400);
    let document = get(&pool, "/llm/openapi.json").1;
    for path in [
        "/models",
        "/test",
        "/query/{model}",
        "/query/batch/{model}",
        "/stream/{model}",
        "/metadata/{model}",
        "/v1/chat/completions/{model}",
        "/v1/completions/{model}",
    ] {
        assert!(
            document["paths"][path].is_object(),
            "{path} is not in the document"
        );
    }
}

#[test]
fn models_on_the_disk_are_listed_with_their_size() {
    let weights = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/models/tiny-chat");
    let file = format!(
        "engine_config: {{model_id: tiny, type: CandleEngine, model_path: {weights:?}, max_total_tokens: 64}}\n"
    );
    let pool = Pool::with_models(&[("tiny.yaml".to_owned(), file)], "compat: {ncsa: true}\n");
    let (_, lists) = get(&pool, "/llm/models");
    let cached = &lists["cached_models"][0];
    assert_eq!(cached["model-name"], "tiny");
    assert!(
        cached["model-size"].as_str().unwrap().ends_with('K')
            || cached["model-size"].as_str().unwrap().ends_with('M'),
        "{cached}"
    );
    assert_eq!(cached["last-modified-time"].as_str().unwrap().len(), 16);
}
