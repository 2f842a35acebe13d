//! Parses the requests of the text-generating routes, with the ranges and defaults of their fields.

mod format;
mod messages;
mod reasoning;
mod sampling;
mod strategy;
mod tools;

use crate::api_error::ApiError;
use crate::batch::Ending;
use crate::decoding::Strategy;
use crate::fields::{Fields, expected};
use crate::grammar::Grammar;
use crate::sampling::SamplingSettings;
use crate::tools::Tools;
use crate::vision::ImagePart;
use reading::IgnoredFields;
use serde_json::Value;

pub(crate) use messages::take_messages;
pub(crate) use reasoning::{TemplateSwitches, take_switches};
pub(crate) use tools::take_tools;

const CHOICES_MAX: i64 = 8;
/// Maximum number of choices to compute, from which the best are returned.
const BEST_OF_MAX: i64 = 20;
const PROMPTS_MAX: usize = 64;
/// Maximum number of prompts times choices in a request.
const SEQUENCES_MAX: usize = 256;
/// OpenAI's limit on both routes.
const LOGPROBS_MAX: i64 = 20;
/// Larger token limits are rejected as mistakes; smaller ones are clamped to the remaining context.
const TOKENS_MAX: i64 = 1_000_000_000;
/// OpenAI's default for `/v1/completions`.
const COMPLETION_TOKENS_DEFAULT: usize = 16;
/// OpenAI fields that this engine does not implement; rejected unless they are empty or set to the default.
const UNSUPPORTED: [&str; 7] = [
    "functions",
    "function_call",
    "audio",
    "prediction",
    "web_search_options",
    "suffix",
    "modalities",
];

/// The fields that both routes share.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    /// The requested model; `None` selects this one.
    pub model: Option<String>,
    /// `None` means the remaining context.
    pub max_tokens: Option<usize>,
    /// Number of choices to return.
    pub choices: usize,
    /// Number of choices to compute; at least `choices`.
    pub best_of: usize,
    pub stream: bool,
    pub include_usage: bool,
    /// Include the usage so far in every chunk, as vLLM does.
    pub continuous_usage: bool,
    pub ending: Ending,
    pub sampling: SamplingSettings,
    pub strategy: Strategy,
    /// Number of likeliest tokens to return for each token.
    pub logprobs: Option<usize>,
    /// The grammar that constrains completions, and the field it came from.
    pub grammar: Option<(Grammar, &'static str)>,
}

/// A request of `/v1/chat/completions`.
#[derive(Debug)]
pub(crate) struct ChatRequest {
    /// Messages as the chat template sees them.
    pub messages: Vec<Value>,
    /// The images of the messages, in order.
    pub images: Vec<ImagePart>,
    pub tools: Tools,
    /// The template's reasoning settings.
    pub switches: TemplateSwitches,
    /// Fields that had no effect.
    pub ignored: IgnoredFields,
    pub settings: Settings,
}

/// A prompt in the client's form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PromptInput {
    Text(String),
    Tokens(Vec<u32>),
}

/// A request of `/v1/completions`.
#[derive(Debug)]
pub(crate) struct CompletionRequest {
    pub prompts: Vec<PromptInput>,
    /// Completions begin with the prompt.
    pub echo: bool,
    pub settings: Settings,
}

impl ChatRequest {
    /// `sees` allows images in messages.
    ///
    /// # Errors
    /// 400 that names the field if it is invalid, unknown or unsupported.
    pub fn parse(body: &[u8], defaults: &SamplingSettings, sees: bool) -> Result<Self, ApiError> {
        let mut fields = Fields::parse(body)?;
        let mut ignored = IgnoredFields::default();
        let mut images = Vec::new();
        let seen = sees.then_some(&mut images);
        let messages = take_messages(&mut fields, &mut ignored, seen)?;
        let shows_logprobs = fields.flag("logprobs")?.unwrap_or(false);
        let top = fields.integer("top_logprobs", 0..=LOGPROBS_MAX)?;
        if top.is_some_and(|top| top > 0) && !shows_logprobs {
            return Err(ApiError::field(
                "top_logprobs",
                "`top_logprobs` needs `logprobs` to be true",
            ));
        }
        let logprobs = shows_logprobs.then(|| top.unwrap_or(0) as usize);
        let limits = [
            fields.integer("max_completion_tokens", 1..=TOKENS_MAX)?,
            fields.integer("max_tokens", 1..=TOKENS_MAX)?,
        ];
        let max_tokens = limits
            .into_iter()
            .flatten()
            .min()
            .map(|limit| limit as usize);
        let tools = tools::take_tools(&mut fields, &mut ignored)?;
        let switches = take_switches(&mut fields, &mut ignored)?;
        let mut settings = parse_settings(&mut fields, max_tokens, logprobs, defaults)?;
        // The format describes text output, but a forced call is not text: its own schema applies.
        if tools.demanded().is_some() {
            settings.grammar = None;
        }
        fields.finish()?;
        Ok(Self {
            messages,
            images,
            tools,
            switches,
            ignored,
            settings,
        })
    }
}

