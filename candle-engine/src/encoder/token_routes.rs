//! vLLM's `tokenize` and `detokenize` for an encoder.

use super::service::Service;
use super::texts::Cut;
use crate::api_error::ApiError;
use crate::fields::{Fields, need_token_ids};
use crate::tokenize_response::{TokenizeResponse, check_text};
use serde_json::{Value, json};

impl Service {
    /// Handles `POST /tokenize` with a `prompt`.
    pub fn tokenize(&self, body: &[u8]) -> Result<TokenizeResponse, ApiError> {
        let mut fields = Fields::parse(body)?;
        self.check_model(fields.text("model")?.as_deref())?;
        let special = fields.flag("add_special_tokens")?.unwrap_or(true);
        let shows_texts = fields.flag("return_token_strs")?.unwrap_or(false);
        if fields.has("messages") {
            return Err(self.is_for_something_else("chats"));
        }
        let Some(prompt) = fields.text("prompt")? else {
            return Err(ApiError::field("prompt", "`prompt` is required"));
        };
        fields.finish()?;
        let texts = &self.model.texts;
        check_text(&prompt, texts.limit)?;
        let cut = Cut {
            most: usize::MAX,
            is_allowed: false,
            from_left: false,
        };
        let tokens = if prompt.is_empty() {
            Vec::new()
        } else {
            texts.single("", &prompt, special, cut, "prompt")?.tokens
        };
        let tokenized = TokenizeResponse::new(tokens, texts.limit);
        Ok(if shows_texts {
            tokenized.with_texts(|token| texts.word(token))
        } else {
            tokenized
        })
    }

    /// Handles `POST /detokenize`: decodes `tokens`, including special tokens.
    pub fn detokenize(&self, body: &[u8]) -> Result<Value, ApiError> {
        let mut fields = Fields::parse(body)?;
        self.check_model(fields.text("model")?.as_deref())?;
        let tokens = need_token_ids(&mut fields, "tokens")?;
        fields.finish()?;
        let texts = &self.model.texts;
        texts.check_tokens(&tokens, "tokens")?;
        Ok(json!({"prompt": texts.text_of(&tokens)?}))
    }
}
