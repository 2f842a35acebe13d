//! A request of the Responses API as OpenAI's chat. What cannot be honoured is refused with its name, and what
//! is unknown too; the items of `input` are read in `items`.

use axum::body::Bytes;
use serde_json::{Map, Value, json};

use super::super::taken::Taken;
use super::super::translation::TranslatedRequest;
use super::Response;
use super::items::messages;
use crate::error::Failure;

const KEEPS_NOTHING: &str = "nothing is kept here; send the whole conversation in `input`";
const METADATA_MAX: usize = 16;

/// `POST /v1/responses`.
pub(crate) fn read(body: &Bytes, now_seconds: u64) -> Result<TranslatedRequest<Response>, Failure> {
    let mut asked = Taken::body(body)?;
    let mut chat = Map::new();
    // What the answer repeats.
    let mut echo = Map::new();
    let model = asked.need_text("model")?;
    refused(&mut asked)?;
    chat.insert("model".to_owned(), json!(model));
    let instructions = asked.text("instructions")?;
    echo.insert("instructions".to_owned(), json!(instructions));
    let input = asked.need("input")?;
    let messages = messages(instructions, input)?;
    chat.insert("messages".to_owned(), json!(messages));
    tools(&mut asked, &mut chat, &mut echo)?;
    format(&mut asked, &mut chat, &mut echo)?;
    let limit = asked.count("max_output_tokens")?;
    if let Some(limit) = limit {
        chat.insert("max_tokens".to_owned(), json!(limit));
    }
    echo.insert("max_output_tokens".to_owned(), json!(limit));
    for name in ["temperature", "top_p"] {
        let number = asked.number(name)?;
        echo.insert(name.to_owned(), json!(number));
        if let Some(number) = number {
            chat.insert(name.to_owned(), number);
        }
    }
    let user = asked.text("user")?;
    let safety = asked.text("safety_identifier")?;
    if let Some(user) = user.as_ref().or(safety.as_ref()) {
        chat.insert("user".to_owned(), json!(user));
    }
    let metadata = metadata(&mut asked)?;
    let key = asked.text("prompt_cache_key")?;
    let ignored = key.is_some().then(|| "prompt_cache_key".to_owned());
    for (name, value) in [
        ("user", user),
        ("safety_identifier", safety),
        ("prompt_cache_key", key),
    ] {
        if let Some(value) = value {
            echo.insert(name.to_owned(), json!(value));
        }
    }
    echo.insert("metadata".to_owned(), metadata);
    if asked.flag("stream")? == Some(true) {
        chat.insert("stream".to_owned(), json!(true));
        chat.insert("stream_options".to_owned(), json!({"include_usage": true}));
    }
    if let Some(mut options) = asked.object("stream_options")? {
        // Padding against those who listen on the wire: there is none, and false asks for none.
        options.refuse(
            "include_obfuscation",
            &[json!(false)],
            "the events have no padding",
        )?;
        options.finish()?;
    }
    asked.finish()?;
    Ok(TranslatedRequest {
        body: Value::Object(chat).to_string().into(),
        teller: Response::of(model, &echo, now_seconds),
        ignored: ignored.into_iter().collect(),
    })
}

/// What is not done here, with the values that ask for nothing.
fn refused(asked: &mut Taken) -> Result<(), Failure> {
    let off = [json!(false)];
    asked.refuse("store", &off, KEEPS_NOTHING)?;
    asked.refuse("previous_response_id", &[], KEEPS_NOTHING)?;
    asked.refuse("conversation", &[], KEEPS_NOTHING)?;
    asked.refuse(
        "background",
        &off,
        "an answer is given while its client is there; ask with `stream`",
    )?;
    asked.refuse("prompt", &[], "no prompts are kept here; send its text")?;
    asked.refuse(
        "truncation",
        &[json!("disabled")],
        "nothing is left out of a conversation; shorten `input`",
    )?;
    asked.refuse("include", &[json!([])], "the answer has what there is")?;
    asked.refuse(
        "service_tier",
        &[json!("auto"), json!("default")],
        "there is one tier, the default one",
    )?;
    asked.refuse(
        "max_tool_calls",
        &[],
        "it bounds tools that a server calls, and the client calls these",
    )?;
    asked.refuse(
        "top_logprobs",
        &[json!(0)],
        "ask /v1/chat/completions for logprobs",
    )?;
    let why = "reasoning is not told apart from the answer";
    if let Some(mut reasoning) = asked.object("reasoning")? {
        reasoning.refuse("effort", &[json!("none")], why)?;
        reasoning.refuse("summary", &[], why)?;
        reasoning.refuse("generate_summary", &[], why)?;
        reasoning.finish()?;
    }
    Ok(())
}

