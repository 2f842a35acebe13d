//! `POST /v1/embeddings`. The input is checked before anything is loaded for it. Engines return numbers, and the pool converts them
//! to base64 itself, which gives the same result for all engines.

use std::pin::pin;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::Request;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Value, json};
use thiserror::Error;

use crate::auth::User;
use crate::inference::admission::RequestContext;
use crate::inference::in_flight::{InFlightRequest, JSON};
use crate::inference::request::engine_routes::check_has;
use crate::inference::request::failed::Failed;
use crate::inference::request::ignored::note;
use crate::inference::request::receiving::read;
use crate::inference::routes::unary_routes::{
    Answer, ask, finish, name_there, named, seated_as, taken,
};
use crate::inference::understood::find;
use crate::openapi::{InferenceErrors, WaitHeaders};
use crate::state::App;
use api_types::error::Failure;
use api_types::schemas::embeddings::{EmbeddingList, EmbeddingRequest};
use catalog::{Ask, ExtraRoute};
use dialect::body::{Fields, write_json};
use dialect::parse_some;
use edge::record;

/// Largest number of texts per request, as in OpenAI's API.
const INPUTS_MAX: usize = 2048;

/// Create embeddings
///
/// Needs an embedding model; other models get a 400 or a 501. If the model is not loaded, the pool loads it and the request waits.
/// The pool converts the vectors to base64 itself, so `encoding_format: base64` works with every engine.
///
/// Every key that may use the model may call this.
#[utoipa::path(
    post, path = "/v1/embeddings", tag = "embeddings", operation_id = "create_embeddings",
    security(("user_key" = [])), params(WaitHeaders),
    request_body(content = EmbeddingRequest, example = json!({
        "model": "tiny-guide", "input": ["keep-hot", "priority"]
    })),
    responses(
        (status = 200, description = "One vector for each text", body = EmbeddingList, example = json!({
            "object": "list", "model": "tiny-guide",
            "data": [{"object": "embedding", "index": 0, "embedding": [0.12, -0.03, 0.99]}],
            "usage": {"prompt_tokens": 4, "total_tokens": 4}
        })),
        InferenceErrors,
    )
)]
pub async fn embeddings(State(app): State<App>, user: User, request: Request<Body>) -> Response {
    let context = RequestContext::new(&app, user, request.headers());
    let work = pin!(numbers(&app, &context, request));
    context.end(&app, work).await
}

async fn numbers(
    app: &App,
    context: &RequestContext,
    request: Request<Body>,
) -> Result<Response, Failed> {
    let body = read(app, request.into_body()).await?;
    vectors(app, context, body, |_| {}).await
}

/// Computes vectors for a request in OpenAI's form. `at_seat` is called with the seat before the request is sent to the engine.
pub async fn vectors(
    app: &App,
    context: &RequestContext,
    body: Bytes,
    at_seat: impl FnOnce(&mut InFlightRequest),
) -> Result<Response, Failed> {
    let (scanned, route) = find(app, context, body).await?;
    let model = route.entry.name.clone();
    let fail = |failure: Failure| (Some(model.clone()), failure);
    check_has(&route, ExtraRoute::Embeddings).map_err(fail)?;
    let (bytes, share) = (scanned.body.len(), record::share());
    let (received, of_model) = (scanned.body, Arc::clone(&route));
    let written = move || {
        let (body, is_base64) = checked(&received, of_model.entry.recipe.has_dimensions())?;
        let (body, ignored) = taken(&of_model, Ask::Embeddings, &body)?;
        Ok((body, ignored, is_base64))
    };
    let (body, ignored, is_base64) = app.reading.run(bytes, written).await.map_err(fail)?;
    let body = share.charge(body);
    let served = seated_as(app, context, (&route, &scanned.model), bytes);
    let mut served = served.await.map_err(fail)?;
    at_seat(&mut served);
    let name = name_there(&served, &route, &scanned.model);
    let body = named(app, body, name).await.map_err(fail)?;
    let path = ExtraRoute::Embeddings.path();
    match ask(app, served, path, (&JSON, body)).await.map_err(fail)? {
        Answer::Refused(response) => Ok(response),
        Answer::Complete(served, _, bytes) => {
            let (length, name) = (bytes.len(), model.clone());
            let computed =
                move || computed(bytes, is_base64).map_err(|vector| Failure::engine(&name, vector));
            let bytes = app.reading.run(length, computed).await;
            let response = finish(app, &served, bytes.map_err(fail)?, None).await;
            let response = response.map_err(fail)?;
            served.responded(200);
            Ok(note(response, &ignored))
        }
    }
}

