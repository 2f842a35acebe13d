//! The error responses of the API document. Each is a component with an example that operations refer to.
//! One file because it is one table of errors, with the selections of the routes.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use serde_json::{Value, json};
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::{Content, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoResponses, ToSchema};

use api_types::error::ErrorBody;
use api_types::schemas::messages_response::MessageError;
use dialect::{anthropic, ollama};

/// An error response with an example body.
struct ErrorCase {
    status: &'static str,
    /// The name of its component.
    name: &'static str,
    description: &'static str,
    message: &'static str,
    kind: &'static str,
    param: Option<&'static str>,
    code: &'static str,
}

impl ErrorCase {
    fn body(&self) -> Value {
        json!({"error": {
            "message": self.message, "type": self.kind, "param": self.param, "code": self.code,
        }})
    }

    /// Returns true if the response has a `Retry-After` header.
    fn has_retry(&self) -> bool {
        matches!(self.status, "429" | "503")
    }
}

const INVALID: &str = "invalid_request_error";
const SERVER: &str = "server_error";

const INFERENCE: [ErrorCase; 13] = [
    ErrorCase {
        status: "400",
        name: "BadRequest",
        description: "The request is not valid. `param` names the field.",
        message: "`model` is missing; choose a model from GET /v1/models",
        kind: INVALID,
        param: Some("model"),
        code: "invalid_request",
    },
    ErrorCase {
        status: "401",
        name: "Unauthorized",
        description: "An API key is required, or the key is unknown, expired or revoked.",
        message: "this API key is unknown, expired or revoked",
        kind: "authentication_error",
        param: None,
        code: "invalid_api_key",
    },
    ErrorCase {
        status: "403",
        name: "Forbidden",
        description: "The key may not use this model or route, or a web page of another site sent the request without a key.",
        message: "this key may not use tiny-guide",
        kind: "permission_error",
        param: None,
        code: "model_not_allowed",
    },
    ErrorCase {
        status: "404",
        name: "NotFound",
        description: "The model does not exist (the message suggests similar names), or no response or item with this id is stored for this key.",
        message: "no model is called tiny-chta; the closest is tiny-chat",
        kind: INVALID,
        param: Some("model"),
        code: "model_not_found",
    },
    ErrorCase {
        status: "408",
        name: "BodyTooSlow",
        description: "The client sent nothing for a minute.",
        message: "the client sent nothing for 60 s",
        kind: INVALID,
        param: None,
        code: "body_too_slow",
    },
    ErrorCase {
        status: "409",
        name: "Conflict",
        description: "The state of the file or batch does not allow this.",
        message: "the batch batch_5c1f8e has ended already",
        kind: INVALID,
        param: None,
        code: "batch_ended",
    },
    ErrorCase {
        status: "413",
        name: "BodyTooLarge",
        description: "The body is larger than `server.body_limit`.",
        message: "the body is larger than 10485760 bytes, the limit (server.body_limit)",
        kind: INVALID,
        param: None,
        code: "body_too_large",
    },
    ErrorCase {
        status: "415",
        name: "UnsupportedContentType",
        description: "A browser without a key must send a `Content-Type`.",
        message: "a browser without a key must mark the body as JSON, and this body has no content type; send `Content-Type: application/json` (curl: -H 'Content-Type: application/json')",
        kind: INVALID,
        param: None,
        code: "unsupported_content_type",
    },
    ErrorCase {
        status: "429",
        name: "TooManyRequests",
        description: "The model's queue is full, or a limit of the key is reached. Retry after the time in `Retry-After`.",
        message: "tiny-chat: 100 requests wait already; allowed: 100",
        kind: "rate_limit_error",
        param: None,
        code: "queue_full",
    },
    ErrorCase {
        status: "501",
        name: "NotImplemented",
        description: "The model's engine does not support this route.",
        message: "tiny-chat runs on the embedded engine, which does not have /v1/embeddings",
        kind: INVALID,
        param: None,
        code: "not_implemented",
    },
    ErrorCase {
        status: "502",
        name: "EngineFailed",
        description: "The engine did not return a valid response.",
        message: "the engine of tiny-chat failed: it closed the connection early",
        kind: SERVER,
        param: None,
        code: "engine_error",
    },
    ErrorCase {
        status: "503",
        name: "Unavailable",
        description: "The model cannot be loaded now: no memory is free, the load failed, or the request waited too long. `Retry-After` is present if a retry may succeed.",
        message: "tiny-chat: the request waited 10m and no seat was free",
        kind: SERVER,
        param: None,
        code: "queue_timeout",
    },
    ErrorCase {
        status: "504",
        name: "DeadlineExceeded",
        description: "The response was not complete within `x-request-timeout`.",
        message: "the response was not complete within x-request-timeout; request less output, or allow more time",
        kind: SERVER,
        param: None,
        code: "deadline_exceeded",
    },
];

