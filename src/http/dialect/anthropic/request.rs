//! A request of the Messages API as OpenAI's chat. What cannot be honoured is refused with its name, and what
//! is unknown too; messages are read in `blocks`.

use axum::body::Bytes;
use serde_json::{Map, Value, json};

use super::super::taken::Taken;
use super::super::translation::TranslatedRequest;
use super::Message;
use super::blocks::{Noted, messages, text_of};
use super::errors::NO_THREADS;
use crate::error::Failure;

/// `POST /v1/messages`.
pub(crate) fn read(body: &Bytes) -> Result<TranslatedRequest<Message>, Failure> {
    let mut asked = Taken::body(body)?;
    let mut noted = Noted::default();
    let mut chat = Map::new();
    let model = conversation(&mut asked, &mut chat, &mut noted)?;
    let limit = asked.count("max_tokens")?;
    let limit = limit.ok_or_else(|| required("max_tokens"))?;
    chat.insert("max_tokens".to_owned(), json!(limit));
    for name in ["temperature", "top_p"] {
        if let Some(number) = asked.number(name)? {
            chat.insert(name.to_owned(), number);
        }
    }
    if let Some(most) = asked.count("top_k")? {
        chat.insert("top_k".to_owned(), json!(most));
    }
    let mut stops = Vec::new();
    for stop in asked.list("stop_sequences")?.unwrap_or_default() {
        match stop {
            Value::String(text) if !text.is_empty() => stops.push(text),
            _ => return Err(asked.wrong("stop_sequences", "a list of strings, none of them empty")),
        }
    }
    if !stops.is_empty() {
        chat.insert("stop".to_owned(), json!(stops));
    }
    if let Some(mut metadata) = asked.object("metadata")? {
        if let Some(user) = metadata.text("user_id")? {
            chat.insert("user".to_owned(), json!(user));
        }
        metadata.finish()?;
    }
    if asked.flag("stream")? == Some(true) {
        chat.insert("stream".to_owned(), json!(true));
        chat.insert("stream_options".to_owned(), json!({"include_usage": true}));
    }
    let tiers = [json!("auto"), json!("standard_only"), json!("standard")];
    asked.refuse(
        "service_tier",
        &tiers[..2],
        "there is one tier, the standard one",
    )?;
    asked.finish()?;
    Ok(TranslatedRequest {
        body: Value::Object(chat).to_string().into(),
        teller: Message::of(model, stops),
        ignored: noted.ignored(),
    })
}

/// `POST /v1/messages/count_tokens`: the chat whose prompt is counted.
pub(crate) fn counted(body: &Bytes) -> Result<Map<String, Value>, Failure> {
    let mut asked = Taken::body(body)?;
    let mut chat = Map::new();
    conversation(&mut asked, &mut chat, &mut Noted::default())?;
    asked.finish()?;
    // Neither changes what the prompt is.
    for name in ["tool_choice", "parallel_tool_calls", "response_format"] {
        chat.shift_remove(name);
    }
    Ok(chat)
}

/// What both routes have; the model's name.
fn conversation(
    asked: &mut Taken,
    chat: &mut Map<String, Value>,
    noted: &mut Noted,
) -> Result<String, Failure> {
    if asked.take("thread").is_some() {
        let why = "nothing is kept here; send the whole conversation in `messages`";
        let mut failure = asked.not_here("thread", why);
        failure.body.error.code = Some(NO_THREADS);
        return Err(failure);
    }
    let model = asked.need_text("model")?;
    chat.insert("model".to_owned(), json!(model));
    noted.cache_control(asked)?;
    let system = asked.take("system");
    let system = system
        .map(|system| text_of("system", system, noted))
        .transpose()?;
    let given = asked.list("messages")?;
    let given = given.ok_or_else(|| required("messages"))?;
    let mut all = messages(given, noted)?;
    if let Some(system) = system.filter(|text| !text.is_empty()) {
        all.insert(0, json!({"role": "system", "content": system}));
    }
    chat.insert("messages".to_owned(), json!(all));
    let tools = asked
        .list("tools")?
        .unwrap_or_default()
        .into_iter()
        .enumerate();
    let tools = tools.map(|(nth, value)| tool(format!("tools[{nth}]"), value, noted));
    let tools = tools.collect::<Result<Vec<Value>, Failure>>()?;
    choice(asked, chat, !tools.is_empty())?;
    if !tools.is_empty() {
        chat.insert("tools".to_owned(), json!(tools));
    }
    if let Some(mut thinking) = asked.object("thinking")? {
        let off = [json!("disabled")];
        thinking.refuse("type", &off, "thinking is not told apart from the answer; leave `thinking` out or set its type to disabled")?;
        thinking.finish()?;
    }
    if let Some(mut output) = asked.object("output_config")? {
        output.refuse("effort", &[], "the models here have no levels of effort")?;
        if let Some(mut format) = output.object("format")? {
            let schema = ["json_schema"];
            let kind = format.need_text("type")?;
            if !schema.contains(&kind.as_str()) {
                return Err(format.not_here("type", "json_schema is"));
            }
            let schema =
                json!({"name": "output", "schema": format.need("schema")?, "strict": true});
            format.finish()?;
            let format = json!({"type": "json_schema", "json_schema": schema});
            chat.insert("response_format".to_owned(), format);
        }
        output.finish()?;
    }
    asked.refuse("container", &[], "there are no containers")?;
    asked.refuse("mcp_servers", &[json!([])], "the pool calls no servers")?;
    Ok(model)
}

