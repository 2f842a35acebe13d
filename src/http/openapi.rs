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

use crate::error::{ErrorBody, ErrorObject};

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
        "Every decision with its reason, who asked for what, and what engines print.",
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
                "No key was sent, or a token of the single sign-on that does not count",
                error(
                    "an admin key is needed: send it as `Authorization: Bearer mp-…`",
                    "authentication_error",
                    Value::Null,
                    "missing_api_key",
                ),
            ),
            (
                "403",
                "The key is unknown, expired, revoked, or no admin key; or a person whose groups may not do this",
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
                "The pool is shutting down, its store cannot be used, or the issuer of a token cannot be reached",
                error(
                    "the pool: the pool is shutting down",
                    "server_error",
                    Value::Null,
                    "shutting_down",
                ),
            ),
        ];
        all.map(described).into()
    }
}

/// One error with its words and an example, as the document has it.
fn described((status, words, example): (&str, &str, Value)) -> (String, RefOr<Response>) {
    let mut content = Content::new(Some(Ref::from_schema_name(ErrorBody::name())));
    content.example = Some(example);
    let response = ResponseBuilder::new()
        .description(words)
        .content("application/json", content)
        .build();
    (status.to_owned(), RefOr::T(response))
}

/// What every inference route may answer instead of what was asked for. The routes of messages tell the
/// same in Anthropic's form.
pub struct InferenceErrors;

impl IntoResponses for InferenceErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let error = |message: &str, kind: &str, param: Option<&str>, code: &str| json!({"error": {"message": message, "type": kind, "param": param, "code": code}});
        let (invalid, server) = ("invalid_request_error", "server_error");
        let all = [
            (
                "400",
                "Not such a request; `param` names the field",
                error(
                    "`model` is missing; name one of GET /v1/models",
                    invalid,
                    Some("model"),
                    "invalid_request",
                ),
            ),
            (
                "401",
                "An API key is needed, or it is unknown, expired or revoked",
                error(
                    "this API key is unknown, expired or revoked",
                    "authentication_error",
                    None,
                    "invalid_api_key",
                ),
            ),
            (
                "403",
                "The key may not do this; or a web page of another site asks without a key",
                error(
                    "this key may not use tiny-guide",
                    "permission_error",
                    None,
                    "model_not_allowed",
                ),
            ),
            (
                "404",
                "No such model, and the closest names; or its engine has no such route",
                error(
                    "no model is called tiny-chta; the closest are: tiny-chat",
                    invalid,
                    Some("model"),
                    "model_not_found",
                ),
            ),
            (
                "413",
                "The body is larger than `server.body_limit`",
                error(
                    "the body is larger than 10485760 bytes, the limit (server.body_limit)",
                    invalid,
                    None,
                    "body_too_large",
                ),
            ),
            (
                "415",
                "Without a key the body has to be marked as JSON",
                error(
                    "without a key the body has to be marked as JSON, and this one says nothing of its type; send `Content-Type: application/json` (curl: -H 'Content-Type: application/json')",
                    invalid,
                    None,
                    "unsupported_content_type",
                ),
            ),
            (
                "429",
                "The model's queue is full; Retry-After says when to come back",
                error(
                    "tiny-chat: 100 requests wait already; allowed: 100",
                    "rate_limit_error",
                    None,
                    "queue_full",
                ),
            ),
            (
                "501",
                "The model's engine has no such route",
                error(
                    "tiny-chat is run by the embedded engine, which has no /v1/embeddings",
                    invalid,
                    None,
                    "not_implemented",
                ),
            ),
            (
                "502",
                "The engine did not answer properly",
                error(
                    "the engine of tiny-chat did not answer properly: it broke the connection off",
                    server,
                    None,
                    "engine_error",
                ),
            ),
            (
                "503",
                "The model cannot be had: no room, a failed load, a timeout in the queue; Retry-After where that may change",
                error(
                    "tiny-chat: the request waited 10m and no seat was free",
                    server,
                    None,
                    "queue_timeout",
                ),
            ),
        ];
        all.map(described).into()
    }
}

#[cfg(test)]
mod tests;