/// Returns the body for the engine, and whether the client wants base64.
fn checked(body: &Bytes, has_dimensions: bool) -> Result<(Bytes, bool), Failure> {
    let fields = Fields::read(body)?;
    let mut received = parse_some(&fields, &["dimensions", "encoding_format"])?;
    let input = fields.get("input").filter(|input| input.get() != "null");
    let input = input.ok_or_else(|| received.missing("input"))?;
    if let Some(wrong) = wrong_with(input.get()) {
        return Err(Failure::invalid(
            "input".to_owned(),
            format!("`input` {wrong}"),
        ));
    }
    if received.count("dimensions")?.is_some() && !has_dimensions {
        let why = "the engine of this model has a fixed number of dimensions; remove this field";
        return Err(received.not_here("dimensions", why));
    }
    let is_base64 = match received.text("encoding_format")?.as_deref() {
        None => return Ok((body.clone(), false)),
        Some("float") => false,
        Some("base64") => true,
        Some(_) => return Err(received.wrong("encoding_format", "float or base64")),
    };
    Ok((without_format(&fields, body.len()), is_base64))
}

fn without_format(fields: &Fields<'_>, near: usize) -> Bytes {
    let mut written = Vec::with_capacity(near);
    written.push(b'{');
    for (name, value) in fields.all().filter(|(name, _)| *name != "encoding_format") {
        if written.len() > 1 {
            written.push(b',');
        }
        write_json(&mut written, name);
        written.push(b':');
        written.extend_from_slice(value.get().as_bytes());
    }
    written.push(b'}');
    written.into()
}

/// Returns an error message for an invalid input. Does not collect the elements, because a token list can be very long.
fn wrong_with(input: &str) -> Option<&'static str> {
    match serde_json::from_str(input).unwrap_or(Part::Other) {
        Part::Text { is_empty: true } => Some("is empty; provide a text"),
        Part::Text { is_empty: false } => None,
        Part::List(list) if list.count == 0 => Some("is an empty list; provide a text"),
        Part::List(list) if list.of == Some(Of::Tokens) => None,
        Part::List(list) if list.count > INPUTS_MAX => Some("has more than 2048 texts"),
        Part::List(list) => match list.of {
            Some(Of::Texts | Of::Lists) => None,
            _ => Some("must be a list of non-empty texts or of non-empty lists of tokens"),
        },
        Part::Token | Part::Other => {
            Some("must be a text, a list of texts, a list of tokens or a list of token lists")
        }
    }
}

/// A part of an input, as far as needed to validate it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Text { is_empty: bool },
    Token,
    List(List),
    Other,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct List {
    count: usize,
    of: Option<Of>,
}

/// The type shared by all elements of a list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    /// Non-empty texts.
    Texts,
    Tokens,
    /// Non-empty lists of tokens.
    Lists,
    Others,
}

impl Part {
    fn kind(self) -> Of {
        match self {
            Part::Text { is_empty: false } => Of::Texts,
            Part::Token => Of::Tokens,
            Part::List(List {
                of: Some(Of::Tokens),
                ..
            }) => Of::Lists,
            Part::Text { is_empty: true } | Part::List(_) | Part::Other => Of::Others,
        }
    }
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Part, D::Error> {
        deserializer.deserialize_any(Look)
    }
}

struct Look;

