//! Admission of a request: access to the model, rate limits of key and model, the client's deadlines, and the response headers that
//! report them.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName};
use axum::response::Response;

use crate::auth::User;
use crate::auth::sight::Sight;
use crate::inference::background_run;
use crate::inference::request::failed::{Failed, into_response};
use crate::inference::request::service_class::ServiceWish;
use crate::inference::response_head::{ResponseHead, SeatHead, nothing_left, standing};
use crate::state::App;
use crate::virtual_models::attempts::RequestAttempts;
use access::limits::Admission;
use api_types::error::Failure;
use catalog::Entry;
use config::{AtEnd, Length, Month};
use controller::{Clock, Lease, Route, Seat, SeatUser};
use dialect::{Reading, Sealer};
use edge::record;
use pool::{LoadOrder, ServiceClass, Span, Time, Tokens};

const WAIT: HeaderName = HeaderName::from_static("x-model-pool-wait");
const TIMEOUT: HeaderName = HeaderName::from_static("x-request-timeout");

/// Average for English text.
const BYTES_PER_TOKEN: u64 = 4;
/// Longest accepted deadline.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

/// Time limits set by the client.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Deadlines {
    /// The time by which the response must be complete (`x-request-timeout`).
    pub deadline: Option<Time>,
    /// Longest wait for a seat (`x-model-pool-wait`); zero means no waiting.
    pub seat: Option<Duration>,
}

impl Deadlines {
    /// Parses the deadlines from request headers.
    pub(crate) fn from_headers(headers: &HeaderMap, now: Time) -> Result<Deadlines, Failure> {
        let wrong = |name: &HeaderName, allowed: &str| {
            Failure::invalid(name.to_string(), format!("{name}: allowed: {allowed}"))
        };
        let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or(""));
        let mut patience = Deadlines::default();
        if let Some(text) = text(&TIMEOUT) {
            let time = length(text).filter(|time| !time.is_zero() && *time <= TIMEOUT_MAX);
            let time = time.ok_or_else(|| {
                wrong(&TIMEOUT, "seconds such as 30 or 0.5, or a duration such as 90s; more than 0 and at most a day")
            })?;
            let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            patience.deadline = Some(now + Span(time.max(1)));
        }
        patience.seat = match text(&WAIT) {
            None | Some("true" | "yes") => None,
            Some("false" | "no") => Some(Duration::ZERO),
            Some(text) => Some(length(text).ok_or_else(|| {
                wrong(
                    &WAIT,
                    "false, true, seconds such as 5, or a duration such as 30s",
                )
            })?),
        };
        Ok(patience)
    }

    /// The time at which a client that starts to wait for a seat now gives up.
    pub(crate) fn gives_up(&self, now: Time) -> Option<Time> {
        let seat = self.seat.map(|wait| {
            let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            now + Span(wait)
        });
        self.deadline.into_iter().chain(seat).min()
    }
}

/// State of a request until its response begins.
pub struct RequestContext {
    pub user: User,
    pub arrived_at: Time,
    deadlines: Result<Deadlines, Failure>,
    head: Mutex<ResponseHead>,
    pub(crate) attempts: RequestAttempts,
}

impl RequestContext {
    pub fn new(app: &App, user: User, headers: &HeaderMap) -> RequestContext {
        let arrived_at = app.handle.clock().now();
        RequestContext {
            user,
            arrived_at,
            deadlines: Deadlines::from_headers(headers, arrived_at),
            head: Mutex::default(),
            attempts: RequestAttempts::default(),
        }
    }

    /// Like [`RequestContext::new`], but reuses the header map for the response, which saves an allocation per request.
    pub(crate) fn taking(app: &App, user: User, mut headers: HeaderMap) -> RequestContext {
        let mut context = RequestContext::new(app, user, &headers);
        headers.clear();
        let head = ResponseHead {
            more: headers,
            ..ResponseHead::default()
        };
        context.head = Mutex::new(head);
        context
    }

    /// Takes the response headers collected so far, with the map's capacity.
    pub fn headers(&self) -> HeaderMap {
        self.tell(std::mem::take)
    }

    /// The context for translating the request from its API.
    pub fn reading(&self, app: &App) -> Reading {
        Reading {
            now_seconds: self.arrived_at.0 / 1000,
            sealer: Sealer::new(Arc::clone(&app.seal), self.user.key),
            desk: None,
            background: background_run::current(),
        }
    }

