//! That the document has every route, and that what it says of each is whole.

use super::*;
use crate::admin;
use crate::inference::routes::hot_models;

fn whole() -> Value {
    let router = admin::routes().merge(hot_models::routes());
    serde_json::to_value(document(router.into_openapi(), "/llm")).unwrap()
}

const ADMIN: [(&str, &str); 23] = [
    ("post", "/admin/load"),
    ("post", "/admin/unload"),
    ("post", "/admin/plan"),
    ("get", "/admin/models"),
    ("put", "/admin/models"),
    ("patch", "/admin/models"),
    ("delete", "/admin/models"),
    ("get", "/admin/devices"),
    ("post", "/admin/devices/cordon"),
    ("post", "/admin/devices/uncordon"),
    ("get", "/admin/queue"),
    ("get", "/admin/events"),
    ("get", "/admin/logs"),
    ("post", "/admin/cleanup"),
    ("post", "/admin/reset"),
    ("get", "/admin/config"),
    ("post", "/admin/reload"),
    ("get", "/admin/keys"),
    ("post", "/admin/keys"),
    ("patch", "/admin/keys"),
    ("delete", "/admin/keys"),
    ("get", "/admin/audit"),
    ("get", "/hot-models"),
];

fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            all.push((method.clone(), path.clone(), operation.clone()));
        }
    }
    all
}

#[test]
fn every_route_is_in_the_document_and_no_other() {
    let mut found: Vec<(String, String)> = operations(&whole())
        .into_iter()
        .map(|(method, path, _)| (method, path))
        .collect();
    let mut wanted: Vec<(String, String)> = ADMIN
        .iter()
        .map(|(method, path)| (method.to_string(), path.to_string()))
        .collect();
    found.sort();
    wanted.sort();
    assert_eq!(found, wanted);
}

#[test]
fn every_admin_route_needs_the_key_and_tells_every_error() {
    for (method, path, operation) in operations(&whole()) {
        if path == "/hot-models" {
            assert!(operation.get("security").is_none());
            continue;
        }
        assert_eq!(
            operation["security"],
            json!([{"admin_key": []}]),
            "{method} {path}"
        );
        for status in ["400", "401", "403", "404", "409", "413", "503"] {
            let content = &operation["responses"][status]["content"]["application/json"];
            assert_eq!(
                content["schema"]["$ref"], "#/components/schemas/ErrorBody",
                "{method} {path} {status}"
            );
            assert!(
                content["example"]["error"]["message"].is_string(),
                "{method} {path} {status}"
            );
        }
    }
}

#[test]
fn every_body_has_an_example() {
    let has_example =
        |content: &Value| content.get("example").is_some() || content.get("examples").is_some();
    for (method, path, operation) in operations(&whole()) {
        for (status, response) in operation["responses"].as_object().unwrap() {
            for (kind, content) in response["content"].as_object().unwrap() {
                assert!(has_example(content), "{method} {path}: {status} {kind}");
            }
        }
        if let Some(body) = operation.get("requestBody") {
            assert!(
                has_example(&body["content"]["application/json"]),
                "{method} {path}"
            );
        } else {
            assert!(
                method == "get" || method == "delete",
                "{method} {path} has no body"
            );
        }
        let parameters = operation
            .get("parameters")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        for parameter in parameters {
            let shown = parameter
                .get("example")
                .or(parameter.pointer("/schema/example"))
                .or(parameter.pointer("/schema/examples/0"));
            assert!(shown.is_some(), "{method} {path}: {parameter}");
        }
        assert!(
            operation["summary"].is_string() && operation["description"].is_string(),
            "{method} {path}"
        );
    }
}

#[test]
fn every_example_has_the_fields_of_its_schema() {
    let document = whole();
    let check = |place: String, content: &Value| {
        let reference = content["schema"]["$ref"].as_str().unwrap_or_default();
        let name = reference.trim_start_matches("#/components/schemas/");
        let properties = &document["components"]["schemas"][name]["properties"];
        let examples = content["examples"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(_, it)| &it["value"]);
        for example in content.get("example").into_iter().chain(examples) {
            let Some(fields) = example.as_object().filter(|_| properties.is_object()) else {
                continue;
            };
            for field in fields.keys() {
                assert!(
                    properties.get(field).is_some(),
                    "{place}: {name} has no {field}"
                );
            }
        }
    };
    let mut checked = 0;
    for (method, path, operation) in operations(&document) {
        for (status, response) in operation["responses"].as_object().unwrap() {
            check(
                format!("{method} {path} {status}"),
                &response["content"]["application/json"],
            );
            checked += 1;
        }
        check(
            format!("{method} {path}"),
            &operation["requestBody"]["content"]["application/json"],
        );
    }
    assert!(checked > 100);
}

#[test]
fn every_reference_leads_somewhere() {
    let document = whole();
    let text = document.to_string();
    let references: Vec<&str> = text.split("\"#/components/schemas/").skip(1).collect();
    assert!(references.len() > 20);
    for rest in references {
        let name = rest.split('"').next().unwrap();
        assert!(
            document["components"]["schemas"].get(name).is_some(),
            "{name}"
        );
    }
}

#[test]
fn the_document_says_where_it_is_and_what_the_words_mean() {
    let document = whole();
    assert_eq!(document["servers"], json!([{"url": "/llm"}]));
    assert_eq!(document["info"]["title"], "model-pool");
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    assert!(
        document["info"]["description"]
            .as_str()
            .unwrap()
            .contains("| evict |")
    );
    assert_eq!(
        document["components"]["securitySchemes"]["admin_key"]["scheme"],
        "bearer"
    );
    let tags: Vec<&str> = TAGS.iter().map(|(name, _)| *name).collect();
    for (method, path, operation) in operations(&document) {
        assert!(
            tags.contains(&operation["tags"][0].as_str().unwrap()),
            "{method} {path}"
        );
    }
}
