//! The response of `tokenize`, and the limit on its text. A tokenizer needs about a hundred bytes of memory per byte of text, so
//! the text is limited, and the response is written in pieces.

use crate::api_error::ApiError;
use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::Value;
use std::convert::Infallible;
use std::fmt::Write;

/// Text limit per token of context. A token has about four bytes of text; the limit allows texts of several contexts, which shows
/// clients by how much they are too long.
const BYTES_PER_TOKEN: usize = 16;
/// Bounds of the text limit, for short and for long contexts. The upper bound always allows the text of a full context.
const BYTES_LEAST: usize = 64 * 1024;
const BYTES_MOST: usize = 2 * 1024 * 1024;
const BYTES_PER_TOKEN_LEAST: usize = 6;
/// Tokens per piece of the response.
const PIECE_TOKENS: usize = 4096;

/// The tokens of a text.
pub(crate) struct TokenizeResponse {
    tokens: Vec<u32>,
    context_tokens: usize,
    /// The text of each token, as a JSON list.
    texts: Option<String>,
}

impl TokenizeResponse {
    pub fn new(tokens: Vec<u32>, context_tokens: usize) -> Self {
        Self {
            tokens,
            context_tokens,
            texts: None,
        }
    }

    /// Adds the text of each token.
    pub fn with_texts(mut self, text: impl Fn(u32) -> String) -> Self {
        let mut texts = "[".to_owned();
        write_list(&mut texts, &self.tokens, 0, |token| {
            Value::from(text(token)).to_string()
        });
        texts.push(']');
        self.texts = Some(texts);
        self
    }

    fn pieces(self) -> impl Iterator<Item = Bytes> + Send {
        let head = format!(
            "{{\"count\":{},\"max_model_len\":{},\"tokens\":[",
            self.tokens.len(),
            self.context_tokens
        );
        let tail = match self.texts {
            Some(texts) => vec!["],\"token_strs\":".to_owned(), texts, "}".to_owned()],
            None => vec!["]}".to_owned()],
        };
        let tokens = self.tokens;
        let parts = (0..tokens.len().div_ceil(PIECE_TOKENS)).map(move |nth| {
            let first = nth * PIECE_TOKENS;
            let last = tokens.len().min(first + PIECE_TOKENS);
            let mut piece = String::new();
            write_list(&mut piece, &tokens[first..last], first, |token| {
                token.to_string()
            });
            piece
        });
        let all = std::iter::once(head).chain(parts).chain(tail);
        all.map(Bytes::from)
    }
}

/// Appends elements to a list that already has `written` elements.
fn write_list(to: &mut String, tokens: &[u32], written: usize, text: impl Fn(u32) -> String) {
    for (place, token) in (written..).zip(tokens) {
        let comma = if place == 0 { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(to, "{comma}{}", text(*token));
    }
}

impl IntoResponse for TokenizeResponse {
    fn into_response(self) -> Response {
        let pieces = stream::iter(self.pieces().map(Ok::<_, Infallible>));
        let form = [(header::CONTENT_TYPE, "application/json")];
        (form, Body::from_stream(pieces)).into_response()
    }
}

/// # Errors
/// 400 if the text is much longer than the context.
pub(crate) fn check_text(text: &str, context_tokens: usize) -> Result<(), ApiError> {
    let most = bytes_max(context_tokens);
    if text.len() <= most {
        return Ok(());
    }
    Err(ApiError::invalid(format!(
        "the text has {} bytes; at most {most} are allowed for a context of {context_tokens} tokens: send it in parts",
        text.len()
    )))
}

fn bytes_max(context_tokens: usize) -> usize {
    let generous = context_tokens.saturating_mul(BYTES_PER_TOKEN);
    let least = context_tokens.saturating_mul(BYTES_PER_TOKEN_LEAST);
    generous.clamp(BYTES_LEAST, BYTES_MOST).max(least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn written(tokenized: TokenizeResponse) -> (usize, Value) {
        let (mut count, mut written) = (0, Vec::new());
        for piece in tokenized.pieces() {
            count += 1;
            written.extend_from_slice(&piece);
        }
        (count, serde_json::from_slice(&written).expect("JSON"))
    }

    #[test]
    fn the_streamed_pieces_form_the_json_response() {
        let (_, response) = written(TokenizeResponse::new(Vec::new(), 8));
        assert_eq!(
            response,
            json!({"count": 0, "max_model_len": 8, "tokens": []})
        );
        let few = TokenizeResponse::new(vec![7, 9], 8).with_texts(|token| format!("\"{token}\n"));
        let (_, response) = written(few);
        assert_eq!(
            response,
            json!({"count": 2, "max_model_len": 8, "tokens": [7, 9], "token_strs": ["\"7\n", "\"9\n"]})
        );
        let many: Vec<u32> = (0..10_000).collect();
        let (pieces, response) = written(TokenizeResponse::new(many.clone(), 8));
        assert_eq!(response["tokens"], json!(many));
        assert_eq!(pieces, 5);
    }

    #[test]
    fn a_text_is_accepted_up_to_several_times_the_context_length() {
        for context in [16, 512, 8192, 131_072, 1_048_576] {
            assert!(bytes_max(context) >= 6 * context, "{context}");
            assert!(
                check_text(&"a".repeat(4 * context), context).is_ok(),
                "{context}"
            );
        }
        let refused = check_text(&"a".repeat(70_000), 512).expect_err("too long");
        assert!(
            refused.message.contains("70000 bytes; at most 65536"),
            "{}",
            refused.message
        );
        assert!(check_text(&"a".repeat(3 * 1024 * 1024), 131_072).is_err());
    }
}
