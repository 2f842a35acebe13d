//! Takes devices out of service and puts them back (M7). Finds the device that is meant; what leaves
//! it, and when, is the pool's decision.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use chrono::DateTime;

use super::fields::{Body, Fields, Strict};
use super::load::refused;
use crate::auth::Admin;
use crate::dto::{CordonAnswer, CordonRequest, UncordonAnswer, UncordonRequest, Until};
use crate::error::Failure;
use crate::openapi::AdminErrors;
use crate::state::App;
use config::Length;
use controller::Snapshot;
use pool::{Command, DeviceId, Outcome, ReplicaId, Span, Time};

/// So long a reason is kept.
const REASON_MAX: usize = 500;
/// The furthest end that is accepted.
const UNTIL_MAX: Span = Span::from_secs(365 * 24 * 3600);

impl Strict for CordonRequest {
    fn read(fields: &mut Fields) -> Result<CordonRequest, Failure> {
        Ok(CordonRequest {
            reason: reason(fields)?,
            device: fields.needed_text("device", "\"gpu0\"; GET /admin/devices lists them")?,
            until: fields.text("until")?.map(|text| until(&text)).transpose()?,
            now: fields.flag("now")?.unwrap_or(false),
            wait: fields.flag("wait")?.unwrap_or(true),
        })
    }
}

impl Strict for UncordonRequest {
    fn read(fields: &mut Fields) -> Result<UncordonRequest, Failure> {
        let device = fields.needed_text("device", "\"gpu0\"; GET /admin/devices lists them")?;
        Ok(UncordonRequest { device })
    }
}

/// Why something is taken out of service, for people.
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

/// A moment as RFC 3339 writes it, or a length from now.
pub(super) fn until(text: &str) -> Result<Until, Failure> {
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
    Err(wrong_until(&format!("{shown:?} is no end")))
}

fn wrong_until(problem: &str) -> Failure {
    let allowed = "a length from now such as \"2h\", or a moment to come such as \"2026-01-31T20:15:00Z\", at most 365d ahead";
    Failure::invalid(
        Some("until".to_owned()),
        format!("until: {problem}; allowed: {allowed}"),
    )
}

/// The moment that is meant, if it lies ahead.
pub(super) fn end(until: Option<Until>, now: Time) -> Result<Option<Time>, Failure> {
    let Some(until) = until else {
        return Ok(None);
    };
    let moment = match until {
        Until::In(span) => now + span,
        Until::At(moment) => moment,
    };
    if moment <= now {
        return Err(wrong_until("the moment has passed"));
    }
    if moment > now + UNTIL_MAX {
        return Err(wrong_until("the moment is too far ahead"));
    }
    Ok(Some(moment))
}

/// The device of a name, a UUID or an index, in this order; or 404 with those that exist.
pub(super) fn device(snapshot: &Snapshot, name: &str) -> Result<DeviceId, Failure> {
    let all = || snapshot.devices.values().map(|device| &device.info);
    let index = name.parse::<u32>().ok();
    let found = all()
        .find(|info| info.name == name)
        .or_else(|| all().find(|info| info.uuid.as_deref() == Some(name)))
        .or_else(|| all().find(|info| Some(info.index) == index));
    found.map(|info| info.id).ok_or_else(|| {
        let shown: String = name.chars().take(60).collect();
        let list: Vec<String> = all()
            .map(|info| match &info.uuid {
                Some(uuid) => format!("{} (index {}, {uuid})", info.name, info.index),
                None => format!("{} (index {})", info.name, info.index),
            })
            .collect();
        let message = format!("no device is {shown:?}; there are: {}", list.join(", "));
        let mut failure = Failure::new(
            StatusCode::NOT_FOUND,
            "invalid_request_error",
            "device_not_found",
            message,
        );
        failure.body.error.param = Some("device".to_owned());
        failure
    })
}

