//! A request that holds a seat: its accounting, sending it to the engine, and translating the engine's errors.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::Response;
use http_body_util::{BodyExt, Limited};
use serde_json::json;

use crate::auth::sight::Sight;
use crate::key_usage::{CountedRequest, RunningRequest};
use crate::metrics::{MeasuredRequest, Metrics};
use crate::state::{App, Ending};
use crate::upstream::engine_error;
use crate::upstream::proxy::Incoming;
use crate::upstream::remote;
use crate::virtual_models::causes::PromptTooLong;
use access::limits::Admission;
use api_types::error::{ErrorKind, Failure};
use controller::{Clock, CutReason, FirstTokens, Lease};
use dialect::error_in;
use dialect::overflow;
use dialect::usage::Usage;
use edge::shares::Permit;
use pool::{KeyId, Span, Time, Tokens};

/// Largest engine error that is passed on.
const ENGINE_ERROR_MAX: usize = 1 << 20;

/// Longest wait for the controller's report about the engine after a stream has failed.
pub(crate) const WHY_WITHIN: Duration = Duration::from_millis(500);
/// Longest wait for the exit of an engine that has announced it. It stops its workers first, and may hang there until its health
/// check fails.
const ENDED_WITHIN: Duration = Duration::from_secs(30);

/// A seat in use, with its accounting.
pub struct InFlightRequest {
    pub lease: Lease,
    pub model: Arc<str>,
    metrics: Metrics,
    /// The request's measurement for OpenTelemetry.
    measured: Option<Box<MeasuredRequest>>,
    pub clock: Clock,
    arrived_at: Time,
    /// Its target for the time to the first token, and the place where it counts.
    target: Option<(Arc<FirstTokens>, Span)>,
    /// Counts the request against the limits of its key and model until it ends.
    admitted: Admission,
    /// Counts the request for the page of its key.
    counted: CountedRequest,
    /// The token counts that the engine has reported so far.
    reported: Mutex<Usage>,
    /// The engine has reported implausible counts.
    is_doubted: AtomicBool,
    /// Number of response pieces received.
    heard: AtomicU64,
    /// The request reached the engine, and the engine has not refused it.
    is_charged: AtomicBool,
    /// The request has been counted by its status.
    is_counted: AtomicBool,
    /// The details that the caller may see.
    pub sight: Sight,
    /// The client's deadline.
    pub deadline: Option<Time>,
    /// Signals the shutdown of this process.
    pub(crate) ending: Ending,
    /// The share of a recording that the engine has. Boxed, because few requests have any.
    pub(crate) recording: Option<Box<Permit>>,
}

impl InFlightRequest {
    pub fn new(
        app: &App,
        model: &Arc<str>,
        lease: Lease,
        arrived_at: Time,
        (admitted, sight, key): (Admission, Sight, KeyId),
        deadline: Option<Time>,
    ) -> InFlightRequest {
        let request = RunningRequest {
            key,
            model: Arc::clone(model),
            arrived_at,
            seated_at: app.handle.clock().now(),
            is_batch: lease.is_batch(),
        };
        let counted = app.usages.begin(request);
        InFlightRequest {
            admitted,
            counted,
            sight,
            reported: Mutex::default(),
            is_doubted: AtomicBool::new(false),
            heard: AtomicU64::new(0),
            is_charged: AtomicBool::new(false),
            is_counted: AtomicBool::new(false),
            deadline,
            lease,
            model: Arc::clone(model),
            metrics: app.metrics.clone(),
            measured: app.metrics.measure(model),
            clock: app.handle.clock(),
            arrived_at,
            target: app.target(model),
            ending: app.ending_signal(),
            recording: None,
        }
    }

    pub fn first_token(&self) {
        let took = self.clock.now().since(self.arrived_at);
        if let Some((first_tokens, target)) = &self.target {
            first_tokens.count(Some(took), *target);
        }
        let took = Duration::from_millis(took.0);
        self.metrics.first_token(&self.model, took);
        if let Some(measured) = &self.measured {
            measured.first_token(took);
        }
    }