impl CompletionRequest {
    /// # Errors
    /// 400 that names the field if it is invalid, unknown or unsupported.
    pub fn parse(body: &[u8], defaults: &SamplingSettings) -> Result<Self, ApiError> {
        let mut fields = Fields::parse(body)?;
        let prompts = match fields.take("prompt") {
            Some(value) => parse_prompts(value)?,
            None => return Err(ApiError::field("prompt", "`prompt` is required")),
        };
        let logprobs = fields
            .integer("logprobs", 0..=LOGPROBS_MAX)?
            .map(|count| count as usize);
        let echo = fields.flag("echo")?.unwrap_or(false);
        let best_of = fields.integer("best_of", 1..=BEST_OF_MAX)?;
        // A request that only scores its prompt needs no completion.
        let least = if echo { 0 } else { 1 };
        let max_tokens = fields
            .integer("max_tokens", least..=TOKENS_MAX)?
            .map_or(COMPLETION_TOKENS_DEFAULT, |limit| limit as usize);
        let mut settings = parse_settings(&mut fields, Some(max_tokens), logprobs, defaults)?;
        let is_search = matches!(settings.strategy, Strategy::Beams(_));
        if let Some(best_of) = best_of.map(|count| count as usize) {
            if best_of < settings.choices {
                let message = format!(
                    "`best_of` must be at least `n`, which is {}, not {best_of}",
                    settings.choices
                );
                return Err(ApiError::field("best_of", message));
            }
            if is_search && best_of > settings.choices {
                return Err(ApiError::field(
                    "best_of",
                    "`best_of` cannot be combined with beam search, which returns the best anyway",
                ));
            }
            settings.best_of = best_of;
        }
        let sequences = prompts.len() * settings.best_of;
        if sequences > SEQUENCES_MAX {
            let field = if best_of.is_some() { "best_of" } else { "n" };
            let message = format!(
                "{} prompts with {} choices each are {sequences} sequences; at most {SEQUENCES_MAX} are allowed in a request",
                prompts.len(),
                settings.best_of
            );
            return Err(ApiError::field(field, message));
        }
        if echo && is_search {
            return Err(ApiError::field(
                "echo",
                "`echo` cannot be combined with beam search; put the prompt before the completion yourself",
            ));
        }
        fields.finish()?;
        Ok(Self {
            prompts,
            echo,
            settings,
        })
    }
}

/// Accepts a string, a list of strings, a list of token ids, or a list of such lists.
fn parse_prompts(value: Value) -> Result<Vec<PromptInput>, ApiError> {
    let tokens = |list: &Vec<Value>| {
        let id = |value: &Value| u32::try_from(value.as_u64()?).ok();
        list.iter().map(id).collect::<Option<Vec<u32>>>()
    };
    let one = |value: &Value| match value {
        Value::String(text) => Some(PromptInput::Text(text.clone())),
        Value::Array(list) => tokens(list).map(PromptInput::Tokens),
        _ => None,
    };
    let prompts = match &value {
        Value::Array(list) if list.first().is_some_and(Value::is_number) => {
            one(&value).map(|prompt| vec![prompt])
        }
        Value::Array(list) if (1..=PROMPTS_MAX).contains(&list.len()) => {
            let all: Option<Vec<PromptInput>> = list.iter().map(one).collect();
            let is_text = |prompt: &PromptInput| matches!(prompt, PromptInput::Text(_));
            // All of the same kind, as in OpenAI's API.
            all.filter(|all| all.iter().all(is_text) || !all.iter().any(is_text))
        }
        Value::String(_) => one(&value).map(|prompt| vec![prompt]),
        _ => None,
    };
    prompts.ok_or_else(|| {
        let wanted = format!(
            "a string, a list of token ids, or a list of 1 to {PROMPTS_MAX} strings or lists of token ids"
        );
        expected("prompt", wanted, &value)
    })
}

