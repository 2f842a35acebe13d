//! The OpenAPI document of the running program: its examples run unchanged, it names models only to callers that may use them, and
//! it follows the configuration.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::{Value, json};
use support::openapi_check;
use support::schema::Document;
use support::service::Pool;
use support::stub::stub_engine;

const COMPAT: &str = "compat: {ncsa: true, ollama: true, rayllm: true, run: true}\n";

fn document(pool: &Pool, key: Option<&str>) -> Document {
    let (status, text, _) = pool.request("GET", "/llm/openapi.json", "", key);
    assert_eq!(status, 200, "{text}");
    Document::read(&text)
}

/// An example of an operation, as a request.
struct Example {
    place: String,
    method: String,
    path: String,
    target: String,
    body: Option<Value>,
}

/// Examples of a body, by name.
fn bodies(content: &Value) -> Vec<(String, Value)> {
    let one = content
        .get("example")
        .map(|example| (String::new(), example.clone()));
    let several = content["examples"].as_object().into_iter().flatten();
    let several = several.map(|(name, example)| (name.clone(), example["value"].clone()));
    one.into_iter().chain(several).collect()
}

/// The address with the examples of its parameters, as Swagger UI fills them in.
fn target(path: &str, parameters: &Value) -> String {
    let (mut target, mut query) = (format!("/llm{path}"), Vec::new());
    for parameter in parameters.as_array().into_iter().flatten() {
        let name = parameter["name"].as_str().unwrap();
        let example = match parameter.get("example") {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => continue,
        };
        match parameter["in"].as_str() {
            Some("path") => target = target.replace(&format!("{{{name}}}"), &example),
            Some("query") => query.push(format!("{name}={example}")),
            _ => {}
        }
    }
    if query.is_empty() {
        target
    } else {
        format!("{target}?{}", query.join("&"))
    }
}

fn examples(document: &Document) -> Vec<Example> {
    let mut all = Vec::new();
    for (path, item) in document.0["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let target = target(path, &operation["parameters"]);
            let content = &operation["requestBody"]["content"];
            let example = |name: &str, body: Option<Value>| Example {
                place: format!("{method} {path} {name}").trim_end().to_owned(),
                method: method.to_uppercase(),
                path: path.clone(),
                target: target.clone(),
                body,
            };
            let of_json = content
                .get("application/json")
                .map(bodies)
                .unwrap_or_default();
            if content.is_null() {
                all.push(example("", None));
            }
            all.extend(
                of_json
                    .into_iter()
                    .map(|(name, body)| example(&name, Some(body))),
            );
        }
    }
    all
}

/// Order of the examples: creation before changes, and removal of everything last.
fn turn(example: &Example) -> u8 {
    match (example.method.as_str(), example.path.as_str()) {
        ("DELETE", "/v1/models/{model}") => 6,
        ("DELETE", _) => 5,
        (_, "/admin/reset") => 8,
        (_, "/admin/cleanup" | "/admin/delete_model") => 7,
        (_, "/admin/unload" | "/admin/devices/uncordon") => 4,
        (_, "/admin/devices/cordon") => 3,
        ("PATCH", _) => 2,
        ("POST" | "PUT", path) if path.starts_with("/admin/") => 1,
        _ => 0,
    }
}

