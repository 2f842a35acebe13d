//! Owns the requests of the two generating routes: their fields, ranges and defaults. Never tokenises and never answers.

use crate::api_error::ApiError;
use crate::fields::{Fields, expected};
use crate::generate::Ending;
use crate::sample::SamplingSettings;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

const CHOICES_MAX: i64 = 8;
const STOPS_MAX: usize = 8;
const PROMPTS_MAX: usize = 64;
/// Larger limits are mistakes, not wishes; smaller ones are clamped to what the context leaves.
const TOKENS_MAX: i64 = 1_000_000_000;
/// OpenAI's default for `/v1/completions`.
const COMPLETION_TOKENS_DEFAULT: usize = 16;
const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];
/// Fields that OpenAI knows and whose work this engine does not do; refused unless they ask for nothing.
const UNSUPPORTED: [&str; 12] = [
    "tools",
    "functions",
    "function_call",
    "audio",
    "prediction",
    "web_search_options",
    "suffix",
    "guided_json",
    "guided_regex",
    "best_of",
    "reasoning_effort",
    "modalities",
];

/// What both routes take.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    /// The model that is asked for; absent is this one.
    pub model: Option<String>,
    /// `None` is as many as the context leaves.
    pub max_tokens: Option<usize>,
    pub choices: usize,
    pub stream: bool,
    pub include_usage: bool,
    pub ending: Ending,
    pub sampling: SamplingSettings,
}

/// A request of `/v1/chat/completions`.
#[derive(Debug)]
pub(crate) struct ChatRequest {
    /// Messages as the chat template sees them: `role`, `content` as one string, and what else the client sent.
    pub messages: Vec<Value>,
    pub settings: Settings,
}

/// A request of `/v1/completions`.
#[derive(Debug)]
pub(crate) struct CompletionRequest {
    pub prompts: Vec<String>,
    pub settings: Settings,
}

impl ChatRequest {
    /// # Errors
    /// 400 that names the field which is wrong, unknown or not supported.
    pub fn parse(body: &[u8], defaults: &SamplingSettings) -> Result<Self, ApiError> {
        let mut fields = Fields::parse(body)?;
        let messages = match fields.take("messages") {
            Some(Value::Array(messages)) if !messages.is_empty() => messages,
            Some(other) => {
                return Err(expected(
                    "messages",
                    "a list of at least one message",
                    &other,
                ));
            }
            None => return Err(ApiError::field("messages", "`messages` is required")),
        };
        let messages = messages
            .into_iter()
            .enumerate()
            .map(|(index, message)| parse_message(index, message))
            .collect::<Result<_, _>>()?;
        if fields.take_bool("logprobs")? == Some(true) {
            return Err(ApiError::unsupported("logprobs"));
        }
        if fields
            .take_integer("top_logprobs", 0..=20)?
            .is_some_and(|count| count > 0)
        {
            return Err(ApiError::unsupported("top_logprobs"));
        }
        let limits = [
            fields.take_integer("max_completion_tokens", 1..=TOKENS_MAX)?,
            fields.take_integer("max_tokens", 1..=TOKENS_MAX)?,
        ];
        let max_tokens = limits
            .into_iter()
            .flatten()
            .min()
            .map(|limit| limit as usize);
        let settings = parse_settings(&mut fields, max_tokens, defaults)?;
        fields.finish("")?;
        Ok(Self { messages, settings })
    }
}

impl CompletionRequest {
    /// # Errors
    /// 400 that names the field which is wrong, unknown or not supported.
    pub fn parse(body: &[u8], defaults: &SamplingSettings) -> Result<Self, ApiError> {
        let mut fields = Fields::parse(body)?;
        let prompts = match fields.take("prompt") {
            Some(Value::String(prompt)) => vec![prompt],
            Some(Value::Array(list))
                if (1..=PROMPTS_MAX).contains(&list.len()) && list.iter().all(Value::is_string) =>
            {
                list.into_iter()
                    .filter_map(|prompt| prompt.as_str().map(str::to_owned))
                    .collect()
            }
            Some(other) => {
                return Err(expected(
                    "prompt",
                    format!(
                        "a string or a list of 1 to {PROMPTS_MAX} strings (tokens are not supported)"
                    ),
                    &other,
                ));
            }
            None => return Err(ApiError::field("prompt", "`prompt` is required")),
        };
        if fields.take_integer("logprobs", 0..=20)?.is_some() {
            return Err(ApiError::unsupported("logprobs"));
        }
        if fields.take_bool("echo")? == Some(true) {
            return Err(ApiError::unsupported("echo"));
        }
        let max_tokens = fields
            .take_integer("max_tokens", 1..=TOKENS_MAX)?
            .map_or(COMPLETION_TOKENS_DEFAULT, |limit| limit as usize);
        let settings = parse_settings(&mut fields, Some(max_tokens), defaults)?;
        fields.finish("")?;
        Ok(Self { prompts, settings })
    }
}

