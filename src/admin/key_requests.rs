//! Requests about API keys, and the checks of their fields.

use serde_json::Value;
use utoipa::openapi::schema::{Array, ArrayBuilder, ObjectBuilder, SchemaType, Type};
use utoipa::{IntoParams, ToSchema};

use api_types::dto::{KeyRole, LimitChange, LimitView};
use api_types::error::Failure;
use config::Limit;
use gateway::fields::{Fields, OrderFields, Strict};
use pool::{KeyId, Span};

const NAME_MAX: usize = 100;
const PATTERNS_MAX: usize = 100;
const PATTERN_MAX: usize = 200;
/// Routes for keys outside of the folders.
const OTHER_ROUTES: [&str; 6] = [
    "/metrics",
    "/hot-models",
    "/me",
    "/me/usage",
    "/run",
    "/pending",
];

/// Request to create an API key.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
#[schema(example = json!({"name": "course 4711", "role": "user", "expires": "180d"}))]
pub(crate) struct NewKeyRequest {
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
    /// The group of the key. Defaults to the group that lists the key, and for administrators of a group to theirs.
    #[schema(
        min_length = 1,
        max_length = 64,
        pattern = "^[A-Za-z0-9_-]+$",
        example = "lab"
    )]
    pub group: Option<String>,
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

impl Strict for NewKeyRequest {
    fn read(fields: &mut Fields) -> Result<NewKeyRequest, Failure> {
        let name = name(fields)?.ok_or_else(|| {
            let message = "name: is missing; give one like \"course 4711\"";
            Failure::invalid(Some("name".to_owned()), message)
        })?;
        let role = fields.choice(
            "role",
            &[
                ("admin", KeyRole::Admin),
                ("user", KeyRole::User),
                ("viewer", KeyRole::Viewer),
                ("group-admin", KeyRole::GroupAdmin),
            ],
        )?;
        let role = role.ok_or_else(|| {
            Failure::invalid(
                Some("role".to_owned()),
                "role: is missing; allowed: one of admin, user, viewer, group-admin",
            )
        })?;
        Ok(NewKeyRequest {
            name,
            role,
            expires: fields.length("expires")?,
            models: patterns(fields, "models")?,
            routes: routes(fields)?,
            limits: limits(fields)?,
            log_prompts: fields.flag("log_prompts")?.unwrap_or(false),
            group: fields.text("group")?,
        })
    }
}

fn name(fields: &mut Fields) -> Result<Option<String>, Failure> {
    let Some(name) = fields.text("name")? else {
        return Ok(None);
    };
    if name.chars().count() > NAME_MAX || name.chars().any(char::is_control) {
        let message =
            format!("name: allowed: 1 to {NAME_MAX} characters without control characters");
        return Err(Failure::invalid(Some("name".to_owned()), message));
    }
    Ok(Some(name))
}

/// Names, or patterns with `*` and `?`.
fn patterns(fields: &mut Fields, field: &'static str) -> Result<Vec<String>, Failure> {
    let patterns = fields.texts(field)?;
    let is_one = |text: &String| {
        !text.is_empty() && text.len() <= PATTERN_MAX && !text.contains(char::is_control)
    };
    if let Some(nth) = patterns.iter().position(|text| text.trim().is_empty()) {
        let message = format!(
            "{field}[{nth}]: is an empty name; omit {field} to allow all, or list names or patterns such as {}",
            if field == "models" {
                "tiny-*"
            } else {
                "/v1/chat/*"
            }
        );
        return Err(Failure::invalid(Some(field.to_owned()), message));
    }
    if patterns.len() > PATTERNS_MAX || !patterns.iter().all(is_one) {
        let message = format!(
            "{field}: allowed: at most {PATTERNS_MAX} texts of 1 to {PATTERN_MAX} bytes each"
        );
        return Err(Failure::invalid(Some(field.to_owned()), message));
    }
    Ok(patterns)
}

fn some_patterns(fields: &mut Fields, field: &'static str) -> Result<Option<Vec<String>>, Failure> {
    patterns(fields, field).map(Some)
}

fn routes(fields: &mut Fields) -> Result<Vec<String>, Failure> {
    let routes = patterns(fields, "routes")?;
    let has = |route: &str| {
        route.starts_with("/v1/") || route.starts_with("/admin/") || OTHER_ROUTES.contains(&route)
    };
    let wrong = |route: &&String| !has(route);
    if let Some(wrong) = routes.iter().find(wrong) {
        let message = format!(
            "routes: {wrong} is not a route; routes are written without the base path, such as /v1/embeddings, /v1/chat/*, /admin/plan or /metrics"
        );
        return Err(Failure::invalid(Some("routes".to_owned()), message));
    }
    Ok(routes)
}

