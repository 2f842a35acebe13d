//! The account of device time in a month.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use utoipa::IntoParams;

use super::events::unreadable;
use super::history_filters::{asker, is_within, names_of};
use api_types::dto::{ChartPeriod, ChartPoint, UsageParts, UsageView, group_and_account};
use api_types::error::Failure;
use config::{GroupsSection, Month, groups};
use gateway::auth::Overseer;
use gateway::fields::{Fields, Params, Strict};
use gateway::group_scope::GroupScope;
use gateway::minute_counts::first_token_quantile;
use gateway::openapi::AdminErrors;
use gateway::state::App;
use pool::Time;
use store::{LedgerSum, Store, UseCount};

const HOUR_MS: u64 = 3_600_000;
/// Maximum number of rows of a report as JSON, which browsers show, and as CSV.
const JSON_ROWS_MAX: usize = 20_000;
const CSV_ROWS_MAX: usize = 500_000;
/// The time of a report over this many sums is that of reading this many bytes.
const BYTES_OF_SUM: usize = 200;
/// Maximum number of groups that an error names.
const GROUPS_NAMED_MAX: usize = 20;

/// Reads the month of a query.
fn read_month(fields: &mut Fields) -> Result<Option<Month>, Failure> {
    let Some(text) = fields.text("month")? else {
        return Ok(None);
    };
    let month = text.parse().map(Some);
    month.map_err(|error| Failure::invalid(Some("month".to_owned()), format!("month: {error}")))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Json,
    Csv,
}

#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct UsageQuery {
    /// The month. The default is the current one.
    #[param(value_type = Option<String>, pattern = "^[0-9]{4}-[0-9]{2}$", example = "2026-11")]
    month: Option<Month>,
    /// Only this group and the groups below it: a name, or a path such as `physics/lab`.
    #[param(value_type = Option<String>, min_length = 1, example = "lab")]
    group: Option<String>,
    /// Only this model.
    #[param(value_type = Option<String>, min_length = 1, example = "tiny-chat")]
    model: Option<String>,
    /// Only this key: an id such as `k3`, a name, `anonymous` or `administrator`.
    #[param(value_type = Option<String>, min_length = 1, example = "k3")]
    of: Option<String>,
    /// Adds charts of this time up to now: `hour`, `day` or `week`. The default is none.
    #[param(value_type = Option<String>, pattern = "^(hour|day|week)$", example = "day")]
    charts: Option<ChartPeriod>,
    /// `json` (the default), or `csv` for a table.
    #[param(value_type = Option<String>, pattern = "^(json|csv)$", example = "json")]
    format: Format,
}

impl Strict for UsageQuery {
    fn read(fields: &mut Fields) -> Result<UsageQuery, Failure> {
        let formats = [("json", Format::Json), ("csv", Format::Csv)];
        let periods = ChartPeriod::ALL.map(|period| (period.name(), period));
        Ok(UsageQuery {
            charts: fields.choice("charts", &periods)?,
            month: read_month(fields)?,
            group: fields.text("group")?,
            model: fields.text("model")?,
            of: fields.text("of")?,
            format: fields.choice("format", &formats)?.unwrap_or(Format::Json),
        })
    }
}

