//! Translates a Responses API request into an OpenAI chat request. Hints are passed on or reported as ignored; fields that would
//! change the meaning of the response are refused by name. `items` reads the input, and `tools` the tools.

use axum::body::Bytes;
use serde_json::{Map, Value, json};

use super::super::reasoning::ReasoningRequest;
use super::super::translation::{Hints, Reading, TranslatedRequest};
use super::Response;
use super::continued::{background, conversation, earlier};
use super::items::messages;
use super::kept::items_of;
use super::response::Shows;
use super::tools::Tools;
use crate::fields::RequestFields;
use crate::stored::Ticket;
use api_types::error::{ErrorKind, Failure};
use pool::Span;
use reading::IgnoredFields;

const METADATA_MAX: usize = 16;
/// `Retry-After` while responses cannot be stored.
const RETRY: Span = Span::from_secs(10);
/// Chat fields and their names in the client's request.
const NAMES: [(&str, &str); 1] = [("verbosity", "text.verbosity")];
/// Values of `include` for server-side tools and files, which never occur here.
const NEVER_INCLUDED: [&str; 6] = [
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "web_search_call.action.sources",
    "web_search_call.results",
];
const ENCRYPTED_REASONING: &str = "reasoning.encrypted_content";

/// Reads `POST /v1/responses`.
pub fn read(body: &Bytes, reading: &Reading) -> Result<TranslatedRequest<Response>, Failure> {
    let mut request = RequestFields::parse(body)?;
    let mut ignored = IgnoredFields::default();
    let mut chat = Map::new();
    // Request fields that the response repeats.
    let mut echo = Map::new();
    let model = request.need_text("model")?;
    refused(&mut request)?;
    hints(&mut request, &mut chat, &mut ignored)?;
    let mut shows = Shows {
        encrypted: included(&mut request, &mut ignored)?,
        ..Shows::default()
    };
    let reasoning = reasoning(&mut request, &mut shows, &mut echo, &mut ignored)?;
    chat.insert("model".to_owned(), json!(model));
    let instructions = request.text("instructions")?;
    echo.insert("instructions".to_owned(), json!(instructions));
    let list = request.list("tools")?.unwrap_or_default();
    let mut tools = Tools::read(list, &mut ignored)?;
    let input = request.need("input")?;
    let store = request.flag("store")?;
    let has_conversation = conversation(&mut request, store, reading, &mut echo)?;
    let is_background = background(&mut request, store, reading, &mut echo)?;
    let earlier = earlier(&mut request, reading, &mut echo)?;
    let sealer = &reading.sealer;
    let kept = match (&reading.desk, store) {
        (None, _) | (_, Some(false)) => None,
        (Some(desk), None) if !desk.keeps_unasked() && !has_conversation && !is_background => None,
        (Some(desk), _) => Some((desk, items_of(&input, desk.earlier()))),
    };
    let messages = messages(
        instructions,
        earlier,
        input,
        &tools.names,
        sealer,
        &mut ignored,
    )?;
    chat.insert("messages".to_owned(), json!(messages));
    choose(&mut request, &mut tools, &mut chat, &mut echo, &mut ignored)?;
    format(&mut request, &mut chat, &mut echo, &mut ignored)?;
    let limit = request.count("max_output_tokens")?;
    if let Some(limit) = limit {
        chat.insert("max_tokens".to_owned(), json!(limit));
    }
    echo.insert("max_output_tokens".to_owned(), json!(limit));
    for name in ["temperature", "top_p"] {
        let number = request.number(name)?;
        echo.insert(name.to_owned(), json!(number));
        if let Some(number) = number {
            chat.insert(name.to_owned(), number);
        }
    }
    for name in ["user", "safety_identifier", "prompt_cache_key"] {
        if let Some(value) = request.text(name)? {
            echo.insert(name.to_owned(), json!(value));
            chat.insert(name.to_owned(), json!(value));
        }
    }
    echo.insert("metadata".to_owned(), metadata(&mut request)?);
    stream(&mut request, is_background, &mut chat, &mut ignored)?;
    let must_be_written = has_conversation || is_background;
    let is_requested = store == Some(true) || must_be_written;
    let background = reading.background.clone().filter(|_| is_background);
    let ticket = kept.and_then(|(desk, items)| desk.ticket(items, is_requested, background));
    let is_written = ticket.as_ref().is_some_and(Ticket::is_written);
    if must_be_written && !is_written {
        let message = "the response cannot be stored now, because the memory or the disk for stored responses is full; try again later";
        return Err(Failure::new(ErrorKind::Unavailable, "overloaded", message).again_in(RETRY));
    }
    if is_requested && !is_written {
        ignored.add("store");
    }
    let is_kept = if is_requested {
        is_written
    } else {
        ticket.is_some()
    };
    echo.insert("store".to_owned(), json!(is_kept));
    Ok(TranslatedRequest {
        body: Value::Object(chat).to_string().into(),
        teller: Response::new(model, &echo, tools.names, shows, ticket, reading),
        ignored: ignored.names(),
        hints: Box::new(Hints {
            reasoning,
            unknown: request.unknown(),
            names: NAMES.to_vec(),
        }),
        keep: None,
    })
}

