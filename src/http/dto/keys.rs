//! Requests and answers about API keys.

use serde::Serialize;
use utoipa::ToSchema;
use utoipa::openapi::schema::{Array, ArrayBuilder, ObjectBuilder, SchemaType, Type};

use super::values::at;
use config::Limit;
use pool::Span;
use store::KeyRecord;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct KeyList {
    /// Revoked keys are not among them.
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
    /// The part that people recognise a key by.
    #[schema(example = "mp-Ab3xY9")]
    pub prefix: String,
    pub created_at: String,
    pub last_used_at: Option<String>,
    pub expires_at: Option<String>,
    /// Models that it may use, as names or patterns; empty: all.
    #[schema(example = json!(["tiny-*"]))]
    pub models: Vec<String>,
    /// Routes that it may ask, without the base path; empty: all of its role.
    #[schema(example = json!(["/v1/chat/completions"]))]
    pub routes: Vec<String>,
    /// Its own limits; null: the configured default.
    #[schema(value_type = Option<LimitView>)]
    pub limits: Option<Limit>,
    /// Whether what is asked with it stands in the access log.
    pub log_prompts: bool,
}

/// How much may be asked; what is null is not limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct LimitView {
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub requests_per_minute: Option<u32>,
    /// Tokens of prompts and answers.
    #[schema(minimum = 1, maximum = 1_000_000_000)]
    pub tokens_per_minute: Option<u64>,
    /// Requests that wait or are answered at the same time.
    #[schema(minimum = 1, maximum = 100_000)]
    pub concurrent_requests: Option<u32>,
    /// Tokens from midnight to midnight.
    #[schema(minimum = 1, maximum = 1_000_000_000_000_u64)]
    pub tokens_per_day: Option<u64>,
}

fn model_patterns() -> Array {
    // Neither white space nor control characters.
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

/// Up to 100 texts of this form, or null.
fn some(text: ObjectBuilder) -> Array {
    ArrayBuilder::new()
        .schema_type(SchemaType::from_iter([Type::Array, Type::Null]))
        .items(text.schema_type(Type::String))
        .max_items(Some(100))
        .build()
}

/// What making a key takes.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
#[schema(example = json!({"name": "course 4711", "role": "user", "expires": "180d"}))]
pub struct NewKeyRequest {
    /// For people: who or what uses it. 1 to 100 characters.
    #[schema(
        min_length = 1,
        max_length = 100,
        pattern = "^[^\\s\\u0000-\\u001f\\u007f-\\u009f][^\\u0000-\\u001f\\u007f-\\u009f]*$"
    )]
    pub name: String,
    pub role: KeyRole,
    /// `1s` to `365d` from now; without it the key stays until it is revoked.
    #[schema(value_type = Option<String>, pattern = "^([1-9][0-9]{0,2}(s|m|h)|([1-9][0-9]?|[12][0-9]{2})d)( [1-9][0-9]?(s|m|h)){0,2}$", example = "180d")]
    pub expires: Option<Span>,
    /// Models that it may use: names, or patterns with `*`. Without them all.
    #[schema(schema_with = model_patterns, required = false)]
    pub models: Vec<String>,
    /// Routes that it may ask, without the base path: `/v1/embeddings`, `/admin/*`. Without them all of its
    /// role.
    #[schema(schema_with = route_patterns, required = false)]
    pub routes: Vec<String>,
    /// How much it may ask; without it the configured default.
    #[schema(value_type = Option<LimitView>)]
    pub limits: Option<Limit>,
    /// Whether what is asked with it stands in the access log.
    #[schema(value_type = Option<bool>, default = false)]
    pub log_prompts: bool,
}

/// Figures of a limit by their names; those that are not among them stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitChange(pub serde_json::Map<String, serde_json::Value>);

impl LimitChange {
    /// What `limit` is with these figures. They have been read as a limit's before.
    pub fn over(self, limit: Limit) -> Limit {
        let Ok(serde_json::Value::Object(mut figures)) = serde_json::to_value(limit) else {
            return limit;
        };
        figures.extend(self.0);
        serde_json::from_value(figures.into()).unwrap_or(limit)
    }
}

/// What changing a key takes: what is absent stays, null takes away.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
pub struct ChangeKeyRequest {
    #[schema(
        min_length = 1,
        max_length = 100,
        pattern = "^[^\\s\\u0000-\\u001f\\u007f-\\u009f][^\\u0000-\\u001f\\u007f-\\u009f]*$"
    )]
    pub name: Option<String>,
    /// From now; null: until it is revoked.
    #[schema(value_type = Option<String>, pattern = "^([1-9][0-9]{0,2}(s|m|h)|([1-9][0-9]?|[12][0-9]{2})d)( [1-9][0-9]?(s|m|h)){0,2}$", example = "180d")]
    pub expires: Option<Option<Span>>,
    #[schema(schema_with = model_patterns)]
    pub models: Option<Vec<String>>,
    #[schema(schema_with = route_patterns)]
    pub routes: Option<Vec<String>>,
    /// null: the configured default.
    #[schema(value_type = Option<LimitView>)]
    pub limits: Option<Option<LimitChange>>,
    pub log_prompts: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum KeyRole {
    /// Steers the pool.
    Admin,
    /// Uses models.
    User,
    /// Reads what administrators read, and changes nothing.
    Viewer,
}

/// A new key. Has no `Debug`: it holds the key itself.
#[derive(Serialize, ToSchema)]
pub struct NewKey {
    #[schema(example = "k3")]
    pub id: String,
    pub name: String,
    #[schema(example = "user")]
    pub role: &'static str,
    /// The key itself. It cannot be shown again.
    #[schema(example = "mp-…")]
    pub key: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct RevokeAnswer {
    #[schema(example = "k3")]
    pub id: String,
    pub revoked: bool,
}

impl KeyView {
    pub fn of(key: &KeyRecord) -> KeyView {
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