const ADMIN: [ErrorCase; 7] = [
    ErrorCase {
        status: "400",
        name: "AdminBadRequest",
        description: "The request is not valid. `param` names the field.",
        message: "replicas: 0 is not allowed; allowed: a whole number from 1 to 64",
        kind: INVALID,
        param: Some("replicas"),
        code: "invalid_request",
    },
    ErrorCase {
        status: "401",
        name: "AdminUnauthorized",
        description: "The request has no key, or an invalid single sign-on token.",
        message: "an admin key is required: send it as `Authorization: Bearer mp-…`",
        kind: "authentication_error",
        param: None,
        code: "missing_api_key",
    },
    ErrorCase {
        status: "403",
        name: "AdminForbidden",
        description: "The key is unknown, expired, revoked or not an admin key, or the user's groups do not permit this.",
        message: "the key mp-Ab3xY9… may use models, but not administer the pool",
        kind: "permission_error",
        param: None,
        code: "not_an_admin",
    },
    ErrorCase {
        status: "404",
        name: "AdminNotFound",
        description: "The model, replica, device or key does not exist.",
        message: "no model is called tiny-chta; the closest is tiny-chat",
        kind: INVALID,
        param: Some("model"),
        code: "model_not_found",
    },
    ErrorCase {
        status: "409",
        name: "AdminConflict",
        description: "The pool refuses the order. For a load, `plan` has the reasons.",
        message: "tiny-chat: needs 16.0 GiB on 1 device, and no allowed eviction frees enough; gpu0: 16.0 GiB held by tiny-code (r1, priority 2): always-hot (P4)",
        kind: INVALID,
        param: None,
        code: "no_room",
    },
    ErrorCase {
        status: "413",
        name: "AdminBodyTooLarge",
        description: "The body exceeds the size limit for orders.",
        message: "the body is larger than 1048576 bytes, the limit for orders and model documents",
        kind: INVALID,
        param: None,
        code: "body_too_large",
    },
    ErrorCase {
        status: "503",
        name: "AdminUnavailable",
        description: "The pool is shutting down, its store has failed, or the issuer of a token is unreachable.",
        message: "the pool: the pool is shutting down",
        kind: SERVER,
        param: None,
        code: "shutting_down",
    },
];

/// Errors of every inference route.
pub struct InferenceErrors;

impl IntoResponses for InferenceErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        inference().map(|error| reference(error, "")).collect()
    }
}

/// The errors of every inference route.
fn inference() -> impl Iterator<Item = &'static ErrorCase> {
    let of_batches = ["408", "409"];
    let errors = INFERENCE.iter();
    errors.filter(move |error| !of_batches.contains(&error.status))
}

/// Errors of routes that read files and batches.
pub(crate) struct BatchErrors;

impl IntoResponses for BatchErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        only("", &["400", "401", "403", "404", "503"])
    }
}

/// Errors of routes that cancel batches and delete files.
pub(crate) struct BatchChangeErrors;

impl IntoResponses for BatchChangeErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        only("", &["400", "401", "403", "404", "409", "503"])
    }
}

/// Errors of routes that create files and batches.
pub(crate) struct UploadErrors;

impl IntoResponses for UploadErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        only(
            "",
            &["400", "401", "403", "404", "408", "413", "429", "503"],
        )
    }
}

/// Errors of routes for message batches, in Anthropic's form.
pub(crate) struct MessageBatchErrors;

