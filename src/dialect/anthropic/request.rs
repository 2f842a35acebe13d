//! Translates a Messages API request into an OpenAI chat request. Hints are passed on or reported as ignored; fields that would
//! change the meaning of the response are refused by name. `blocks` reads the messages.

use axum::body::Bytes;
use serde_json::{Map, Value, json};

use super::super::reasoning::ReasoningRequest;
use super::super::translation::{Hints, Reading, TranslatedRequest};
use super::Message;
use super::blocks::{Notes, messages, text_of};
use super::errors::NO_THREADS;
use crate::fields::RequestFields;
use api_types::error::Failure;

/// Chat fields and their names in the client's request.
const NAMES: [(&str, &str); 1] = [("user", "metadata.user_id")];
/// Server-side tools, by the type prefix before the date.
const OF_A_SERVER: [&str; 6] = [
    "advisor_",
    "code_execution_",
    "mcp_toolset",
    "tool_search_tool_",
    "web_fetch_",
    "web_search_",
];
/// Client-side tools with a schema that only Anthropic's models are trained on.
const OF_THEIR_MODELS: [&str; 4] = ["bash_", "computer_", "memory_", "text_editor_"];

/// Reads `POST /v1/messages`.
pub fn read(body: &Bytes, reading: &Reading) -> Result<TranslatedRequest<Message>, Failure> {
    let mut request = RequestFields::parse(body)?;
    let mut notes = Notes::new(reading.sealer.clone());
    let mut chat = Map::new();
    let conversation = conversation(&mut request, &mut chat, &mut notes)?;
    let limit = request.count("max_tokens")?;
    let limit = limit.ok_or_else(|| required("max_tokens"))?;
    chat.insert("max_tokens".to_owned(), json!(limit));
    for name in ["temperature", "top_p"] {
        if let Some(number) = request.number(name)? {
            chat.insert(name.to_owned(), number);
        }
    }
    if let Some(most) = request.count("top_k")? {
        chat.insert("top_k".to_owned(), json!(most));
    }
    let mut stops = Vec::new();
    for stop in request.list("stop_sequences")?.unwrap_or_default() {
        match stop {
            Value::String(text) if !text.is_empty() => stops.push(text),
            _ => {
                return Err(
                    request.wrong("stop_sequences", "a list of strings, none of them empty")
                );
            }
        }
    }
    if !stops.is_empty() {
        chat.insert("stop".to_owned(), json!(stops));
    }
    if let Some(mut metadata) = request.object("metadata")? {
        if let Some(user) = metadata.text("user_id")? {
            chat.insert("user".to_owned(), json!(user));
        }
        if !metadata.unknown().is_empty() {
            notes.ignored.add("metadata");
        }
    }
    if request.flag("stream")? == Some(true) {
        chat.insert("stream".to_owned(), json!(true));
        chat.insert("stream_options".to_owned(), json!({"include_usage": true}));
    }
    // Only the standard tier exists.
    let tiers = ["auto", "standard_only"];
    request.hint("service_tier", &tiers, &mut notes.ignored)?;
    let speeds = ["standard", "fast"];
    if request.hint("speed", &speeds, &mut notes.ignored)? == Some("fast") {
        notes.ignored.add("speed");
    }
    let teller = Message::new(
        conversation.model,
        stops,
        reading.sealer.clone(),
        conversation.shows_thinking,
    );
    Ok(TranslatedRequest {
        body: Value::Object(chat).to_string().into(),
        teller,
        ignored: notes.ignored.names(),
        hints: Box::new(Hints {
            reasoning: conversation.reasoning,
            unknown: request.unknown(),
            names: NAMES.to_vec(),
        }),
        keep: None,
    })
}

/// Reads `POST /v1/messages/count_tokens` and returns the chat whose prompt is counted.
pub fn counted(body: &Bytes, reading: &Reading) -> Result<Map<String, Value>, Failure> {
    let mut request = RequestFields::parse(body)?;
    let mut chat = Map::new();
    let mut notes = Notes::new(reading.sealer.clone());
    conversation(&mut request, &mut chat, &mut notes)?;
    // These fields do not change the prompt.
    for name in ["tool_choice", "parallel_tool_calls", "response_format"] {
        chat.shift_remove(name);
    }
    Ok(chat)
}

/// Properties of a conversation that are not part of the chat.
struct Conversation {
    model: String,
    reasoning: ReasoningRequest,
    shows_thinking: bool,
}

/// Reads the fields that both routes share.
fn conversation(
    request: &mut RequestFields,
    chat: &mut Map<String, Value>,
    notes: &mut Notes,
) -> Result<Conversation, Failure> {
    if request.take("thread").is_some() {
        let why = "conversations are not stored; send the complete conversation in `messages`";
        let mut failure = request.not_here("thread", why);
        failure.body.error.code = Some(NO_THREADS);
        return Err(failure);
    }
    let model = request.need_text("model")?;
    chat.insert("model".to_owned(), json!(model));
    notes.cache_control(request)?;
    let system = request.take("system");
    let system = system
        .map(|system| text_of("system", system, notes))
        .transpose()?;
    let messages_in = request.list("messages")?;
    let messages_in = messages_in.ok_or_else(|| required("messages"))?;
    let mut all = messages(messages_in, notes)?;
    if let Some(system) = system.filter(|text| !text.is_empty()) {
        all.insert(0, json!({"role": "system", "content": system}));
    }
    chat.insert("messages".to_owned(), json!(all));
    let mut functions = Vec::new();
    for (nth, value) in request
        .list("tools")?
        .unwrap_or_default()
        .into_iter()
        .enumerate()
    {
        functions.extend(tool(format!("tools[{nth}]"), value, notes)?);
    }
    choice(request, chat, !functions.is_empty(), notes)?;
    if !functions.is_empty() {
        chat.insert("tools".to_owned(), json!(functions));
    }
    let mut reasoning = ReasoningRequest::default();
    let mut shows_thinking = true;
    if let Some(thinking) = request.object("thinking")? {
        shows_thinking = reasoning.set_thinking(thinking)?;
    }
    if let Some(output) = request.object("output_config")? {
        output_config(output, chat, &mut reasoning, notes)?;
    }
    // Earlier name of `output_config`'s format.
    if let Some(format) = request.object("output_format")? {
        output_format(format, chat, notes)?;
    }
    // Server-side edits of the conversation. The client has the full conversation and can shorten it.
    if request.object("context_management")?.is_some() {
        notes.ignored.add("context_management");
    }
    request.refuse("container", &[], "containers are not available")?;
    if request
        .list("mcp_servers")?
        .is_some_and(|servers| !servers.is_empty())
    {
        notes.ignored.add("mcp_servers");
    }
    Ok(Conversation {
        model,
        reasoning,
        shows_thinking,
    })
}

