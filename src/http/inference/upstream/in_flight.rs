//! A request that has a seat: what is counted of it, how it reaches its engine, and how the engine's own errors come
//! back.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::Response;
use http_body_util::{BodyExt, Limited};
use serde_json::json;

use crate::auth::sight::Sight;
use crate::dialect::error_in;
use crate::error::Failure;
use crate::inference::answer::usage::Usage;
use crate::inference::upstream::engine_error;
use crate::inference::upstream::overflow;
use crate::inference::upstream::proxy::Incoming;
use crate::inference::upstream::remote;
use crate::key_usage::{CountedRequest, RunningRequest};
use crate::metrics::Metrics;
use crate::state::{App, Ending};
use access::limits::Admission;
use controller::{Clock, Cut, Lease};
use pool::{KeyId, Time};

/// An engine's own error is passed on up to this size.
const ENGINE_ERROR_MAX: usize = 1 << 20;

/// How long a broken stream waits to hear from the controller what happened to its engine.
pub(crate) const WHY_WITHIN: Duration = Duration::from_millis(500);
/// How long an engine that says that it ends takes for it: it stops its workers first, and may hang at that until its
/// health is missed.
const ENDED_WITHIN: Duration = Duration::from_secs(30);

/// A seat that is being used, and what is counted about it.
pub(crate) struct InFlightRequest {
    pub lease: Lease,
    pub model: Arc<str>,
    metrics: Metrics,
    pub clock: Clock,
    arrived_at: Time,
    /// Counted among the requests of its key and its model until it ends.
    admitted: Admission,
    /// Counted for its key's own page.
    counted: CountedRequest,
    /// The token counts that the engine has reported so far.
    reported: Mutex<Usage>,
    /// Whether it has reported more than it can have counted.
    is_doubted: AtomicBool,
    /// Pieces of the answer that came.
    heard: AtomicU64,
    /// An engine has it, and nothing says that it did no work for it.
    is_charged: AtomicBool,
    /// It is among the requests that have ended, by their status.
    is_counted: AtomicBool,
    /// What the caller may know.
    pub sight: Sight,
    /// When the client wants no more of it.
    pub deadline: Option<Time>,
    /// The process ends now.
    pub ending: Ending,
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
        let counted = app.usages.begin(RunningRequest {
            key,
            model: Arc::clone(model),
            arrived_at,
            seated_at: app.handle.clock().now(),
        });
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
            clock: app.handle.clock(),
            arrived_at,
            ending: app.ending_signal(),
        }
    }

    pub fn first_token(&self) {
        let took = self.clock.now().since(self.arrived_at);
        self.metrics
            .first_token(&self.model, Duration::from_millis(took.0));
    }

    /// A piece of the answer came.
    pub fn token(&self) {
        self.heard.fetch_add(1, Ordering::Relaxed);
        self.lease.token();
    }

    /// What the engine says that the request took until now. Some say it once, some with every piece. Every sum of tokens
    /// has its numbers from here, so that those that cannot be right count nowhere: the request counts by its estimate.
    pub fn tokens(&self, usage: Usage) {
        if !usage.is_plausible() {
            if !self.is_doubted.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    model = &*self.model,
                    replica = %self.lease.replica(),
                    prompt_tokens = usage.prompt_tokens,
                    completion_tokens = usage.completion_tokens,
                    "the engine reports more tokens than it can have counted; the request counts by its estimate"
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
    }

    /// Counts the request by its status, the first time. What the engine does once the client has its whole answer changes
    /// nothing: clients leave at `[DONE]` and do not wait for the end of the body.
    pub fn answered(&self, code: u16) {
        if !self.is_counted.swap(true, Ordering::Relaxed) {
            self.metrics.request(&self.model, code);
        }
    }

    /// The engine refused it, or failed: what it was thought to take is not charged, unless a part of an
    /// answer came.
    pub fn give_back(&self) {
        self.is_charged.store(false, Ordering::Relaxed);
    }
}