impl<'de> Visitor<'de> for Look {
    type Value = Part;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("any value")
    }

    fn visit_str<E>(self, text: &str) -> Result<Part, E> {
        let is_empty = text.is_empty();
        Ok(Part::Text { is_empty })
    }

    fn visit_u64<E>(self, _: u64) -> Result<Part, E> {
        Ok(Part::Token)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Part, E> {
        Ok(Part::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Part, E> {
        Ok(Part::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Part, E> {
        Ok(Part::Other)
    }

    fn visit_unit<E>(self) -> Result<Part, E> {
        Ok(Part::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Part, A::Error> {
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Part::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Part, A::Error> {
        let mut list = List { count: 0, of: None };
        while let Some(part) = all.next_element::<Part>()? {
            list.count += 1;
            list.of = match list.of {
                None => Some(part.kind()),
                Some(of) if of == part.kind() => Some(of),
                Some(_) => Some(Of::Others),
            };
        }
        Ok(Part::List(list))
    }
}

/// A vector that the engine could not compute. llama-server writes NaN as null.
#[derive(Debug, PartialEq, Eq, Error)]
#[error(
    "the vector at index {0} of `data` is missing, or has a value that is not a finite number; check the input, and the model's dtype"
)]
struct Uncomputed(usize);

/// Returns the response if all of its vectors are finite. With `as_base64`, encodes each vector as base64 of little-endian 32-bit
/// floats.
fn computed(bytes: Bytes, as_base64: bool) -> Result<Bytes, Uncomputed> {
    if !as_base64 && !needs_check(&bytes) {
        return Ok(bytes);
    }
    let Ok(mut response) = serde_json::from_slice::<Value>(&bytes) else {
        return Ok(bytes);
    };
    let data = response.get_mut("data").and_then(Value::as_array_mut);
    for (nth, item) in data.into_iter().flatten().enumerate() {
        let vector = item.get("embedding");
        if !vector.is_some_and(is_computed) {
            return Err(Uncomputed(nth));
        }
        let numbers = vector.and_then(Value::as_array).filter(|_| as_base64);
        let numbers: Option<Vec<f64>> =
            numbers.and_then(|list| list.iter().map(Value::as_f64).collect());
        if let Some(numbers) = numbers {
            let bytes: Vec<u8> = numbers
                .iter()
                .flat_map(|number| (*number as f32).to_le_bytes())
                .collect();
            item["embedding"] = json!(STANDARD.encode(bytes));
        }
    }
    Ok(if as_base64 {
        response.to_string().into()
    } else {
        bytes
    })
}

/// Returns true if a vector may be null, contain null, or be base64. Plain numbers need no further check.
fn needs_check(bytes: &[u8]) -> bool {
    const NAME: &[u8] = b"\"embedding\"";
    let is_odd = |at: usize| {
        let rest = bytes[at + NAME.len()..].trim_ascii_start();
        let value = rest.strip_prefix(b":").map(<[u8]>::trim_ascii_start);
        value.is_some_and(|value| !value.starts_with(b"["))
    };
    // A null inside a vector never follows a colon; a null field of `usage` does.
    let in_a_list = |at: usize| !bytes[..at].trim_ascii_end().ends_with(b":");
    memchr::memmem::find_iter(bytes, b"null").any(in_a_list)
        || memchr::memmem::find_iter(bytes, NAME).any(is_odd)
}

/// Checks a vector, a list of vectors (one per token), or the base64 of 32-bit floats.
fn is_computed(vector: &Value) -> bool {
    match vector {
        Value::Array(list) => {
            let is_part = |part: &Value| match part {
                // Finite as a 32-bit float, which clients read.
                Value::Number(n) => n.as_f64().is_some_and(|float| (float as f32).is_finite()),
                part => part.is_array() && is_computed(part),
            };
            !list.is_empty() && list.iter().all(is_part)
        }
        Value::String(text) => STANDARD.decode(text).is_ok_and(|bytes| {
            let floats = bytes.chunks_exact(4);
            let is_finite = |float: &[u8]| {
                float
                    .try_into()
                    .is_ok_and(|bytes| f32::from_le_bytes(bytes).is_finite())
            };
            !bytes.is_empty() && floats.remainder().is_empty() && floats.into_iter().all(is_finite)
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
