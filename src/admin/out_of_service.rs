//! Shared code for taking a device (M7) or a node (N5) out of service: options, the order, and the wait until everything has left.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use chrono::DateTime;
use serde::Serialize;

use super::load::refused;
use api_types::dto::{Removed, Until};
use api_types::error::Failure;
use config::Length;
use gateway::auth::Admin;
use gateway::fields::Fields;
use gateway::state::App;
use pool::{Command, Outcome, Span, Time};

/// Longest accepted reason, in characters.
const REASON_MAX: usize = 500;
/// The latest end that is accepted.
const UNTIL_MAX: Span = Span::from_secs(365 * 24 * 3600);

/// The reason for taking something out of service.
pub(super) fn reason(fields: &mut Fields) -> Result<Option<String>, Failure> {
    let reason = fields.text("reason")?;
    match reason {
        Some(text) if text.chars().count() > REASON_MAX => Err(Failure::invalid(
            Some("reason".to_owned()),
            format!("reason: is longer than {REASON_MAX} characters; shorten it"),
        )),
        reason => Ok(reason),
    }
}

/// The expected end: an RFC 3339 timestamp, or a duration from now.
pub(super) fn until(fields: &mut Fields) -> Result<Option<Until>, Failure> {
    let text = fields.text("until")?;
    text.map(|text| read_until(&text)).transpose()
}

fn read_until(text: &str) -> Result<Until, Failure> {
    if let Ok(moment) = DateTime::parse_from_rfc3339(text) {
        let ms = u64::try_from(moment.timestamp_millis()).unwrap_or(0);
        return Ok(Until::At(Time(ms)));
    }
    if let Ok(Length(span)) = text.parse::<Length>()
        && span > Span::ZERO
    {
        return Ok(Until::In(span));
    }
    let shown: String = text.chars().take(60).collect();
    Err(wrong_until(&format!("{shown:?} is not a time")))
}

fn wrong_until(problem: &str) -> Failure {
    let allowed = "a duration from now such as \"2h\", or a future timestamp such as \"2026-01-31T20:15:00Z\", at most 365d ahead";
    Failure::invalid(
        Some("until".to_owned()),
        format!("until: {problem}; allowed: {allowed}"),
    )
}

/// Resolves the end, which must be in the future.
pub(super) fn end(until: Option<Until>, now: Time) -> Result<Option<Time>, Failure> {
    let Some(until) = until else {
        return Ok(None);
    };
    let moment = match until {
        Until::In(span) => now + span,
        Until::At(moment) => moment,
    };
    if moment <= now {
        return Err(wrong_until("the time has passed"));
    }
    if moment > now + UNTIL_MAX {
        return Err(wrong_until("the time is too far ahead"));
    }
    Ok(Some(moment))
}

/// An order for the device or node called `name`.
pub(super) struct Order<'a> {
    /// The order's name in the log.
    pub what: &'static str,
    pub name: &'a str,
    pub command: Command,
}

/// Orders that something is taken out of service. Responds with 200 once everything has left it, or with 202 while it drains if the
/// caller does not `wait`. `now`: requests in flight are cut.
pub(super) async fn remove<T: Serialize>(
    app: &App,
    admin: Admin,
    Order {
        what,
        name,
        command,
    }: Order<'_>,
    (now, wait): (bool, bool),
    response: impl FnOnce(Removed<'_>) -> T,
) -> Result<Response, Failure> {
    let since = app.handle.clock().now();
    let mut ordered = app.handle.order(command, Some(admin.by))?;
    let order = ordered.order.to_string();
    tracing::info!(admin = admin.name, what, name, order, now, "ordered");
    let outcome = if wait {
        Some(ordered.settled().await?)
    } else {
        ordered.accepted().await?;
        ordered.try_settled()
    };
    let (status, left) = match outcome {
        None => (StatusCode::ACCEPTED, Vec::new()),
        Some(Outcome::Cordoned { replicas } | Outcome::NodeDrained { replicas }) => {
            (StatusCode::OK, replicas)
        }
        Some(other) => return Err(refused(app, name, other, false)),
    };
    let drain = if now {
        Span::ZERO
    } else {
        app.config().unload_drain()
    };
    let removed = Removed {
        left: &left,
        cut_at: since + drain,
        order,
        took: app.handle.clock().now().since(since),
        snapshot: &app.handle.snapshot(),
    };
    Ok((status, Json(response(removed))).into_response())
}

/// Puts it back into service and returns the order's id.
pub(super) async fn put_back(
    app: &App,
    admin: Admin,
    Order {
        what,
        name,
        command,
    }: Order<'_>,
) -> Result<String, Failure> {
    let ordered = app.handle.order(command, Some(admin.by))?;
    let order = ordered.order.to_string();
    tracing::info!(admin = admin.name, what, name, order, "ordered");
    match ordered.settled().await? {
        Outcome::Uncordoned | Outcome::NodeUndrained => Ok(order),
        other => Err(refused(app, name, other, false)),
    }
}