fn parse_settings(
    fields: &mut Fields,
    max_tokens: Option<usize>,
    logprobs: Option<usize>,
    defaults: &SamplingSettings,
) -> Result<Settings, ApiError> {
    refuse_unsupported(fields)?;
    // Identifies the end user for abuse reports; it has no effect.
    fields.text("user")?;
    let stream = fields.flag("stream")?.unwrap_or(false);
    let (include_usage, continuous_usage) = match fields.take("stream_options") {
        None => (false, false),
        Some(_) if !stream => {
            return Err(ApiError::field(
                "stream_options",
                "`stream_options` needs `stream` to be true",
            ));
        }
        Some(Value::Object(options)) => {
            let mut options = Fields::at("stream_options", options);
            let include_usage = options.flag("include_usage")?.unwrap_or(false);
            let continuous = options.flag("continuous_usage_stats")?;
            // Chunks are never padded, so it has no effect.
            options.flag("include_obfuscation")?;
            options.finish()?;
            (include_usage, include_usage && continuous.unwrap_or(false))
        }
        Some(other) => return Err(expected("stream_options", "an object", &other)),
    };
    let choices = fields.integer("n", 1..=CHOICES_MAX)?.unwrap_or(1) as usize;
    let (sampling, strategy) = strategy::take_strategy(fields, defaults)?;
    if let Strategy::Beams(settings) = strategy {
        if choices > settings.beams {
            let message = format!(
                "`n` is {choices}, but a beam search with {} beams finds at most that number of completions",
                settings.beams
            );
            return Err(ApiError::field("n", message));
        }
        if logprobs.is_some() {
            return Err(ApiError::field(
                "logprobs",
                "`logprobs` cannot be combined with beam search, which does not choose tokens one by one",
            ));
        }
    }
    Ok(Settings {
        model: fields.text("model")?,
        max_tokens,
        choices,
        best_of: choices,
        stream,
        include_usage,
        continuous_usage,
        ending: sampling::take_ending(fields)?,
        sampling,
        strategy,
        logprobs,
        grammar: format::take_grammar(fields)?,
    })
}

fn refuse_unsupported(fields: &mut Fields) -> Result<(), ApiError> {
    for name in UNSUPPORTED {
        let nothing = |value: &Value| {
            value.as_array().is_some_and(Vec::is_empty)
                || (name == "modalities" && *value == serde_json::json!(["text"]))
                || (name == "suffix" && *value == "")
        };
        match fields.take(name) {
            Some(value) if name == "suffix" && !nothing(&value) => {
                return Err(ApiError {
                    code: Some("unsupported_parameter"),
                    ..ApiError::field(
                        name,
                        "`suffix` is not supported by this engine, which only continues a prompt",
                    )
                });
            }
            Some(value) if !nothing(&value) => return Err(ApiError::unsupported(name)),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use model_files::request_fields;
    use serde_json::{Map, json};

    fn parse(body: &Value) -> Result<ChatRequest, ApiError> {
        ChatRequest::parse(
            body.to_string().as_bytes(),
            &SamplingSettings::default(),
            false,
        )
    }

    #[test]
    fn every_extension_field_is_accepted() {
        let nulls = request_fields::GENERATING
            .iter()
            .map(|name| ((*name).to_owned(), Value::Null));
        let mut body = Value::Object(nulls.collect::<Map<String, Value>>());
        body["messages"] = json!([{"role": "user", "content": "Hi"}]);
        assert_eq!(parse(&body).err(), None);
        body["colour"] = Value::Null;
        assert_eq!(parse(&body).err(), None);
        body["colour"] = json!("red");
        assert!(parse(&body).is_err());
    }

    #[test]
    fn a_response_format_is_dropped_when_a_tool_call_is_required() {
        let tools = json!([{"type": "function", "function": {"name": "f"}}]);
        let body = json!({"messages": [{"role": "user", "content": "Hi"}], "tools": tools,
            "tool_choice": "required", "response_format": {"type": "json_object"}});
        let request = parse(&body).expect("is taken");
        assert!(request.settings.grammar.is_none() && request.tools.demanded().is_some());
    }

    #[test]
    fn continuous_usage_requires_include_usage() {
        let body = |options: Value| json!({"messages": [{"role": "user", "content": "Hi"}], "stream": true, "stream_options": options});
        let both = json!({"include_usage": true, "continuous_usage_stats": true});
        assert!(
            parse(&body(both))
                .expect("is taken")
                .settings
                .continuous_usage
        );
        let alone = json!({"continuous_usage_stats": true});
        assert!(
            !parse(&body(alone))
                .expect("is taken")
                .settings
                .continuous_usage
        );
    }
}
