//! Ollama's routes that list models and describe the service.

use serde_json::{Value, json};

use super::{ON, ask, demo, get, loaded, response_to, stub, user_key};
use support::service::{Pool, wait_for};

fn names(list: &Value) -> Vec<&str> {
    let models = list["models"].as_array().unwrap().iter();
    models
        .map(|model| model["name"].as_str().unwrap())
        .collect()
}

#[test]
fn models_are_listed_with_the_details_of_their_files() {
    let pool = demo();
    let list = get(&pool, "/api/tags");
    assert_eq!(
        names(&list),
        [
            "tiny-chat:latest",
            "tiny-guide:latest",
            "tiny-helper:latest"
        ]
    );
    for model in list["models"].as_array().unwrap() {
        let name = model["model"].as_str().unwrap();
        let digest = model["digest"].as_str().unwrap();
        assert!(
            digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "{digest}"
        );
        assert!(model["size"].as_u64().unwrap() > 100_000, "{model}");
        assert_eq!(model["details"]["format"], "safetensors");
        let shown = response_to(&pool, "/api/show", &json!({"model": name}));
        assert_eq!(shown["details"], model["details"]);
        assert_eq!(shown["capabilities"], json!(["completion"]));
        let family = model["details"]["family"].as_str().unwrap();
        assert_eq!(shown["model_info"]["general.architecture"], family);
        assert!(
            shown["model_info"][format!("{family}.context_length")].is_u64(),
            "{shown}"
        );
        assert!(
            shown["modelfile"]
                .as_str()
                .unwrap()
                .starts_with(&format!("FROM {name}\n"))
        );
    }
    // Without its tag, and with the older name of the field.
    let shown = response_to(&pool, "/api/show", &json!({"name": "tiny-chat"}));
    assert_eq!(shown["details"], list["models"][0]["details"]);
    assert_eq!(
        get(&pool, "/api/tags"),
        list,
        "the second time from what is known"
    );
}

#[test]
fn a_model_of_unknown_size_has_every_field_that_clients_read() {
    let fields = |value: &Value| -> Vec<String> {
        let fields = value.as_object().unwrap().keys();
        fields.cloned().collect()
    };
    let (known, unknown) = (demo(), Pool::with_models(&[stub("one", &[], "")], ON));
    for (pool, model) in [(&known, "tiny-chat"), (&unknown, "one")] {
        let prompt = json!({"model": model, "prompt": "x", "stream": false});
        response_to(pool, "/api/generate", &prompt);
    }
    for route in ["/api/tags", "/api/ps"] {
        let [known, unknown] = [&known, &unknown].map(|pool| get(pool, route)["models"][0].clone());
        assert_eq!(fields(&unknown), fields(&known), "{route}");
        assert_eq!(
            fields(&unknown["details"]),
            fields(&known["details"]),
            "{route}"
        );
        assert!(unknown["size"].is_u64(), "{unknown}");
    }
    let shown = response_to(&unknown, "/api/show", &json!({"model": "one"}));
    assert_eq!(shown["details"]["quantization_level"], "");
    assert_eq!(shown["details"]["families"], json!([]));
}

#[test]
fn loaded_models_are_listed_with_their_expiry_and_listing_loads_nothing() {
    let pool = Pool::with_models(
        &[stub("one", &[], ", keep_hot: 1h"), stub("two:7b", &[], "")],
        ON,
    );
    assert_eq!(get(&pool, "/api/ps"), json!({"models": []}));
    get(&pool, "/api/tags");
    response_to(&pool, "/api/show", &json!({"model": "one"}));
    assert_eq!(get(&pool, "/api/ps"), json!({"models": []}));
    response_to(
        &pool,
        "/api/generate",
        &json!({"model": "one", "prompt": "x", "stream": false}),
    );
    response_to(
        &pool,
        "/api/generate",
        &json!({"model": "two:7b", "prompt": "x", "stream": false}),
    );
    wait_for("both to be listed", || {
        loaded(&pool) == ["one:latest", "two:7b"]
    });
    let running = get(&pool, "/api/ps");
    let [one, two] = [0, 1].map(|nth| running["models"][nth].clone());
    assert_eq!(
        (&one["size"], &one["size_vram"]),
        (&json!(1 << 30), &json!(1 << 30))
    );
    let ends = [&one, &two].map(|model| model["expires_at"].as_str().unwrap().to_owned());
    assert!(
        ends[0] > ends[1],
        "an hour is longer than ten minutes: {ends:?}"
    );
    // The name exists, but not the tag.
    let (status, response, _) = ask(&pool, "/api/show", &json!({"model": "two"}), None);
    assert_eq!(status, 404, "{response}");
}

