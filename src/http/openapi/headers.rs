//! The headers of requests and answers that the document describes.

use utoipa::IntoParams;
use utoipa::openapi::header::{Header, HeaderBuilder};
use utoipa::openapi::schema::{Object, Type};

/// How long a client waits.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(
    dead_code,
    reason = "describes headers for the document; `Deadlines` reads them"
)]
pub struct WaitHeaders {
    /// How long the request may wait until its model is ready: `true` (the queue's limit, the default), `false` (not at
    /// all), seconds such as `5`, or a time such as `30s`. After that: 503.
    #[param(
        rename = "x-model-pool-wait", value_type = String, required = false,
        pattern = "^(true|false|yes|no|[0-9]{1,6}(\\.[0-9]{1,3})?|[1-9][0-9]{0,4}(ms|s|m|h))$"
    )]
    wait: Option<String>,
    /// When the answer must be complete: seconds such as `30` or `0.5`, or a time such as `90s`, at most a day. After
    /// that: 504, and the engine stops.
    #[param(
        rename = "x-request-timeout", value_type = String, required = false,
        pattern = "^([1-9][0-9]{0,3}(\\.[0-9]{1,3})?|0\\.[0-9]{0,2}[1-9]|[1-9][0-9]{0,3}(ms|s)|[1-9][0-9]{0,2}m)$"
    )]
    timeout: Option<String>,
}

/// Headers of answers: the name of the component, the header, and what it says.
pub(super) const ANSWERS: [(&str, &str, &str); 6] = [
    (
        "RequestId",
        "x-request-id",
        "The request's id, as logs and the history have it.",
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
        "The replica that answered.",
    ),
    (
        "WaitedMs",
        "x-model-pool-waited-ms",
        "How long the request waited for a slot, in milliseconds.",
    ),
    (
        "Loaded",
        "x-model-pool-loaded",
        "Whether the model was loaded for this request.",
    ),
];

pub(super) fn header(description: &str) -> Header {
    HeaderBuilder::new()
        .schema(Some(Object::with_type(Type::String)))
        .description(Some(description))
        .build()
}
