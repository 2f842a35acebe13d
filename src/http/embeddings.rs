//! Numbers for texts. The input is checked before anything is loaded for it; engines are asked for plain numbers,
//! and base64 is made of them here, so that it is the same for all.

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::Request;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::admission::Visit;
use super::auth::User;
use super::dialect::Taken;
use super::error::Failure;
use super::gateway::{Failed, find, read};
use super::openapi::InferenceErrors;
use super::outgoing::renamed;
use super::passing::{Answer, ask, check_has, finish, name_there, seated, taken};
use super::request_fields::Fate;
use super::served::JSON;
use super::state::App;
use crate::catalog::{Ask, Extra};

/// Texts that one request may have; OpenAI's bound.
const INPUTS_MAX: usize = 2048;

/// Numbers for texts. The model is loaded if it is not ready.
#[utoipa::path(
    post, path = "/v1/embeddings", tag = "inference",
    request_body(content = Object, description = "OpenAI's embeddings request", example = json!({
        "model": "org/embedder", "input": ["keep-hot", "priority"]
    })),
    responses(
        (status = 200, description = "OpenAI's list of embeddings, with vectors as lists, or as base64 of little-endian 32-bit floats"),
        InferenceErrors,
    )
)]
pub(super) async fn embeddings(
    State(app): State<App>,
    user: User,
    request: Request<Body>,
) -> Response {
    let visit = Visit::new(&app, user, request.headers());
    visit.end(&app, numbers(&app, &visit, request)).await
}

async fn numbers(app: &App, visit: &Visit, request: Request<Body>) -> Result<Response, Failed> {
    let body = read(app, request.into_body()).await?;
    let (scanned, route) = find(app, &visit.user, body).await?;
    let model = route.entry.name.clone();
    let fail = |failure: Failure| (Some(model.clone()), failure);
    check_has(&route, Extra::Embeddings).map_err(fail)?;
    let (body, is_base64) =
        checked(&scanned.body, route.entry.recipe.has_dimensions()).map_err(fail)?;
    let body = taken(&route, Ask::Embeddings, &body).map_err(fail)?;
    let served = seated(app, visit, &route, scanned.body.len())
        .await
        .map_err(fail)?;
    let body = renamed(
        &body,
        &name_there(&served, &route, &scanned.model),
        |_, _| Ok(Fate::Goes),
    )
    .map_err(fail)?;
    let path = Extra::Embeddings.path();
    match ask(app, served, path, (&JSON, body)).await.map_err(fail)? {
        Answer::Refused(response) => Ok(response),
        Answer::Whole(served, _, bytes) => {
            let bytes = match is_base64 {
                true => in_base64(bytes),
                false => bytes,
            };
            let response = finish(&served, bytes, None).map_err(fail)?;
            served.answered(200);
            Ok(response)
        }
    }
}

/// The body for the engine, and whether the client wants base64.
fn checked(body: &Bytes, has_dimensions: bool) -> Result<(Bytes, bool), Failure> {
    let mut asked = Taken::body(body)?;
    let input = asked.need("input")?;
    if let Some(wrong) = wrong_with(&input) {
        return Err(Failure::invalid(
            "input".to_owned(),
            format!("`input` {wrong}"),
        ));
    }
    if asked.count("dimensions")?.is_some() && !has_dimensions {
        let why = "the engine of this model has no choice of dimensions; leave it out";
        return Err(asked.not_here("dimensions", why));
    }
    let is_base64 = match asked.text("encoding_format")?.as_deref() {
        None => return Ok((body.clone(), false)),
        Some("float") => false,
        Some("base64") => true,
        Some(_) => return Err(asked.wrong("encoding_format", "float or base64")),
    };
    Ok((without_format(body), is_base64))
}

fn without_format(body: &Bytes) -> Bytes {
    let mut fields: Value = serde_json::from_slice(body).unwrap_or_default();
    if let Value::Object(fields) = &mut fields {
        fields.shift_remove("encoding_format");
    }
    fields.to_string().into()
}