/// Show the use of devices in a month
///
/// Returns the device time that each key used or held idle, per model, with the energy and the cost if they are known. The states of a
/// device sum to its wall time. Days begin at midnight in the pool's time zone. Reports are limited to 20,000 rows as JSON and 500,000 as CSV.
/// Administrators of a group get the rows of their group and of the groups below it, without devices, hours and charts, which concern
/// the pool.
///
/// Administrators, viewers and administrators of a group.
#[utoipa::path(
    get, path = "/admin/usage", tag = "admin: history", operation_id = "show_usage", security(("admin_key" = [])),
    params(UsageQuery),
    responses(
        (status = 200, description = "The account", content(
            (UsageView = "application/json", example = json!({
                "month": "2026-01", "time_zone": "Europe/Berlin",
                "rows": [{"model": "tiny-chat", "group": "physics/lab", "key": "k3", "name": "course 4711",
                    "seconds": {"used": 3600.0, "used_by_batches": 600.0, "idle": 600.0, "loading": 12.5, "asleep": 0.0, "foreign": 0.0, "cordoned": 0.0, "free": 0.0, "not_known": 0.0},
                    "byte_seconds": 3.6e13, "energy_joules": 720000.0, "energy_known_seconds": 4212.5, "cost": 2.35}],
                "total": {"seconds": {"used": 3600.0, "used_by_batches": 600.0, "idle": 600.0, "loading": 12.5, "asleep": 0.0, "foreign": 0.0, "cordoned": 0.0, "free": 0.0, "not_known": 0.0},
                    "byte_seconds": 3.6e13, "energy_joules": 720000.0, "energy_known_seconds": 4212.5, "cost": 2.35},
                "devices": [{"device": "gpu0", "wall_seconds": 86400.0,
                    "seconds": {"used": 3600.0, "used_by_batches": 600.0, "idle": 600.0, "loading": 12.5, "asleep": 0.0, "foreign": 100.0, "cordoned": 0.0, "free": 82087.5, "not_known": 0.0},
                    "byte_seconds": 7.4e15, "energy_joules": null, "energy_known_seconds": 0.0, "cost": null}],
                "hours": [{"at": "2026-01-31T20:00:00.000Z",
                    "seconds": {"used": 1200.0, "used_by_batches": 200.0, "idle": 60.0, "loading": 0.0, "asleep": 0.0, "foreign": 0.0, "cordoned": 0.0, "free": 2340.0, "not_known": 0.0},
                    "requests": 120, "waited": 2, "waited_seconds": 3.5}],
                "charts": null
            })),
            (String = "text/csv", example = json!("month,model,…")),
        )),
        AdminErrors,
    )
)]
pub(crate) async fn show(
    State(app): State<App>,
    overseer: Overseer,
    Params(mut query): Params<UsageQuery>,
) -> Result<Response, Failure> {
    if let Some(scope) = &overseer.scope {
        if query.charts.is_some() {
            return Err(Failure::field_of_admins("charts", &scope.group.name));
        }
        query.group = Some(scoped(&query, scope)?);
    }
    let is_scoped = overseer.scope.is_some();
    let config = app.config();
    let wall = app.handle.clock().wall();
    let month = query
        .month
        .unwrap_or_else(|| Month::of_day(config.day(wall)));
    let (first, last) = month.days();
    let key = query
        .of
        .as_deref()
        .map(|key| account(&app, key))
        .transpose()?;
    let store = app.handle.store();
    let hour = |day: i64| day.saturating_mul(24);
    // Hours belong to the days of UTC; the charts show the days around the month, too.
    let hours = (hour(first - 1), hour(last + 2));
    let (by_payer, by_device, by_hour, minutes) = tokio::try_join!(
        store.ledger_by_payer(first, last),
        store.ledger_by_device(first, last),
        store.ledger_by_hour(hours.0, hours.1),
        store.count_use_by(60, at(hours.0), at(hours.1)),
    )
    .map_err(unreadable)?;
    let charts = match query.charts {
        Some(period) => Some(charts(store, period, wall).await?),
        None => None,
    };
    let in_month = |hour: i64| (first..=last).contains(&config.day(at(hour)));
    let by_hour: Vec<_> = by_hour
        .into_iter()
        .filter(|sum| in_month(sum.period))
        .collect();
    let requests: BTreeMap<i64, UseCount> = minutes.into_iter().collect();
    let bytes = (by_payer.len() + by_device.len()).saturating_mul(BYTES_OF_SUM);
    let reading = app.clone();
    let section = app.keys.groups().section();
    let format = query.format;
    let report = move || {
        let parts = UsageParts {
            month: month.to_string(),
            time_zone: config.zone().name().to_owned(),
            by_payer: &by_payer,
            by_device: &by_device,
            by_hour: &by_hour,
            requests: &requests,
            prices: &config.usage.prices,
        };
        if let Some(wanted) = query.group.as_ref().filter(|_| !is_scoped) {
            check_group(&section, &by_payer, wanted)?;
        }
        let keep = |model: &str, group: &str, account: &str| {
            let is_wanted = |wanted: &Option<String>, value| {
                wanted.as_deref().is_none_or(|wanted| wanted == value)
            };
            let group_wanted = query.group.as_deref();
            is_wanted(&query.model, model)
                && is_wanted(&key, account)
                && group_wanted.is_none_or(|wanted| {
                    if is_scoped {
                        is_below(group, wanted)
                    } else {
                        is_within(group, wanted)
                    }
                })
        };
        let ids: BTreeSet<&str> = by_payer
            .iter()
            .map(|sum| group_and_account(&sum.payer).1)
            .collect();
        let names = names_of(&app, &ids);
        let name = |id: &str| names.get(id).cloned().unwrap_or_default();
        let mut usage = UsageView::new(&parts, name, keep);
        usage.charts = charts;
        if is_scoped {
            usage.devices.clear();
            usage.hours.clear();
        }
        check_rows(usage.rows.len(), format)?;
        response(&usage, format)
    };
    reading.reading.run(bytes, report).await
}