    /// Records a piece of the response.
    pub fn token(&self) {
        self.heard.fetch_add(1, Ordering::Relaxed);
        self.lease.token();
    }

    /// Records the usage reported so far; some engines report it once, others with every piece. All token totals are fed from here,
    /// so implausible counts are never used; such a request counts with its estimate.
    pub fn tokens(&self, usage: Usage) {
        if !usage.is_plausible() {
            if !self.is_doubted.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    model = &*self.model,
                    replica = %self.lease.replica(),
                    prompt_tokens = usage.prompt_tokens,
                    completion_tokens = usage.completion_tokens,
                    "the engine reports an implausible number of tokens; counting the request with its estimate"
                );
            }
            return;
        }
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let prompt = usage.prompt_tokens.saturating_sub(reported.prompt_tokens);
        let completion = usage
            .completion_tokens
            .saturating_sub(reported.completion_tokens);
        reported.prompt_tokens += prompt;
        reported.completion_tokens += completion;
        self.admitted.took(prompt.saturating_add(completion));
        self.metrics.tokens(&self.model, prompt, completion);
        self.lease.took(Tokens {
            prompt: reported.prompt_tokens,
            output: reported.completion_tokens,
        });
    }

    /// Counts the request by its status. Later calls have no effect: what the engine does after a complete response does not
    /// matter, because clients leave at `[DONE]`.
    pub fn responded(&self, code: u16) {
        if !self.is_counted.swap(true, Ordering::Relaxed) {
            self.metrics.request(&self.model, code);
            if code < 400 {
                let took = self.clock.now().since(self.arrived_at);
                let took = Duration::from_millis(took.0);
                self.metrics.lasted(&self.model, took);
                if let Some(measured) = &self.measured {
                    measured.responded(took);
                }
            }
        }
    }

    /// Does not charge the request for its estimate, because the engine refused it or failed, unless part of a response was
    /// received.
    pub(crate) fn give_back(&self) {
        self.is_charged.store(false, Ordering::Relaxed);
    }
}

impl Drop for InFlightRequest {
    /// A client that disconnects before the engine has reported usage is charged the estimated prompt and one token per piece
    /// received.
    fn drop(&mut self) {
        let reported = *self
            .reported
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(measured) = self.measured.take() {
            measured.finish(reported.prompt_tokens, reported.completion_tokens);
        }
        let heard = *self.heard.get_mut();
        let is_charged = heard > 0 || *self.is_charged.get_mut();
        let mut used = None;
        if reported != Usage::default() {
            used = Some((reported.prompt_tokens, reported.completion_tokens));
        } else if is_charged {
            let estimate = self.admitted.estimate();
            self.admitted.took(estimate.saturating_add(heard));
            used = Some((estimate, heard));
            self.lease.estimated(Tokens {
                prompt: estimate,
                output: heard,
            });
        }
        let group = self.sight.caller_group();
        let now = self.clock.now();
        self.counted.ended(group, self.lease.waited(), used, now);
    }
}

/// The `content-type` of a JSON body.
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Sends the request and returns the engine's response head. `kind` is the body's `content-type`.
pub(crate) async fn reach(
    app: &App,
    served: InFlightRequest,
    path: &str,
    body: (&HeaderValue, Bytes),
) -> Result<(InFlightRequest, hyper::Response<Incoming>), Failure> {
    reach_by(app, served, (Method::POST, path), body).await
}