fn tool(at: String, value: Value, noted: &mut Noted) -> Result<Value, Failure> {
    let mut tool = Taken::of(at, value)?;
    tool.refuse(
        "type",
        &[json!("custom")],
        "tools are called by the client; only type custom is",
    )?;
    noted.cache_control(&mut tool)?;
    let mut function = Map::new();
    function.insert("name".to_owned(), json!(tool.need_text("name")?));
    if let Some(words) = tool.text("description")? {
        function.insert("description".to_owned(), json!(words));
    }
    let schema = tool.need("input_schema")?;
    if !schema.is_object() {
        return Err(tool.wrong("input_schema", "an object, a JSON schema"));
    }
    function.insert("parameters".to_owned(), schema);
    if let Some(strict) = tool.flag("strict")? {
        function.insert("strict".to_owned(), json!(strict));
    }
    // The pieces of a call's input are passed on as they come, whatever is said of it.
    tool.flag("eager_input_streaming")?;
    tool.refuse(
        "defer_loading",
        &[json!(false)],
        "every tool is told to the model",
    )?;
    tool.refuse(
        "allowed_callers",
        &[json!(["direct"])],
        "only the model calls tools",
    )?;
    tool.finish()?;
    Ok(json!({"type": "function", "function": function}))
}

fn choice(
    asked: &mut Taken,
    chat: &mut Map<String, Value>,
    has_tools: bool,
) -> Result<(), Failure> {
    let Some(mut choice) = asked.object("tool_choice")? else {
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
            _ => Err(asked.not_here("tool_choice", "there are no `tools` to choose from")),
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
    use super::*;

    fn chat(body: Value) -> Result<Value, Failure> {
        let asked = read(&body.to_string().into())?;
        Ok(serde_json::from_slice(&asked.body).unwrap())
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
            (json!({"frequency_penalty": 1}), "frequency_penalty"),
            (
                json!({"thinking": {"type": "enabled", "budget_tokens": 9}}),
                "thinking.type",
            ),
            (
                json!({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
                "tools[0].type",
            ),
            (json!({"tools": [{"name": "f"}]}), "tools[0].input_schema"),
            (json!({"tool_choice": {"type": "some"}}), "tool_choice.type"),
            (json!({"tool_choice": {"type": "any"}}), "tool_choice"),
            (json!({"metadata": {"name": "n"}}), "metadata.name"),
            (json!({"stop_sequences": [""]}), "stop_sequences"),
            (json!({"service_tier": "priority"}), "service_tier"),
            (
                json!({"output_config": {"effort": "low"}}),
                "output_config.effort",
            ),
            (json!({"mcp_servers": [{}]}), "mcp_servers"),
            (json!({"messages": null}), "messages"),
            (
                json!({"thread": {"type": "create"}, "model": null}),
                "thread",
            ),
            (json!({"speed": "fast"}), "speed"),
            (json!({"model": 3}), "model"),
        ] {
            assert_eq!(param(more.clone()), named, "{more}");
        }
    }

    #[test]
    fn a_hint_for_a_cache_is_told_as_ignored() {
        let body = json!({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": [
            {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]}]});
        let asked = read(&body.to_string().into()).unwrap();
        assert_eq!(asked.ignored, ["cache_control"]);
    }

    #[test]
    fn what_is_counted_is_the_prompt_alone() {
        let tools = json!([{"name": "f", "input_schema": {}}]);
        let body = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": tools, "tool_choice": {"type": "any"}});
        let chat = counted(&body.to_string().into()).unwrap();
        let names: Vec<&str> = chat.keys().map(String::as_str).collect();
        assert_eq!(names, ["model", "messages", "tools"]);
        let failure = counted(&json!({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]}).to_string().into());
        assert!(failure.is_err());
    }
}
