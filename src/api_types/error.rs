//! OpenAI's error object. Every refusal of the pool gets its kind, code and `Retry-After` here.
//! One file because it is the list of all refusals with their kind and code.

mod callers;
mod kind;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::paths::without_folders;
use access::oidc::OidcError;
use catalog::BrokenModel;
use controller::{ChangeError, ControllerBusy, CutReason};
pub use kind::ErrorKind;
use pool::{Refusal, Span, StopReason};

/// `{"error": {…}}`, as expected by OpenAI's clients.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ErrorBody {
    pub error: ErrorObject,
    /// The refused plan, for requests of administrators.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub plan: Option<serde_json::Value>,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ErrorObject {
    /// The cause of the error, and how to fix it.
    #[schema(example = "no model is called tiny-chta; the closest is tiny-chat")]
    pub message: String,
    #[serde(rename = "type")]
    #[schema(example = "invalid_request_error")]
    pub kind: &'static str,
    /// The field with the error.
    #[schema(example = "model")]
    pub param: Option<String>,
    #[schema(example = "model_not_found")]
    pub code: Option<&'static str>,
}

#[derive(Clone, Debug)]
pub struct Failure {
    pub kind: ErrorKind,
    pub body: Box<ErrorBody>,
    retry: Option<Span>,
}

/// Limits, because messages may repeat client text, which can be as long as a body.
const MESSAGE_BYTES_MAX: usize = 16 << 10;
const PARAM_BYTES_MAX: usize = 256;

fn clipped(mut text: String, most: usize) -> String {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
        text.shrink_to_fit();
        text.push('…');
    }
    text
}

impl Failure {
    pub fn new(kind: ErrorKind, code: &'static str, message: impl Into<String>) -> Failure {
        let error = ErrorObject {
            message: clipped(message.into(), MESSAGE_BYTES_MAX),
            kind: kind.error_type(),
            param: None,
            code: Some(code),
        };
        Failure {
            kind,
            body: Box::new(ErrorBody { error, plan: None }),
            retry: None,
        }
    }

    pub fn status(&self) -> StatusCode {
        self.kind.status()
    }

    /// The time after which a retry makes sense, if known.
    pub fn retry(&self) -> Option<Span> {
        self.retry
    }

    /// Sets the time for `Retry-After`.
    pub fn again_in(mut self, span: Span) -> Failure {
        self.retry = Some(span);
        self
    }

    /// 400: the request itself is wrong.
    pub fn invalid(param: impl Into<Option<String>>, message: impl Into<String>) -> Failure {
        let mut failure = Failure::new(ErrorKind::Invalid, "invalid_request", message);
        let param: Option<String> = param.into();
        failure.body.error.param = param.map(|name| clipped(name, PARAM_BYTES_MAX));
        failure
    }

    /// 404 with similar names.
    pub fn unknown_model(name: &str, closest: &[String]) -> Failure {
        let hint = match closest {
            [] => "GET /v1/models lists all models, and so does `admin-client models`".to_owned(),
            [name] => format!("the closest is {name}"),
            names => format!("the closest are: {}", names.join(", ")),
        };
        let shown: String = name.chars().take(200).collect();
        let message = format!("no model is called {shown}; {hint}");
        let mut failure = Failure::new(ErrorKind::NotFound, "model_not_found", message);
        failure.body.error.param = Some("model".to_owned());
        failure
    }

    /// 503 for a user: the model's file is broken. The details are only for administrators.
    pub fn broken_model(name: &str) -> Failure {
        let message = format!(
            "{name} cannot be served: its model file is broken; ask an administrator to fix it"
        );
        let mut failure = Failure::new(ErrorKind::Unavailable, MODEL_FILE_BROKEN, message);
        failure.body.error.param = Some("model".to_owned());
        failure
    }

    /// 409 for an administrator, with the error in the model's file.
    pub fn broken_file(broken: &BrokenModel) -> Failure {
        let message = format!(
            "{} is not served, because its model file is broken: {}; fix the file and reload",
            broken.name, broken.error
        );
        let mut failure = Failure::conflict(MODEL_FILE_BROKEN, message);
        failure.body.error.param = Some("model".to_owned());
        failure
    }

    pub fn too_large(limit_bytes: u64) -> Failure {
        let message =
            format!("the body is larger than {limit_bytes} bytes, the limit (server.body_limit)");
        Failure::new(ErrorKind::TooLarge, "body_too_large", message)
    }

    pub fn order_too_large(limit_bytes: u64) -> Failure {
        let mut failure = Failure::too_large(limit_bytes);
        failure.body.error.message = format!(
            "the body is larger than {limit_bytes} bytes, the limit for orders and model documents"
        );
        failure
    }

    pub fn unauthorized(message: impl Into<String>) -> Failure {
        Failure::new(ErrorKind::Unauthorized, "missing_api_key", message)
    }

    pub fn forbidden(code: &'static str, message: impl Into<String>) -> Failure {
        Failure::new(ErrorKind::Forbidden, code, message)
    }

