//! Requests and responses for API keys.

use serde::Serialize;
use utoipa::ToSchema;

use super::values::at;
use config::Limit;
use store::KeyRecord;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct KeyList {
    /// Keys, without revoked ones.
    pub keys: Vec<KeyView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct KeyView {
    #[schema(example = "k3")]
    pub id: String,
    #[schema(example = "course 4711")]
    pub name: String,
    /// `admin`, `user`, `viewer` or `group-admin`.
    #[schema(example = "user")]
    pub role: &'static str,
    /// The group that the key belongs to; null: none.
    #[schema(example = "lab")]
    pub group: Option<String>,
    /// Visible prefix that identifies the key.
    #[schema(example = "mp-Ab3xY9")]
    pub prefix: String,
    pub created_at: String,
    pub last_used_at: Option<String>,
    pub expires_at: Option<String>,
    /// Permitted models, as names or patterns; empty for all.
    #[schema(example = json!(["tiny-*"]))]
    pub models: Vec<String>,
    /// Permitted routes, without the base path; empty for all routes of the role.
    #[schema(example = json!(["/v1/chat/completions"]))]
    pub routes: Vec<String>,
    /// Limits of the key; null for the configured default.
    #[schema(value_type = Option<LimitView>)]
    pub limits: Option<Limit>,
    /// True if the access log contains the prompts of this key.
    pub log_prompts: bool,
}

/// Rate limits and quotas. A null value means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct LimitView {
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub requests_per_minute: Option<u32>,
    /// Prompt and completion tokens per minute.
    #[schema(minimum = 1, maximum = 1_000_000_000)]
    pub tokens_per_minute: Option<u64>,
    /// Maximum number of requests that wait or run simultaneously.
    #[schema(minimum = 1, maximum = 100_000)]
    pub concurrent_requests: Option<u32>,
    /// Tokens per day, counted from midnight to midnight.
    #[schema(minimum = 1, maximum = 1_000_000_000_000_u64)]
    pub tokens_per_day: Option<u64>,
}

/// Changed values of a limit by name. Other values stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitChange(pub serde_json::Map<String, serde_json::Value>);

impl LimitChange {
    /// Applies the changes to `limit`. The values have already been validated as limits.
    pub fn over(self, limit: Limit) -> Limit {
        let Ok(serde_json::Value::Object(mut figures)) = serde_json::to_value(limit) else {
            return limit;
        };
        figures.extend(self.0);
        serde_json::from_value(figures.into()).unwrap_or(limit)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum KeyRole {
    /// Manages the pool.
    Admin,
    /// Uses models.
    User,
    /// Has read-only access to the admin API.
    Viewer,
    /// Uses models, and manages its group and the groups below it.
    #[schema(rename = "group-admin")]
    GroupAdmin,
}

/// A new key. Has no `Debug` because it contains the secret.
#[derive(Serialize, ToSchema)]
pub struct NewKey {
    #[schema(example = "k3")]
    pub id: String,
    pub name: String,
    #[schema(example = "user")]
    pub role: &'static str,
    /// The secret key. It is shown only once.
    #[schema(example = "mp-…")]
    pub key: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct RevokeResponse {
    #[schema(example = "k3")]
    pub id: String,
    pub revoked: bool,
}

impl KeyView {
    /// `group` is the name of the group in force.
    pub fn new(key: &KeyRecord, group: Option<String>) -> KeyView {
        KeyView {
            id: key.id.to_string(),
            name: key.name.clone(),
            role: key.role.name(),
            group,
            prefix: key.prefix.clone(),
            created_at: at(key.created),
            last_used_at: key.last_used.map(at),
            expires_at: key.expires.map(at),
            models: key.allowed.models.clone(),
            routes: key.allowed.routes.clone(),
            limits: key.allowed.limits,
            log_prompts: key.allowed.log_prompts,
        }
    }
}
