//! Takes devices out of service and puts them back (M7). The pool decides what leaves a device, and when.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use utoipa::ToSchema;

use super::out_of_service::{Order, end, put_back, reason, remove, until};
use api_types::dto::{CordonResponse, Removed, UncordonResponse, Until};
use api_types::error::{ErrorKind, Failure};
use controller::Snapshot;
use gateway::auth::Admin;
use gateway::fields::{Body, Fields, OrderFields, Strict};
use gateway::openapi::AdminErrors;
use gateway::state::App;
use pool::{Command, DeviceId};

/// Request to cordon a device.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
#[schema(example = json!({"device": "gpu3", "reason": "new fan", "until": "2h"}))]
pub(crate) struct CordonRequest {
    /// Name, index or UUID of the device.
    #[schema(min_length = 1, example = "gpu3")]
    pub device: String,
    /// Reason shown to users. Defaults to the name of the caller.
    pub reason: Option<String>,
    /// Expected end of the cordon: a time (RFC 3339) or a duration such as `2h`. Informational, and used for the expected waiting
    /// time of requests; the cordon ends only with `uncordon`.
    #[schema(value_type = Option<String>, example = "2h")]
    pub until: Option<Until>,
    /// Cuts requests in flight instead of letting them finish.
    #[schema(value_type = Option<bool>, default = false)]
    pub now: bool,
    /// Responds once everything has left the device.
    #[schema(value_type = Option<bool>, default = true)]
    pub wait: bool,
}

impl Strict for CordonRequest {
    fn read(fields: &mut Fields) -> Result<CordonRequest, Failure> {
        Ok(CordonRequest {
            reason: reason(fields)?,
            device: fields.needed_text("device", "\"gpu0\"; GET /admin/devices lists them")?,
            until: until(fields)?,
            now: fields.flag("now")?.unwrap_or(false),
            wait: fields.flag("wait")?.unwrap_or(true),
        })
    }
}

/// Request to uncordon a device.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
#[schema(example = json!({"device": "gpu3"}))]
pub(crate) struct UncordonRequest {
    /// Name, index or UUID of the device.
    #[schema(min_length = 1, example = "gpu3")]
    pub device: String,
}

impl Strict for UncordonRequest {
    fn read(fields: &mut Fields) -> Result<UncordonRequest, Failure> {
        let device = fields.needed_text("device", "\"gpu0\"; GET /admin/devices lists them")?;
        Ok(UncordonRequest { device })
    }
}

/// Finds a device by name, UUID or index, in this order. Otherwise returns a 404 that lists the devices.
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
        let mut failure = Failure::new(ErrorKind::NotFound, "device_not_found", message);
        failure.body.error.param = Some("device".to_owned());
        failure
    })
}

/// Take a device out of service
///
/// The pool places nothing new on the device, and drains and unloads its replicas (M7). A cordon survives restarts and ends with
/// uncordon. The response is sent when the device is empty, or immediately with `wait: false`.
///
/// Administrators only.
#[utoipa::path(
    post, path = "/admin/devices/cordon", tag = "admin: pool", operation_id = "cordon_device", security(("admin_key" = [])),
    request_body(content = CordonRequest, example = json!({"device": "gpu3", "reason": "new fan", "until": "2h"})),
    responses(
        (status = 200, description = "Everything has left the device", body = CordonResponse, example = json!({
            "device": "gpu3",
            "cordon": {"reason": "new fan", "since_at": "2026-01-31T20:15:00.000Z",
                "until_at": "2026-01-31T22:15:00.000Z", "failed": false},
            "left": ["r3"], "draining": [], "cut_at": null, "order": "o5", "took_ms": 8200
        })),
        (status = 202, description = "Nothing new goes there, and what it holds leaves (`wait` is false)",
            body = CordonResponse, example = json!({
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
pub(crate) async fn cordon(
    State(app): State<App>,
    admin: Admin,
    Body(request): Body<CordonRequest>,
) -> Result<Response, Failure> {
    let device = device(&app.handle.snapshot(), &request.device)?;
    let until = end(request.until, app.handle.clock().now())?;
    let reason = request
        .reason
        .unwrap_or_else(|| format!("cordoned by {}", admin.name));
    let name = app.handle.snapshot().device_name(device);
    let order = Order {
        what: "cordon",
        name: &name,
        command: Command::Cordon {
            device,
            reason,
            until,
            now: request.now,
        },
    };
    let response = |removed: Removed<'_>| CordonResponse::new(device, removed);
    remove(&app, admin, order, (request.now, request.wait), response).await
}

/// Put a device back into service
///
/// Ends a cordon, whether it was set by an administrator or by the pool after a device error.
///
/// Administrators only.
#[utoipa::path(
    post, path = "/admin/devices/uncordon", tag = "admin: pool", operation_id = "uncordon_device",
    security(("admin_key" = [])),
    request_body(content = UncordonRequest, example = json!({"device": "gpu3"})),
    responses(
        (status = 200, description = "The device serves again", body = UncordonResponse,
            example = json!({"device": "gpu3", "order": "o6"})),
        AdminErrors,
    )
)]
pub(crate) async fn uncordon(
    State(app): State<App>,
    admin: Admin,
    Body(request): Body<UncordonRequest>,
) -> Result<Json<UncordonResponse>, Failure> {
    let snapshot = app.handle.snapshot();
    let device = device(&snapshot, &request.device)?;
    let name = snapshot.device_name(device);
    let order = Order {
        what: "uncordon",
        name: &name,
        command: Command::Uncordon { device },
    };
    let order = put_back(&app, admin, order).await?;
    Ok(Json(UncordonResponse {
        device: name,
        order,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pool::{Span, Time};

    fn read(json: &str) -> Result<CordonRequest, Failure> {
        CordonRequest::read(&mut Fields::parse(json.as_bytes())?)
    }

    #[test]
    fn a_cordon_waits_and_cuts_nothing_by_default() {
        let request = read(r#"{"device":"gpu3"}"#).unwrap();
        assert!(request.wait && !request.now);
        assert_eq!((request.reason, request.until), (None, None));
    }

    #[test]
    fn a_cordons_end_is_a_duration_or_a_future_time() {
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
