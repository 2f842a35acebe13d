//! The routes for clients of older systems, called as those clients do, and the rule for users' texts: the real binary over HTTP.

mod text_rules;

use serde_json::{Value, json};
use support::service::{Pool, wait_for};
use support::stub::stub_engine;

/// A model whose engine is the stub; `more` goes into its `pool_config`.
fn stub(name: &str, flags: &[&str], more: &str) -> (String, String) {
    let words: Vec<String> = flags.iter().map(|flag| format!(", {flag:?}")).collect();
    let file = format!(
        "engine_config:\n  model_id: {name}\n  type: CommandEngine\n  listen: port\n  command: [{:?}, \"--port\", \"{{{{ port }}}}\"{}]\npool_config: {{memory_gib: 1{more}}}\ndeployment_config: {{max_ongoing_requests: 1}}\n",
        stub_engine().display().to_string(),
        words.concat(),
    );
    (format!("{}.yaml", name.replace('/', "-")), file)
}

/// Like `requests.post(url, json=body)` in the previous admin client.
fn post(pool: &Pool, path: &str, body: &Value) -> (u16, Value) {
    let (status, text) = pool.post(path, &body.to_string());
    (
        status,
        serde_json::from_str(&text).unwrap_or(Value::String(text)),
    )
}

fn message(response: &Value) -> &str {
    response["error"]["message"].as_str().unwrap_or_default()
}

fn is_loaded(pool: &Pool, model: &str) -> bool {
    let (_, body, _) = pool.request("GET", "/llm/hot-models", "", None);
    let body: Value = serde_json::from_str(&body).unwrap();
    let hot = body["hot_models"].as_array().unwrap();
    hot.iter().any(|entry| entry["model_name"] == model)
}

#[test]
fn ncsa_routes_do_not_exist_without_the_compatibility_setting() {
    let pool = Pool::with_models(&[stub("org/one", &[], "")], "");
    let key = pool.admin_key();
    for path in [
        "admin/get_model",
        "admin/delete_model",
        "admin/load_model",
        "admin/info",
        "admin/dump_config",
        "admin/load_model_reference",
        "run",
    ] {
        let body = json!({"key": key, "model_name": "org/one", "data": "x"});
        let (status, response) = post(&pool, &format!("/llm/{path}"), &body);
        assert_eq!(
            (status, &response["error"]["code"]),
            (404, &json!("not_found")),
            "{path}"
        );
    }
    assert_eq!(post(&pool, "/llm/admin/reset", &json!({"key": key})).0, 401);
    let asked = |method: &str, path: &str| pool.request(method, path, "", Some(&key)).0;
    assert_eq!(asked("GET", "/llm/pending"), 404);
    assert_eq!(asked("GET", "/v1/models/org--one"), 404);
    assert_eq!(asked("GET", "/v1/models/org/one"), 200);
    assert_eq!(asked("DELETE", "/v1/models/org/one"), 405);
    assert_eq!(asked("GET", "/v1/health_check"), 404);
}

#[test]
fn the_old_admin_client_loads_shows_and_deletes_with_its_key_in_the_body() {
    let files = [stub("org/one", &[], ""), stub("two", &[], "")];
    let pool = Pool::with_models(&files, "compat: {ncsa: true}\n");
    let key = pool.admin_key();
    let asked = |path: &str, mut body: Value| {
        body["key"] = json!(key);
        post(&pool, &format!("/llm/admin/{path}"), &body)
    };
    let get = json!({"model_name": "org/one", "model_type": "vllm_openai", "gpus_per_replica": 1,
        "num_replicas": 1, "priority": null});
    assert_eq!(
        asked("get_model", get.clone()),
        (200, json!("Model org/one endpoint: /llm"))
    );
    wait_for("the model to be hot", || is_loaded(&pool, "org/one"));
    assert_eq!(asked("get_model", get).0, 200, "a second time");
    let load = |count: u32| json!({"model_name": "two", "num_replicas": count});
    assert_eq!(
        asked("load_model", load(2)),
        (200, json!("Model two active replicas set to 2."))
    );
    wait_for("two replicas to be shown", || {
        asked("load_model", load(2)).1 == "Model two already has 2 replicas."
    });
    let (status, info) = asked("info", json!({}));
    assert_eq!(status, 200);
    let expected = json!({"autoscaler_enabled": false, "last_autoscaler_failed_time": 0, "num_total_gpus": 1,
        "num_available_gpus:": 0, "num_available_gpus": 0, "num_served_models": 2});
    assert_eq!(info, expected);
    assert_eq!(
        asked("load_model", load(0)),
        (200, json!("Model two active replicas set to 0."))
    );
    assert_eq!(
        asked("load_model", load(0)),
        (200, json!("Model two already has 0 replicas."))
    );
    let delete = json!({"model_name": "org/one"});
    assert_eq!(
        asked("delete_model", delete.clone()),
        (200, json!("Model org/one deleted."))
    );
    wait_for("the model to be gone", || !is_loaded(&pool, "org/one"));
    assert_eq!(
        asked("delete_model", delete).0,
        409,
        "no trace of it remains"
    );
    let (status, config) = asked("dump_config", json!({}));
    assert_eq!((status, &config["compat"]["ncsa"]), (200, &json!(true)));
    assert!(!config.to_string().contains(&key));
    let reference = |path: &str| json!({"model_reference_path": path});
    assert_eq!(
        asked(
            "load_model_reference",
            reference("config/model_reference.json")
        ),
        (200, json!("Function load_model_reference() executed."))
    );
    let (status, response) = asked("load_model_reference", reference("/etc/passwd"));
    assert!(
        status == 400 && message(&response).contains("catalog.model_reference"),
        "{response}"
    );
    assert_eq!(
        asked(
            "get_model",
            json!({"model_name": "two", "model_type": "empty"})
        )
        .0,
        200
    );
    assert_eq!(
        asked("reset", json!({})),
        (200, json!("LLM service reset."))
    );
    wait_for("the pool to be empty", || !is_loaded(&pool, "two"));
}