    /// The client's deadlines, and the longest wait for this member of a virtual model.
    pub(crate) fn patience(&self) -> Deadlines {
        let mut deadlines = self.deadlines.as_ref().copied().unwrap_or_default();
        if let Some(wait) = self.attempts.wait_max() {
            deadlines.seat = Some(deadlines.seat.map_or(wait, |own| own.min(wait)));
        }
        deadlines
    }

    /// Forgets the seat of a failed attempt.
    pub(crate) fn forget_seat(&self) {
        locked(&self.head).seat = None;
    }

    /// Adds response headers.
    pub fn tell<T>(&self, write: impl FnOnce(&mut HeaderMap) -> T) -> T {
        write(&mut locked(&self.head).more)
    }

    /// Awaits `work` within the client's deadline and adds the collected headers to the response. `work` is already pinned, because
    /// moving a future of its size costs as much as reading the request.
    pub async fn end(
        &self,
        app: &App,
        work: Pin<&mut impl Future<Output = Result<Response, Failed>>>,
    ) -> Response {
        let worked = match &self.deadlines {
            Err(failure) => Err((None, failure.clone())),
            Ok(Deadlines { deadline: None, .. }) => work.await,
            Ok(Deadlines {
                deadline: Some(deadline),
                ..
            }) => {
                let rest = rest(app.handle.clock(), *deadline);
                let late = |_| Err((None, Failure::deadline()));
                tokio::time::timeout(rest, work).await.unwrap_or_else(late)
            }
        };
        let mut response = worked.unwrap_or_else(|failed| into_response(app, failed));
        let head = std::mem::take(&mut *locked(&self.head));
        head.write(response.headers_mut());
        response
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn rest(clock: Clock, deadline: Time) -> Duration {
    Duration::from_millis(deadline.since(clock.now()).0)
}

/// Completes at `deadline`; never without one.
pub(crate) async fn over(clock: Clock, deadline: Option<Time>) {
    match deadline {
        Some(deadline) => tokio::time::sleep(rest(clock, deadline)).await,
        None => std::future::pending().await,
    }
}

/// Parses a number of seconds or a duration with a unit.
fn length(text: &str) -> Option<Duration> {
    let text = text.trim();
    match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => text.parse::<Length>().ok().map(Length::duration),
    }
}

/// Refuses a model that the key may not use in the same way as an unknown model.
pub fn allowed(app: &App, user: &User, name: &str, entry: &Entry) -> Result<(), Failure> {
    if user.sight.may_use(entry, name) {
        Ok(())
    } else {
        Err(Failure::unknown_model(name, &closest(app, user, name)))
    }
}

/// The error for an unusable name: the model's file is broken, or no such model exists.
pub fn unknown(app: &App, user: &User, name: &str) -> Failure {
    let broken = app.handle.broken_model(name);
    match broken.filter(|_| user.sight.has(name)) {
        Some(_) => Failure::broken_model(name),
        None => Failure::unknown_model(name, &closest(app, user, name)),
    }
}

/// Similar names of models that the user may use.
pub(crate) fn closest(app: &App, user: &User, name: &str) -> Vec<String> {
    let known = |candidate: &String| {
        app.handle
            .route(candidate)
            .is_some_and(|route| user.sight.may_use(&route.entry, candidate))
    };
    let mut names = app.handle.closest(name);
    names.retain(known);
    names
}

/// Counts the request against the limits of its key and of its model.
pub(crate) async fn admit(
    app: &App,
    context: &RequestContext,
    model: &str,
    body_bytes: usize,
) -> Result<Admission, Failure> {
    check_quota(app, context)?;
    let estimate = body_bytes as u64 / BYTES_PER_TOKEN;
    if context.user.batch.is_some() {
        // A batch runs in free seats, at the pool's own pace.
        let admitted = app.limits.admit(Vec::new(), estimate).await;
        return admitted
            .map(Admission::from)
            .map_err(|refused| Failure::over_limit(&refused));
    }
    let own = [context.user.account.bucket(), app.limits.of_model(model)];
    let own = own.into_iter().flatten();
    let group = context.user.group.iter().flat_map(|group| group.buckets());
    let buckets = own.chain(group).collect();
    match app.limits.admit(buckets, estimate).await {
        Ok(admitted) => {
            context.tell(|head| standing(head, &admitted.standing()));
            Ok(admitted.into())
        }
        Err(refused) => {
            context.tell(|head| standing(head, &nothing_left(&refused)));
            Err(Failure::over_limit(&refused))
        }
    }
}

/// Refuses a request of a group whose quota is used up and says `refuse`.
fn check_quota(app: &App, context: &RequestContext) -> Result<(), Failure> {
    let Some(group) = &context.user.group else {
        return Ok(());
    };
    group.note_spent_quotas();
    let Some(spent) = group.spent_quota(AtEnd::Refuse) else {
        return Ok(());
    };
    let (config, wall) = (app.config(), app.handle.clock().wall());
    let month = Month::of_day(config.day(wall));
    let left = month.end(config.zone()).since(wall);
    Err(Failure::quota_spent(&spent, &month.next_day(), left))
}

/// The user of the seat that a chat or completion takes. Notes its class for the response.
pub(crate) fn seat_user(
    context: &RequestContext,
    route: &Route,
    wish: &ServiceWish,
    (sequences, prompt): (usize, u64),
) -> SeatUser {
    let class = context.user.class(wish.class);
    locked(&context.head).class = Some(class);
    let output = route.tokens.expected_output(wish.output_max.map(u64::from));
    SeatUser {
        key: context.user.key,
        class,
        expected: Tokens {
            prompt,
            output: output.saturating_mul(sequences.max(1) as u64),
        },
        is_batch: false,
    }
}

/// Records the replica and the waiting time for the response headers, the trace and the metrics.
pub fn seated(context: &RequestContext, app: &App, route: &Route, lease: &Lease, was_ready: bool) {
    record::trace(|trace| trace.seated(lease.replica().0));
    let waited = app.handle.clock().now().since(context.arrived_at);
    app.metrics
        .waited(&route.name, Duration::from_millis(waited.0));
    locked(&context.head).seat = Some(SeatHead {
        replica: lease.replica(),
        waited,
        was_ready,
    });
}

pub fn with(mut response: Response, head: HeaderMap) -> Response {
    response.headers_mut().extend(head);
    response
}

/// The error for a model that is not ready when the client does not wait for it.
pub(crate) async fn not_ready(app: &App, sight: &Sight, route: &Route) -> Failure {
    let order = LoadOrder {
        model: route.model,
        replicas: Some(1),
        devices: None,
        priority: None,
        keep_hot: None,
        lease: None,
        force: false,
        waits: true,
    };
    let name = &route.entry.name;
    let turn = app.plan_turns.next();
    match app.handle.plan_for_client(order, turn).await {
        Ok(Some((plan, expected))) => match plan.refusal {
            Some(refusal) => Failure::refused(name, &sight.refusal(refusal)),
            None => Failure::not_ready(name, expected.unwrap_or(plan.takes)),
        },
        Ok(None) | Err(_) => Failure::not_ready(name, Span::from_secs(10)),
    }
}

/// Takes a seat, waiting as long as the client allows. For non-streaming responses.
pub(crate) async fn seat(
    app: &App,
    context: &RequestContext,
    route: &Route,
    adapter: Option<&str>,
) -> Result<Lease, Failure> {
    let (patience, sight) = (context.patience(), &context.user.sight);
    let was_ready = route.is_ready();
    let user = SeatUser {
        class: context.user.class(ServiceClass::Default),
        ..SeatUser::from(context.user.key)
    };
    let lease = if let Some(seat) = &context.user.batch {
        seat.take(&route.entry.name)?
    } else if patience.seat == Some(Duration::ZERO) {
        match app.handle.seat_now(route, &user, None, adapter) {
            Some(lease) => lease,
            None => return Err(not_ready(app, sight, route).await),
        }
    } else {
        if !was_ready {
            app.handle.look_for_program(route).await;
        }
        let now = app.handle.clock().now();
        let gives_up = patience.gives_up(now);
        match app.handle.seat(route, user, None, adapter, gives_up)? {
            Seat::Now(lease) => lease,
            Seat::Wait(mut waiting) => {
                record::trace(|trace| trace.queued(&route.entry.name, now));
                let most = patience.seat.unwrap_or(Duration::MAX);
                match tokio::time::timeout(most, waiting.seat()).await {
                    Ok(seat) => seat.map_err(|refusal| {
                        Failure::refused(&route.entry.name, &sight.refusal(refusal))
                    })?,
                    Err(_) => {
                        drop(waiting);
                        return Err(not_ready(app, sight, route).await);
                    }
                }
            }
        }
    };
    seated(context, app, route, &lease, was_ready);
    Ok(lease)
}

#[cfg(test)]
mod tests;