impl IntoResponses for MessageBatchErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        only(MESSAGE, &["400", "401", "403", "404", "413", "429", "503"])
    }
}

/// Errors of inference routes in Anthropic's form.
pub(crate) struct MessageErrors;

impl IntoResponses for MessageErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        inference().map(|error| reference(error, MESSAGE)).collect()
    }
}

/// Errors of inference routes in Ollama's form, written inline: the document contains these routes only if `compat.ollama` is on.
pub struct OllamaErrors;

impl IntoResponses for OllamaErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let listed = inference().map(|case| {
            let text = ObjectBuilder::new().schema_type(Type::String);
            let schema = ObjectBuilder::new()
                .property("error", text)
                .required("error");
            let mut content = Content::new(Some(RefOr::T(Schema::from(schema.build()))));
            content.example = Some(json!({"error": ollama::message_of(&case.body()["error"])}));
            let response = ResponseBuilder::new()
                .description(case.description)
                .content("application/json", content)
                .build();
            (case.status.to_owned(), RefOr::T(response))
        });
        listed.collect()
    }
}

/// Errors of routes that list models and never wait for a model.
pub struct ListingErrors;

impl IntoResponses for ListingErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        only("", &["400", "401", "403", "503"])
    }
}

/// Errors of routes that read a single model.
pub struct ModelErrors;

impl IntoResponses for ModelErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        only("", &["401", "403", "404", "503"])
    }
}

/// Errors of routes that also take query parameters.
pub(crate) struct StoredErrors;

impl IntoResponses for StoredErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        only("", &["400", "401", "403", "404", "503"])
    }
}

/// Errors of routes that create and extend conversations.
pub(crate) struct ConversationErrors;

impl IntoResponses for ConversationErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        only(
            "",
            &["400", "401", "403", "404", "413", "415", "429", "503"],
        )
    }
}

/// Errors of the vote route, except for duplicate votes.
pub struct VoteErrors;

impl IntoResponses for VoteErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        only(
            "",
            &["400", "401", "403", "404", "413", "415", "429", "503"],
        )
    }
}

/// Errors with these statuses. `prefix` is the beginning of the names of their components.
fn only(prefix: &str, statuses: &[&str]) -> BTreeMap<String, RefOr<Response>> {
    let errors = INFERENCE.iter();
    let errors = errors.filter(|error| statuses.contains(&error.status));
    errors.map(|error| reference(error, prefix)).collect()
}

/// Errors of every admin route.
pub struct AdminErrors;

impl IntoResponses for AdminErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        ADMIN.iter().map(|error| reference(error, "")).collect()
    }
}

/// Prefix of the component names in Anthropic's form.
const MESSAGE: &str = "Message";

fn reference(case: &ErrorCase, prefix: &str) -> (String, RefOr<Response>) {
    let name = format!("{prefix}{}", case.name);
    (
        case.status.to_owned(),
        RefOr::Ref(Ref::from_response_name(name)),
    )
}

/// All error responses by component name.
pub fn error_responses() -> Vec<(String, Response)> {
    let of_openai = INFERENCE.iter().chain(&ADMIN).map(|case| {
        let schema = Ref::from_schema_name(ErrorBody::name());
        (case.name.to_owned(), described(case, schema, case.body()))
    });
    let of_anthropic = inference().map(|case| {
        let status = StatusCode::from_bytes(case.status.as_bytes()).ok();
        let example = anthropic::error_of(&case.body()["error"], status, Some("req-1"));
        let schema = Ref::from_schema_name(MessageError::name());
        let name = format!("{MESSAGE}{}", case.name);
        (name, described(case, schema, example))
    });
    of_openai.chain(of_anthropic).collect()
}

fn described(case: &ErrorCase, schema: Ref, example: Value) -> Response {
    let mut content = Content::new(Some(RefOr::<Schema>::Ref(schema)));
    content.example = Some(example);
    let mut response = ResponseBuilder::new()
        .description(case.description)
        .content("application/json", content);
    if case.has_retry() {
        response = response.header_ref("Retry-After", Ref::new("#/components/headers/RetryAfter"));
    }
    response.build()
}