    /// 404: no route exists at this path. The documentation is below `base`.
    pub fn no_route(path: &str, base: &str) -> Failure {
        let path: String = path.chars().take(200).collect();
        Failure::not_found(format!(
            "there is nothing at {path}; the routes are listed at {base}/docs"
        ))
    }

    pub fn not_found(message: impl Into<String>) -> Failure {
        Failure::new(ErrorKind::NotFound, "not_found", message)
    }

    pub fn conflict(code: &'static str, message: impl Into<String>) -> Failure {
        Failure::new(ErrorKind::Conflict, code, message)
    }

    pub fn internal(message: impl Into<String>) -> Failure {
        Failure::new(ErrorKind::Internal, "internal_error", message)
    }

    /// The error for a user's request that the pool has refused.
    pub fn refused(model: &str, refusal: &Refusal) -> Failure {
        let mut failure = Failure::of_refusal(model, refusal, false);
        failure.body.error.message = without_folders(&failure.body.error.message);
        failure
    }

    /// The error for an administrator's order that the pool has refused: 409 in cases where a user's error advises to wait.
    pub fn order_refused(
        what: &str,
        refusal: &Refusal,
        plan: Option<serde_json::Value>,
    ) -> Failure {
        let mut failure = Failure::of_refusal(what, refusal, true);
        failure.body.plan = plan;
        failure
    }

    fn of_refusal(model: &str, refusal: &Refusal, order: bool) -> Failure {
        let unavailable = ErrorKind::Unavailable;
        let (kind, code, retry) = match refusal {
            Refusal::UnknownModel => (ErrorKind::NotFound, "model_not_found", None),
            Refusal::QueueFull { retry, .. } => (ErrorKind::TooMany, "queue_full", Some(*retry)),
            Refusal::TimedOut { retry, .. } => (unavailable, "queue_timeout", Some(*retry)),
            Refusal::NoNode {
                refusal: other,
                retry,
                ..
            } => {
                let mut failure = Failure::of_refusal(model, other, order);
                failure.body.error.message = format!("{model}: {refusal}");
                failure.retry = retry.or(failure.retry);
                return failure;
            }
            Refusal::NeverFits { .. } => (unavailable, "never_fits", None),
            Refusal::NoDevices { .. } => (unavailable, "no_devices", Some(NO_ROOM_RETRY)),
            Refusal::NoRoom { .. } => (unavailable, "no_room", Some(NO_ROOM_RETRY)),
            Refusal::LoadFailed { retry, .. } => (unavailable, "load_failed", Some(*retry)),
            Refusal::Cooling { retry, .. } => (unavailable, "cooling_down", Some(*retry)),
            Refusal::Quarantined { .. } => (unavailable, "quarantined", None),
            Refusal::ShuttingDown => (unavailable, "shutting_down", Some(SHUTDOWN_RETRY)),
            Refusal::NoSuchReplica { .. } => (ErrorKind::NotFound, "replica_not_found", None),
            Refusal::NoSuchDevice { .. } => (ErrorKind::NotFound, "device_not_found", None),
            Refusal::NoSuchNode { .. } => (ErrorKind::NotFound, "node_not_found", None),
            Refusal::NodeServes { .. } => (ErrorKind::Conflict, "node_not_draining", None),
            Refusal::NotCordoned { .. } => (ErrorKind::Conflict, "not_cordoned", None),
            Refusal::NotLoaded => (ErrorKind::Conflict, "not_loaded", None),
            Refusal::TooManyDevices { .. } | Refusal::EngineTakesFewer { .. } => {
                (ErrorKind::Conflict, "too_many_devices", None)
            }
            Refusal::LoadedOnOthers { .. } => {
                (ErrorKind::Conflict, "loaded_on_other_devices", None)
            }
            Refusal::FetchEnded { .. } => (unavailable, "fetch_ended", None),
            Refusal::WeightsDamaged { .. } => (unavailable, "weights_damaged", None),
            Refusal::ProgramMissing { .. } => (unavailable, "program_missing", None),
            Refusal::AboveGroup { .. } => (ErrorKind::Forbidden, "model_above_group", None),
            Refusal::RequestAboveGroup { .. } => {
                (ErrorKind::Forbidden, "priority_above_group", None)
            }
            Refusal::Superseded => (ErrorKind::Conflict, "superseded", None),
            Refusal::PlanChanged => (ErrorKind::Conflict, "plan_changed", None),
            Refusal::NotSaved { .. } => (unavailable, "not_saved", None),
        };
        let keeps = matches!(refusal, Refusal::ShuttingDown | Refusal::NotSaved { .. });
        let kind = if order && kind == unavailable && !keeps {
            ErrorKind::Conflict
        } else {
            kind
        };
        let mut failure = Failure::new(kind, code, format!("{model}: {refusal}"));
        failure.retry = retry;
        failure
    }