fn output_config(
    mut output: RequestFields,
    chat: &mut Map<String, Value>,
    reasoning: &mut ReasoningRequest,
    notes: &mut Notes,
) -> Result<(), Failure> {
    if let Some(effort) = output.take("effort") {
        reasoning.set_effort("output_config.effort", &effort)?;
    }
    if let Some(format) = output.object("format")? {
        output_format(format, chat, notes)?;
    }
    output.drop_rest(&mut notes.ignored);
    Ok(())
}

fn output_format(
    mut format: RequestFields,
    chat: &mut Map<String, Value>,
    notes: &mut Notes,
) -> Result<(), Failure> {
    if format.need_text("type")? != "json_schema" {
        return Err(format.not_here("type", "json_schema is"));
    }
    let schema = json!({"name": "output", "schema": format.need("schema")?, "strict": true});
    format.drop_rest(&mut notes.ignored);
    let format = json!({"type": "json_schema", "json_schema": schema});
    chat.insert("response_format".to_owned(), format);
    Ok(())
}

/// Translates a tool into a function. Returns `None` for a server-side tool.
fn tool(at: String, value: Value, notes: &mut Notes) -> Result<Option<Value>, Failure> {
    let mut tool = RequestFields::new(at, value)?;
    let kind = tool.text("type")?.unwrap_or_else(|| "custom".to_owned());
    let known = OF_A_SERVER
        .into_iter()
        .find(|known| kind.starts_with(known));
    if let Some(known) = known {
        notes
            .ignored
            .add(format!("tools.{}", known.trim_end_matches('_')));
        return Ok(None);
    }
    if OF_THEIR_MODELS.iter().any(|known| kind.starts_with(known)) {
        let why = "models here are not trained on this tool's schema; send it as a tool of type custom with a schema";
        return Err(tool.not_here("type", why));
    }
    if kind != "custom" {
        return Err(tool.wrong(
            "type",
            "custom, or a tool that a server runs, which is left out",
        ));
    }
    notes.cache_control(&mut tool)?;
    let mut function = Map::new();
    function.insert("name".to_owned(), json!(tool.need_text("name")?));
    if let Some(description) = tool.text("description")? {
        function.insert("description".to_owned(), json!(description));
    }
    let schema = tool.need("input_schema")?;
    if !schema.is_object() {
        return Err(tool.wrong("input_schema", "an object, a JSON schema"));
    }
    function.insert("parameters".to_owned(), schema);
    if let Some(strict) = tool.flag("strict")? {
        function.insert("strict".to_owned(), json!(strict));
    }
    // Pieces of a call's input are always passed on as they arrive.
    tool.flag("eager_input_streaming")?;
    // A deferred tool is found by tool search. Without tool search the model receives it from the start.
    if tool.flag("defer_loading")? == Some(true) {
        notes.ignored.add("tools.defer_loading");
    }
    if tool
        .list("input_examples")?
        .is_some_and(|examples| !examples.is_empty())
    {
        notes.ignored.add("tools.input_examples");
    }
    tool.refuse(
        "allowed_callers",
        &[json!(["direct"])],
        "only the model calls tools",
    )?;
    tool.drop_rest(&mut notes.ignored);
    Ok(Some(json!({"type": "function", "function": function})))
}

fn choice(
    request: &mut RequestFields,
    chat: &mut Map<String, Value>,
    has_tools: bool,
    notes: &mut Notes,
) -> Result<(), Failure> {
    let Some(mut choice) = request.object("tool_choice")? else {
        return Ok(());
    };
    let kind = choice.need_text("type")?;
    let chosen = match kind.as_str() {
        "auto" => json!("auto"),
        "any" => json!("required"),
        "none" => json!("none"),
        "tool" => json!({"type": "function", "function": {"name": choice.need_text("name")?}}),
        _ => return Err(choice.wrong("type", "auto, any, tool or none")),
    };
    let is_alone = choice.flag("disable_parallel_tool_use")? == Some(true);
    choice.drop_rest(&mut notes.ignored);
    if !has_tools {
        return match kind.as_str() {
            "auto" | "none" => Ok(()),
            _ => Err(request.not_here("tool_choice", "there are no `tools` to choose from")),
        };
    }
    chat.insert("tool_choice".to_owned(), chosen);
    if is_alone {
        chat.insert("parallel_tool_calls".to_owned(), json!(false));
    }
    Ok(())
}

fn required(name: &str) -> Failure {
    Failure::invalid(name.to_owned(), format!("`{name}` is required"))
}

#[cfg(test)]
mod tests;