/// Expected statuses other than success, with the demo models and a pool of a single machine.
fn expected(example: &Example) -> &'static [u16] {
    match (example.method.as_str(), example.path.as_str()) {
        // The demo models support no embeddings, reranking or speech.
        (_, "/v1/embeddings" | "/v1/rerank" | "/v1/score" | "/v1/audio/speech") => &[501],
        // They have no llama-server and generate no images.
        (_, "/v1/images/generations" | "/v1/infill" | "/v1/completion") => &[501],
        (_, "/v1/audio/voices") => &[501],
        // A small model may write an empty summary.
        (_, "/v1/responses/compact") => &[200, 502],
        (_, "/api/embed" | "/api/embeddings") => &[501],
        // Models cannot be created over Ollama's API.
        (_, "/api/copy" | "/api/create" | "/api/delete" | "/api/push") => &[501],
        // The example's response id does not exist.
        (_, path) if path.starts_with("/v1/responses/{id}") => &[404],
        (_, path) if path.starts_with("/v1/conversations/{id}") => &[404],
        // The examples name devices, nodes and tokens that the demo pool may not have.
        (_, "/admin/what-if") => &[200, 404],
        (_, path) if path.starts_with("/admin/nodes/") => &[200, 404],
        // The files and batches of the examples do not exist.
        ("PATCH" | "POST", path) if path.starts_with("/admin/batches") => &[404],
        ("POST", "/v1/batches") => &[404],
        (_, path) if path.contains("/batches/{id}") || path.starts_with("/v1/files/{id}") => &[404],
        // The preceding example has removed the model.
        ("DELETE", "/v1/models/{model}") => &[404],
        // The preceding example has unloaded the model, or the pool is already empty.
        (_, "/admin/delete_model") => &[200, 409],
        // The demo pool has no issuer at which a browser signs in.
        ("GET", "/session/sign-on" | "/session/signed-on") => &[404],
        // The example is not a valid key, and no session exists.
        ("POST", "/session") => &[400],
        ("DELETE", "/session") => &[204],
        // The model may be cold, and nothing is loaded for it.
        ("POST", "/test") => &[200, 503],
        // There may be no decision about the model yet.
        (_, "/admin/why") => &[200, 404],
        // An example does not wait for the end of the load.
        ("POST", "/admin/load") => &[200, 202],
        _ => &[200],
    }
}

#[test]
fn every_example_is_valid_and_runs_unchanged_on_the_demo_pool() {
    let pool = Pool::demo_with(&format!(
        "evening: {{cleanup: null, reopen: null}}\nsources: {{offline: true}}\ngroups: {{lab: {{}}}}\n{COMPAT}"
    ));
    let key = pool.admin_key();
    let document = document(&pool, None);
    let mut examples = examples(&document);
    examples.sort_by_key(turn);
    assert!(examples.len() > 60, "{}", examples.len());
    for example in &examples {
        let (place, method, path) = (&example.place, &example.method, &example.path);
        // Endless streams are tested with their events.
        let content = &document.0["paths"][path][method.to_lowercase()]["responses"]["200"];
        let kinds = content["content"].as_object();
        if kinds.is_some_and(|kinds| kinds.len() == 1 && kinds.contains_key("text/event-stream")) {
            continue;
        }
        let body = example.body.as_ref();
        if let Some(body) = body {
            let schema = document.request(method, path, "application/json").unwrap();
            document
                .check(schema, body)
                .unwrap_or_else(|error| panic!("{place}: {error}"));
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        let (status, response, head) = pool.request(method, &example.target, &body, Some(&key));
        let wanted = expected(example);
        assert!(wanted.contains(&status), "{place}: {status} {response}");
        let kind = head
            .lines()
            .find_map(|line| line.strip_prefix("content-type: "));
        let kind = kind
            .unwrap_or_default()
            .split(';')
            .next()
            .unwrap_or_default();
        let schema = document.response_schema(method, path, status, kind);
        if kind == "application/json"
            && let Some(schema) = schema
        {
            let response: Value = serde_json::from_str(&response).unwrap();
            document
                .check(schema, &response)
                .unwrap_or_else(|error| panic!("{place}: {error}\n{response}"));
        }
    }
}

#[test]
fn every_example_of_a_response_is_valid() {
    let pool = Pool::with_models(&[], COMPAT);
    let document = document(&pool, None);
    let mut checked = 0;
    for (path, item) in document.0["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            for (status, response) in operation["responses"].as_object().unwrap() {
                let content = &document.resolved(response)["content"]["application/json"];
                let Some(schema) = content.get("schema") else {
                    continue;
                };
                for (name, example) in bodies(content) {
                    let place = format!("{method} {path} {status} {name}");
                    document
                        .check(schema, &example)
                        .unwrap_or_else(|error| panic!("{place}: {error}"));
                    checked += 1;
                }
            }
        }
    }
    assert!(checked > 300, "{checked}");
}

fn stub(name: &str) -> (String, String) {
    let file = format!(
        "engine_config:\n  model_id: {name}\n  type: CommandEngine\n  command: [{:?}, --port, \"{{{{ port }}}}\", --model, {name}]\npool_config: {{memory_gib: 1}}\n",
        stub_engine().display().to_string(),
    );
    (format!("{}.yaml", name.replace('/', "-")), file)
}