/// Take a device out of service
///
/// The pool places nothing on the device any more, and drains and unloads what is there (M7). A cordon survives restarts and
/// ends with uncordon. The answer comes when the device is empty, or at once with `wait: false`.
///
/// Administrators only.
#[utoipa::path(
    post, path = "/admin/devices/cordon", tag = "admin: pool", operation_id = "cordon_device", security(("admin_key" = [])),
    request_body(content = CordonRequest, example = json!({"device": "gpu3", "reason": "new fan", "until": "2h"})),
    responses(
        (status = 200, description = "Everything has left the device", body = CordonAnswer, example = json!({
            "device": "gpu3",
            "cordon": {"reason": "new fan", "since_at": "2026-01-31T20:15:00.000Z",
                "until_at": "2026-01-31T22:15:00.000Z", "failed": false},
            "left": ["r3"], "draining": [], "cut_at": null, "order": "o5", "took_ms": 8200
        })),
        (status = 202, description = "Nothing new goes there, and what it holds leaves (`wait` is false)",
            body = CordonAnswer, example = json!({
            "device": "gpu3",
            "cordon": {"reason": "new fan", "since_at": "2026-01-31T20:15:00.000Z", "until_at": null, "failed": false},
            "left": [],
            "draining": [{"replica": "r3", "model": "tiny-chat", "state": "draining", "in_flight": 2,
                "bytes": 17179869184_u64}],
            "cut_at": "2026-01-31T20:25:00.000Z", "order": "o5", "took_ms": 3
        })),
        AdminErrors,
    )
)]
pub async fn cordon(
    State(app): State<App>,
    admin: Admin,
    Body(request): Body<CordonRequest>,
) -> Result<Response, Failure> {
    let since = app.handle.clock().now();
    let device = device(&app.handle.snapshot(), &request.device)?;
    let until = end(request.until, since)?;
    let now = request.now;
    let reason = request
        .reason
        .unwrap_or_else(|| format!("cordoned by {}", admin.name));
    let command = Command::Cordon {
        device,
        reason,
        until,
        now,
    };
    let mut ordered = app.handle.order_by(command, admin.by)?;
    let order = ordered.order.to_string();
    let name = app.handle.snapshot().device_name(device);
    tracing::info!(
        admin = admin.name,
        device = name,
        order,
        now,
        "cordon ordered"
    );
    let outcome = if request.wait {
        Some(ordered.settled().await?)
    } else {
        ordered.accepted().await?;
        ordered.try_settled()
    };
    let drain = if now {
        Span::ZERO
    } else {
        app.config().unload_drain()
    };
    let answer = |left: &[ReplicaId]| {
        let took = app.handle.clock().now().since(since);
        let snapshot = app.handle.snapshot();
        Json(CordonAnswer::of(
            device,
            left,
            since + drain,
            order,
            took,
            &snapshot,
        ))
    };
    match outcome {
        None => Ok((StatusCode::ACCEPTED, answer(&[])).into_response()),
        Some(Outcome::Cordoned { replicas }) => Ok(answer(&replicas).into_response()),
        Some(other) => Err(refused(&app, &name, other, false)),
    }
}

/// Put a device back into service
///
/// Ends a cordon, whether an administrator set it or the pool did because of an error of the device.
///
/// Administrators only.
#[utoipa::path(
    post, path = "/admin/devices/uncordon", tag = "admin: pool", operation_id = "uncordon_device",
    security(("admin_key" = [])),
    request_body(content = UncordonRequest, example = json!({"device": "gpu3"})),
    responses(
        (status = 200, description = "The device serves again", body = UncordonAnswer,
            example = json!({"device": "gpu3", "order": "o6"})),
        AdminErrors,
    )
)]
pub async fn uncordon(
    State(app): State<App>,
    admin: Admin,
    Body(request): Body<UncordonRequest>,
) -> Result<Json<UncordonAnswer>, Failure> {
    let snapshot = app.handle.snapshot();
    let device = device(&snapshot, &request.device)?;
    let name = snapshot.device_name(device);
    let ordered = app
        .handle
        .order_by(Command::Uncordon { device }, admin.by)?;
    let order = ordered.order.to_string();
    tracing::info!(admin = admin.name, device = name, order, "uncordon ordered");
    match ordered.settled().await? {
        Outcome::Uncordoned => Ok(Json(UncordonAnswer {
            device: name,
            order,
        })),
        other => Err(refused(&app, &name, other, false)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<CordonRequest, Failure> {
        CordonRequest::read(&mut Fields::of_json(json.as_bytes())?)
    }

    #[test]
    fn a_cordon_waits_and_cuts_nothing_unless_told() {
        let request = read(r#"{"device":"gpu3"}"#).unwrap();
        assert!(request.wait && !request.now);
        assert_eq!((request.reason, request.until), (None, None));
    }

    #[test]
    fn an_end_is_a_length_or_a_moment_that_lies_ahead() {
        let now = Time(1_700_000_000_000);
        let of = |text: &str| {
            let request = read(&format!(r#"{{"device":"d","until":"{text}"}}"#))?;
            end(request.until, now)
        };
        assert_eq!(of("2h").unwrap(), Some(now + Span::from_secs(7200)));
        let moment = of("2023-11-14T23:13:20+00:00").unwrap();
        assert_eq!(moment, Some(now + Span::from_secs(3600)));
        for wrong in [
            "2022-01-01T00:00:00Z",
            "tomorrow",
            "0s",
            "400d",
            "9999-01-01T00:00:00Z",
        ] {
            let error = of(wrong).expect_err(wrong).body.error;
            assert_eq!(error.param.as_deref(), Some("until"), "{wrong}");
            assert!(error.message.contains("\"2h\""), "{}", error.message);
        }
    }
}
