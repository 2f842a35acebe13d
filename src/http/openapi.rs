//! The frame of the OpenAPI document. The routes describe themselves.

pub(crate) mod event_streams;
pub(crate) mod generators;
pub(crate) mod purposes;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde::Serialize;
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::{AdditionalProperties, ComponentsBuilder, Schema, SchemaType, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{InfoBuilder, OpenApi, PathItem, Ref, RefOr, Server};
use utoipa::{PartialSchema, ToSchema};

use api_types::error::{ErrorBody, ErrorObject};
use api_types::schemas::messages_response::{MessageError, MessageErrorObject};
use gateway::openapi::{error_responses, headers};

const DESCRIPTION: &str = "\
One OpenAI-compatible endpoint for many models on scarce GPU memory. A model is loaded on the first request for it and
unloaded when it is idle. Administrators control the pool with priorities.

**Keys.** Press *Authorize* and paste a key (`mp-…`). `user_key` is for the inference routes, `admin_key` for the admin
routes; an admin key works for both. The first admin key is in a file on the server (`auth.admin_key_file`).

**Paths.** The inference routes exist below this base path and, for clients of OpenAI and Anthropic, directly below `/v1`. Paths of
Azure, llama.cpp and other services are mapped to the same routes; docs/reference/api.md lists them.

<details><summary>Glossary</summary>

| word | meaning |
|---|---|
| model | an entry of the catalogue: name, location of the weights, engine settings, priority |
| replica | one engine instance that serves one model; a model has 0 or more |
| engine | the program that runs a replica |
| device | one GPU, or the host's memory if there is no GPU |
| placement | the devices of a replica, and its bytes on each |
| load, unload | start replicas of a model, or stop them |
| evict | unload a replica because another model needs its memory |
| drain | refuse new requests on a replica and let the running ones finish |
| keep-hot | the time for which a replica stays after its last request ended |
| always-hot | priority 2 and above: loaded at the start, never evicted |
| evening cleanup | the job that empties the pool |
| plan | the decision for one load: placement, evictions, reasons; or a refusal with reasons |

</details>

Times are written like `10m` or `2h` in requests and are milliseconds (`_ms`) in responses. Memory is in bytes (`_bytes`).
Dates are RFC 3339 in UTC. A letter with a number, such as P2 or L3, is a rule of the pool (docs/reference/rules.md). Errors are
OpenAI's error objects. Every response has an `x-request-id`.";

/// The tags in the order of the page. Tags without routes are omitted.
const TAGS: [(&str, &str); 19] = [
    (
        "chat",
        "Conversations, in the forms of OpenAI's chat completions, OpenAI's Responses and Anthropic's Messages.",
    ),
    ("completions", "Texts that a model continues."),
    (
        "embeddings",
        "Texts as vectors, ranks of documents, and scores of pairs of texts.",
    ),
    ("audio", "Speech as text, and text as speech."),
    ("images", "Pictures from texts and from other pictures."),
    ("tokens", "Texts as tokens, and back."),
    (
        "batches",
        "Files of requests that run in free seats and memory, and their results.",
    ),
    (
        "comparison",
        "Votes for the best of several models' answers, and what they add up to.",
    ),
    (
        "session",
        "Sessions of browsers: a page keeps a cookie instead of a key.",
    ),
    (
        "models",
        "The models that a key may use, and which of them are loaded.",
    ),
    (
        "ollama",
        "Ollama's API, which `compat.ollama` of the configuration enables. It also exists below `/api` directly, without this base path.",
    ),
    (
        "older systems",
        "Routes of older systems that the section `compat` of the configuration enables.",
    ),
    (
        "admin: loading",
        "Load, unload, and preview what a load would evict.",
    ),
    (
        "admin: models",
        "The catalogue: list, register, change, remove.",
    ),
    ("admin: pool", "Devices and queues."),
    (
        "admin: history",
        "Every decision with its reason, every change with its author, and the output of engines.",
    ),
    ("admin: upkeep", "Cleanup, reset, configuration, reload."),
    ("admin: keys", "API keys of users and administrators."),
    ("health", "Liveness and readiness of the service."),
];

/// Bodies of other routes that refuse unknown fields, at their top.
const CLOSED: [&str; 3] = [
    "ConversationItems",
    "ConversationMetadata",
    "ConversationRequest",
];

const USER_KEY: &str = "user_key";
const ADMIN_KEY: &str = "admin_key";

/// The document of the routes below `base_path`. `strangers`: requests without a key may use models.
pub fn document(mut api: OpenApi, base_path: &str, strangers: bool) -> OpenApi {
    api.info = InfoBuilder::new()
        .title("model-pool")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(DESCRIPTION))
        .build();
    let base = if base_path.is_empty() { "/" } else { base_path };
    api.servers = Some(vec![Server::new(base)]);
    let mut tags = Vec::new();
    for operation in operations(&mut api) {
        tags.extend(operation.tags.iter().flatten().cloned());
        let needs_key = operation.operation_id.as_deref() == Some("vote");
        if strangers && !needs_key {
            let needed = operation.security.iter_mut();
            // An empty requirement makes the key optional.
            for all in needed.filter(|all| all.contains(&user_key())) {
                all.push(SecurityRequirement::default());
            }
        }
        describe_headers(operation);
    }
    let known = TAGS
        .into_iter()
        .filter(|(name, _)| tags.iter().any(|tag| tag == name));
    let tag = |(name, words)| {
        TagBuilder::new()
            .name(name)
            .description(Some(words))
            .build()
    };
    api.tags = Some(known.map(tag).collect());
    close_orders(&mut api);
    components(&mut api);
    api
}