/// The charts of a period up to now.
async fn charts(store: &Store, period: ChartPeriod, now: Time) -> Result<Vec<ChartPoint>, Failure> {
    let (from, to) = period.range(now);
    let (uses, minutes) = tokio::try_join!(
        store.count_use_by(period.step_minutes(), from, to),
        store.pool_minutes(from, to),
    )
    .map_err(unreadable)?;
    let quantile = first_token_quantile;
    Ok(ChartPoint::all(period, now, &uses, &minutes, quantile))
}

fn response(usage: &UsageView, format: Format) -> Result<Response, Failure> {
    if format == Format::Json {
        return Ok(Json(usage).into_response());
    }
    let file = format!("inline; filename=\"model-pool-usage-{}.csv\"", usage.month);
    let mut response = usage.csv().into_response();
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/csv; charset=utf-8"),
    );
    if let Ok(file) = HeaderValue::from_str(&file) {
        headers.insert(CONTENT_DISPOSITION, file);
    }
    Ok(response)
}

fn check_rows(rows: usize, format: Format) -> Result<(), Failure> {
    let (most, other) = match format {
        Format::Json => (JSON_ROWS_MAX, ", or use format=csv"),
        Format::Csv => (CSV_ROWS_MAX, ""),
    };
    if rows <= most {
        return Ok(());
    }
    let message = format!(
        "the month has {rows} rows, and a report has at most {most}; filter by model, group or of{other}"
    );
    Err(Failure::invalid(None, message))
}

/// Returns true if the path is this path or below it.
fn is_below(path: &str, top: &str) -> bool {
    let rest = path.strip_prefix(top);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The path of the group whose use a group's administrator reads: the requested one, or the administrator's.
fn scoped(query: &UsageQuery, scope: &GroupScope) -> Result<String, Failure> {
    // Names of keys of other groups stay hidden.
    let is_id = |key: &str| {
        let digits = key.strip_prefix('k').unwrap_or_default();
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    if query.of.as_deref().is_some_and(|key| !is_id(key)) {
        let message = "of: give the id of a key, such as k3 (`admin-client keys list`)";
        return Err(Failure::invalid(Some("of".to_owned()), message));
    }
    let Some(wanted) = &query.group else {
        return Ok(scope.group.path.to_string());
    };
    scope.path_of(wanted).ok_or_else(|| {
        let shown: String = wanted.chars().take(60).collect();
        Failure::forbidden(
            "outside_own_group",
            format!(
                "group: {shown:?} is not {} or a group below it, whose use an administrator of {} may read",
                scope.group.path, scope.group.name
            ),
        )
    })
}

/// Refuses a group that neither the configuration nor the month has.
fn check_group(
    section: &GroupsSection,
    by_payer: &[LedgerSum],
    wanted: &str,
) -> Result<(), Failure> {
    let mut names = section.keys();
    let is_configured = names.any(|name| is_within(&groups::path(section, name), wanted));
    let charged: BTreeSet<&str> = by_payer
        .iter()
        .map(|sum| group_and_account(&sum.payer).0)
        .collect();
    if is_configured || charged.iter().any(|path| is_within(path, wanted)) {
        return Ok(());
    }
    let shown: String = wanted.chars().take(60).collect();
    let mut known: BTreeSet<&str> = section.keys().map(String::as_str).collect();
    known.extend(charged.iter().flat_map(|path| path.split('/')));
    known.remove("");
    let names: Vec<&str> = known.iter().copied().take(GROUPS_NAMED_MAX).collect();
    let advice = match known.len().saturating_sub(names.len()) {
        0 if names.is_empty() => "the configuration has no groups".to_owned(),
        0 => format!("the groups are {}", names.join(", ")),
        more => format!("the groups are {}, and {more} more", names.join(", ")),
    };
    Err(Failure::invalid(
        Some("group".to_owned()),
        format!("group: there is no group {shown:?} in this month; {advice}"),
    ))
}

fn at(hour: i64) -> Time {
    Time(u64::try_from(hour).unwrap_or(0).saturating_mul(HOUR_MS))
}

/// The account of a key's id or name.
fn account(app: &App, key: &str) -> Result<String, Failure> {
    if key == "administrator" || key == "others" {
        Ok(key.to_owned())
    } else {
        asker(app, "of", key)
    }
}

#[cfg(test)]
mod tests;
