//! Tests that the document contains every route with a complete description.
//! One file because most of it is the list of all routes.

mod fields;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::server::service_routes;
use gateway::routes::user_routes;

fn complete(strangers: bool) -> Value {
    let router = user_routes().merge(admin::routes()).merge(service_routes());
    serde_json::to_value(document(router.into_openapi(), "/llm", strangers)).unwrap()
}

const ROUTES: [(&str, &str); 107] = [
    ("post", "/v1/chat/completions"),
    ("post", "/v1/completions"),
    ("post", "/v1/messages"),
    ("post", "/v1/messages/count_tokens"),
    ("post", "/v1/responses"),
    ("post", "/v1/responses/input_tokens"),
    ("post", "/v1/responses/compact"),
    ("get", "/v1/responses/{id}"),
    ("delete", "/v1/responses/{id}"),
    ("get", "/v1/responses/{id}/input_items"),
    ("post", "/v1/responses/{id}/cancel"),
    ("post", "/v1/conversations"),
    ("get", "/v1/conversations/{id}"),
    ("post", "/v1/conversations/{id}"),
    ("delete", "/v1/conversations/{id}"),
    ("get", "/v1/conversations/{id}/items"),
    ("post", "/v1/conversations/{id}/items"),
    ("get", "/v1/conversations/{id}/items/{item}"),
    ("delete", "/v1/conversations/{id}/items/{item}"),
    ("post", "/v1/files"),
    ("get", "/v1/files"),
    ("get", "/v1/files/{id}"),
    ("delete", "/v1/files/{id}"),
    ("get", "/v1/files/{id}/content"),
    ("post", "/v1/batches"),
    ("get", "/v1/batches"),
    ("get", "/v1/batches/{id}"),
    ("post", "/v1/batches/{id}/cancel"),
    ("post", "/v1/messages/batches"),
    ("get", "/v1/messages/batches"),
    ("get", "/v1/messages/batches/{id}"),
    ("delete", "/v1/messages/batches/{id}"),
    ("post", "/v1/messages/batches/{id}/cancel"),
    ("get", "/v1/messages/batches/{id}/results"),
    ("get", "/admin/batches"),
    ("patch", "/admin/batches"),
    ("post", "/admin/batches/cancel"),
    ("post", "/v1/tokenize"),
    ("post", "/v1/detokenize"),
    ("post", "/v1/embeddings"),
    ("post", "/v1/rerank"),
    ("post", "/v1/score"),
    ("post", "/v1/audio/transcriptions"),
    ("post", "/v1/audio/translations"),
    ("post", "/v1/audio/speech"),
    ("get", "/v1/audio/voices"),
    ("post", "/v1/images/generations"),
    ("post", "/v1/images/edits"),
    ("post", "/v1/images/variations"),
    ("post", "/v1/infill"),
    ("post", "/v1/completion"),
    ("get", "/v1/props"),
    ("get", "/v1/models"),
    ("get", "/v1/models/{model}"),
    ("get", "/hot-models"),
    ("get", "/health"),
    ("get", "/ready"),
    ("get", "/session"),
    ("post", "/session"),
    ("delete", "/session"),
    ("get", "/me"),
    ("get", "/me/usage"),
    ("post", "/votes"),
    ("get", "/leaderboard"),
    ("post", "/admin/load"),
    ("post", "/admin/unload"),
    ("post", "/admin/plan"),
    ("post", "/admin/what-if"),
    ("get", "/admin/models"),
    ("get", "/admin/models/file"),
    ("put", "/admin/models"),
    ("patch", "/admin/models"),
    ("delete", "/admin/models"),
    ("get", "/admin/virtual_models"),
    ("put", "/admin/virtual_models"),
    ("delete", "/admin/virtual_models"),
    ("get", "/admin/nodes"),
    ("post", "/admin/nodes/tokens"),
    ("delete", "/admin/nodes/tokens"),
    ("post", "/admin/nodes/drain"),
    ("post", "/admin/nodes/undrain"),
    ("get", "/session/ways"),
    ("get", "/session/sign-on"),
    ("get", "/session/signed-on"),
    ("get", "/admin/devices"),
    ("post", "/admin/devices/cordon"),
    ("post", "/admin/devices/uncordon"),
    ("get", "/admin/queue"),
    ("get", "/admin/events"),
    ("get", "/admin/why"),
    ("get", "/admin/report"),
    ("get", "/admin/usage"),
    ("get", "/admin/groups"),
    ("put", "/admin/groups/{group}"),
    ("delete", "/admin/groups/{group}"),
    ("get", "/admin/live"),
    ("get", "/admin/logs"),
    ("post", "/admin/cleanup"),
    ("post", "/admin/reset"),
    ("get", "/admin/config"),
    ("get", "/admin/config/origins"),
    ("post", "/admin/reload"),
    ("get", "/admin/keys"),
    ("post", "/admin/keys"),
    ("patch", "/admin/keys"),
    ("delete", "/admin/keys"),
    ("get", "/admin/audit"),
];