impl Drop for InFlightRequest {
    /// Who leaves before the engine has counted has had a prompt read, and what came; a piece is about a token.
    fn drop(&mut self) {
        let reported = *self
            .reported
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        let heard = *self.heard.get_mut();
        let is_charged = heard > 0 || *self.is_charged.get_mut();
        if reported != Usage::default() {
            self.counted
                .used(reported.prompt_tokens, reported.completion_tokens);
        } else if is_charged {
            let estimate = self.admitted.estimate();
            self.admitted.took(estimate.saturating_add(heard));
            self.counted.used(estimate, heard);
        }
    }
}

/// A body that is JSON.
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The head of the engine's answer; or why there is none. `kind`: the body's `content-type`.
pub(crate) async fn reach(
    app: &App,
    served: InFlightRequest,
    path: &str,
    body: (&HeaderValue, Bytes),
) -> Result<(InFlightRequest, hyper::Response<Incoming>), Failure> {
    reach_by(app, served, (Method::POST, path), body).await
}

/// The same by another method.
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
            Ok(answer) => {
                let status = answer.status();
                if let Some(failure) = remote::misplaced(&served.lease, &served.model, status) {
                    served.lease.worked(false);
                    served.give_back();
                    return Err(failure);
                }
                served.lease.worked(!answer.status().is_server_error());
                Ok((served, answer))
            }
            Err(error) => {
                served.lease.worked(false);
                served.give_back();
                tracing::warn!(model = &*served.model, %error, "the engine did not answer");
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
            "{{\"error\":{{\"message\":\"the engine's error could not be read: {error}\"}}}}"
        )
        .into(),
    }
}

/// Turns an engine's error response into an error object for the client.
pub(crate) async fn engine_error(
    answer: hyper::Response<Incoming>,
    served: &InFlightRequest,
) -> Response {
    let (head, body) = answer.into_parts();
    engine_error_of((head, limited(body).await), served)
}

/// The same where the body has been read.
pub(crate) fn engine_error_of(
    (head, body): (hyper::http::response::Parts, Bytes),
    served: &InFlightRequest,
) -> Response {
    served.give_back();
    let body = remote::masked(&served.lease, body);
    let (status, body) = match overflow_error(head.status, &body) {
        Some(error) => (StatusCode::BAD_REQUEST, error),
        None => (head.status, body),
    };
    engine_error::response(status, &head.headers, body)
}

/// The body of an error that says a prompt is too long, in the words that clients know.
pub(crate) fn overflow_error(status: StatusCode, body: &Bytes) -> Option<Bytes> {
    // Some engines call it their own failure.
    let may_be = status.is_client_error() || status == StatusCode::INTERNAL_SERVER_ERROR;
    let error = may_be.then(|| error_in(&String::from_utf8_lossy(body)))?;
    let error = overflow::retold(&error)?;
    Some(json!({ "error": error }).to_string().into())
}

/// The engine announced its end: the controller knows more as soon as it has ended.
pub(crate) async fn ended(served: &InFlightRequest) -> Failure {
    served.lease.worked(false);
    served.give_back();
    let cut = served.lease.cut();
    let _ = tokio::time::timeout(ENDED_WITHIN, cut.cancelled()).await;
    let cut = served.lease.why().cloned();
    let cut = cut.unwrap_or_else(|| Cut::Crashed("it said so itself".to_owned()));
    Failure::cut(&served.model, &served.sight.cut(cut))
}

/// Why the answer broke off: the controller knows, at the latest a moment later.
pub(crate) async fn why(served: &InFlightRequest) -> Failure {
    let cut = served.lease.cut();
    let _ = tokio::time::timeout(WHY_WITHIN, cut.cancelled()).await;
    // The client is not to blame.
    served.give_back();
    match served.lease.why() {
        Some(why) => Failure::cut(&served.model, &served.sight.cut(why.clone())),
        // What has lost its node and its connection is placed again as if the engine had ended, which it probably has: unless
        // something of the answer came, nothing is lost by it.
        None if served.lease.is_away() => {
            let lost = Cut::Crashed("its node was lost".to_owned());
            Failure::cut(&served.model, &lost)
        }
        // It lives; it only does not speak properly.
        None => Failure::engine(&served.model, "it broke the connection off"),
    }
}
