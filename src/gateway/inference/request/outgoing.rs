//! Rewrites a request for the model's engine: the engine's name for the model, the prompt as text if the model file has a prompt
//! format, and the model's default values and stop strings. Fields that the pool does not read are copied unparsed.

mod stops;
mod written;

use axum::body::Bytes;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::inference::request::ignored;
use crate::inference::request::old_calls;
use crate::inference::request::request_fields::Fate;
use crate::inference::request::service_class::{RemoteTier, remote_tier};
use crate::upstream::stream_support::Form;
use api_types::error::Failure;
use catalog::{Generation, Prompt, PromptFormat, ReasoningFields, ReasoningWish, WishPart};
use dialect::ReasoningRequest;
use dialect::body::{Fields, STREAM_OPTIONS, write_json};
use dialect::shape::may_be_a_tree;
use dialect::{CHAT, COMPLETIONS};
use pool::ServiceClass;
use stops::stops;
use written::Written;

/// A request as sent to the engine.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub path: &'static str,
    pub body: Vec<u8>,
    /// The engine completes text, and the client expects a chat response.
    pub(crate) serves_chat: bool,
    /// The body does not request a stream, because the engine's complete response can be forwarded unchanged. [`streamed`] turns it
    /// into a streaming request.
    pub is_plain: bool,
    /// Fields that were removed because the engine ignores them.
    pub ignored: Vec<String>,
    /// The reasoning options of the request.
    pub reasoning: ReasoningRequest,
}

/// Options of a request, and the engine's fields for them.
pub(crate) struct Wishes<'a> {
    /// Reasoning options of another API's request.
    pub reasoning: ReasoningRequest,
    pub fields_of: &'a dyn Fn(&ReasoningWish) -> ReasoningFields,
    /// The engine can send the usage with every chunk.
    pub continuous_usage: bool,
    /// Neither the client nor the engine needs a stream.
    pub plain: bool,
    /// `plain` also applies if the pool renders the prompt.
    pub(crate) plain_prompts: bool,
    /// The engine refuses tools that the model need not call.
    pub(crate) refuses_tools: bool,
    /// The highest tier that the engine is sent. Only remote endpoints have tiers.
    pub(crate) tier_max: ServiceClass,
    /// The engine parses the arguments of earlier calls.
    pub(crate) parses_calls: bool,
}

const KWARGS: &str = "chat_template_kwargs";
const CONTINUOUS: &str = "continuous_usage_stats";

/// Chat fields that have no equivalent in a completion.
const CHAT_ALONE: [&str; 9] = [
    "tools",
    "tool_choice",
    "functions",
    "function_call",
    "audio",
    "modalities",
    "prediction",
    "logprobs",
    "top_logprobs",
];

/// Fields that offer functions to the model, or choose between them.
const TOOLS: [&str; 4] = ["tools", "tool_choice", "functions", "function_call"];

/// Completion fields that would change a prompt rendered by the pool.
const TEXT_ALONE: [&str; 3] = ["prompt", "suffix", "echo"];