fn limits(fields: &mut Fields) -> Result<Option<Limit>, Failure> {
    let document = fields
        .map("limits")?
        .map(Value::Object)
        .map(floats_to_integers);
    document.map(limit_of).transpose()
}

fn limit_change(fields: &mut Fields) -> Result<Option<LimitChange>, Failure> {
    let Some(document) = fields
        .map("limits")?
        .map(Value::Object)
        .map(floats_to_integers)
    else {
        return Ok(None);
    };
    limit_of(document.clone())?;
    Ok(document.as_object().cloned().map(LimitChange))
}

/// 60.0 is also an integer in JSON.
fn floats_to_integers(mut document: Value) -> Value {
    for (_, value) in document.as_object_mut().into_iter().flatten() {
        let number = value.as_f64().filter(|_| value.is_f64());
        // Larger floats are not exact; the limits have smaller maxima anyway.
        if let Some(integer) =
            number.filter(|number| number.fract() == 0.0 && (0.0..1e15).contains(number))
        {
            *value = Value::from(integer as u64);
        }
    }
    document
}

fn limit_of(document: Value) -> Result<Limit, Failure> {
    let wrong = |message: String| Failure::invalid(Some("limits".to_owned()), message);
    let limit: Limit =
        serde_json::from_value(document).map_err(|error| wrong(format!("limits: {error}")))?;
    match limit.problems("limits").first() {
        None => Ok(limit),
        Some(problem) => Err(wrong(problem.to_string())),
    }
}

/// Request to change an API key. Absent fields stay, and null clears a field.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
pub(crate) struct ChangeKeyRequest {
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
    /// null to clear it: the key then belongs to the group that lists it.
    #[schema(value_type = Option<String>, min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9_-]+$", example = "lab")]
    pub group: Option<Option<String>>,
}

impl Strict for ChangeKeyRequest {
    fn read(fields: &mut Fields) -> Result<ChangeKeyRequest, Failure> {
        Ok(ChangeKeyRequest {
            name: name(fields)?,
            expires: fields.clearable("expires", OrderFields::length)?,
            models: fields
                .clearable("models", some_patterns)?
                .map(Option::unwrap_or_default),
            routes: fields
                .clearable("routes", |fields, _| routes(fields).map(Some))?
                .map(Option::unwrap_or_default),
            limits: fields.clearable("limits", |fields, _| limit_change(fields))?,
            log_prompts: fields.flag("log_prompts")?,
            group: fields.clearable("group", |fields, field| fields.text(field))?,
        })
    }
}

#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct KeyQuery {
    /// The key's id, as in the list.
    #[param(value_type = String, pattern = "^k[0-9]{1,9}$", example = "k2")]
    pub id: KeyId,
}

impl Strict for KeyQuery {
    fn read(fields: &mut Fields) -> Result<KeyQuery, Failure> {
        Ok(KeyQuery {
            id: key_id(fields)?,
        })
    }
}

/// Longest part of an invalid id repeated in messages.
const SHOWN_LETTERS: usize = 40;

fn key_id(fields: &mut Fields) -> Result<KeyId, Failure> {
    let text = fields.needed_text("id", "?id=k3")?;
    let digits = text.strip_prefix('k').unwrap_or(&text);
    let unread = |_| {
        let shown: String = text.chars().take(SHOWN_LETTERS).collect();
        let message = format!(
            "id: `{shown}` is not the id of a key; ids look like k3, and `admin-client keys list` shows them with their names"
        );
        Failure::invalid(Some("id".to_owned()), message)
    };
    digits.parse().map(KeyId).map_err(unread)
}

#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RevokeQuery {
    /// The key's id, as in the list.
    #[param(value_type = String, pattern = "^k[0-9]{1,9}$", example = "k2")]
    pub id: KeyId,
    /// Revoke the key of this request itself. Without it, the response is a 409 `own_key`.
    pub confirm: Option<bool>,
}

impl Strict for RevokeQuery {
    fn read(fields: &mut Fields) -> Result<RevokeQuery, Failure> {
        Ok(RevokeQuery {
            id: key_id(fields)?,
            confirm: fields.flag("confirm")?,
        })
    }
}

#[cfg(test)]
mod tests;
