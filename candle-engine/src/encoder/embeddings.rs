//! `POST /v1/embeddings`: OpenAI's request and response, with the fields that Text Embeddings Inference and vLLM add. The vectors
//! are computed by [`super::network`].

use super::network::Sequence;
use super::pooling::normalise;
use super::routes::{ParsedRequest, ResponseKind};
use super::service::{OutputKind, Service, TEXTS_MAX, Usage, json_response};
use crate::api_error::ApiError;
use crate::fields::{Fields, expected};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::Value;

/// The request's output settings, kept until its vectors are computed.
pub(super) struct EmbeddingsRequest {
    is_base64: bool,
    dimensions: Option<usize>,
    normalises: bool,
}

#[derive(Serialize)]
struct EmbeddingsResponse<'a> {
    object: &'static str,
    data: Vec<Embedding>,
    model: &'a str,
    usage: Usage,
}

#[derive(Serialize)]
struct Embedding {
    object: &'static str,
    index: usize,
    embedding: Vector,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Vector {
    Numbers(Vec<f32>),
    Base64(String),
}

enum Input {
    Text(String),
    Tokens(Vec<u32>),
}

impl EmbeddingsRequest {
    pub fn read(service: &Service, fields: &mut Fields) -> Result<ParsedRequest, ApiError> {
        let OutputKind::Vectors { width, normalises } = service.model.gives else {
            return Err(service.is_for_something_else("embeddings"));
        };
        let texts = &service.model.texts;
        let inputs = take_inputs(fields)?;
        let is_base64 = match fields.text("encoding_format")?.as_deref() {
            None | Some("float") => false,
            Some("base64") => true,
            Some(other) => {
                let found = Value::from(other);
                return Err(expected("encoding_format", "float or base64", &found));
            }
        };
        let dimensions = fields.integer("dimensions", 1..=width as i64)?;
        let normalises = fields.flag("normalize")?.unwrap_or(normalises);
        // Names the client's end user; it has no effect.
        fields.text("user")?;
        let adds_special = fields.flag("add_special_tokens")?.unwrap_or(true);
        let name = fields.text("prompt_name")?;
        let prompt = texts.prompts.named(name.as_deref())?;
        let cut = service.take_cut(fields)?;
        let several = inputs.len() > 1;
        let sequence = |(index, input): (usize, Input)| -> Result<Sequence, ApiError> {
            let param = if several {
                format!("input[{index}]")
            } else {
                "input".to_owned()
            };
            match input {
                Input::Text(text) => texts.single(prompt, &text, adds_special, cut, &param),
                Input::Tokens(tokens) => texts.of_tokens(tokens, cut, &param),
            }
        };
        let sequences = inputs.into_iter().enumerate().map(sequence);
        Ok(ParsedRequest {
            sequences: sequences.collect::<Result<_, _>>()?,
            shape: ResponseKind::Embeddings(Self {
                is_base64,
                dimensions: dimensions.map(|count| count as usize),
                normalises,
            }),
        })
    }

    pub fn write(
        self,
        service: &Service,
        vectors: Vec<Vec<f32>>,
        usage: Usage,
    ) -> Result<Response, ApiError> {
        let embedding = |(index, mut vector): (usize, Vec<f32>)| {
            // A model trained for it gives shorter vectors by truncation; normalisation follows.
            vector.truncate(self.dimensions.unwrap_or(usize::MAX));
            if self.normalises {
                normalise(&mut vector);
            }
            Embedding {
                object: "embedding",
                index,
                embedding: if self.is_base64 {
                    Vector::Base64(base64_of(&vector))
                } else {
                    Vector::Numbers(vector)
                },
            }
        };
        Ok(json_response(EmbeddingsResponse {
            object: "list",
            data: vectors.into_iter().enumerate().map(embedding).collect(),
            model: &service.model_name,
            usage,
        }))
    }
}

/// Encodes a vector in OpenAI's `encoding_format`: little-endian 32-bit floats in base64.
fn base64_of(vector: &[f32]) -> String {
    let bytes: Vec<u8> = vector
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect();
    STANDARD.encode(bytes)
}

fn take_inputs(fields: &mut Fields) -> Result<Vec<Input>, ApiError> {
    const WANTED: &str = "a text, a list of texts, a list of token ids, or a list of such lists";
    let Some(input) = fields.take("input") else {
        return Err(ApiError::field("input", "`input` is required"));
    };
    let list = match input {
        Value::String(text) => return Ok(vec![Input::Text(text)]),
        Value::Array(list) => list,
        other => return Err(expected("input", WANTED, &other)),
    };
    if list.is_empty() {
        return Err(ApiError::field("input", "`input` is empty; give it a text"));
    }
    if list.iter().all(Value::is_number) {
        return Ok(vec![Input::Tokens(tokens_of(&list, "input")?)]);
    }
    if list.len() > TEXTS_MAX {
        let message = format!(
            "`input` has {} texts; at most {TEXTS_MAX} are allowed in a request",
            list.len()
        );
        return Err(ApiError::field("input", message));
    }
    let one = |(index, value): (usize, Value)| match value {
        Value::String(text) => Ok(Input::Text(text)),
        Value::Array(ids) => tokens_of(&ids, &format!("input[{index}]")).map(Input::Tokens),
        other => Err(expected("input", WANTED, &other)),
    };
    list.into_iter().enumerate().map(one).collect()
}

fn tokens_of(ids: &[Value], param: &str) -> Result<Vec<u32>, ApiError> {
    let id = |value: &Value| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| expected(param, "a list of token ids", value))
    };
    ids.iter().map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_in_base64_is_its_little_endian_bytes() {
        assert_eq!(base64_of(&[]), "");
        assert_eq!(base64_of(&[1.0]), "AACAPw==");
        assert_eq!(base64_of(&[1.0, -2.0]), "AACAPwAAAMA=");
    }
}
