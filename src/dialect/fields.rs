//! Strict reading of a request's fields, with OpenAI's errors.

use serde_json::{Map, Value};

use crate::body;
use crate::shape::may_be_a_tree;
use api_types::error::Failure;
use reading::FieldErrors;

pub type RequestFields = reading::Fields<RequestErrors>;

#[derive(Debug)]
pub enum RequestErrors {}

impl FieldErrors for RequestErrors {
    type Error = Failure;

    /// Parses the entire body, unless it would take too much memory.
    fn parse(body: &[u8]) -> Result<Map<String, Value>, Failure> {
        may_be_a_tree(body)?;
        serde_json::from_slice(body).map_err(|error| {
            let message = format!("the body is not a JSON object: {error}");
            Failure::invalid(None, message)
        })
    }

    fn invalid(path: String, message: String) -> Failure {
        Failure::invalid(path, message)
    }

    fn unknown(paths: &[String], _: Option<String>, _: &[&'static str]) -> Failure {
        let message = format!("{}; remove it", reading::unknown_fields(paths));
        let mut failure = Failure::invalid(paths.first().cloned(), message);
        failure.body.error.code = Some("unknown_parameter");
        failure
    }
}

/// Refuses unknown fields by name.
pub fn refuse_unknown(paths: &[String]) -> Result<(), Failure> {
    if paths.is_empty() {
        return Ok(());
    }
    Err(RequestErrors::unknown(paths, None, &[]))
}

/// Parses some fields of a body.
pub fn parse_some(all: &body::Fields<'_>, names: &[&str]) -> Result<RequestFields, Failure> {
    let mut fields = Map::new();
    for name in names {
        let Some(value) = all.get(name) else {
            continue;
        };
        may_be_a_tree(value.get().as_bytes())?;
        let value = serde_json::from_str(value.get())
            .map_err(|error| Failure::invalid((*name).to_owned(), format!("`{name}`: {error}")))?;
        fields.insert((*name).to_owned(), value);
    }
    Ok(fields.into())
}

/// The error for a wrong value at a path.
pub(crate) fn wrong(path: &str, wanted: &str) -> Failure {
    Failure::invalid(path.to_owned(), format!("`{path}` must be {wanted}"))
}