    /// The error for a response that ended early.
    pub fn cut(model: &str, cut: &CutReason) -> Failure {
        let (code, message) = match cut {
            CutReason::Stopped(reason) => {
                let code = match reason {
                    StopReason::Preempted { .. } | StopReason::Forced { .. } => "preempted",
                    _ => "unloaded",
                };
                (
                    code,
                    format!("{model} was stopped during the response: {reason}"),
                )
            }
            CutReason::Crashed(words) => (
                ENGINE_CRASHED,
                without_folders(&format!(
                    "the engine of {model} ended during the response: {words}"
                )),
            ),
        };
        Failure::new(ErrorKind::Unavailable, code, message)
    }

    pub fn engine(model: &str, message: impl std::fmt::Display) -> Failure {
        let message = format!("the engine of {model} failed: {message}");
        Failure::new(ErrorKind::Upstream, "engine_error", message)
    }

    /// The client chose not to wait for a load.
    pub fn not_ready(model: &str, expected: Span) -> Failure {
        let message = format!(
            "{model} is not ready, and the request does not wait for it (x-model-pool-wait); a load takes about {expected}"
        );
        Failure::new(ErrorKind::Unavailable, "not_ready", message).again_in(expected)
    }

    /// The client's deadline has passed.
    pub fn deadline() -> Failure {
        Failure::new(
            ErrorKind::Deadline,
            "deadline_exceeded",
            "the response was not complete within x-request-timeout; request less output, or allow more time",
        )
    }

    /// The process shuts down before the response is complete.
    pub fn ending(model: &str) -> Failure {
        Failure::new(
            ErrorKind::Unavailable,
            "shutting_down",
            format!(
                "this model-pool shut down during the response of {model}; send the request again"
            ),
        )
    }

    /// The error as an event of a stream that has begun.
    pub fn sse(&self) -> String {
        format!("data: {}\n\n", self.json())
    }

    pub fn json(&self) -> String {
        serde_json::to_string(&self.body)
            .unwrap_or_else(|_| "{\"error\":{\"message\":\"?\"}}".to_owned())
    }
}

/// The engine has ended or no longer responds.
pub const ENGINE_CRASHED: &str = "engine_crashed";
const MODEL_FILE_BROKEN: &str = "model_file_broken";
/// Always-hot models hold the memory; it is unknown when that will change.
const NO_ROOM_RETRY: Span = Span::from_secs(60);
const SHUTDOWN_RETRY: Span = Span::from_secs(10);

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let retry = self.retry;
        let kind = self.kind;
        let code = self.body.error.code;
        let mut response = (kind.status(), Json(*self.body)).into_response();
        if let Some(retry) = retry {
            response.headers_mut().insert(
                header::RETRY_AFTER,
                HeaderValue::from(retry.secs_up().max(1)),
            );
        }
        if kind == ErrorKind::NotImplemented || code == Some(MODEL_FILE_BROKEN) {
            // Keeps OpenAI's clients from retrying.
            let no = HeaderValue::from_static("false");
            response.headers_mut().insert("x-should-retry", no);
        }
        if kind == ErrorKind::TooLarge {
            // The rest of the body stays unread, so the connection cannot be reused. Without this header, the client would lose its
            // next request on it.
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        if kind == ErrorKind::Unauthorized {
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<ControllerBusy> for Failure {
    fn from(_: ControllerBusy) -> Failure {
        Failure::refused("the pool", &Refusal::ShuttingDown)
    }
}

impl From<OidcError> for Failure {
    fn from(error: OidcError) -> Failure {
        let message = error.to_string();
        match error {
            OidcError::NoGroup { .. } => Failure::forbidden("no_group", message),
            OidcError::Unavailable { retry } => {
                let mut failure =
                    Failure::new(ErrorKind::Unavailable, "issuer_unavailable", message);
                failure.retry = Some(retry);
                failure
            }
            _ => {
                let mut failure = Failure::unauthorized(message);
                failure.body.error.code = Some("invalid_token");
                failure
            }
        }
    }
}

impl From<ChangeError> for Failure {
    fn from(error: ChangeError) -> Failure {
        match &error {
            ChangeError::Catalog(_) | ChangeError::Estimate { .. } => {
                Failure::invalid(None, error.to_string())
            }
            ChangeError::Unknown { .. } => Failure::not_found(error.to_string()),
            ChangeError::Taken { .. } => Failure::conflict("taken", error.to_string()),
            ChangeError::FromFile { .. } => Failure::conflict("from_file", error.to_string()),
            ChangeError::Full { .. } | ChangeError::TooLarge { .. } => Failure::new(
                ErrorKind::Unavailable,
                "model_not_registered",
                error.to_string(),
            ),
            ChangeError::NotSaved { .. } => {
                Failure::new(ErrorKind::Unavailable, "not_saved", error.to_string())
            }
            ChangeError::Gone => Failure::refused("the pool", &Refusal::ShuttingDown),
        }
    }
}