fn parse_settings(
    fields: &mut Fields,
    max_tokens: Option<usize>,
    defaults: &SamplingSettings,
) -> Result<Settings, ApiError> {
    refuse_unsupported(fields)?;
    // It names the end user, for abuse reports; it changes nothing by its nature.
    fields.take_string("user")?;
    let stream = fields.take_bool("stream")?.unwrap_or(false);
    let include_usage = match fields.take("stream_options") {
        None => false,
        Some(_) if !stream => {
            return Err(ApiError::field(
                "stream_options",
                "`stream_options` needs `stream` to be true",
            ));
        }
        Some(Value::Object(options)) => {
            let mut options = Fields::from(options);
            let include_usage = options.take_bool("include_usage")?.unwrap_or(false);
            options.finish("stream_options.")?;
            include_usage
        }
        Some(other) => return Err(expected("stream_options", "an object", &other)),
    };
    let mut number = |name: &str, range, default: f32| {
        fields
            .take_number(name, range)
            .map(|value| value.map_or(default, |value| value as f32))
    };
    let sampling = SamplingSettings {
        temperature: number("temperature", 0.0..=2.0, defaults.temperature)?,
        top_p: number("top_p", 0.0..=1.0, defaults.top_p)?,
        presence_penalty: number("presence_penalty", -2.0..=2.0, 0.0)?,
        frequency_penalty: number("frequency_penalty", -2.0..=2.0, 0.0)?,
        repetition_penalty: number(
            "repetition_penalty",
            0.01..=10.0,
            defaults.repetition_penalty,
        )?,
        // -1 and 0 are how other engines write "all".
        top_k: match fields.take_integer("top_k", -1..=i64::from(u32::MAX))? {
            None => defaults.top_k,
            Some(count) => usize::try_from(count).ok().filter(|count| *count > 0),
        },
        seed: fields
            .take_integer("seed", i64::MIN..=i64::MAX)?
            .map(|seed| seed as u64),
        logit_bias: parse_logit_bias(fields.take("logit_bias"))?,
    };
    Ok(Settings {
        model: fields.take_string("model")?,
        max_tokens,
        choices: fields.take_integer("n", 1..=CHOICES_MAX)?.unwrap_or(1) as usize,
        stream,
        include_usage,
        ending: Ending {
            stop: parse_stop(fields.take("stop"))?,
            stop_tokens: parse_stop_tokens(fields.take("stop_token_ids"))?,
            min_tokens: fields
                .take_integer("min_tokens", 0..=TOKENS_MAX)?
                .map_or(0, |count| count as usize),
            ignores_end: fields.take_bool("ignore_eos")?.unwrap_or(false),
        },
        sampling,
    })
}

fn refuse_unsupported(fields: &mut Fields) -> Result<(), ApiError> {
    for name in UNSUPPORTED {
        let nothing = |value: &Value| {
            value.as_array().is_some_and(Vec::is_empty)
                || (name == "best_of" && *value == 1)
                || (name == "modalities" && *value == serde_json::json!(["text"]))
        };
        if fields.take(name).is_some_and(|value| !nothing(&value)) {
            return Err(ApiError::unsupported(name));
        }
    }
    if fields
        .take("tool_choice")
        .is_some_and(|choice| choice != "none" && choice != "auto")
    {
        return Err(ApiError::unsupported("tool_choice"));
    }
    if fields
        .take("response_format")
        .is_some_and(|format| format["type"] != "text")
    {
        return Err(ApiError::unsupported("response_format"));
    }
    Ok(())
}

