//! Reports for a period: loads, evictions, waits and failures, per model, per group of callers and in total.

use axum::Json;
use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use utoipa::IntoParams;
use uuid::Uuid;

use super::events::unreadable;
use super::history_filters::When;
use api_types::dto::{ForecastsReport, GroupReport, NodeUseView, ReportView};
use api_types::error::Failure;
use gateway::auth::Reader;
use gateway::fields::{Fields, Params, Strict};
use gateway::openapi::AdminErrors;
use gateway::state::App;
use pool::Span;

const WEEK: Span = Span::from_secs(7 * 24 * 3600);
/// Longer than the default retention of any history.
const LONGEST: Span = Span::from_secs(400 * 24 * 3600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Json,
    Csv,
    Html,
}

/// The rows of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Model,
    Group,
}

#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ReportQuery {
    /// The beginning: a duration before now, such as `7d`, or a timestamp. The default is `7d`.
    #[param(value_type = Option<String>, min_length = 1, example = "7d")]
    from: Option<When>,
    /// The end. The default is now.
    #[param(value_type = Option<String>, min_length = 1, example = "1h")]
    to: Option<When>,
    /// `json` (the default), `csv` for tables, or `html` for a page that can be mailed.
    #[param(value_type = Option<String>, pattern = "^(json|csv|html)$", example = "json")]
    format: Format,
    /// The rows of `csv`: `model` (the default) or `group`.
    #[param(value_type = Option<String>, pattern = "^(model|group)$", example = "model")]
    by: By,
}

impl Strict for ReportQuery {
    fn read(fields: &mut Fields) -> Result<ReportQuery, Failure> {
        let formats = [
            ("json", Format::Json),
            ("csv", Format::Csv),
            ("html", Format::Html),
        ];
        let tables = [("model", By::Model), ("group", By::Group)];
        Ok(ReportQuery {
            from: When::read(fields, "from")?,
            to: When::read(fields, "to")?,
            format: fields.choice("format", &formats)?.unwrap_or(Format::Json),
            by: fields.choice("by", &tables)?.unwrap_or(By::Model),
        })
    }
}

/// Report on a period
///
/// Loads, cold starts, evictions by reason, waits, refusals and failures, per model and in total. Requests and waits are counted by
/// the minute. For each group: requests, waits and tokens by the hour, cold starts and refusals. Data that the history no longer has is
/// not counted (`state.history`).
///
/// Administrators and viewers only.
#[utoipa::path(
    get, path = "/admin/report", tag = "admin: history", operation_id = "show_report", security(("admin_key" = [])),
    params(ReportQuery),
    responses(
        (status = 200, description = "The report", content(
            (ReportView = "application/json", example = json!({
                "from": "2026-01-24T20:15:00.000Z", "to": "2026-01-31T20:15:00.000Z",
                "models": [{"model": "tiny-chat", "requests": 1280, "waited": 31, "waited_seconds": 190.5, "in_time": 1271, "late": 9, "cold_starts": 14, "loads": 16,
                    "load_seconds": 131.2, "load_seconds_longest": 12.1, "failed_loads": 0, "crashes": 0,
                    "evictions": {"preempted": 3}, "unloads": {"keep_hot": 12}, "refusals": {}}],
                "total": {"model": "total", "requests": 1280, "waited": 31, "waited_seconds": 190.5, "in_time": 1271, "late": 9, "cold_starts": 14, "loads": 16,
                    "load_seconds": 131.2, "load_seconds_longest": 12.1, "failed_loads": 0, "crashes": 0,
                    "evictions": {"preempted": 3}, "unloads": {"keep_hot": 12}, "refusals": {}},
                "groups": [{"group": "physics/lab", "requests": 640, "waited": 12, "waited_seconds": 61.5, "cold_starts": 5, "refusals": {}, "tokens": 812340}],
                "nodes": {"node_joined": 2, "node_released": 1},
                "forecasts": {"waits": 31, "precise": 26, "ranges": 9, "right": 29, "mean_ratio": 1.02},
                "node_use": [{"period": "day", "gpu_hours": 3.5, "cost": 5.6, "gpu_hours_max": null, "cost_max": null}]
            })),
            (String = "text/csv", example = json!("model,requests,…")),
            (String = "text/html", example = json!("<!doctype html>…")),
        )),
        AdminErrors,
    )
)]
pub(crate) async fn show(
    State(app): State<App>,
    _: Reader,
    Params(query): Params<ReportQuery>,
) -> Result<Response, Failure> {
    let now = app.handle.clock().now();
    let to = query.to.map_or(now, |to| to.moment(now));
    let from = query.from.unwrap_or(When::Ago(WEEK)).moment(now);
    if from >= to {
        return Err(Failure::invalid(
            Some("from".to_owned()),
            "from: is not before the end; set an earlier beginning such as 7d, or a later end",
        ));
    }
    if to.since(from) > LONGEST {
        return Err(Failure::invalid(
            Some("from".to_owned()),
            "from: a report covers at most 400 days; request several",
        ));
    }
    let store = app.handle.store();
    let events = store.count_events(from, to).await.map_err(unreadable)?;
    let uses = store.count_use(from, to).await.map_err(unreadable)?;
    let (of_groups, used) = tokio::try_join!(
        store.count_group_events(&GroupReport::KINDS, from, to),
        store.count_group_use(from, to),
    )
    .map_err(unreadable)?;
    let mut report = ReportView::new(from, to, &events, &uses);
    report.groups = GroupReport::all(&of_groups, &used);
    report.node_use = NodeUseView::all(&app.handle.snapshot());
    report.forecasts = ForecastsReport::new(&app.handle.compared_waits());
    Ok(match query.format {
        Format::Json => Json(report).into_response(),
        Format::Csv => {
            let text = match query.by {
                By::Model => report.csv(),
                By::Group => report.groups_csv(),
            };
            typed("text/csv; charset=utf-8", "csv", text, None)
        }
        Format::Html => {
            let nonce = Uuid::new_v4().simple().to_string();
            let page = report.html(&nonce);
            typed("text/html; charset=utf-8", "html", page, Some(&nonce))
        }
    })
}

fn typed(kind: &'static str, extension: &str, text: String, nonce: Option<&str>) -> Response {
    let mut response = text.into_response();
    let mut set = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().insert(name, value);
        }
    };
    set(CONTENT_TYPE, kind);
    let file = format!("inline; filename=\"model-pool-report.{extension}\"");
    set(CONTENT_DISPOSITION, &file);
    if let Some(nonce) = nonce {
        let policy = format!(
            "default-src 'none'; style-src 'nonce-{nonce}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        set(CONTENT_SECURITY_POLICY, &policy);
    }
    response
}