/// Reads `POST /v1/responses/input_tokens` and returns the chat whose prompt is counted.
pub fn counted(body: &Bytes, reading: &Reading) -> Result<Map<String, Value>, Failure> {
    let mut request = RequestFields::parse(body)?;
    let mut ignored = IgnoredFields::default();
    let (mut chat, mut unused) = (Map::new(), Map::new());
    request.need_text("model")?;
    conversation(&mut request, None, reading, &mut unused)?;
    request.refuse(
        "prompt",
        &[],
        "prompts are not stored; send the prompt's text",
    )?;
    let instructions = request.text("instructions")?;
    let list = request.list("tools")?.unwrap_or_default();
    let mut tools = Tools::read(list, &mut ignored)?;
    let input = request.take("input").unwrap_or_else(|| json!([]));
    let earlier = earlier(&mut request, reading, &mut unused)?;
    let sealer = &reading.sealer;
    let messages = messages(
        instructions,
        earlier,
        input,
        &tools.names,
        sealer,
        &mut ignored,
    )?;
    chat.insert("messages".to_owned(), json!(messages));
    choose(
        &mut request,
        &mut tools,
        &mut chat,
        &mut unused,
        &mut ignored,
    )?;
    // The other fields do not change the prompt.
    for name in ["tool_choice", "parallel_tool_calls"] {
        chat.shift_remove(name);
    }
    Ok(chat)
}

/// Refuses unsupported fields, except with values that request nothing.
fn refused(request: &mut RequestFields) -> Result<(), Failure> {
    request.refuse(
        "prompt",
        &[],
        "prompts are not stored; send the prompt's text",
    )?;
    request.refuse(
        "top_logprobs",
        &[json!(0)],
        "use /v1/chat/completions for logprobs",
    )
}

/// Reads hints that a server may disregard. Hints that a remote engine may support are passed on.
fn hints(
    request: &mut RequestFields,
    chat: &mut Map<String, Value>,
    ignored: &mut IgnoredFields,
) -> Result<(), Failure> {
    let tiers = ["auto", "default", "flex", "scale", "priority"];
    match request.hint("service_tier", &tiers, ignored)? {
        None | Some("auto") => {}
        Some(tier) => drop(chat.insert("service_tier".to_owned(), json!(tier))),
    }
    if let Some(priority) = request.take("priority") {
        chat.insert("priority".to_owned(), priority);
    }
    // Conversations are never truncated.
    if request.hint("truncation", &["auto", "disabled"], ignored)? == Some("auto") {
        ignored.add("truncation");
    }
    let kept = ["in-memory", "in_memory", "24h"];
    if let Some(kept) = request.hint("prompt_cache_retention", &kept, ignored)? {
        chat.insert("prompt_cache_retention".to_owned(), json!(kept));
    }
    // It limits server-side tools, and here the client runs the tools.
    if request.count("max_tool_calls")?.is_some() {
        ignored.add("max_tool_calls");
    }
    if let Some(metadata) = request.take("client_metadata") {
        if !metadata.is_object() {
            return Err(request.wrong("client_metadata", "an object"));
        }
        ignored.add("client_metadata");
    }
    if request
        .list("context_management")?
        .is_some_and(|edits| !edits.is_empty())
    {
        ignored.add("context_management");
    }
    // vLLM's option for benchmarks.
    if let Some(flag) = request.flag("ignore_eos")? {
        chat.insert("ignore_eos".to_owned(), json!(flag));
    }
    Ok(())
}

/// Returns true if the response must contain sealed reasoning.
fn included(request: &mut RequestFields, ignored: &mut IgnoredFields) -> Result<bool, Failure> {
    let mut is_sealed = false;
    for part in request.list("include")?.unwrap_or_default() {
        match part.as_str() {
            Some(ENCRYPTED_REASONING) => is_sealed = true,
            Some("message.output_text.logprobs") => {
                return Err(request.not_here("include", "use /v1/chat/completions for logprobs"));
            }
            Some(name) => ignored.add(format!("include.{name}")),
            None => {
                let known = format!(
                    "a list of {ENCRYPTED_REASONING} and {}",
                    NEVER_INCLUDED.join(", ")
                );
                return Err(request.wrong("include", &known));
            }
        }
    }
    Ok(is_sealed)
}

