//! The OpenAPI document: what surrounds the routes. The routes describe themselves.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use utoipa::openapi::schema::{AdditionalProperties, ComponentsBuilder, Schema};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{
    Content, InfoBuilder, OpenApi, Ref, RefOr, Response, ResponseBuilder, Server,
};
use utoipa::{IntoResponses, PartialSchema, ToSchema};

use super::error::{ErrorBody, ErrorObject};

const DESCRIPTION: &str = "\
One OpenAI-compatible endpoint for all the models of a lab. Models are loaded when somebody asks for them
and leave when nobody does; administrators steer what lives in GPU memory with priorities.

| word | meaning |
|---|---|
| model | an entry of the catalogue: a name, where its weights are, how it runs, its priority |
| replica | one engine instance serving one model; a model has 0 or more |
| engine | the program that runs a replica |
| device | one GPU, or the host's memory when there is no GPU; it belongs to a node |
| placement | the devices a replica holds, and how many bytes on each |
| load, unload | make a model have a ready replica, or none |
| evict | unload a replica because something else needs its memory; the replica is the victim |
| drain | refuse new requests on a replica and let the ones in flight finish |
| keep-hot | how long a replica stays after its last request ended |
| always-hot | priority 2 and above |
| evening cleanup | the job that empties the pool |
| plan | the decision for one load: placement, victims, cost, reasons; or a refusal with reasons |

Lengths of time are written like `10m` or `2h` in requests and are milliseconds (`_ms`) in answers; memory is
in bytes (`_bytes`), moments are RFC 3339 in UTC. Letters with a number, such as P2 or L3, cite the rules of
the pool. Errors are OpenAI's error objects, and every answer has an `x-request-id`.";

const TAGS: [(&str, &str); 8] = [
    ("inference", "What any OpenAI client speaks."),
    ("loading", "Load, unload, and see what a load would do."),
    ("models", "The catalogue: list, register, change, remove."),
    ("pool", "Devices, queues, and what is loaded."),
    (
        "history",
        "Every decision with its reason, and what engines print.",
    ),
    ("upkeep", "Cleanup, reset, configuration, reload."),
    ("keys", "API keys of users and administrators."),
    ("operation", "Health and readiness."),
];

/// The document of the routes below `base_path`.
pub fn document(mut api: OpenApi, base_path: &str) -> OpenApi {
    api.info = InfoBuilder::new()
        .title("model-pool")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(DESCRIPTION))
        .build();
    let base = if base_path.is_empty() { "/" } else { base_path };
    api.servers = Some(vec![Server::new(base)]);
    let tag = |(name, words): (&str, &str)| {
        TagBuilder::new()
            .name(name)
            .description(Some(words))
            .build()
    };
    api.tags = Some(TAGS.map(tag).to_vec());
    let mut schemas: Vec<(String, RefOr<Schema>)> = Vec::new();
    for (name, schema) in [
        (ErrorBody::name(), ErrorBody::schema()),
        (ErrorObject::name(), ErrorObject::schema()),
    ] {
        schemas.push((name.into_owned(), schema));
    }
    let bearer = |words: &str| {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer);
        SecurityScheme::Http(scheme.description(Some(words)).build())
    };
    let mut components = api
        .components
        .take()
        .unwrap_or_else(|| ComponentsBuilder::new().build());
    components.schemas.extend(schemas);
    for (name, schema) in &mut components.schemas {
        // What administrators send is read strictly; a mistyped field is refused.
        let is_sent = name.ends_with("Request") || name == "ModelPatch";
        if let RefOr::T(Schema::Object(object)) = schema
            && is_sent
        {
            object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(false)));
        }
    }
    let admin =
        "An admin key, `mp-…`; the first one lies in a file on the server (`auth.admin_key_file`).";
    let user = "A user's or an admin's key, `mp-…`; `auth.inference` says whether one is needed.";
    components.add_security_scheme("admin_key", bearer(admin));
    components.add_security_scheme("user_key", bearer(user));
    api.components = Some(components);
    api
}

/// What every admin route may answer instead of what was asked for.
pub struct AdminErrors;

impl IntoResponses for AdminErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let error = |message: &str, kind: &str, param: Value, code: &str| json!({"error": {"message": message, "type": kind, "param": param, "code": code}});
        let invalid = "invalid_request_error";
        let all = [
            (
                "400",
                "The request is wrong; `param` names the field",
                error(
                    "replicas: 0 is not allowed; allowed: a whole number from 1 to 64",
                    invalid,
                    json!("replicas"),
                    "invalid_request",
                ),
            ),
            (
                "401",
                "No key was sent",
                error(
                    "an admin key is needed: send it as `Authorization: Bearer mp-…`",
                    "authentication_error",
                    Value::Null,
                    "missing_api_key",
                ),
            ),
            (
                "403",
                "The key is unknown, expired, revoked, or no admin key",
                error(
                    "the key mp-Ab3xY9… may use models, not steer the pool",
                    "permission_error",
                    Value::Null,
                    "not_an_admin",
                ),
            ),
            (
                "404",
                "There is no such model, replica or key",
                error(
                    "no model is called tiny-chta; the closest are: tiny-chat",
                    invalid,
                    json!("model"),
                    "model_not_found",
                ),
            ),
            (
                "409",
                "The pool refuses; where a load was asked for, `plan` says what was in the way",
                error(
                    "tiny-chat: needs 16.0 GiB on 1 device, and nothing that may be evicted makes that room; gpu0: 16.0 GiB held by tiny-code (r1, priority 2): always-hot (P4)",
                    invalid,
                    Value::Null,
                    "no_room",
                ),
            ),
            (
                "413",
                "The body is larger than `server.body_limit`",
                error(
                    "the body is larger than 10485760 bytes, the limit (server.body_limit)",
                    invalid,
                    Value::Null,
                    "body_too_large",
                ),
            ),
            (
                "503",
                "The pool is shutting down, or its store cannot be used",
                error(
                    "the pool: the pool is shutting down",
                    "server_error",
                    Value::Null,
                    "shutting_down",
                ),
            ),
        ];
        let response = |(status, words, example): (&str, &str, Value)| {
            let mut content = Content::new(Some(Ref::from_schema_name(ErrorBody::name())));
            content.example = Some(example);
            let response = ResponseBuilder::new()
                .description(words)
                .content("application/json", content)
                .build();
            (status.to_owned(), RefOr::T(response))
        };
        all.map(response).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{admin, hot_models};

    fn whole() -> Value {
        let router = admin::routes().merge(hot_models::routes());
        serde_json::to_value(document(router.into_openapi(), "/llm")).unwrap()
    }

    const ADMIN: [(&str, &str); 21] = [
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
        ("delete", "/admin/keys"),
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
}
