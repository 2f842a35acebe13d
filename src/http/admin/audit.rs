//! The audit, in pages. Reading it changes nothing, and is not in it.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use utoipa::IntoParams;

use super::fields::{Fields, Params, Strict};
use crate::auth::Admin;
use crate::dto::{AuditList, AuditView};
use crate::error::Failure;
use crate::openapi::AdminErrors;
use crate::state::App;
use store::{AuditQuery, StoreFault};

const LIMIT: u32 = 100;

#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// 1 to 1000; 100 without it.
    #[param(minimum = 1, maximum = 1000, example = 100)]
    limit: Option<u32>,
    /// Only entries with a smaller id; without it the newest ones.
    #[param(minimum = 1, example = 57)]
    before: Option<i64>,
    /// Only of this key, by its id, or of this subject of a token.
    #[param(example = "k3")]
    of: Option<String>,
    /// Only of paths that begin so.
    #[param(example = "/admin/keys")]
    path: Option<String>,
}

impl Strict for ListQuery {
    fn read(fields: &mut Fields) -> Result<ListQuery, Failure> {
        let before = fields.whole("before", 1..=i64::MAX.unsigned_abs())?;
        Ok(ListQuery {
            limit: fields.count("limit", 1..=AuditQuery::LIMIT_MAX)?,
            before: before.map(|before| i64::try_from(before).unwrap_or(i64::MAX)),
            of: fields.text("of")?,
            path: fields.text("path")?,
        })
    }
}

/// Show the audit
///
/// Who asked for which change, from where, and what came of it, refused attempts too. The newest page
/// first, each page with its oldest entry first. Of the requests only a few fields are kept, never a key.
#[utoipa::path(
    get, path = "/admin/audit", tag = "history", operation_id = "list_audit", security(("admin_key" = [])),
    params(ListQuery),
    responses(
        (status = 200, description = "A page", body = AuditList, example = json!({"entries": [{
            "id": 57, "at": "2026-01-31T20:15:00.123Z", "key": "k1", "subject": null,
            "name": "first admin key", "client": "127.0.0.1", "method": "POST", "path": "/admin/load",
            "what": {"model": "tiny-chat", "priority": 1, "lease": "2h"}, "status": 200,
            "request": "req-0a1b2c3d4e5f-17"
        }], "next_before": 57})),
        AdminErrors,
    )
)]
pub async fn list(
    State(app): State<App>,
    _: Admin,
    Params(query): Params<ListQuery>,
) -> Result<Json<AuditList>, Failure> {
    let limit = query.limit.unwrap_or(LIMIT);
    let base = app.config.server.base_path.as_str();
    // Whoever copies a path from elsewhere has the base path in front of it.
    let path = query.path.map(|path| match path.strip_prefix(base) {
        Some(below) => below.to_owned(),
        None => path,
    });
    let wanted = AuditQuery {
        before: query.before,
        limit,
        key: query.of,
        path,
    };
    let page = app.handle.store().audit(wanted).await.map_err(unreadable)?;
    let is_full = page.len() == limit as usize;
    let next_before = page.first().map(|row| row.id).filter(|_| is_full);
    Ok(Json(AuditList {
        entries: page.into_iter().map(AuditView::of).collect(),
        next_before,
    }))
}

/// The answer names no statement and no file; the log does.
fn unreadable(fault: StoreFault) -> Failure {
    tracing::error!(%fault, "the audit could not be read");
    Failure::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "server_error",
        "audit_unreadable",
        "the audit cannot be read now; the service's log says why",
    )
}