fn reasoning(
    request: &mut RequestFields,
    shows: &mut Shows,
    echo: &mut Map<String, Value>,
    ignored: &mut IgnoredFields,
) -> Result<ReasoningRequest, Failure> {
    let mut wish = ReasoningRequest::default();
    let mut effort = None;
    let mut summary = None;
    if let Some(mut reasoning) = request.object("reasoning")? {
        effort = reasoning.take("effort");
        if let Some(effort) = &effort {
            wish.set_effort("reasoning.effort", effort)?;
        }
        for name in ["summary", "generate_summary"] {
            let kinds = ["auto", "concise", "detailed", "none"];
            summary = reasoning.hint(name, &kinds, ignored)?.or(summary);
        }
        reasoning.drop_rest(ignored);
    }
    shows.summary = summary.is_some_and(|kind| kind != "none");
    echo.insert(
        "reasoning".to_owned(),
        json!({"effort": effort, "summary": summary}),
    );
    Ok(wish)
}

fn choose(
    request: &mut RequestFields,
    tools: &mut Tools,
    chat: &mut Map<String, Value>,
    echo: &mut Map<String, Value>,
    ignored: &mut IgnoredFields,
) -> Result<(), Failure> {
    let choice = tools.choose(request, chat, ignored)?;
    let parallel = request.flag("parallel_tool_calls")?;
    echo.insert("tools".to_owned(), json!(std::mem::take(&mut tools.echo)));
    echo.insert("tool_choice".to_owned(), choice);
    echo.insert(
        "parallel_tool_calls".to_owned(),
        json!(parallel.unwrap_or(true)),
    );
    if let Some(parallel) = parallel.filter(|_| !tools.functions.is_empty()) {
        chat.insert("parallel_tool_calls".to_owned(), json!(parallel));
    }
    Ok(())
}

/// Reads `stream`. A background response always runs as a stream, which shows how far it is.
fn stream(
    request: &mut RequestFields,
    is_background: bool,
    chat: &mut Map<String, Value>,
    ignored: &mut IgnoredFields,
) -> Result<(), Failure> {
    let is_stream = request.flag("stream")? == Some(true);
    if is_stream || is_background {
        chat.insert("stream".to_owned(), json!(true));
        chat.insert("stream_options".to_owned(), json!({"include_usage": true}));
    }
    let Some(mut options) = request.object("stream_options")? else {
        return Ok(());
    };
    if !is_stream {
        return Err(request.not_here("stream_options", "it needs `stream` to be true"));
    }
    // The last event always has the usage, and no event has padding.
    options.flag("include_usage")?;
    options.flag("include_obfuscation")?;
    options.drop_rest(ignored);
    Ok(())
}

fn format(
    request: &mut RequestFields,
    chat: &mut Map<String, Value>,
    echo: &mut Map<String, Value>,
    ignored: &mut IgnoredFields,
) -> Result<(), Failure> {
    let mut repeated = json!({"format": {"type": "text"}});
    if let Some(mut text) = request.object("text")? {
        let verbosity = text.hint("verbosity", &["low", "medium", "high"], ignored)?;
        if let Some(verbosity) = verbosity.filter(|verbosity| *verbosity != "medium") {
            chat.insert("verbosity".to_owned(), json!(verbosity));
        }
        let format_in = text.take("format");
        text.drop_rest(ignored);
        if let Some(format_in) = format_in {
            repeated["format"] = format_in.clone();
            let mut format = RequestFields::new("text.format", format_in)?;
            let response_format = match format.need_text("type")?.as_str() {
                "text" => None,
                "json_object" => Some(json!({"type": "json_object"})),
                "json_schema" => {
                    let mut schema = Map::new();
                    schema.insert("name".to_owned(), json!(format.need_text("name")?));
                    if let Some(description) = format.text("description")? {
                        schema.insert("description".to_owned(), json!(description));
                    }
                    schema.insert("schema".to_owned(), format.need("schema")?);
                    if let Some(strict) = format.flag("strict")? {
                        schema.insert("strict".to_owned(), json!(strict));
                    }
                    Some(json!({"type": "json_schema", "json_schema": schema}))
                }
                _ => return Err(format.wrong("type", "text, json_object or json_schema")),
            };
            format.drop_rest(ignored);
            chat.extend(response_format.map(|format| ("response_format".to_owned(), format)));
        }
        if let Some(verbosity) = verbosity {
            repeated["verbosity"] = json!(verbosity);
        }
    }
    echo.insert("text".to_owned(), repeated);
    Ok(())
}

/// Reads `metadata`, which is only repeated in the response.
fn metadata(request: &mut RequestFields) -> Result<Value, Failure> {
    let wanted = "an object of at most 16 strings";
    match request.take("metadata") {
        None => Ok(json!({})),
        Some(Value::Object(all))
            if all.len() <= METADATA_MAX && all.values().all(Value::is_string) =>
        {
            Ok(Value::Object(all))
        }
        Some(_) => Err(request.wrong("metadata", wanted)),
    }
}

#[cfg(test)]
pub(super) mod tests;