#[test]
fn a_key_in_the_body_is_checked_like_a_bearer_token() {
    let pool = Pool::with_models(&[stub("one", &[], "")], "compat: {ncsa: true}\n");
    let admin = pool.admin_key();
    let made = r#"{"name":"student","role":"user"}"#;
    let (_, made, _) = pool.request("POST", "/llm/admin/keys", made, Some(&admin));
    let made: Value = serde_json::from_str(&made).unwrap();
    let user = made["key"].as_str().unwrap();
    for path in ["info", "dump_config", "reset"] {
        let path = format!("/llm/admin/{path}");
        let (status, response) = post(&pool, &path, &json!({"key": "IloveRocknRoll"}));
        assert_eq!(
            (status, &response["error"]["code"]),
            (403, &json!("invalid_api_key")),
            "{path}"
        );
        let (status, response) = post(&pool, &path, &json!({"key": user}));
        assert_eq!(
            (status, &response["error"]["code"]),
            (403, &json!("not_an_admin")),
            "{path}"
        );
        assert_eq!(
            post(&pool, &path, &json!({"key": "line\nbreak"})).0,
            403,
            "{path}"
        );
        assert_eq!(post(&pool, &path, &json!({})).0, 401, "{path}");
        assert_eq!(
            pool.request("POST", &path, "", Some(&admin)).0,
            200,
            "{path}"
        );
    }
    // The current API's response.
    let (_, response, _) = pool.request("POST", "/llm/admin/reset", "{}", Some(&admin));
    assert_eq!(response, r#"{"unloaded":[]}"#);
    // The key is checked before everything else.
    assert_eq!(
        post(&pool, "/llm/admin/get_model", &json!({"key": "no", "x": 1})).0,
        403
    );
    assert!(!pool.log().contains(&admin) && !pool.log().contains("IloveRocknRoll"));
}

#[test]
fn wrong_requests_of_the_old_admin_client_get_the_real_status() {
    let pool = Pool::with_models(&[stub("one", &[], "")], "compat: {ncsa: true}\n");
    let key = pool.admin_key();
    let one = |more: Value| {
        let mut body =
            json!({"key": key, "model_name": "one", "model_type": "empty", "num_replicas": 1});
        let more = more.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(more);
        body
    };
    for (more, status, word) in [
        (
            json!({"model_name": "nobody"}),
            404,
            "no model is called nobody",
        ),
        (
            json!({"model_type": "unknown"}),
            400,
            "empty, vllm_raw, vllm_openai, embedding",
        ),
        (json!({"num_replicas": -1}), 400, "0 to 64"),
        (json!({"hf_key": "hf_abc"}), 400, "HF_TOKEN"),
        (json!({"model_nam": "x"}), 400, "did you mean model_name?"),
        (json!({"num_replicas": 20}), 200, ""),
    ] {
        let (got, response) = post(&pool, "/llm/admin/get_model", &one(more.clone()));
        assert_eq!(got, status, "{more}: {response}");
        assert!(message(&response).contains(word), "{response}");
    }
    let load = json!({"key": key, "model_name": "one", "num_replicas": 20});
    let (status, response) = post(&pool, "/llm/admin/load_model", &load);
    let words = response.as_str().unwrap_or_default();
    assert!(
        status == 200 && words.contains(" of 20: "),
        "{status} {response}"
    );
    let nobody = json!({"key": key, "model_name": "nobody", "num_replicas": 1});
    assert_eq!(post(&pool, "/llm/admin/load_model", &nobody).0, 404);
}

#[test]
fn rayllms_names_health_check_and_removal_route_are_supported() {
    let pool = Pool::with_models(&[stub("org/one", &[], "")], "compat: {rayllm: true}\n");
    let key = pool.admin_key();
    let asked = |method: &str, path: &str, key: Option<&str>| {
        let (status, body, _) = pool.request(method, path, "", key);
        (
            status,
            serde_json::from_str::<Value>(&body).unwrap_or_default(),
        )
    };
    for base in ["", "/llm"] {
        assert_eq!(
            asked("GET", &format!("{base}/v1/health_check"), None),
            (200, json!(true))
        );
        let (status, model) = asked("GET", &format!("{base}/v1/models/org--one"), None);
        assert_eq!((status, &model["id"]), (200, &json!("org/one")));
        assert_eq!(
            model["rayllm_metadata"]["engine_config"]["model_type"],
            "text-generation"
        );
    }
    assert_eq!(asked("GET", "/v1/models/org--two", None).0, 404);
    assert_eq!(asked("DELETE", "/v1/models/org--one", None).0, 401);
    let (status, response) = asked("DELETE", "/v1/models/org--one", Some(&key));
    assert_eq!(
        (status, &response["error"]["code"]),
        (403, &json!("from_file")),
        "{response}"
    );
    let document = json!({
        "engine_config": {"model_id": "org/tuned", "type": "CommandEngine",
            "command": [stub_engine(), "--port", "{{ port }}"]},
        "pool_config": {"memory_gib": 1},
    });
    let (status, response, _) = pool.request(
        "PUT",
        "/llm/admin/models",
        &document.to_string(),
        Some(&key),
    );
    assert_eq!(status, 200, "{response}");
    assert_eq!(
        asked("DELETE", "/v1/models/org--tuned", Some(&key)),
        (
            200,
            json!({"id": "org/tuned", "object": "model", "deleted": true})
        )
    );
    assert_eq!(asked("GET", "/v1/models/org--tuned", None).0, 404);
    assert_eq!(asked("DELETE", "/v1/models/org--tuned", Some(&key)).0, 404);
}

#[test]
fn run_completes_a_prompt_and_pending_counts_the_waiting_requests() {
    let slow = ["--ready-after-ms", "1500", "--tokens", "8"];
    let config = "compat: {run: true}\npool: {queue_limit: 2}\n";
    let pool = Pool::with_models(&[stub("gpt-j", &slow, "")], config);
    let body = json!({"data": "Roman emperor Trajan ruled from", "num_tokens": 3, "decoding_strategy": "multinomial"});
    let pending = || pool.request("GET", "/llm/pending", "", None).1;
    assert_eq!(pending(), "0");
    let first = pool.stream("/llm/run", &body.to_string());
    let second = pool.stream("/llm/run", &body.to_string());
    wait_for("both to wait", || pending() == "2");
    let (status, response) = post(&pool, "/llm/run", &body);
    assert_eq!(
        (status, &response["error"]["code"]),
        (429, &json!("queue_full"))
    );
    let whole = "\"Roman emperor Trajan ruled fromHello from gpt-j\"";
    assert_eq!(
        (first.whole().as_str(), second.whole().as_str()),
        (whole, whole)
    );
    wait_for("the queue to be empty", || pending() == "0");
    let (status, response) = post(&pool, "/llm/run", &json!({"data": "x"}));
    assert!(status == 200 && response.is_string(), "{response}");
    for (body, word) in [
        (json!({"num_tokens": 3}), "data: is missing"),
        (json!({"data": "x", "num_tokens": 0}), "num_tokens: 0"),
        (
            json!({"data": "x", "decoding_strategy": "guess"}),
            "multinomial, beam_search, contrastive_search, greedy",
        ),
        (
            json!({"data": "x", "decoding_strategy": "contrastive"}),
            "no contrastive_search",
        ),
        (
            json!({"data": "x", "num_token": 3}),
            "did you mean num_tokens?",
        ),
    ] {
        let (status, response) = post(&pool, "/llm/run", &body);
        assert!(
            status == 400 && message(&response).contains(word),
            "{response}"
        );
    }
    assert_eq!(
        post(&pool, "/llm/run", &json!({"data": "x", "model": "nobody"})).0,
        404
    );
}

#[test]
fn run_requires_a_key_and_a_model_if_configured() {
    let files = [stub("one", &[], ""), stub("two", &[], "")];
    let pool = Pool::with_models(&files, "compat: {run: true}\nauth: {inference: key}\n");
    let body = json!({"data": "x"});
    assert_eq!(post(&pool, "/llm/run", &body).0, 401);
    assert_eq!(pool.request("GET", "/llm/pending", "", None).0, 401);
    let key = pool.admin_key();
    let asked = |body: &Value| pool.request("POST", "/llm/run", &body.to_string(), Some(&key));
    let (status, response, _) = asked(&body);
    assert!(
        status == 400 && response.contains("compat.run_model"),
        "{response}"
    );
    let (status, response, _) = asked(&json!({"data": "x ", "model": "two", "num_tokens": 3}));
    assert_eq!((status, response.as_str()), (200, "\"x Hello from two\""));
    drop(pool);
    let pool = Pool::with_models(&files, "compat: {run: true, run_model: one}\n");
    let (_, response) = post(&pool, "/llm/run", &json!({"data": "x ", "num_tokens": 3}));
    assert_eq!(response, "x Hello from one");
}