/// Builds the body for the engine. Requests a stream with usage, which lets the engine stop when a client disconnects, unless the
/// engine detects that on its own.
///
/// `fate` decides about a field. `wishes` become the engine's own fields. `room` is the `max_tokens` of a chat without a limit, for
/// engines whose completion route has a small default.
pub(crate) fn outgoing(
    fields: &Fields<'_>,
    path: &'static str,
    served_name: &str,
    generation: &Generation,
    room: Option<Value>,
    fate: impl Fn(&str, &RawValue) -> Result<Fate, Failure>,
    wishes: Wishes<'_>,
) -> Result<Outgoing, Failure> {
    let format = match &generation.prompt {
        _ if path != CHAT => None,
        Prompt::ChatTemplate => None,
        Prompt::Disabled => {
            return Err(Failure::invalid(
                None,
                "this model only completes text; use /v1/completions",
            ));
        }
        Prompt::Format(format) => Some(format.as_ref()),
    };
    let mut written = Written::new(fields.body_bytes);
    let mut ignored = Vec::new();
    let mut reasoning = wishes.reasoning;
    let is_present = |name: &str| fields.get(name).is_some_and(|value| value.get() != "null");
    let has_stops = !generation.stops.is_empty() || !generation.stop_tokens.is_empty();
    let drops_tools =
        path == CHAT && (format.is_some() || wishes.refuses_tools) && !demands_call(fields);
    for (name, value) in fields.all() {
        let is_null = value.get() == "null";
        if ["model", "stream", "stream_options"].contains(&name) {
            continue;
        }
        match fate(name, value)? {
            Fate::Goes => {}
            Fate::Ignored => {
                if ignored::has_effect(name, value) {
                    ignored.push(name.to_owned());
                }
                continue;
            }
            Fate::Reasoning => {
                may_be_a_tree(value.get().as_bytes())?;
                let value = serde_json::from_str(value.get()).unwrap_or_default();
                reasoning.set_chat(name, value)?;
                continue;
            }
        }
        match name {
            // Written together with the switches below.
            KWARGS if path == CHAT => {}
            _ if drops_tools && TOOLS.contains(&name) => {
                if ignored::has_effect(name, value) && name.ends_with('s') {
                    ignored.push(name.to_owned());
                }
            }
            "parallel_tool_calls" if drops_tools => {}
            "stop" | "stop_token_ids" if has_stops => {}
            // Dropped, because engines treat null differently.
            _ if is_null
                && (generation.defaults.contains_key(name)
                    || generation.in_chats.contains_key(name)) => {}
            "messages" if format.is_some() => {}
            "messages" if wishes.parses_calls => match old_calls::mended(value)? {
                Some(messages) => written.value(name, &messages),
                None => written.raw(name, value),
            },
            // Completions only have the older name. If both are set, the newer one wins.
            "max_completion_tokens" if format.is_some() => {
                if !is_null {
                    written.raw("max_tokens", value);
                }
            }
            "max_tokens"
                if format.is_some() && (is_null || is_present("max_completion_tokens")) => {}
            "service_tier" => match remote_tier(value.get(), wishes.tier_max) {
                RemoteTier::AsRequested => written.raw(name, value),
                RemoteTier::Instead(tier) => written.value(name, &json!(tier)),
                RemoteTier::Dropped => ignored.push(name.to_owned()),
            },
            _ if format.is_some() && (CHAT_ALONE.contains(&name) || TEXT_ALONE.contains(&name)) => {
                refuse_unless_idle(name, value)?
            }
            _ => written.raw(name, value),
        }
    }
    ignored.extend(reasoning.take_unknown());
    if path == CHAT {
        // A prompt rendered by the pool uses no template with switches.
        let reasoning_fields = match format {
            None => (wishes.fields_of)(&reasoning.wish),
            Some(_) => unmet(&reasoning.wish),
        };
        for (name, value) in &reasoning_fields.fields {
            written.value(name, value);
        }
        let kwargs = fields.get(KWARGS).filter(|value| value.get() != "null");
        match (kwargs, format) {
            (Some(_), Some(_)) => ignored.push(KWARGS.to_owned()),
            (Some(kwargs), None) if reasoning_fields.switches.is_empty() => {
                written.raw(KWARGS, kwargs)
            }
            _ if reasoning_fields.switches.is_empty() => {}
            // The client's own template arguments take precedence over switches derived from other fields.
            (kwargs, _) => {
                let kwargs = kwargs.map(|kwargs| serde_json::from_str(kwargs.get()));
                let mut all: Map<String, Value> = kwargs.and_then(Result::ok).unwrap_or_default();
                for (name, value) in reasoning_fields.switches {
                    all.entry(name).or_insert(value);
                }
                written.value(KWARGS, &Value::Object(all));
            }
        }
        let names = reasoning_fields
            .unmet
            .iter()
            .map(|part| reasoning.name(*part).to_owned());
        ignored.extend(names);
    }
    let is_plain = wishes.plain && (format.is_none() || wishes.plain_prompts);
    let options = stream_options(fields)?;
    ignored.extend(unknown_options(&options));
    let is_continuous = options.get(CONTINUOUS) == Some(&Value::Bool(true));
    if is_continuous && !wishes.continuous_usage {
        ignored.push(format!("stream_options.{CONTINUOUS}"));
    }
    if let Some(format) = format {
        let prompt = prompt(format, fields)?;
        written.value("prompt", &Value::String(prompt));
    }
    let limits = ["max_tokens", "max_completion_tokens"];
    let is_limited = limits.into_iter().any(is_present);
    // If the engine renders the prompt, a default may have another name.
    let in_chats = if path == CHAT && format.is_none() {
        Some(&generation.in_chats)
    } else {
        None
    };
    let instead = |name: &str| in_chats.is_some_and(|defaults| defaults.contains_key(name));
    let usual = generation
        .defaults
        .iter()
        .filter(|(name, _)| !instead(name));
    for (name, value) in usual.chain(in_chats.into_iter().flatten()) {
        let is_present_or_limited = is_present(name) || (name == "max_tokens" && is_limited);
        if !is_present_or_limited {
            written.value(name, value);
        }
    }
    let has_limit = is_limited || generation.defaults.contains_key("max_tokens");
    if let Some(room) = room.filter(|_| format.is_some() && !has_limit) {
        written.value("max_tokens", &room);
    }
    let own_stops = ["stop", "stop_token_ids"].into_iter().any(is_present);
    if has_stops || own_stops {
        let joined = stops(generation, fields)?;
        if has_stops {
            for (name, list) in joined.into_iter().filter(|(_, list)| !list.is_empty()) {
                written.value(name, &Value::Array(list));
            }
        }
    }
    Ok(Outgoing {
        path: match format {
            Some(_) => COMPLETIONS,
            None => path,
        },
        body: if is_plain {
            written.finish_plain(served_name)
        } else {
            written.finish(served_name, is_continuous && wishes.continuous_usage)
        },
        serves_chat: format.is_some(),
        is_plain,
        ignored,
        reasoning,
    })
}