fn tools(
    asked: &mut Taken,
    chat: &mut Map<String, Value>,
    echo: &mut Map<String, Value>,
) -> Result<(), Failure> {
    let (mut told, mut echoed) = (Vec::new(), Vec::new());
    for (nth, value) in asked
        .list("tools")?
        .unwrap_or_default()
        .into_iter()
        .enumerate()
    {
        let mut tool = Taken::of(format!("tools[{nth}]"), value)?;
        let kind = tool.need_text("type")?;
        if kind != "function" {
            return Err(tool.not_here(
                "type",
                "only tools of type function are; the client calls them",
            ));
        }
        let name = tool.need_text("name")?;
        let words = tool.text("description")?;
        let strict = tool.flag("strict")?;
        let parameters = tool.take("parameters");
        if parameters.as_ref().is_some_and(|it| !it.is_object()) {
            return Err(tool.wrong("parameters", "an object, a JSON schema"));
        }
        tool.refuse(
            "defer_loading",
            &[json!(false)],
            "every tool is told to the model",
        )?;
        tool.finish()?;
        echoed.push(
            json!({"type": "function", "name": name, "description": words,
            "parameters": parameters, "strict": strict}),
        );
        let mut function = Map::new();
        function.insert("name".to_owned(), json!(name));
        let strict = strict.map(Value::Bool);
        for (name, value) in [
            ("description", words.map(Value::String)),
            ("parameters", parameters),
            ("strict", strict),
        ] {
            function.extend(value.map(|value| (name.to_owned(), value)));
        }
        told.push(json!({"type": "function", "function": function}));
    }
    let choice = asked.take("tool_choice");
    let chosen = match &choice {
        None => None,
        Some(Value::String(word)) if ["auto", "none", "required"].contains(&word.as_str()) => {
            Some(json!(word))
        }
        Some(given) => {
            let mut given = Taken::of("tool_choice", given.clone())?;
            let kind = given.need_text("type")?;
            if kind != "function" {
                return Err(
                    given.not_here("type", "a choice is auto, none, required or a function")
                );
            }
            let name = given.need_text("name")?;
            given.finish()?;
            Some(json!({"type": "function", "function": {"name": name}}))
        }
    };
    let parallel = asked.flag("parallel_tool_calls")?;
    echo.insert("tools".to_owned(), json!(echoed));
    echo.insert(
        "tool_choice".to_owned(),
        choice.unwrap_or_else(|| json!("auto")),
    );
    echo.insert(
        "parallel_tool_calls".to_owned(),
        json!(parallel.unwrap_or(true)),
    );
    if told.is_empty() {
        let is_idle = chosen.is_none_or(|chosen| chosen == "auto" || chosen == "none");
        return match is_idle {
            true => Ok(()),
            false => Err(asked.not_here("tool_choice", "there are no `tools` to choose from")),
        };
    }
    chat.insert("tools".to_owned(), json!(told));
    let parallel = parallel.map(Value::Bool);
    for (name, value) in [("tool_choice", chosen), ("parallel_tool_calls", parallel)] {
        chat.extend(value.map(|value| (name.to_owned(), value)));
    }
    Ok(())
}