fn parse_stop(value: Option<Value>) -> Result<Vec<String>, ApiError> {
    let wanted =
        || format!("a string or a list of at most {STOPS_MAX} strings, none of them empty");
    let Some(value) = value else {
        return Ok(Vec::new());
    };
    let stops: Option<Vec<String>> = match &value {
        Value::String(stop) => Some(vec![stop.clone()]),
        Value::Array(stops) if stops.len() <= STOPS_MAX => stops
            .iter()
            .map(|stop| stop.as_str().map(str::to_owned))
            .collect(),
        _ => None,
    };
    stops
        .filter(|stops| stops.iter().all(|stop| !stop.is_empty()))
        .ok_or_else(|| expected("stop", wanted(), &value))
}

/// Token ids, or lists of them for several in a row.
fn parse_stop_tokens(value: Option<Value>) -> Result<Vec<Vec<u32>>, ApiError> {
    const WANTED: &str = "a list of token ids, or of lists of token ids";
    let Some(value) = value else {
        return Ok(Vec::new());
    };
    let id = |value: &Value| u32::try_from(value.as_u64()?).ok();
    let row = |value: &Value| match value {
        Value::Array(ids) if !ids.is_empty() => ids.iter().map(id).collect(),
        single => id(single).map(|id| vec![id]),
    };
    let rows = value
        .as_array()
        .and_then(|rows| rows.iter().map(row).collect::<Option<_>>());
    rows.ok_or_else(|| expected("stop_token_ids", WANTED, &value))
}

fn parse_logit_bias(value: Option<Value>) -> Result<BTreeMap<u32, f32>, ApiError> {
    const WANTED: &str = "an object from token ids to numbers from -100 to 100";
    let Some(value) = value else {
        return Ok(BTreeMap::new());
    };
    let bias = |(token, bias): (&String, &Value)| {
        let bias = bias.as_f64().filter(|bias| bias.abs() <= 100.0)?;
        Some((token.parse().ok()?, bias as f32))
    };
    let biases = value
        .as_object()
        .and_then(|map| map.iter().map(bias).collect::<Option<_>>());
    biases.ok_or_else(|| expected("logit_bias", WANTED, &value))
}

/// Checks a message and makes its content one string.
fn parse_message(index: usize, message: Value) -> Result<Value, ApiError> {
    let place = |name: &str| format!("messages[{index}].{name}");
    let Value::Object(mut object) = message else {
        return Err(expected(
            &format!("messages[{index}]"),
            "an object",
            &message,
        ));
    };
    let role = match object.get("role").and_then(Value::as_str) {
        // The newer name of the same role; templates know the older.
        Some("developer") => "system".to_owned(),
        Some(role) if ROLES.contains(&role) => role.to_owned(),
        _ => {
            let found = object.get("role").cloned().unwrap_or_default();
            return Err(expected(
                &place("role"),
                format!("one of {}", ROLES.join(", ")),
                &found,
            ));
        }
    };
    let content = match object.get("content") {
        Some(Value::String(content)) => content.clone(),
        Some(Value::Array(parts)) => {
            let texts = parts
                .iter()
                .enumerate()
                .map(|(part, value)| parse_part(&place(&format!("content[{part}]")), value));
            texts.collect::<Result<Vec<_>, _>>()?.concat()
        }
        None | Some(Value::Null) if role == "assistant" => String::new(),
        other => {
            let found = other.cloned().unwrap_or_default();
            return Err(expected(
                &place("content"),
                "a string or a list of text parts",
                &found,
            ));
        }
    };
    object.insert("role".to_owned(), Value::String(role));
    object.insert("content".to_owned(), Value::String(content));
    let mut rest = Fields::from(object.clone());
    for name in [
        "role",
        "content",
        "name",
        "tool_call_id",
        "tool_calls",
        "refusal",
    ] {
        rest.take(name);
    }
    rest.finish(&place(""))?;
    Ok(Value::Object(object))
}

fn parse_part(place: &str, part: &Value) -> Result<String, ApiError> {
    let known = |part: &Map<String, Value>| part.keys().all(|key| key == "type" || key == "text");
    match (part["type"].as_str(), part["text"].as_str()) {
        (Some("text"), Some(text)) if part.as_object().is_some_and(known) => Ok(text.to_owned()),
        (Some(kind), _) if kind != "text" => Err(ApiError::field(
            place,
            format!(
                "`{place}` is of type {kind:?}, which is not supported by this engine; it takes text only"
            ),
        )),
        _ => Err(expected(
            place,
            "an object with `type` \"text\" and a string `text`",
            part,
        )),
    }
}