/// What is wrong with an input, if anything is.
fn wrong_with(input: &Value) -> Option<&'static str> {
    let is_tokens = |list: &[Value]| !list.is_empty() && list.iter().all(Value::is_u64);
    match input {
        Value::String(text) if text.is_empty() => Some("is empty; give it a text"),
        Value::String(_) => None,
        Value::Array(list) if list.is_empty() => Some("is an empty list; give it a text"),
        Value::Array(list) if is_tokens(list) => None,
        Value::Array(list) if list.len() > INPUTS_MAX => Some("has more than 2048 texts"),
        Value::Array(list) => {
            let is_text = |text: &Value| text.as_str().is_some_and(|text| !text.is_empty());
            let is_list = |it: &Value| it.as_array().is_some_and(|list| is_tokens(list));
            match list.iter().all(is_text) || list.iter().all(is_list) {
                true => None,
                false => Some("must be a list of texts or of lists of tokens, none of them empty"),
            }
        }
        _ => Some("must be a text, a list of texts, a list of tokens or a list of those"),
    }
}

/// Each vector as base64 of its 32-bit floats, the lowest byte first. What is no vector stays.
fn in_base64(bytes: Bytes) -> Bytes {
    let Ok(mut answer) = serde_json::from_slice::<Value>(&bytes) else {
        return bytes;
    };
    let data = answer.get_mut("data").and_then(Value::as_array_mut);
    for item in data.into_iter().flatten() {
        let numbers = item.get("embedding").and_then(Value::as_array);
        let numbers: Option<Vec<f64>> =
            numbers.and_then(|it| it.iter().map(Value::as_f64).collect());
        if let Some(numbers) = numbers {
            let bytes = numbers
                .iter()
                .flat_map(|number| (*number as f32).to_le_bytes());
            item["embedding"] = json!(STANDARD.encode(bytes.collect::<Vec<u8>>()));
        }
    }
    answer.to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_a_text_or_tokens_or_several_and_none_is_empty() {
        for input in [
            json!("a"),
            json!(["a", "b"]),
            json!([1, 2]),
            json!([[1], [2, 3]]),
        ] {
            assert_eq!(wrong_with(&input), None, "{input}");
        }
        let many = json!(vec!["a"; INPUTS_MAX + 1]);
        for input in [
            json!(""),
            json!([]),
            json!(["a", ""]),
            json!([[]]),
            json!(["a", 1]),
            json!([-1]),
            json!({}),
            json!(null),
            many,
        ] {
            assert!(wrong_with(&input).is_some(), "{input}");
        }
    }

    #[test]
    fn engines_are_asked_for_numbers_whatever_the_client_wants() {
        let body = |format: Value| {
            json!({"input": "a", "encoding_format": format, "x": 1})
                .to_string()
                .into()
        };
        let (sent, is_base64) = checked(&body(json!("base64")), true).unwrap();
        assert_eq!(
            (sent.as_ref(), is_base64),
            (br#"{"input":"a","x":1}"#.as_slice(), true)
        );
        assert!(!checked(&body(json!("float")), true).unwrap().1);
        for (body, param) in [
            (
                json!({"input": "a", "encoding_format": "hex"}),
                "encoding_format",
            ),
            (json!({"input": "a", "dimensions": 2}), "dimensions"),
            (json!({"input": "a", "dimensions": 0}), "dimensions"),
            (json!({"input": ""}), "input"),
            (json!({}), "input"),
        ] {
            let failure = checked(&body.to_string().into(), false).unwrap_err();
            assert_eq!(failure.body.error.param.as_deref(), Some(param));
        }
    }

    #[test]
    fn a_vector_becomes_its_little_endian_floats() {
        let answer = json!({"data": [{"embedding": [1.0, -2.5]}, {"embedding": "AACAPw=="}]});
        let told: Value = serde_json::from_slice(&in_base64(answer.to_string().into())).unwrap();
        let bytes = STANDARD
            .decode(told["data"][0]["embedding"].as_str().unwrap())
            .unwrap();
        assert_eq!(
            bytes,
            [1.0_f32.to_le_bytes(), (-2.5_f32).to_le_bytes()].concat()
        );
        assert_eq!(told["data"][1]["embedding"], "AACAPw==");
    }
}