fn user_key() -> SecurityRequirement {
    SecurityRequirement::new::<_, [&str; 0], _>(USER_KEY, [])
}

fn operations(api: &mut OpenApi) -> impl Iterator<Item = &mut Operation> {
    api.paths.paths.values_mut().flat_map(operations_of)
}

fn operations_of(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem {
        get,
        put,
        post,
        patch,
        delete,
        ..
    } = item;
    [get, put, post, patch, delete].into_iter().flatten()
}

/// Describes the headers of all responses, and the additional headers of inference routes.
fn describe_headers(operation: &mut Operation) {
    let reference = |name: &str| RefOr::Ref(Ref::new(format!("#/components/headers/{name}")));
    let waits = operation
        .parameters
        .iter()
        .flatten()
        .any(|parameter| match parameter {
            RefOr::T(parameter) => parameter.name == "x-model-pool-wait",
            RefOr::Ref(_) => false,
        });
    for (status, response) in &mut operation.responses.responses {
        let RefOr::T(response) = response else {
            continue;
        };
        for (name, header, _) in headers::ANSWERS {
            let has = match name {
                "RequestId" => true,
                "RetryAfter" => false,
                _ => waits && status == "200",
            };
            if has {
                response.headers.insert(header.to_owned(), reference(name));
            }
        }
    }
}

/// Marks schemas of administrators' and voters' requests as closed: unknown fields are refused at any depth. The schemas in `CLOSED` refuse
/// them only at their top.
fn close_orders(api: &mut OpenApi) {
    let mut names = BTreeSet::new();
    for (path, item) in &mut api.paths.paths {
        if path.starts_with("/admin/") || path == "/votes" {
            let bodies =
                operations_of(item).filter_map(|operation| operation.request_body.as_ref());
            names.extend(bodies.flat_map(references));
        }
    }
    let Some(components) = &mut api.components else {
        return;
    };
    let mut closed = BTreeSet::new();
    while let Some(name) = names.pop_first() {
        if !closed.insert(name.clone()) {
            continue;
        }
        let Some(schema) = components.schemas.get_mut(&name) else {
            continue;
        };
        names.extend(references(schema));
        close(schema);
    }
    for name in CLOSED {
        if let Some(schema) = components.schemas.get_mut(name) {
            close(schema);
        }
    }
}

fn close(schema: &mut RefOr<Schema>) {
    if let RefOr::T(Schema::Object(object)) = schema
        && object.schema_type == SchemaType::Type(Type::Object)
    {
        object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(false)));
    }
}

/// The schemas that a part of the document refers to.
fn references(part: &impl Serialize) -> Vec<String> {
    let text = serde_json::to_string(part).unwrap_or_default();
    let rests = text.split("\"#/components/schemas/").skip(1);
    let names = rests.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()));
    names.collect()
}

fn components(api: &mut OpenApi) {
    let mut components = api
        .components
        .take()
        .unwrap_or_else(|| ComponentsBuilder::new().build());
    for (name, schema) in [
        (ErrorBody::name(), ErrorBody::schema()),
        (ErrorObject::name(), ErrorObject::schema()),
        (MessageError::name(), MessageError::schema()),
        (MessageErrorObject::name(), MessageErrorObject::schema()),
    ] {
        components.schemas.insert(name.into_owned(), schema);
    }
    for (name, mut response) in error_responses() {
        let reference = Ref::new("#/components/headers/RequestId");
        response
            .headers
            .insert("x-request-id".to_owned(), RefOr::Ref(reference));
        components.responses.insert(name, RefOr::T(response));
    }
    for (name, _, description) in headers::ANSWERS {
        components
            .headers
            .insert(name.to_owned(), RefOr::T(headers::header(description)));
    }
    let bearer = |words: &str| {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer);
        SecurityScheme::Http(scheme.description(Some(words)).build())
    };
    components.add_security_scheme(
        USER_KEY,
        bearer("A key of a user or an administrator, `mp-…`, for the inference routes. `auth.inference` decides whether one is needed."),
    );
    components.add_security_scheme(
        ADMIN_KEY,
        bearer("A key of an administrator, `mp-…`, for the admin routes. The first one is in a file on the server (`auth.admin_key_file`)."),
    );
    api.components = Some(components);
}
