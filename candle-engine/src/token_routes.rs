//! vLLM's routes between text and tokens: `tokenize` and `detokenize`.

use crate::api::{take_messages, take_switches, take_tools};
use crate::api_error::ApiError;
use crate::completion::{called, check_tokens};
use crate::conversation::{render, source_of, template_of, tools_of};
use crate::decoder_service::DecoderService;
use crate::fields::{Fields, need_token_ids};
use crate::tokenize_response::{TokenizeResponse, check_text};
use reading::IgnoredFields;
use serde_json::{Value, json};

/// Handles `POST /tokenize`: a `prompt`, or `messages` and `tools` rendered with the chat template.
pub(crate) fn tokenize(ready: &DecoderService, body: &[u8]) -> Result<TokenizeResponse, ApiError> {
    let mut fields = Fields::parse(body)?;
    called(ready, fields.text("model")?.as_deref())?;
    let model = &ready.model;
    let special = fields.flag("add_special_tokens")?;
    let shows_texts = fields.flag("return_token_strs")?.unwrap_or(false);
    let prompt = fields.text("prompt")?;
    let mut images = Vec::new();
    let (text, special) = match (prompt, fields.has("messages")) {
        (Some(prompt), false) => (prompt, special.unwrap_or(true)),
        (None, true) => {
            // Ignored fields are not reported on this route.
            let mut ignored = IgnoredFields::default();
            let seen = model.vision.is_some().then_some(&mut images);
            let mut messages = take_messages(&mut fields, &mut ignored, seen)?;
            if let Some(vision) = &model.vision {
                vision.adapt(&mut messages);
            }
            let tools = take_tools(&mut fields, &mut ignored)?;
            let switches = take_switches(&mut fields, &mut ignored)?;
            let begins_response = fields.flag("add_generation_prompt")?.unwrap_or(true);
            if model.reads_source() {
                (source_of(&messages)?.to_owned(), special.unwrap_or(true))
            } else {
                let template = template_of(model)?;
                let tools = tools_of(template, tools, &mut ignored)?;
                let text = render(template, &messages, &tools, &switches, begins_response)?;
                // A chat template adds its special tokens itself.
                (text, special.unwrap_or(false))
            }
        }
        (Some(_), true) => {
            let message = "`prompt` and `messages` cannot be combined";
            return Err(ApiError::field("prompt", message));
        }
        (None, false) => {
            let message = "`prompt` or `messages` is required";
            return Err(ApiError::field("prompt", message));
        }
    };
    fields.finish()?;
    let context = model.generator.context_tokens;
    check_text(&text, context)?;
    let mut tokens = model.tokenizer.encode(&text, special)?;
    if let Some(vision) = model.vision.as_ref().filter(|_| !images.is_empty()) {
        tokens = vision.place(tokens, vision.read(&images)?)?.0;
    }
    let tokenized = TokenizeResponse::new(tokens, context);
    let vocabulary = &model.tokenizer.token_texts;
    Ok(if shows_texts {
        tokenized.with_texts(|token| String::from_utf8_lossy(vocabulary.bytes(token)).into_owned())
    } else {
        tokenized
    })
}

/// Handles `POST /detokenize`: decodes `tokens`, including special tokens.
pub(crate) fn detokenize(ready: &DecoderService, body: &[u8]) -> Result<Value, ApiError> {
    let mut fields = Fields::parse(body)?;
    called(ready, fields.text("model")?.as_deref())?;
    let tokens = need_token_ids(&mut fields, "tokens")?;
    fields.finish()?;
    let tokenizer = &ready.model.tokenizer;
    check_tokens(&tokens, tokenizer.vocabulary, "tokens")?;
    Ok(json!({"prompt": tokenizer.text_of(&tokens)?}))
}