fn operations(document: &Value) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            all.push((format!("{method} {path}"), operation.clone()));
        }
    }
    all
}

/// Resolves a reference.
fn resolved<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    match value.get("$ref").and_then(Value::as_str) {
        Some(reference) => {
            let found = document.pointer(reference.trim_start_matches('#'));
            found.unwrap_or_else(|| panic!("{reference} leads nowhere"))
        }
        None => value,
    }
}

#[test]
fn every_route_is_in_the_document_and_no_other() {
    let document = complete(false);
    let found: BTreeSet<String> = operations(&document)
        .into_iter()
        .map(|(place, _)| place)
        .collect();
    let wanted = ROUTES.map(|(method, path)| format!("{method} {path}"));
    assert_eq!(found, BTreeSet::from(wanted));
}

#[test]
fn every_operation_has_a_unique_name_a_summary_and_a_description() {
    let mut names = BTreeSet::new();
    for (place, operation) in operations(&complete(false)) {
        let name = operation["operationId"].as_str().unwrap_or_default();
        let is_plain = name
            .chars()
            .all(|letter| letter.is_ascii_lowercase() || letter == '_');
        assert!(is_plain && !name.is_empty(), "{place}: {name}");
        assert!(
            names.insert(name.to_owned()),
            "{place}: {name} is there twice"
        );
        for field in ["summary", "description"] {
            let text = operation[field].as_str().unwrap_or_default();
            assert!(!text.is_empty(), "{place} has no {field}");
            assert!(
                !text.ends_with(['.']) || field != "summary",
                "{place}: {text}"
            );
        }
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let about = parameter.get("description");
            let about = about.or(parameter.pointer("/schema/description"));
            assert!(about.is_some(), "{place}: {parameter}");
            // Swagger UI also sends examples of optional parameters, and most of them narrow the response.
            let is_needed = parameter["required"] == true;
            let example = parameter
                .get("example")
                .or(parameter.pointer("/schema/example"));
            assert!(example.is_some() || !is_needed, "{place}: {parameter}");
        }
    }
}

#[test]
fn users_keys_are_for_inference_and_admin_keys_for_administration() {
    let (admin, voter) = (json!([{"admin_key": []}]), json!([{"user_key": []}]));
    for (strangers, user) in [
        (false, json!([{"user_key": []}])),
        (true, json!([{"user_key": []}, {}])),
    ] {
        for (place, operation) in operations(&complete(strangers)) {
            let path = place.split(' ').nth(1).unwrap();
            let wanted = match path {
                "/health" | "/ready" | "/session" => &Value::Null,
                // These routes are used without a key or session.
                path if path.starts_with("/session/") => &Value::Null,
                // Votes always require a key.
                "/votes" => &voter,
                path if path.starts_with("/admin/") => &admin,
                _ => &user,
            };
            assert_eq!(&operation["security"], wanted, "{place}");
        }
    }
}

#[test]
fn every_error_has_the_object_of_its_api_and_an_example() {
    let document = complete(false);
    for (place, operation) in operations(&document) {
        let is_admin = place.contains("/admin/");
        let expected: &[&str] = match () {
            () if is_admin => &["400", "401", "403", "404", "409", "413", "503"],
            // Batches wait for no engine.
            () if place.contains("/batches") || place.contains("/v1/files") => {
                &["400", "401", "403", "404", "503"]
            }
            // Neither do conversations and cancellations.
            () if place.contains("/conversations") || place.contains("/cancel") => {
                &["400", "401", "403", "404", "503"]
            }
            () if place.starts_with("post /v1/") => &[
                "400", "401", "403", "404", "413", "415", "429", "501", "502", "503", "504",
            ],
            () if place.contains("ready") || place.contains("health") => &[],
            // Sign-in routes need no credentials.
            () if place.contains("/session/") => &[],
            () => &["401"],
        };
        let schema = if place.contains("/v1/messages") {
            "#/components/schemas/MessageError"
        } else {
            "#/components/schemas/ErrorBody"
        };
        for status in expected {
            let response = resolved(&document, &operation["responses"][status]);
            let content = &response["content"]["application/json"];
            assert_eq!(content["schema"]["$ref"], schema, "{place} {status}");
            let message = &content["example"]["error"]["message"];
            assert!(message.is_string(), "{place} {status}");
        }
    }
}

