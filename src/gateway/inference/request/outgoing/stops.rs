//! The stops of a request.

use serde_json::Value;
use serde_json::value::RawValue;

use api_types::error::Failure;
use catalog::{Generation, STOPS_MAX};
use dialect::body::Fields;
use dialect::shape::may_be_a_tree;

/// The stops of the request and of the model, without duplicates.
pub(super) fn stops(
    generation: &Generation,
    fields: &Fields<'_>,
) -> Result<[(&'static str, Vec<Value>); 2], Failure> {
    let own = |name: &str| -> Result<Vec<Value>, Failure> {
        let value = fields.get(name).map(RawValue::get).unwrap_or("null");
        may_be_a_tree(value.as_bytes())?;
        match serde_json::from_str(value) {
            Ok(Value::Null) => Ok(Vec::new()),
            Ok(Value::String(text)) => Ok(vec![Value::String(text)]),
            Ok(Value::Array(list)) => Ok(list),
            _ => Err(Failure::invalid(
                name.to_owned(),
                format!("`{name}` must be a list"),
            )),
        }
    };
    let mut texts = own("stop")?;
    let mut tokens = own("stop_token_ids")?;
    let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    if !texts.iter().all(is_text) {
        return Err(Failure::invalid(
            "stop".to_owned(),
            "`stop` must be a string or a list of non-empty strings",
        ));
    }
    let add = |list: &mut Vec<Value>, value: Value| {
        if !list.contains(&value) {
            list.push(value);
        }
    };
    for stop in &generation.stops {
        add(&mut texts, Value::String(stop.clone()));
    }
    for token in &generation.stop_tokens {
        add(&mut tokens, token.clone());
    }
    if texts.len() + tokens.len() > STOPS_MAX {
        return Err(Failure::invalid(
            "stop".to_owned(),
            format!(
                "the request and the model file have {} stops in total; allowed: {STOPS_MAX}, including {} of the model file",
                texts.len() + tokens.len(),
                generation.stops.len() + generation.stop_tokens.len(),
            ),
        ));
    }
    Ok([("stop", texts), ("stop_token_ids", tokens)])
}
