//! The audit log as the API returns it: the caller, the change and its outcome.

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::values::at;
use store::StoredAudit;

/// A page of the audit log.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct AuditList {
    /// Entries, oldest first.
    pub entries: Vec<AuditView>,
    /// Value of `before` for the preceding page; null if there is none.
    #[schema(example = 57)]
    pub next_before: Option<i64>,
}

/// A change made through the admin API.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct AuditView {
    /// Increasing id, never reused.
    #[schema(example = 57)]
    pub id: i64,
    #[schema(example = "2026-01-31T20:15:00.123Z")]
    pub at: String,
    /// Id of the API key; null for a sign-on token and for an unknown caller.
    #[schema(example = "k1")]
    pub key: Option<String>,
    /// Subject of the single sign-on token.
    pub subject: Option<String>,
    /// Name of the key or person.
    #[schema(example = "first admin key")]
    pub name: Option<String>,
    /// Path of the sender's group.
    #[schema(example = "physics/lab")]
    pub group: Option<String>,
    /// Path of the group of the key that was changed.
    pub key_group: Option<String>,
    /// Client address.
    #[schema(example = "127.0.0.1")]
    pub client: String,
    #[schema(example = "POST")]
    pub method: String,
    /// Path below the base path.
    #[schema(example = "/admin/load")]
    pub path: String,
    /// Selected fields of the request, such as `model` and `priority`.
    #[schema(value_type = Object)]
    pub what: Map<String, Value>,
    /// Response status; 499 if the client disconnected before the response.
    #[schema(example = 200)]
    pub status: u16,
    /// The `x-request-id` of the response.
    pub request: String,
}

impl AuditView {
    pub fn new(stored: StoredAudit) -> AuditView {
        let entry = stored.entry;
        AuditView {
            id: stored.id,
            at: at(entry.at),
            key: entry.key.map(|key| key.to_string()),
            subject: entry.subject,
            name: entry.name,
            group: entry.group,
            key_group: entry.key_group,
            client: entry.client,
            method: entry.method,
            path: entry.path,
            what: entry.what,
            status: entry.status,
            request: entry.request,
        }
    }
}