#[test]
fn every_body_has_a_schema_and_an_example() {
    let document = complete(false);
    // Bodies that are not JSON.
    let bare = ["put /admin/models", "get /admin/config"];
    for (place, operation) in operations(&document) {
        let check = |place: &str, content: &Value| {
            for (kind, content) in content.as_object().into_iter().flatten() {
                let has_example = content.get("example").or(content.get("examples")).is_some();
                assert!(
                    has_example || kind == "audio/*",
                    "{place} {kind} has no example"
                );
                let is_bare = content["schema"] == json!({"type": "object"});
                assert!(
                    !is_bare || bare.iter().any(|prefix| place.starts_with(prefix)),
                    "{place} {kind}"
                );
            }
        };
        for (status, response) in operation["responses"].as_object().unwrap() {
            check(
                &format!("{place}: {status}"),
                &resolved(&document, response)["content"],
            );
        }
        let has_body = ["post", "put", "patch"]
            .iter()
            .any(|prefix| place.starts_with(prefix));
        // As in OpenAI's and Anthropic's APIs.
        let has_body = has_body && !place.ends_with("/cancel");
        assert_eq!(operation.get("requestBody").is_some(), has_body, "{place}");
        check(&place, &operation["requestBody"]["content"]);
    }
}

#[test]
fn every_reference_resolves() {
    let document = complete(false);
    let text = document.to_string();
    let references: Vec<&str> = text.split("\"#/").skip(1).collect();
    assert!(references.len() > 100);
    for rest in references {
        let pointer = rest.split('"').next().unwrap();
        assert!(
            document.pointer(&format!("/{pointer}")).is_some(),
            "{pointer}"
        );
    }
}

#[test]
fn the_chat_tag_is_first_and_the_health_tag_last() {
    let document = complete(false);
    let tags: Vec<&str> = document["tags"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|tag| tag["name"].as_str())
        .collect();
    assert_eq!((tags[0], tags[tags.len() - 1]), ("chat", "health"));
    let models = tags.iter().position(|tag| *tag == "models").unwrap();
    assert!(
        tags[models + 1..]
            .iter()
            .rev()
            .skip(1)
            .all(|tag| tag.starts_with("admin: ")),
        "{tags:?}"
    );
    for (place, operation) in operations(&document) {
        let tag = operation["tags"][0].as_str().unwrap();
        assert!(tags.contains(&tag), "{place}: {tag}");
        assert_eq!(
            tag.starts_with("admin: "),
            place.contains("/admin/"),
            "{place}: {tag}"
        );
    }
}

#[test]
fn admin_request_schemas_are_closed_and_inference_schemas_are_open() {
    let document = complete(false);
    let schemas = &document["components"]["schemas"];
    for name in [
        "LoadRequest",
        "UnloadRequest",
        "CordonRequest",
        "ModelPatch",
        "NewKeyRequest",
        "VoteForOne",
        "VoteForNone",
    ]
    .into_iter()
    .chain(CLOSED)
    {
        assert_eq!(schemas[name]["additionalProperties"], false, "{name}");
    }
    let votes = schemas["VoteRequest"]["oneOf"].as_array();
    assert_eq!(votes.map(Vec::len), Some(2), "a winner, or a tie");
    let of_users = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(path, _)| path.starts_with("/v1/"));
    let text: String = of_users.map(|(_, item)| item.to_string()).collect();
    for rest in text.split("\"#/components/schemas/").skip(1) {
        let name = rest.split('"').next().unwrap();
        if !CLOSED.contains(&name) {
            assert_eq!(schemas[name].get("additionalProperties"), None, "{name}");
        }
    }
}

#[test]
fn the_document_has_its_server_url_a_glossary_and_security_schemes() {
    let document = complete(false);
    assert_eq!(document["servers"], json!([{"url": "/llm"}]));
    assert_eq!(document["info"]["title"], "model-pool");
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    let words = document["info"]["description"].as_str().unwrap();
    assert!(words.contains("| evict |"));
    for scheme in ["user_key", "admin_key"] {
        assert_eq!(
            document["components"]["securitySchemes"][scheme]["scheme"],
            "bearer"
        );
    }
}

#[test]
fn the_document_stays_below_its_size_limit() {
    let bytes = complete(true).to_string().len();
    assert!(bytes < 430_000, "{bytes} bytes");
}

#[test]
fn every_inference_post_route_has_its_own_span_name() {
    let settings = telemetry::ExporterSettings {
        url: "http://127.0.0.1:1/v1/traces".parse().unwrap(),
        headers: axum::http::HeaderMap::new(),
        encoding: telemetry::Encoding::Json,
        service_name: "test".to_owned(),
    };
    let (exporter, _task) = telemetry::Exporter::new(settings).unwrap();
    let (loads, clock) = (
        controller::LoadTimeline::default(),
        controller::Clock::start(),
    );
    let traces = edge::trace::Traces::new(exporter, 1.0, loads, clock, "/llm");
    let document = user_routes().into_openapi();
    let mut count = 0;
    for (path, item) in document.paths.paths {
        let name = traces.name_of(&axum::http::Method::POST, &path);
        match item.post {
            // A span has no ids in its name.
            Some(_) if path.contains('{') => {}
            Some(_) => assert_eq!(name, Some(format!("POST {path}").as_str())),
            None => assert_ne!(name, Some(path.as_str())),
        }
        count += usize::from(item.post.is_some());
    }
    assert!(count >= 13, "{count}");
}
