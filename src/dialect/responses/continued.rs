//! Reads the fields of a request that refer to stored data: the conversation or response that it continues, and `background`.

use serde_json::{Map, Value, json};

use super::super::translation::Reading;
use crate::fields::RequestFields;
use crate::stored::{Desk, Earlier, not_stored};
use api_types::error::Failure;

/// Reads `background`. The caller has accepted the response, or this request cannot run in the background.
pub(super) fn background(
    request: &mut RequestFields,
    store: Option<bool>,
    reading: &Reading,
    echo: &mut Map<String, Value>,
) -> Result<bool, Failure> {
    const FIELD: &str = "background";
    if request.flag(FIELD)? != Some(true) {
        return Ok(false);
    }
    if reading.desk.is_none() {
        return Err(Failure::invalid(
            FIELD.to_owned(),
            "`background`: this server does not store responses (state.responses.store); use `stream`",
        ));
    }
    if store == Some(false) {
        return Err(Failure::invalid(
            "store".to_owned(),
            "`store` must be true for a background response, which is read later; remove `store`, or `background`",
        ));
    }
    if reading.background.is_none() {
        return Err(request.not_here(FIELD, "the requests of a batch run in the background"));
    }
    echo.insert(FIELD.to_owned(), json!(true));
    Ok(true)
}

/// Reads `conversation`, whose items were looked up before. Returns true if the request names one.
pub(super) fn conversation(
    request: &mut RequestFields,
    store: Option<bool>,
    reading: &Reading,
    echo: &mut Map<String, Value>,
) -> Result<bool, Failure> {
    const FIELD: &str = "conversation";
    let id = match request.take(FIELD) {
        None | Some(Value::Null) => return Ok(false),
        Some(Value::String(id)) => id,
        Some(Value::Object(fields)) => match fields.get("id") {
            Some(Value::String(id)) if fields.len() == 1 => id.clone(),
            _ => return Err(request.wrong(FIELD, "an id, or an object with an `id`")),
        },
        Some(_) => return Err(request.wrong(FIELD, "an id, or an object with an `id`")),
    };
    if request.has("previous_response_id") {
        return Err(Failure::invalid(
            "previous_response_id".to_owned(),
            "`previous_response_id` and `conversation` cannot be used together; remove one of them",
        ));
    }
    if store == Some(false) {
        return Err(Failure::invalid(
            "store".to_owned(),
            "`store` must be true with `conversation`, which stores the items of the response; remove `store`",
        ));
    }
    let desk = reading.desk.as_ref().ok_or_else(|| not_stored(FIELD))?;
    if desk.earlier().named.as_ref() != Some(&id) {
        return Err(request.wrong(FIELD, "one id of a conversation"));
    }
    echo.insert(FIELD.to_owned(), json!({"id": id}));
    Ok(true)
}

/// The stored items that the request continues. Uses only those looked up before.
pub(super) fn earlier<'a>(
    request: &mut RequestFields,
    reading: &'a Reading,
    echo: &mut Map<String, Value>,
) -> Result<Option<&'a Earlier>, Failure> {
    const FIELD: &str = "previous_response_id";
    let previous = request.text(FIELD)?;
    let earlier = reading.desk.as_ref().map(Desk::earlier);
    if previous.is_some() {
        let found = earlier.ok_or_else(|| not_stored(FIELD))?;
        if found.previous != previous {
            return Err(request.wrong(FIELD, "one id of a stored response"));
        }
        echo.insert(FIELD.to_owned(), json!(previous));
    }
    Ok(earlier)
}