#[test]
fn examples_name_models_only_to_callers_who_may_use_them() {
    let files = [stub("lab/first"), stub("lab/second")];
    let pool = Pool::with_models(&files, "auth: {inference: key}\n");
    let made = json!({"name": "a class", "role": "user", "models": ["lab/second"]}).to_string();
    let (_, made, _) = pool.request("POST", "/llm/admin/keys", &made, Some(&pool.admin_key()));
    let made: Value = serde_json::from_str(&made).unwrap();
    let named = |key: Option<&str>| {
        let text = document(&pool, key).0.to_string();
        ["lab/first", "lab/second"].map(|name| text.contains(name))
    };
    assert_eq!(named(None), [false, false]);
    assert_eq!(named(Some("mp-wrong")), [false, false]);
    assert_eq!(named(made["key"].as_str()), [false, true]);
    let of_all = named(Some(&pool.admin_key()));
    assert!(of_all.contains(&true));
    let open = Pool::with_models(&files, "auth: {inference: open}\n");
    assert!(document(&open, None).0.to_string().contains("lab/first"));
}

#[test]
fn a_key_is_optional_in_the_document_if_the_configuration_allows_it() {
    let security = |config: &str| {
        let pool = Pool::with_models(&[], config);
        let document = document(&pool, None);
        document.0["paths"]["/v1/chat/completions"]["post"]["security"].clone()
    };
    let needed = json!([{"user_key": []}]);
    assert_eq!(security("auth: {inference: key}\n"), needed);
    for open in ["auth: {inference: loopback}\n", "auth: {inference: open}\n"] {
        assert_eq!(security(open), json!([{"user_key": []}, {}]), "{open}");
    }
}

#[test]
fn compatibility_routes_are_in_the_document_if_enabled() {
    let paths = |config: &str| -> BTreeSet<String> {
        let pool = Pool::with_models(&[], config);
        let document = document(&pool, None);
        document.0["paths"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect()
    };
    let without = paths("");
    let with = paths(COMPAT);
    let more: BTreeSet<&str> = with.difference(&without).map(String::as_str).collect();
    for path in [
        "/admin/get_model",
        "/admin/delete_model",
        "/admin/load_model",
        "/admin/info",
        "/admin/dump_config",
        "/admin/load_model_reference",
        "/run",
        "/pending",
        "/v1/health_check",
        "/api/chat",
        "/api/tags",
    ] {
        assert!(more.contains(path), "{path}: {more:?}");
    }
}

#[test]
fn swagger_ui_keeps_the_key_and_enables_try_it_out() {
    let pool = Pool::with_models(&[], "");
    let script = "/llm/docs/swagger-initializer.js";
    let (status, text, _) = pool.request("GET", script, "", None);
    assert_eq!(status, 200);
    for setting in [
        "\"url\": \"../openapi.json?relative\"",
        "\"persistAuthorization\": true",
        "\"tryItOutEnabled\": true",
        "\"validatorUrl\": \"none\"",
    ] {
        assert!(text.contains(setting), "{setting}: {text}");
    }
    let (status, page, head) = pool.request("GET", "/llm/docs/", "", None);
    assert_eq!(status, 200, "{head}");
    assert!(page.contains("width=device-width"), "{page}");
    assert!(page.trim_end().ends_with("</html>"), "{page}");
}

#[test]
fn the_checks_detect_undocumented_fields_and_statuses() {
    let pool = Pool::with_models(&[], "");
    let path = "/llm/v1/tokenize";
    let head = "content-type: application/json";
    let sent = r#"{"model": "m", "prompt": "x"}"#;
    let response = r#"{"tokens": [1], "count": 1, "max_model_len": null}"#;
    openapi_check::check(&pool, path, sent, (200, response, head));
    for (sent, response) in [
        (r#"{"model": 5, "prompt": "x"}"#, response),
        (r#"{"prompt": "x"}"#, response),
        (sent, r#"{"tokens": ["a"], "count": 1}"#),
        (sent, r#"{"tokens": [1]}"#),
    ] {
        let check = || openapi_check::check(&pool, path, sent, (200, response, head));
        assert!(
            catch_unwind(AssertUnwindSafe(check)).is_err(),
            "{sent} {response}"
        );
    }
}