#[test]
fn the_root_responds_like_ollama_to_programs_and_with_a_page_to_browsers() {
    let pool = demo();
    for (method, text) in [("GET", "Ollama is running"), ("HEAD", "")] {
        let (status, body, _) = pool.request(method, "/", "", None);
        assert_eq!((status, body.as_str()), (200, text));
    }
    let page = [("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")];
    let (status, body, head) = pool.request_with("GET", "/", "", &page);
    assert_eq!(status, 200);
    assert!(
        head.contains("text/html") && body.contains("<html"),
        "{head}"
    );
    let version = get(&pool, "/api/version");
    let parts = version["version"].as_str().unwrap().split('.');
    assert_eq!(
        parts.filter(|part| part.parse::<u32>().is_ok()).count(),
        3,
        "{version}"
    );
    assert_eq!(pool.request("HEAD", "/api/version", "", None).0, 200);
    assert_eq!(pool.request("HEAD", "/api/tags", "", None).0, 200);
}

#[test]
fn pulling_a_registered_model_succeeds_and_any_other_is_refused_with_advice() {
    let pool = demo();
    let pulled = response_to(
        &pool,
        "/api/pull",
        &json!({"model": "tiny-chat", "stream": false}),
    );
    assert_eq!(pulled, json!({"status": "success"}));
    let (status, text, head) =
        pool.request("POST", "/api/pull", r#"{"name":"tiny-chat:latest"}"#, None);
    assert_eq!(status, 200, "{text}");
    assert!(head.contains("application/x-ndjson"), "{head}");
    let lines = super::lines(&text);
    assert!(
        lines[0]["status"]
            .as_str()
            .unwrap()
            .contains("on this machine"),
        "{text}"
    );
    assert_eq!(lines[1], json!({"status": "success"}));
    let (status, response, _) = ask(&pool, "/api/pull", &json!({"model": "llama3.2"}), None);
    let words = response["error"].as_str().unwrap();
    assert_eq!(status, 404, "{words}");
    assert!(words.starts_with("model 'llama3.2' not found"), "{words}");
    assert!(words.contains("admin-client register ORG/NAME"), "{words}");
    for (method, path, advice) in [
        ("POST", "/api/create", "engine_config.generation"),
        ("POST", "/api/copy", "pool_config.aliases"),
        ("POST", "/api/push", "hub"),
        ("DELETE", "/api/delete", "admin-client remove"),
        ("HEAD", "/api/blobs/sha256:00", ""),
        ("POST", "/api/blobs/sha256:00", "admin-client register"),
    ] {
        let body = json!({"model": "tiny-chat", "source": "a", "destination": "b"}).to_string();
        let (status, text, _) = pool.request(method, path, &body, None);
        assert!(
            status == 501 && text.contains(advice),
            "{method} {path}: {status} {text}"
        );
    }
    assert_eq!(
        names(&get(&pool, "/api/tags")).len(),
        3,
        "nothing was deleted"
    );
}

#[test]
fn a_key_lists_and_uses_only_its_own_models() {
    let pool = Pool::with_models(
        &[stub("one", &[], ""), stub("two", &[], "")],
        &format!("{ON}auth: {{inference: key}}\n"),
    );
    let admin = pool.admin_key();
    let wish = json!({"name": "for one", "role": "user", "models": ["one"]});
    let (_, made, _) = ask(&pool, "/llm/admin/keys", &wish, Some(&admin));
    let key = made["key"].as_str().unwrap();
    let list = |key: &str| {
        let (status, text, _) = pool.request("GET", "/api/tags", "", Some(key));
        assert_eq!(status, 200, "{text}");
        serde_json::from_str::<Value>(&text).unwrap()
    };
    assert_eq!(names(&list(key)), ["one:latest"]);
    assert_eq!(names(&list(&user_key(&pool))), ["one:latest", "two:latest"]);
    for path in [
        "/api/chat",
        "/api/generate",
        "/api/embed",
        "/api/show",
        "/api/pull",
    ] {
        let body = |model: &str| json!({"model": model, "stream": false});
        assert_eq!(ask(&pool, path, &body("one"), Some(key)).0, 200, "{path}");
        let (status, response, _) = ask(&pool, path, &body("two"), Some(key));
        let words = response["error"].as_str().unwrap();
        assert!(
            status == 404 && words.starts_with("model 'two' not found"),
            "{path}: {words}"
        );
        let (status, response, _) = ask(&pool, path, &body("one"), None);
        assert_eq!(
            (status, response["error"].is_string()),
            (401, true),
            "{path}"
        );
    }
    assert_eq!(pool.request("GET", "/api/tags", "", None).0, 401);
    assert_eq!(pool.request("GET", "/api/version", "", None).0, 200);
}