fn format(
    asked: &mut Taken,
    chat: &mut Map<String, Value>,
    echo: &mut Map<String, Value>,
) -> Result<(), Failure> {
    let mut told = json!({"format": {"type": "text"}});
    if let Some(mut text) = asked.object("text")? {
        text.refuse(
            "verbosity",
            &[json!("medium")],
            "the models here have no levels of verbosity",
        )?;
        let given = text.take("format");
        text.finish()?;
        if let Some(given) = given {
            told["format"] = given.clone();
            let mut format = Taken::of("text.format", given)?;
            let asked_of_chat = match format.need_text("type")?.as_str() {
                "text" => None,
                "json_object" => Some(json!({"type": "json_object"})),
                "json_schema" => {
                    let mut schema = Map::new();
                    schema.insert("name".to_owned(), json!(format.need_text("name")?));
                    if let Some(words) = format.text("description")? {
                        schema.insert("description".to_owned(), json!(words));
                    }
                    schema.insert("schema".to_owned(), format.need("schema")?);
                    if let Some(strict) = format.flag("strict")? {
                        schema.insert("strict".to_owned(), json!(strict));
                    }
                    Some(json!({"type": "json_schema", "json_schema": schema}))
                }
                _ => return Err(format.wrong("type", "text, json_object or json_schema")),
            };
            format.finish()?;
            chat.extend(asked_of_chat.map(|it| ("response_format".to_owned(), it)));
        }
    }
    echo.insert("text".to_owned(), told);
    Ok(())
}

/// Repeated in the answer, and nothing else is done with it.
fn metadata(asked: &mut Taken) -> Result<Value, Failure> {
    let wanted = "an object of at most 16 strings";
    match asked.take("metadata") {
        None => Ok(json!({})),
        Some(Value::Object(all))
            if all.len() <= METADATA_MAX && all.values().all(Value::is_string) =>
        {
            Ok(Value::Object(all))
        }
        Some(_) => Err(asked.wrong("metadata", wanted)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(more: Value) -> Result<Value, Failure> {
        let mut body = json!({"model": "m", "input": "Hi"});
        for (name, value) in more.as_object().unwrap() {
            body[name.as_str()] = value.clone();
        }
        let asked = read(&body.to_string().into(), 7)?;
        Ok(serde_json::from_slice(&asked.body).unwrap())
    }

    #[test]
    fn a_request_becomes_a_chat_with_nothing_lost() {
        let schema = json!({"type": "json_schema", "name": "s", "schema": {"type": "object"}, "strict": true});
        let chat = with(json!({
            "instructions": "Be kind.", "max_output_tokens": 9, "temperature": 0.5, "top_p": 0.9,
            "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": null}],
            "tool_choice": {"type": "function", "name": "f"}, "parallel_tool_calls": false,
            "text": {"format": schema}, "user": "u", "metadata": {"a": "b"}, "stream": true,
            "store": false, "truncation": "disabled", "include": [], "reasoning": null,
        }))
        .unwrap();
        let expected = json!({
            "model": "m",
            "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}],
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
            "tool_choice": {"type": "function", "function": {"name": "f"}}, "parallel_tool_calls": false,
            "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}, "strict": true}},
            "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "user": "u",
            "stream": true, "stream_options": {"include_usage": true},
        });
        assert_eq!(chat, expected);
        let plain = with(json!({})).unwrap();
        assert_eq!(
            plain,
            json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}]})
        );
    }

    #[test]
    fn what_cannot_be_honoured_and_what_is_unknown_is_named() {
        for (more, named) in [
            (json!({"store": true}), "store"),
            (
                json!({"previous_response_id": "resp_1"}),
                "previous_response_id",
            ),
            (json!({"conversation": "conv_1"}), "conversation"),
            (json!({"background": true}), "background"),
            (json!({"truncation": "auto"}), "truncation"),
            (
                json!({"include": ["reasoning.encrypted_content"]}),
                "include",
            ),
            (json!({"reasoning": {"effort": "high"}}), "reasoning.effort"),
            (json!({"tools": [{"type": "web_search"}]}), "tools[0].type"),
            (json!({"tools": [{"type": "function"}]}), "tools[0].name"),
            (json!({"tool_choice": "required"}), "tool_choice"),
            (json!({"tool_choice": {"type": "mcp"}}), "tool_choice.type"),
            (
                json!({"text": {"format": {"type": "grammar"}}}),
                "text.format.type",
            ),
            (json!({"text": {"verbosity": "high"}}), "text.verbosity"),
            (json!({"metadata": {"a": 1}}), "metadata"),
            (json!({"max_output_tokens": 0}), "max_output_tokens"),
            (json!({"stop": ["x"]}), "stop"),
            (json!({"input": null}), "input"),
            (json!({"stream": "yes"}), "stream"),
        ] {
            let failure = with(more.clone()).unwrap_err();
            assert_eq!(failure.body.error.param.as_deref(), Some(named), "{more}");
        }
    }
}