/// Like [`reach`], with another method.
pub(crate) async fn reach_by(
    app: &App,
    served: InFlightRequest,
    (method, path): (Method, &str),
    (kind, body): (&HeaderValue, Bytes),
) -> Result<(InFlightRequest, hyper::Response<Incoming>), Failure> {
    let cut = served.lease.cut();
    let lease = &served.lease;
    served.is_charged.store(true, Ordering::Relaxed);
    let sent = app.upstream.send(lease, method, path, (kind, body));
    tokio::select! {
        biased;
        sent = sent => match sent {
            Ok(response) => {
                let status = response.status();
                if let Some(failure) = remote::misplaced(&served.lease, &served.model, status) {
                    served.lease.worked(false);
                    served.give_back();
                    return Err(failure);
                }
                served.lease.worked(!response.status().is_server_error());
                Ok((served, response))
            }
            Err(error) => {
                served.lease.worked(false);
                served.give_back();
                tracing::warn!(model = &*served.model, %error, "no response from the engine");
                match remote::unreached(&served.lease, &served.model, &error) {
                    Some(failure) => Err(failure),
                    None => Err(why(&served).await),
                }
            }
        },
        () = cut.cancelled() => Err(why(&served).await),
    }
}

pub(crate) async fn limited(body: Incoming) -> Bytes {
    match Limited::new(body, ENGINE_ERROR_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => format!(
            "{{\"error\":{{\"message\":\"the engine's error response could not be read: {error}\"}}}}"
        )
        .into(),
    }
}

/// Turns an engine's error response into an error object for the client.
pub(crate) async fn engine_error(
    response: hyper::Response<Incoming>,
    served: &InFlightRequest,
) -> Response {
    let (head, body) = response.into_parts();
    engine_error_of((head, limited(body).await), served)
}

/// Like [`engine_error`], for a response whose body has been read.
pub(crate) fn engine_error_of(
    (head, body): (hyper::http::response::Parts, Bytes),
    served: &InFlightRequest,
) -> Response {
    served.give_back();
    let body = remote::masked(&served.lease, body);
    let (status, body) = match overflow_error(head.status, &body) {
        Some(error) => (ErrorKind::Invalid.status(), error),
        None => (head.status, body),
    };
    let is_too_long = status == ErrorKind::Invalid.status() && says_too_long(&body);
    let mut response = engine_error::response(status, &head.headers, body);
    if is_too_long {
        response.extensions_mut().insert(PromptTooLong);
    }
    response
}

/// Returns true if an engine's error names the code of a too long prompt.
fn says_too_long(body: &[u8]) -> bool {
    memchr::memmem::find(body, overflow::CODE.as_bytes()).is_some()
}

/// The body of an error about a too long prompt, in a form that clients recognize.
pub(crate) fn overflow_error(status: StatusCode, body: &Bytes) -> Option<Bytes> {
    // Some engines report it as an internal error.
    let may_be = status.is_client_error() || status == ErrorKind::Internal.status();
    let error = may_be.then(|| error_in(&String::from_utf8_lossy(body)))?;
    let error = overflow::retold(&error)?;
    Some(json!({ "error": error }).to_string().into())
}

/// The error after the engine has announced its exit. Waits for the controller to learn the cause.
pub(crate) async fn ended(served: &InFlightRequest) -> Failure {
    served.lease.worked(false);
    served.give_back();
    let cut = served.lease.cut();
    let _ = tokio::time::timeout(ENDED_WITHIN, cut.cancelled()).await;
    let cut = served.lease.why().cloned();
    let cut = cut.unwrap_or_else(|| CutReason::Crashed("it reported that it exits".to_owned()));
    Failure::cut(&served.model, &served.sight.cut(cut))
}

/// The reason why the response ended early. Waits shortly for the controller to learn the cause.
pub(crate) async fn why(served: &InFlightRequest) -> Failure {
    let cut = served.lease.cut();
    let _ = tokio::time::timeout(WHY_WITHIN, cut.cancelled()).await;
    // Not the client's fault.
    served.give_back();
    match served.lease.why() {
        Some(why) => Failure::cut(&served.model, &served.sight.cut(why.clone())),
        // Treated like an engine that ended, which is likely: the request is retried unless part of the response was received.
        None if served.lease.is_away() => {
            let lost = CutReason::Crashed("its node was lost".to_owned());
            Failure::cut(&served.model, &lost)
        }
        // The engine runs but does not respond properly.
        None => Failure::engine(&served.model, "it closed the connection early"),
    }
}
