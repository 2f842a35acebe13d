//! A request of the Messages API as OpenAI's chat. A hint goes on in the chat or is named; what would change the answer's
//! meaning is refused with its name. Messages are read in `blocks`.

use axum::body::Bytes;
use serde_json::{Map, Value, json};

use super::super::reasoning::ReasoningRequest;
use super::super::taken::Taken;
use super::super::translation::{Hints, Reading, TranslatedRequest};
use super::Message;
use super::blocks::{Notes, messages, text_of};
use super::errors::NO_THREADS;
use crate::error::Failure;

/// Fields of the chat, by the client's names.
const NAMES: [(&str, &str); 1] = [("user", "metadata.user_id")];
/// Tools that a server runs, by the words before their dates.
const OF_A_SERVER: [&str; 6] = [
    "advisor_",
    "code_execution_",
    "mcp_toolset",
    "tool_search_tool_",
    "web_fetch_",
    "web_search_",
];
/// Tools that the client runs by a form which the models of this API alone have learnt.
const OF_THEIR_MODELS: [&str; 4] = ["bash_", "computer_", "memory_", "text_editor_"];

/// `POST /v1/messages`.
pub(crate) fn read(body: &Bytes, reading: &Reading) -> Result<TranslatedRequest<Message>, Failure> {
    let mut request = Taken::body(body)?;
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
    // There is one tier, the standard one.
    request.one_of("service_tier", &["auto", "standard_only"])?;
    if request.one_of("speed", &["standard", "fast"])? == Some("fast") {
        notes.ignored.add("speed");
    }
    let teller = Message::of(
        conversation.model,
        stops,
        reading.sealer.clone(),
        conversation.shows_thinking,
    );
    Ok(TranslatedRequest {
        body: Value::Object(chat).to_string().into(),
        teller,
        ignored: notes.ignored.names(),
        hints: Hints {
            reasoning: conversation.reasoning,
            unknown: request.unknown(),
            names: NAMES.to_vec(),
        },
        keep: None,
    })
}

/// `POST /v1/messages/count_tokens`: the chat whose prompt is counted.
pub(crate) fn counted(body: &Bytes, reading: &Reading) -> Result<Map<String, Value>, Failure> {
    let mut request = Taken::body(body)?;
    let mut chat = Map::new();
    let mut notes = Notes::new(reading.sealer.clone());
    conversation(&mut request, &mut chat, &mut notes)?;
    request.finish()?;
    // None of these changes what the prompt is.
    for name in ["tool_choice", "parallel_tool_calls", "response_format"] {
        chat.shift_remove(name);
    }
    Ok(chat)
}

/// What is known of a conversation beside the chat.
struct Conversation {
    model: String,
    reasoning: ReasoningRequest,
    shows_thinking: bool,
}