/// Reports the reasoning options for which the engine has no field.
fn unmet(wish: &ReasoningWish) -> ReasoningFields {
    let parts = [
        (wish.thinks.is_some(), WishPart::Thinks),
        (wish.effort.is_some(), WishPart::Effort),
        (wish.budget_tokens.is_some(), WishPart::Budget),
    ];
    let unmet = parts.into_iter().filter(|(is_wanted, _)| *is_wanted);
    ReasoningFields {
        unmet: unmet.map(|(_, part)| part).collect(),
        ..ReasoningFields::default()
    }
}

/// Returns true if the model must call a function.
fn demands_call(fields: &Fields<'_>) -> bool {
    let choices = ["tool_choice", "function_call"].into_iter();
    let mut choices = choices.filter_map(|name| fields.get(name));
    choices.any(|choice| !matches!(choice.get(), "null" | "\"auto\"" | "\"none\""))
}

fn stream_options(fields: &Fields<'_>) -> Result<Map<String, Value>, Failure> {
    let Some(options) = fields.get("stream_options") else {
        return Ok(Map::new());
    };
    may_be_a_tree(options.get().as_bytes())?;
    Ok(serde_json::from_str(options.get()).unwrap_or_default())
}

/// Stream options unknown to this version.
fn unknown_options(options: &Map<String, Value>) -> impl Iterator<Item = String> + '_ {
    let is_unknown = |(name, value): &(&String, &Value)| {
        !STREAM_OPTIONS.contains(&name.as_str()) && !value.is_null() && **value != false
    };
    let unknown = options.iter().filter(is_unknown);
    unknown.map(|(name, _)| format!("stream_options.{name}"))
}

/// Replaces the model's name by the engine's name for it.
pub(crate) fn renamed(
    body: &[u8],
    served_name: &str,
    mut fate: impl FnMut(&str, &RawValue) -> Result<Fate, Failure>,
) -> Result<Bytes, Failure> {
    let fields = Fields::read(body)?;
    let mut written = Written::new(body.len());
    for (name, value) in fields.all().filter(|(name, _)| *name != "model") {
        if fate(name, value)? == Fate::Goes {
            written.raw(name, value);
        }
    }
    written.name("model");
    write_json(&mut written.0, served_name);
    written.0.push(b'}');
    Ok(written.0.into())
}

/// Makes a non-streaming body request a stream with usage.
pub(crate) fn streamed(plain: &[u8]) -> Bytes {
    let plain = plain.strip_suffix(b"}").unwrap_or(plain);
    [plain, STREAM.as_bytes(), b"}}"].concat().into()
}

/// Rewrites the body in the form that its engine accepts.
pub(crate) fn in_form(body: &[u8], form: Form) -> Result<Bytes, Failure> {
    let fields = Fields::read(body)?;
    let mut written = Written::new(body.len());
    let is_other = |name: &str| name != "stream" && name != "stream_options";
    for (name, value) in fields.all().filter(|(name, _)| is_other(name)) {
        written.raw(name, value);
    }
    if form != Form::Plain {
        written.value("stream", &Value::Bool(true));
    }
    if form == Form::Streamed {
        written.value("stream_options", &json!({"include_usage": true}));
    }
    if written.0.ends_with(b",") {
        written.0.pop();
    }
    written.0.push(b'}');
    Ok(written.0.into())
}

/// The last fields of a body, without the closing braces of two objects.
const STREAM: &str = ",\"stream\":true,\"stream_options\":{\"include_usage\":true";

fn prompt(format: &PromptFormat, fields: &Fields<'_>) -> Result<String, Failure> {
    let wrong = |message: &str| Failure::invalid("messages".to_owned(), message);
    let messages = fields.get("messages").map(RawValue::get);
    may_be_a_tree(messages.unwrap_or_default().as_bytes())?;
    let messages: Vec<Value> = match messages.map(serde_json::from_str) {
        Some(Ok(Value::Array(messages))) if !messages.is_empty() => messages,
        None => return Err(wrong("`messages` is required")),
        _ => return Err(wrong("`messages` must be a list of at least one message")),
    };
    format
        .render(&messages)
        .map_err(|error| Failure::invalid(error.field, error.message))
}

fn refuse_unless_idle(name: &str, value: &RawValue) -> Result<(), Failure> {
    may_be_a_tree(value.get().as_bytes())?;
    let value: Value = serde_json::from_str(value.get()).unwrap_or_default();
    let idle = [
        json!(null),
        json!(false),
        json!(0),
        json!([]),
        json!("none"),
        json!("auto"),
        json!(["text"]),
    ];
    if idle.contains(&value) {
        Ok(())
    } else {
        Err(Failure::invalid(
            name.to_owned(),
            format!(
                "`{name}` is not supported by this model: its prompts are written by a prompt format"
            ),
        ))
    }
}

#[cfg(test)]
mod tests;
