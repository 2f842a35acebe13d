//! Requests and responses for API keys.

use serde::Serialize;
use utoipa::ToSchema;
use utoipa::openapi::schema::{Array, ArrayBuilder, ObjectBuilder, SchemaType, Type};

use super::values::at;
use config::Limit;
use pool::Span;
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
    /// `admin`, `user` or `viewer`.
    #[schema(example = "user")]
    pub role: &'static str,
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

fn model_patterns() -> Array {
    // No white space and no control characters.
    let pattern = "^[^\\s\\u0000-\\u001f\\u007f-\\u009f]+$";
    some(
        ObjectBuilder::new()
            .max_length(Some(200))
            .pattern(Some(pattern)),
    )
}

fn route_patterns() -> Array {
    some(ObjectBuilder::new().pattern(Some(
        "^/(v1/[a-z/*]*|admin/[a-z/*]*|hot-models|me|me/usage|metrics|run|pending)$",
    )))
}

/// A list of up to 100 strings of this form, or null.
fn some(text: ObjectBuilder) -> Array {
    ArrayBuilder::new()
        .schema_type(SchemaType::from_iter([Type::Array, Type::Null]))
        .items(text.schema_type(Type::String))
        .max_items(Some(100))
        .build()
}

/// Request to create an API key.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
#[schema(example = json!({"name": "course 4711", "role": "user", "expires": "180d"}))]
pub struct NewKeyRequest {
    /// Name of the key's owner or purpose, 1 to 100 characters.
    #[schema(
        min_length = 1,
        max_length = 100,
        pattern = "^[^\\s\\u0000-\\u001f\\u007f-\\u009f][^\\u0000-\\u001f\\u007f-\\u009f]*$"
    )]
    pub name: String,
    pub role: KeyRole,
    /// Lifetime, `1s` to `365d` from now. Without it the key is valid until it is revoked.
    #[schema(value_type = Option<String>, pattern = "^([1-9][0-9]{0,2}(s|m|h)|([1-9][0-9]?|[12][0-9]{2})d)( [1-9][0-9]?(s|m|h)){0,2}$", example = "180d")]
    pub expires: Option<Span>,
    /// Permitted models: names, or patterns with `*`. Defaults to all models.
    #[schema(schema_with = model_patterns, required = false)]
    pub models: Vec<String>,
    /// Permitted routes, without the base path, such as `/v1/embeddings` or `/admin/*`. Defaults to all routes of the role.
    #[schema(schema_with = route_patterns, required = false)]
    pub routes: Vec<String>,
    /// Limits of the key. Defaults to the configured limits.
    #[schema(value_type = Option<LimitView>)]
    pub limits: Option<Limit>,
    /// Writes the prompts of this key to the access log.
    #[schema(value_type = Option<bool>, default = false)]
    pub log_prompts: bool,
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

/// Request to change an API key. Absent fields stay, and null clears a field.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
pub struct ChangeKeyRequest {
    #[schema(
        min_length = 1,
        max_length = 100,
        pattern = "^[^\\s\\u0000-\\u001f\\u007f-\\u009f][^\\u0000-\\u001f\\u007f-\\u009f]*$"
    )]
    pub name: Option<String>,
    /// Lifetime from now; null for no expiry.
    #[schema(value_type = Option<String>, pattern = "^([1-9][0-9]{0,2}(s|m|h)|([1-9][0-9]?|[12][0-9]{2})d)( [1-9][0-9]?(s|m|h)){0,2}$", example = "180d")]
    pub expires: Option<Option<Span>>,
    #[schema(schema_with = model_patterns)]
    pub models: Option<Vec<String>>,
    #[schema(schema_with = route_patterns)]
    pub routes: Option<Vec<String>>,
    /// null for the configured default.
    #[schema(value_type = Option<LimitView>)]
    pub limits: Option<Option<LimitChange>>,
    pub log_prompts: Option<bool>,
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
    pub fn from_record(key: &KeyRecord) -> KeyView {
        KeyView {
            id: key.id.to_string(),
            name: key.name.clone(),
            role: key.role.name(),
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
