//! Strict reading of a request's fields, with this engine's errors.

use crate::api_error::ApiError;
use reading::{FieldErrors, shortened};
use serde_json::{Map, Value};
use std::fmt::Display;

pub(crate) type Fields = reading::Fields<ApiErrors>;

#[derive(Debug)]
pub(crate) enum ApiErrors {}

impl FieldErrors for ApiErrors {
    type Error = ApiError;

    fn parse(body: &[u8]) -> Result<Map<String, Value>, ApiError> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(fields),
            Ok(_) => Err(ApiError::invalid("the body must be a JSON object")),
            Err(error) => Err(ApiError::invalid(format!(
                "the body is not valid JSON: {error}"
            ))),
        }
    }

    fn invalid(path: String, message: String) -> ApiError {
        ApiError::field(path, message)
    }

    fn unknown(paths: &[String], near: Option<String>, _: &[&'static str]) -> ApiError {
        let hint = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
        let message = reading::unknown_fields(paths) + &hint;
        let first = paths.first().map_or("", String::as_str);
        ApiError {
            code: Some("unknown_parameter"),
            ..ApiError::field(shortened(first), message)
        }
    }

    fn wrong(path: String, wanted: &dyn Display, found: Option<&Value>) -> ApiError {
        expected(&path, wanted, found.unwrap_or(&Value::Null))
    }
}

/// A 400 error for a value of the wrong kind.
pub(crate) fn expected(name: &str, wanted: impl Display, found: &Value) -> ApiError {
    let shown = shortened(&found.to_string());
    ApiError::field(name, format!("`{name}` must be {wanted}, not {shown}"))
}

/// Takes a required list of token ids.
///
/// # Errors
/// 400 if the field is missing, or not such a list.
pub(crate) fn need_token_ids(
    fields: &mut Fields,
    name: &'static str,
) -> Result<Vec<u32>, ApiError> {
    let id = |value: &Value| u32::try_from(value.as_u64()?).ok();
    let taken = fields.take_as(name, "a list of token ids", |value| {
        let ids = value.as_array();
        let ids = ids.and_then(|ids| ids.iter().map(id).collect());
        ids.ok_or(value)
    })?;
    taken.ok_or_else(|| fields.missing(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_is_not_a_json_object_is_refused_with_an_error_code() {
        for body in [&br#"{"max_tokens": 1e400}"#[..], b"[]"] {
            let error = Fields::parse(body).expect_err("it is taken");
            assert_eq!(error.code, Some("invalid_request"), "{}", error.message);
        }
    }

    #[test]
    fn wrong_and_unknown_fields_are_named_with_the_value_and_the_nearest_name() {
        let mut fields = Fields::parse(br#"{"top_p": 3, "temprature": 1}"#).expect("an object");
        let error = fields.number_in("top_p", 0.0..=1.0).expect_err("too large");
        assert_eq!(error.message, "`top_p` must be a number from 0 to 1, not 3");
        assert_eq!(error.param.as_deref(), Some("top_p"));
        fields.take("temperature");
        let error = fields.finish().expect_err("an unknown field");
        let expected = "unknown field: temprature; did you mean temperature?";
        assert_eq!(error.message, expected);
        assert_eq!(error.code, Some("unknown_parameter"));
    }
}
