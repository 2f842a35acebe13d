//! Request and response headers in the API document.

use utoipa::IntoParams;
use utoipa::openapi::header::{Header, HeaderBuilder};
use utoipa::openapi::schema::{Object, Type};

/// Time limits of a request.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(
    dead_code,
    reason = "describes headers for the document; `Deadlines` reads them"
)]
pub struct WaitHeaders {
    /// Maximum time that the request waits for its model: `true` (the queue's limit, the default), `false` (no waiting), seconds
    /// such as `5`, or a duration such as `30s`. A longer wait returns 503.
    #[param(
        rename = "x-model-pool-wait", value_type = String, required = false,
        pattern = "^(true|false|yes|no|[0-9]{1,6}(\\.[0-9]{1,3})?|[1-9][0-9]{0,4}(ms|s|m|h))$"
    )]
    wait: Option<String>,
    /// Maximum time until the response is complete: seconds such as `30` or `0.5`, or a duration such as `90s`, at most one day.
    /// After that, the engine stops and the request returns 504.
    #[param(
        rename = "x-request-timeout", value_type = String, required = false,
        pattern = "^([1-9][0-9]{0,3}(\\.[0-9]{1,3})?|0\\.[0-9]{0,2}[1-9]|[1-9][0-9]{0,3}(ms|s)|[1-9][0-9]{0,2}m)$"
    )]
    timeout: Option<String>,
}

/// Response headers: component name, header name and description.
pub const ANSWERS: [(&str, &str, &str); 8] = [
    (
        "RequestId",
        "x-request-id",
        "Id of the request in logs and the history.",
    ),
    (
        "RetryAfter",
        "Retry-After",
        "Seconds after which the request may succeed.",
    ),
    (
        "Ignored",
        "x-model-pool-ignored",
        "Fields of the request that had no effect, separated by commas.",
    ),
    (
        "Replica",
        "x-model-pool-replica",
        "The replica that served the request.",
    ),
    (
        "WaitedMs",
        "x-model-pool-waited-ms",
        "Time that the request waited for a slot, in milliseconds.",
    ),
    (
        "Loaded",
        "x-model-pool-loaded",
        "True if the model was loaded for this request.",
    ),
    (
        "Class",
        "x-model-pool-class",
        "The class in which a chat or completion is served: flex, default or priority.",
    ),
    (
        "Model",
        "x-model-pool-model",
        "The member that serves a request for a virtual model.",
    ),
];

pub fn header(description: &str) -> Header {
    HeaderBuilder::new()
        .schema(Some(Object::with_type(Type::String)))
        .description(Some(description))
        .build()
}
