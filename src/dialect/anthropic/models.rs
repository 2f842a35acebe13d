//! Lists models page by page in Anthropic's form, for requests with an `anthropic-version` header.

use axum::extract::Query;
use axum::http::{HeaderMap, Uri};
use chrono::{DateTime, SecondsFormat};
use serde::Deserialize;
use serde_json::{Value, json};

use api_types::error::Failure;

const VERSION: &str = "anthropic-version";
const LIMIT_DEFAULT: usize = 20;
const LIMIT_MAX: usize = 1000;

/// Returns true if a request for models expects Anthropic's form.
pub fn speaks(headers: &HeaderMap) -> bool {
    headers.contains_key(VERSION)
}

/// Returns true if errors on this route may need Anthropic's form.
pub fn is_models_route(path: &str) -> bool {
    path.contains("/v1/models")
}

/// Describes one model. `context` is the maximum number of tokens in a sequence, which input and output share.
pub fn model_info(name: &str, context: Option<u64>, created_unix_seconds: u64) -> Value {
    let created = i64::try_from(created_unix_seconds).ok();
    let created = created.and_then(|seconds| DateTime::from_timestamp(seconds, 0));
    let created = created.unwrap_or_default();
    json!({"type": "model", "id": name, "display_name": name, "lifecycle": "active",
        "created_at": created.to_rfc3339_opts(SecondsFormat::Secs, true),
        "capabilities": null, "deprecated_at": null, "line": null, "max_input_tokens": context,
        "max_tokens": context, "retires_at": null})
}

#[derive(Deserialize)]
struct Page {
    limit: Option<usize>,
    after_id: Option<String>,
    before_id: Option<String>,
}

/// The page of models selected by the request's query.
pub fn page(uri: &Uri, models: &[(&str, Option<u64>)], created: u64) -> Result<Value, Failure> {
    let wrong = |name: &str, wanted: &str| {
        Failure::invalid(name.to_owned(), format!("`{name}` must be {wanted}"))
    };
    let limits = format!("a whole number from 1 to {LIMIT_MAX}");
    let listing = Query::<Page>::try_from_uri(uri).map_err(|_| wrong("limit", &limits))?;
    let limit = listing.limit.unwrap_or(LIMIT_DEFAULT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(wrong("limit", &limits));
    }
    let place = |field: &str, id: &Option<String>| match id {
        None => Ok(None),
        Some(id) => match models.iter().position(|(name, _)| name == id) {
            Some(place) => Ok(Some(place)),
            None => Err(wrong(field, "the id of a model in this list")),
        },
    };
    let after = place("after_id", &listing.after_id)?;
    let before = place("before_id", &listing.before_id)?;
    let (start, end, has_more) = match (after, before) {
        (Some(_), Some(_)) => {
            return Err(wrong("before_id", "omitted if `after_id` is given"));
        }
        // A backward page ends before the named model.
        (None, Some(before)) => {
            let start = before.saturating_sub(limit);
            (start, before, start > 0)
        }
        (after, None) => {
            let start = after.map_or(0, |place| place + 1);
            let end = models.len().min(start + limit);
            (start, end, end < models.len())
        }
    };
    let shown = &models[start..end];
    let data = shown
        .iter()
        .map(|(name, context)| model_info(name, *context, created));
    let id = |model: Option<&(&str, Option<u64>)>| json!(model.map(|(name, _)| *name));
    Ok(
        json!({"data": data.collect::<Vec<_>>(), "has_more": has_more,
        "first_id": id(shown.first()), "last_id": id(shown.last())}),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(query: &str) -> Result<Value, Failure> {
        let names: Vec<String> = (0..30).map(|nth| format!("m{nth}")).collect();
        let uri = format!("/v1/models{query}").parse().unwrap();
        let models = names.iter().map(|name| (name.as_str(), Some(512)));
        let models: Vec<_> = models.collect();
        page(&uri, &models, 1_764_000_000)
    }

    #[test]
    fn models_are_listed_in_pages() {
        let first = ask("").unwrap();
        assert_eq!(first["data"].as_array().unwrap().len(), 20);
        assert_eq!(
            (&first["has_more"], &first["last_id"]),
            (&json!(true), &json!("m19"))
        );
        let model = &first["data"][0];
        assert_eq!(
            (&model["type"], &model["id"]),
            (&json!("model"), &json!("m0"))
        );
        assert_eq!(model["created_at"], "2025-11-24T16:00:00Z");
        assert_eq!(model["max_input_tokens"], 512);
        let second = ask("?after_id=m19&limit=20").unwrap();
        assert_eq!(
            (&second["first_id"], &second["has_more"]),
            (&json!("m20"), &json!(false))
        );
        let back = ask("?before_id=m5&limit=3").unwrap();
        assert_eq!(
            (&back["first_id"], &back["last_id"]),
            (&json!("m2"), &json!("m4"))
        );
        let none = ask("?after_id=m29").unwrap();
        assert_eq!(
            (&none["data"], &none["first_id"]),
            (&json!([]), &Value::Null)
        );
    }

    #[test]
    fn an_invalid_page_is_refused_by_its_field() {
        for (query, field) in [
            ("?limit=0", "limit"),
            ("?limit=1001", "limit"),
            ("?limit=many", "limit"),
            ("?after_id=x", "after_id"),
            ("?after_id=m1&before_id=m3", "before_id"),
        ] {
            let failure = ask(query).unwrap_err();
            assert_eq!(failure.body.error.param.as_deref(), Some(field), "{query}");
        }
    }
}