/// What both routes have.
fn conversation(
    request: &mut Taken,
    chat: &mut Map<String, Value>,
    notes: &mut Notes,
) -> Result<Conversation, Failure> {
    if request.take("thread").is_some() {
        let why = "nothing is kept here; send the whole conversation in `messages`";
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
    choice(request, chat, !functions.is_empty())?;
    if !functions.is_empty() {
        chat.insert("tools".to_owned(), json!(functions));
    }
    let mut reasoning = ReasoningRequest::default();
    let mut shows_thinking = true;
    if let Some(thinking) = request.object("thinking")? {
        shows_thinking = reasoning.set_thinking(thinking)?;
    }
    if let Some(output) = request.object("output_config")? {
        output_config(output, chat, &mut reasoning)?;
    }
    // Edits of a conversation by the server. The client has the whole of it, and may send less.
    if request.object("context_management")?.is_some() {
        notes.ignored.add("context_management");
    }
    request.refuse("container", &[], "there are no containers")?;
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
    mut output: Taken,
    chat: &mut Map<String, Value>,
    reasoning: &mut ReasoningRequest,
) -> Result<(), Failure> {
    if let Some(effort) = output.take("effort") {
        reasoning.set_effort("output_config.effort", &effort)?;
    }
    if let Some(mut format) = output.object("format")? {
        if format.need_text("type")? != "json_schema" {
            return Err(format.not_here("type", "json_schema is"));
        }
        let schema = json!({"name": "output", "schema": format.need("schema")?, "strict": true});
        format.finish()?;
        let format = json!({"type": "json_schema", "json_schema": schema});
        chat.insert("response_format".to_owned(), format);
    }
    output.finish()
}

/// The function for a tool; `None` for one that a server would run.
fn tool(at: String, value: Value, notes: &mut Notes) -> Result<Option<Value>, Failure> {
    let mut tool = Taken::of(at, value)?;
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
        let why = "the models here have not learnt its form; send it as a tool of type custom, with its own schema";
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
    // The pieces of a call's input are passed on as they come, whatever this field holds.
    tool.flag("eager_input_streaming")?;
    // Found by a search alone: without one the model gets it from the beginning.
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
    tool.finish()?;
    Ok(Some(json!({"type": "function", "function": function})))
}

fn choice(
    request: &mut Taken,
    chat: &mut Map<String, Value>,
    has_tools: bool,
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
    choice.finish()?;
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
mod tests {
    use std::sync::Arc;

    use super::super::super::seal::{Seal, Sealer};
    use super::*;
    use catalog::Effort;
    use pool::KeyId;

    fn reading() -> Reading {
        Reading {
            now_seconds: 7,
            sealer: Sealer::new(Arc::new(Seal::of(&[7; 32])), KeyId(1)),
            desk: None,
        }
    }

    fn translated(body: &Value) -> Result<TranslatedRequest<Message>, Failure> {
        read(&body.to_string().into(), &reading())
    }

    fn chat(body: Value) -> Result<Value, Failure> {
        Ok(serde_json::from_slice(&translated(&body)?.body).unwrap())
    }

    fn with(more: Value) -> Result<Value, Failure> {
        let mut body =
            json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]});
        for (name, value) in more.as_object().unwrap() {
            body[name.as_str()] = value.clone();
        }
        chat(body)
    }

    fn param(more: Value) -> String {
        with(more).unwrap_err().body.error.param.unwrap_or_default()
    }

    #[test]
    fn a_request_becomes_a_chat_with_nothing_lost() {
        let tool = json!({"name": "f", "description": "d", "input_schema": {"type": "object"}, "strict": true});
        let body = with(json!({
            "system": [{"type": "text", "text": "A", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "B"}],
            "temperature": 0.5, "top_p": 0.9, "top_k": 5, "stop_sequences": ["x"], "stream": true,
            "metadata": {"user_id": "u"}, "tools": [tool], "thinking": {"type": "disabled"},
            "tool_choice": {"type": "any", "disable_parallel_tool_use": true}, "service_tier": "auto",
        }))
        .unwrap();
        let expected = json!({
            "model": "m",
            "messages": [{"role": "system", "content": "A\nB"}, {"role": "user", "content": "Hi"}],
            "tool_choice": "required", "parallel_tool_calls": false,
            "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": true}}],
            "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "stop": ["x"], "user": "u",
            "stream": true, "stream_options": {"include_usage": true},
        });
        assert_eq!(body, expected);
    }

    #[test]
    fn what_cannot_be_honoured_and_what_is_unknown_is_named() {
        for (more, named) in [
            (json!({"max_tokens": null}), "max_tokens"),
            (json!({"max_tokens": 0}), "max_tokens"),
            (
                json!({"thinking": {"type": "enabled", "budget_tokens": -1}}),
                "thinking.budget_tokens",
            ),
            (json!({"thinking": {"type": "much"}}), "thinking.type"),
            (json!({"thinking": true}), "thinking"),
            (
                json!({"tools": [{"type": "bash_20250124", "name": "bash"}]}),
                "tools[0].type",
            ),
            (
                json!({"tools": [{"type": "retrieval", "name": "r"}]}),
                "tools[0].type",
            ),
            (json!({"tools": [{"name": "f"}]}), "tools[0].input_schema"),
            (json!({"tool_choice": {"type": "some"}}), "tool_choice.type"),
            (json!({"tool_choice": {"type": "any"}}), "tool_choice"),
            (json!({"metadata": {"user_id": 3}}), "metadata.user_id"),
            (json!({"metadata": "u"}), "metadata"),
            (json!({"stop_sequences": [""]}), "stop_sequences"),
            (json!({"service_tier": "priority"}), "service_tier"),
            (
                json!({"output_config": {"effort": "x"}}),
                "output_config.effort",
            ),
            (json!({"mcp_servers": {}}), "mcp_servers"),
            (json!({"context_management": []}), "context_management"),
            (json!({"container": "c"}), "container"),
            (json!({"cache_control": "yes"}), "cache_control"),
            (json!({"messages": null}), "messages"),
            (
                json!({"thread": {"type": "create"}, "model": null}),
                "thread",
            ),
            (json!({"speed": "faster"}), "speed"),
            (json!({"model": 3}), "model"),
        ] {
            assert_eq!(param(more.clone()), named, "{more}");
        }
    }

    #[test]
    fn a_hint_for_a_cache_is_told_as_ignored() {
        let body = json!({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": [
            {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]}]});
        assert_eq!(translated(&body).unwrap().ignored, ["cache_control"]);
    }

    #[test]
    fn hints_go_on_or_are_named_and_never_refused() {
        let body = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}],
            "thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": "high"},
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            "metadata": {"user_id": "u", "team": "t"}, "service_tier": "standard_only", "speed": "fast",
            "mcp_servers": [{"url": "http://x"}], "tools": [
                {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
                {"name": "f", "input_schema": {}, "defer_loading": true}]});
        let request = translated(&body).unwrap();
        let named = [
            "tools.web_search",
            "tools.defer_loading",
            "context_management",
            "mcp_servers",
            "metadata",
            "speed",
        ];
        assert_eq!(request.ignored, named);
        assert_eq!(request.hints.reasoning.wish.thinks, Some(true));
        assert_eq!(request.hints.reasoning.wish.effort, Some(Effort::High));
        let chat: Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!(chat["tools"].as_array().unwrap().len(), 1);
        assert_eq!(chat["user"], "u");
        assert_eq!(request.hints.unknown, [] as [&str; 0]);
    }

    #[test]
    fn what_this_api_does_not_have_is_kept_apart_for_the_models_own_rule() {
        let body = json!({"model": "m", "max_tokens": 1, "frequency_penalty": 1,
            "messages": [{"role": "user", "content": "Hi"}]});
        assert_eq!(
            translated(&body).unwrap().hints.unknown,
            ["frequency_penalty"]
        );
    }

    #[test]
    fn what_is_counted_is_the_prompt_alone() {
        let tools = json!([{"name": "f", "input_schema": {}}]);
        let body = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": tools,
            "thinking": {"type": "enabled", "budget_tokens": 9}, "context_management": {}, "tool_choice": {"type": "any"}});
        let chat = counted(&body.to_string().into(), &reading()).unwrap();
        let names: Vec<&str> = chat.keys().map(String::as_str).collect();
        assert_eq!(names, ["model", "messages", "tools"]);
        let failure = counted(&json!({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]}).to_string().into(), &reading());
        assert!(failure.is_err());
    }
}
