//! The audit as the API returns it: who requested what, from where, and with which outcome.

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::values::at;
use store::StoredAudit;

/// A page of the audit.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct AuditList {
    /// Oldest first.
    pub entries: Vec<AuditView>,
    /// `before` of the page before this one; null: there is none.
    #[schema(example = 57)]
    pub next_before: Option<i64>,
}

/// One change through the admin API.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct AuditView {
    /// Rising, never reused.
    #[schema(example = 57)]
    pub id: i64,
    #[schema(example = "2026-01-31T20:15:00.123Z")]
    pub at: String,
    /// The key's id; null for a token, and for an unknown caller.
    #[schema(example = "k1")]
    pub key: Option<String>,
    /// Whom a token of the single sign-on speaks for.
    pub subject: Option<String>,
    /// Of the key or the person.
    #[schema(example = "first admin key")]
    pub name: Option<String>,
    /// The address that the request came from.
    #[schema(example = "127.0.0.1")]
    pub client: String,
    #[schema(example = "POST")]
    pub method: String,
    /// Below the base path.
    #[schema(example = "/admin/load")]
    pub path: String,
    /// Some fields of the request, such as `model` and `priority`.
    #[schema(value_type = Object)]
    pub what: Map<String, Value>,
    /// Of the answer; 499: the client left before there was one.
    #[schema(example = 200)]
    pub status: u16,
    /// The `x-request-id` of the answer.
    pub request: String,
}

impl AuditView {
    pub fn of(stored: StoredAudit) -> AuditView {
        let entry = stored.entry;
        AuditView {
            id: stored.id,
            at: at(entry.at),
            key: entry.key.map(|key| key.to_string()),
            subject: entry.subject,
            name: entry.name,
            client: entry.client,
            method: entry.method,
            path: entry.path,
            what: entry.what,
            status: entry.status,
            request: entry.request,
        }
    }
}
