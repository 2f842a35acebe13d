//! Reads requests that create or extend a conversation.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use crate::auth::User;
use crate::inference::request::receiving::read;
use crate::state::App;
use api_types::error::Failure;
use dialect::responses::given_items;
use dialect::{RequestFields, Sealer, refuse_unknown};
use store::StoredItem;

/// Items in one request.
const ITEMS_MAX: usize = 20;
const METADATA_MAX: usize = 16;
const METADATA_NAME_MAX: usize = 64;
const METADATA_VALUE_MAX: usize = 512;

/// The fields of a request that creates or extends a conversation.
pub(super) struct Given {
    pub items: Option<Vec<StoredItem>>,
    pub metadata: Option<Map<String, Value>>,
}

/// Reads the fields with these names; an empty body has none.
pub(super) async fn given(
    app: &App,
    user: &User,
    request: Request<Body>,
    names: &'static [&'static str],
) -> Result<Given, Failure> {
    let body = read(app, request.into_body()).await;
    let body = body.map_err(|(_, failure)| failure)?;
    let (bytes, sealer) = (body.len(), Sealer::new(Arc::clone(&app.seal), user.key));
    let read = move || {
        let mut fields = match body.trim_ascii() {
            b"" | b"null" => RequestFields::from(Map::new()),
            body => {
                let fields = RequestFields::parse(body)?;
                check_names(body, names)?;
                fields
            }
        };
        let (mut items, mut metadata) = (None, None);
        if names.contains(&"items") {
            items = fields.list("items")?;
        }
        if names.contains(&"metadata") {
            metadata = fields.map("metadata")?;
        }
        if items.as_ref().is_some_and(|items| items.len() > ITEMS_MAX) {
            let message = format!(
                "`items` has more than {ITEMS_MAX} items; send the others in further requests"
            );
            return Err(Failure::invalid("items".to_owned(), message));
        }
        check_metadata(metadata.as_ref())?;
        let items = items
            .map(|items| given_items(&items, &sealer))
            .transpose()?;
        Ok(Given { items, metadata })
    };
    app.reading.run(bytes, read).await
}

/// Refuses a body with other fields, also if they are null, as the schema of the body says.
fn check_names(body: &[u8], names: &[&str]) -> Result<(), Failure> {
    let given: BTreeMap<String, IgnoredAny> = serde_json::from_slice(body).unwrap_or_default();
    let others = given.into_keys();
    let others: Vec<String> = others
        .filter(|name| !names.contains(&name.as_str()))
        .collect();
    refuse_unknown(&others)
}

fn check_metadata(metadata: Option<&Map<String, Value>>) -> Result<(), Failure> {
    let Some(metadata) = metadata else {
        return Ok(());
    };
    let is_short = |(name, value): (&String, &Value)| {
        let value = value.as_str();
        name.chars().count() <= METADATA_NAME_MAX
            && value.is_some_and(|value| value.chars().count() <= METADATA_VALUE_MAX)
    };
    if metadata.len() <= METADATA_MAX && metadata.iter().all(is_short) {
        return Ok(());
    }
    let message = format!(
        "`metadata` must have at most {METADATA_MAX} texts, with names up to {METADATA_NAME_MAX} and values up to {METADATA_VALUE_MAX} characters"
    );
    Err(Failure::invalid("metadata".to_owned(), message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_body_has_only_the_known_fields_even_if_others_are_null() {
        let check = |body: &str| check_names(body.as_bytes(), &["items", "metadata"]);
        assert!(check(r#"{"items": null, "metadata": {"a": "b"}}"#).is_ok());
        for wrong in [r#"{"more": 1}"#, r#"{"items": [], "more": null}"#] {
            let failure = check(wrong).unwrap_err();
            assert_eq!(failure.body.error.code, Some("unknown_parameter"));
            assert_eq!(failure.body.error.param.as_deref(), Some("more"));
        }
    }

    #[test]
    fn metadata_has_at_most_16_short_texts() {
        let check = |value: Value| check_metadata(value.as_object());
        assert!(check(json!({"a": "b"})).is_ok());
        assert!(check(json!({"a": "x".repeat(METADATA_VALUE_MAX)})).is_ok());
        for wrong in [
            json!({"a": 5}),
            json!({"a": "x".repeat(METADATA_VALUE_MAX + 1)}),
            json!({"x".repeat(METADATA_NAME_MAX + 1): "b"}),
        ] {
            let failure = check(wrong).unwrap_err();
            assert_eq!(failure.body.error.param.as_deref(), Some("metadata"));
        }
        let many: Map<String, Value> = (0..17).map(|nth| (nth.to_string(), json!("a"))).collect();
        assert!(check_metadata(Some(&many)).is_err());
    }
}
