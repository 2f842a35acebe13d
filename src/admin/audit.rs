//! The audit log, in pages. Reading it is not recorded.

use axum::Json;
use axum::extract::State;
use utoipa::IntoParams;

use super::events::group;
use api_types::dto::{AuditList, AuditView};
use api_types::error::{ErrorKind, Failure};
use gateway::auth::Reader;
use gateway::fields::{Fields, Params, Strict};
use gateway::openapi::AdminErrors;
use gateway::state::App;
use reading::nearest;
use store::{AuditQuery, StoreError};

const LIMIT: u32 = 100;

#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// The largest number of entries on the page. The default is 100.
    #[param(minimum = 1, maximum = 1000, example = 100)]
    limit: Option<u32>,
    /// Only entries with an id below this one, such as `57`. The default is the newest entries.
    #[param(minimum = 1)]
    before: Option<i64>,
    /// Only entries of this key's id, such as `k3`, or of this subject of a token.
    #[param(min_length = 1)]
    of: Option<String>,
    /// Only entries whose path begins like this, such as `/admin/keys`.
    #[param(min_length = 1)]
    path: Option<String>,
    /// Only entries of members of this group and of the groups below it, and of changes of their keys: a name, or a path such as
    /// `physics/lab`. Entries of older versions have no group.
    #[param(min_length = 1, max_length = 1000)]
    group: Option<String>,
}

impl Strict for ListQuery {
    fn read(fields: &mut Fields) -> Result<ListQuery, Failure> {
        let before = fields.integer("before", 1..=i64::MAX.unsigned_abs())?;
        Ok(ListQuery {
            limit: fields.integer("limit", 1..=AuditQuery::LIMIT_MAX)?,
            before: before.map(|before| i64::try_from(before).unwrap_or(i64::MAX)),
            of: fields.text("of")?,
            path: fields.text("path")?,
            group: group(fields)?,
        })
    }
}

/// Show the audit log
///
/// Every request that changed something or tried to: its sender, origin and result. The newest page comes first; each page begins
/// with its oldest entry. Only a few fields of a request are recorded, and never a key.
///
/// Administrators only.
#[utoipa::path(
    get, path = "/admin/audit", tag = "admin: history", operation_id = "list_audit", security(("admin_key" = [])),
    params(ListQuery),
    responses(
        (status = 200, description = "A page", body = AuditList, example = json!({"entries": [{
            "id": 57, "at": "2026-01-31T20:15:00.123Z", "key": "k1", "subject": null,
            "name": "first admin key", "group": null, "key_group": null, "client": "127.0.0.1", "method": "POST", "path": "/admin/load",
            "what": {"model": "tiny-chat", "priority": 1, "lease": "2h"}, "status": 200,
            "request": "req-0a1b2c3d4e5f-17"
        }], "next_before": 57})),
        AdminErrors,
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    _: Reader,
    Params(query): Params<ListQuery>,
) -> Result<Json<AuditList>, Failure> {
    let limit = query.limit.unwrap_or(LIMIT);
    let base = app.base();
    // Removes the base path from a path copied from the access log.
    let path = query.path.map(|path| match path.strip_prefix(base) {
        Some(below) => below.to_owned(),
        None => path,
    });
    let wanted = AuditQuery {
        before: query.before,
        limit,
        key: query.of.clone(),
        path,
        group: query.group,
    };
    let page = app.handle.store().audit(wanted).await.map_err(unreadable)?;
    if let (true, Some(of)) = (page.is_empty(), &query.of) {
        actor_exists(&app, of).await?;
    }
    let is_full = page.len() == limit as usize;
    let next_before = page.first().map(|row| row.id).filter(|_| is_full);
    Ok(Json(AuditList {
        entries: page.into_iter().map(AuditView::new).collect(),
        next_before,
    }))
}

/// Checks that a key has this id, or that the audit has this subject. Otherwise returns a 404 that suggests the intended key.
async fn actor_exists(app: &App, of: &str) -> Result<(), Failure> {
    let keys = app.handle.store().keys().await.map_err(unreadable)?;
    if keys.iter().any(|key| key.id.to_string() == of) {
        return Ok(());
    }
    let newest = AuditQuery {
        limit: 1,
        key: Some(of.to_owned()),
        ..AuditQuery::default()
    };
    let newest = app.handle.store().audit(newest).await;
    if !newest.map_err(unreadable)?.is_empty() {
        return Ok(());
    }
    let names = keys.iter().map(|key| key.name.as_str());
    let meant = nearest(of, names).and_then(|name| keys.iter().find(|key| key.name == name));
    let hint = match meant {
        Some(key) => format!("the key named {} is {}", key.name, key.id),
        None => "GET /admin/keys lists the keys".to_owned(),
    };
    let shown: String = of.chars().take(200).collect();
    let message = format!("no key has the id {shown}, and the audit has no such subject; {hint}");
    let mut failure = Failure::not_found(message);
    failure.body.error.param = Some("of".to_owned());
    Err(failure)
}

/// The details of the database error are only logged.
fn unreadable(fault: StoreError) -> Failure {
    tracing::error!(%fault, "the audit could not be read");
    Failure::new(
        ErrorKind::Unavailable,
        "audit_unreadable",
        "the audit cannot be read now; see the server log",
    )
}
