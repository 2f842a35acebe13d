//! Translates OpenAI chats with tools of type custom: each tool becomes a function for the engine, and its calls are translated
//! back for the client. All other chats pass through unread.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use axum::body::Bytes;
use memchr::memmem::Finder;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::custom::{self, CustomTools, InputText};
use super::translation::TranslatedRequest;
use crate::assembler::calls::{CallDelta, CallTable, arguments_text};
use crate::body::{Scanned, write_json};
use crate::events::data_of;
use crate::fields::{RequestFields, parse_some};
use api_types::error::Failure;
use reading::IgnoredFields;

const MARK: &[u8] = b"\"custom\"";

/// Returns true if the body may contain a custom tool. Cheap, and almost always false.
pub(super) fn may_be_custom(body: &[u8]) -> bool {
    static CUSTOM: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(MARK));
    CUSTOM.find(body).is_some()
}

/// Translates the request for the engine.
pub(super) fn read(body: Bytes) -> Result<TranslatedRequest<Option<CustomCalls>>, Failure> {
    if !may_be_custom(&body) {
        return Ok(TranslatedRequest::plain(body, None));
    }
    let fields = Scanned::fields(&body)?;
    let has_mark = |value: &RawValue| may_be_custom(value.get().as_bytes());
    let names = ["tools", "tool_choice", "messages"];
    let names = names.map(|name| fields.get(name).is_some_and(has_mark).then_some(name));
    let names: Vec<&str> = names.into_iter().flatten().collect();
    let mut request = parse_some(&fields, &names)?;
    let mut ignored = IgnoredFields::default();
    let mut written = Written::default();
    if let Some(Value::Array(tools)) = request.take("tools") {
        let tools = written.tools(tools, &mut ignored)?;
        written.fields.insert("tools", tools);
    }
    if let Some(choice) = request.take("tool_choice") {
        let choice = chosen(choice, &mut ignored)?;
        written.fields.insert("tool_choice", choice);
    }
    if let Some(messages) = request.take("messages") {
        written
            .fields
            .insert("messages", messages_with_functions(messages, &mut ignored)?);
    }
    let mut text = Vec::with_capacity(body.len());
    text.push(b'{');
    for (name, raw) in fields.all() {
        if text.len() > 1 {
            text.push(b',');
        }
        write_json(&mut text, name);
        text.push(b':');
        match written.fields.get(name) {
            Some(value) => text.extend_from_slice(value.to_string().as_bytes()),
            None => text.extend_from_slice(raw.get().as_bytes()),
        }
    }
    text.push(b'}');
    let calls = CustomCalls {
        tools: Arc::new(written.custom),
        calls: BTreeMap::new(),
        inputs: BTreeMap::new(),
        ended: BTreeSet::new(),
    };
    let teller = (!calls.tools.is_empty()).then_some(calls);
    Ok(TranslatedRequest {
        ignored: ignored.names(),
        ..TranslatedRequest::plain(text.into(), teller)
    })
}

#[derive(Default)]
struct Written {
    fields: BTreeMap<&'static str, Value>,
    custom: BTreeSet<String>,
    tools: CustomTools,
}

impl Written {
    fn tools(&mut self, tools: Vec<Value>, ignored: &mut IgnoredFields) -> Result<Value, Failure> {
        let mut all = Vec::with_capacity(tools.len());
        for (nth, tool) in tools.into_iter().enumerate() {
            if tool["type"] != "custom" {
                all.push(tool);
                continue;
            }
            let mut tool = RequestFields::new(format!("tools[{nth}]"), tool)?;
            tool.take("type");
            let mut custom = RequestFields::new(tool.path("custom"), tool.need("custom")?)?;
            tool.drop_rest(ignored);
            let name = custom.need_text("name")?;
            let made = custom::function(&mut custom, &name, &mut self.tools)?;
            custom.drop_rest(ignored);
            if made.is_unheld {
                ignored.add("tools.format");
            }
            self.custom.insert(name);
            all.push(json!({"type": "function", "function": made.function}));
        }
        Ok(Value::Array(all))
    }
}

fn chosen(choice: Value, ignored: &mut IgnoredFields) -> Result<Value, Failure> {
    if choice["type"] != "custom" {
        return Ok(choice);
    }
    let mut choice = RequestFields::new("tool_choice", choice)?;
    choice.take("type");
    let mut custom = RequestFields::new("tool_choice.custom", choice.need("custom")?)?;
    choice.drop_rest(ignored);
    let name = custom.need_text("name")?;
    custom.drop_rest(ignored);
    Ok(json!({"type": "function", "function": {"name": name}}))
}

/// Rewrites calls of custom tools in earlier turns as function calls.
fn messages_with_functions(
    mut messages: Value,
    ignored: &mut IgnoredFields,
) -> Result<Value, Failure> {
    for (nth, message) in messages.as_array_mut().into_iter().flatten().enumerate() {
        let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
        for (at, call) in calls.into_iter().flatten().enumerate() {
            if call["type"] != "custom" {
                continue;
            }
            let mut call_fields =
                RequestFields::new(format!("messages[{nth}].tool_calls[{at}]"), call.take())?;
            call_fields.take("type");
            let id = call_fields.text("id")?;
            let place = call_fields.path("custom");
            let mut custom = RequestFields::new(place, call_fields.need("custom")?)?;
            call_fields.drop_rest(ignored);
            let function = json!({"name": custom.need_text("name")?,
                "arguments": custom::arguments(&custom.need_text("input")?)});
            custom.drop_rest(ignored);
            *call = json!({"id": id, "type": "function", "function": function});
        }
    }
    Ok(messages)
}

/// Translates calls of the functions that represent custom tools.
#[derive(Clone, Debug)]
pub struct CustomCalls {
    tools: Arc<BTreeSet<String>>,
    /// Calls by choice.
    calls: BTreeMap<u64, CallTable>,
    /// Partially received inputs, by choice and call.
    inputs: BTreeMap<(u64, u64), InputText>,
    /// Choices that have finished.
    ended: BTreeSet<u64>,
}

impl CustomCalls {
    fn is_custom(&self, function: &Value) -> bool {
        let name = function.get("name").and_then(Value::as_str);
        name.is_some_and(|name| self.tools.contains(name))
    }

    pub fn respond(&self, mut response: Value) -> Value {
        let choices = response.get_mut("choices").and_then(Value::as_array_mut);
        for choice in choices.into_iter().flatten() {
            self.message(choice);
        }
        response
    }

    /// Translates the calls in a complete message.
    fn message(&self, choice: &mut Value) {
        let calls = choice.pointer_mut("/message/tool_calls");
        for call in calls.and_then(Value::as_array_mut).into_iter().flatten() {
            if !self.is_custom(&call["function"]) {
                continue;
            }
            let function = call["function"].take();
            let input = custom::input_of(&arguments_text(function.get("arguments")));
            let custom = json!({"name": function["name"], "input": input});
            if let Value::Object(call) = call {
                call.shift_remove("function");
                call.insert("type".to_owned(), json!("custom"));
                call.insert("custom".to_owned(), custom);
            }
        }
    }

    pub fn event(&mut self, event: Vec<u8>) -> Vec<u8> {
        let chunk = data_of(&event).and_then(|data| serde_json::from_slice::<Value>(&data).ok());
        let Some(mut chunk) = chunk else {
            return event;
        };
        let choices = chunk.get_mut("choices").and_then(Value::as_array_mut);
        for choice in choices.into_iter().flatten() {
            self.choice(choice);
        }
        format!("data: {chunk}\n\n").into_bytes()
    }

    fn choice(&mut self, choice: &mut Value) {
        let nth = choice["index"].as_u64().unwrap_or(0);
        self.message(choice);
        let calls = choice.pointer_mut("/delta/tool_calls");
        // A single call instead of a list (TGI).
        if let Some(calls) = calls.filter(|calls| calls.is_object()) {
            *calls = json!([calls.take()]);
        }
        let calls = choice.pointer_mut("/delta/tool_calls");
        let calls = calls.and_then(Value::as_array_mut).into_iter().flatten();
        for (position, call) in calls.enumerate() {
            if !call.is_object() {
                continue;
            }
            let table = self.calls.entry(nth).or_default();
            // A call beyond the limit stays unchanged.
            let Ok(placed) = table.place(&CallDelta::read(call, position)) else {
                continue;
            };
            let place = (nth, placed.position as u64);
            call["index"] = json!(placed.position);
            let begins = placed.sets_name && self.is_custom(&call["function"]);
            if begins {
                self.inputs.entry(place).or_default();
            }
            let Some(input) = self.inputs.get_mut(&place) else {
                continue;
            };
            let function = call["function"].take();
            let more = input.push(&arguments_text(function.get("arguments")));
            let mut custom = Map::new();
            if begins {
                custom.insert("name".to_owned(), function["name"].clone());
            }
            if begins || call["type"].is_string() {
                call["type"] = json!("custom");
            }
            custom.insert("input".to_owned(), json!(more));
            if let Value::Object(call) = call {
                call.shift_remove("function");
                call.insert("custom".to_owned(), Value::Object(custom));
            }
        }
        // Only once: engines may repeat the finish reason.
        let reason = choice["finish_reason"].as_str().unwrap_or_default();
        if !reason.is_empty() && self.ended.insert(nth) {
            self.finish(nth, choice);
        }
    }

    /// Appends the inputs that arrived in another form when their choice ends.
    fn finish(&mut self, nth: u64, choice: &mut Value) {
        let mut rest = Vec::new();
        for ((_, call), input) in self.inputs.range_mut((nth, 0)..=(nth, u64::MAX)) {
            let text = input.finish();
            if !text.is_empty() {
                rest.push(json!({"index": call, "custom": {"input": text}}));
            }
        }
        if rest.is_empty() {
            return;
        }
        match choice.pointer_mut("/delta/tool_calls") {
            Some(Value::Array(calls)) => calls.extend(rest),
            _ => choice["delta"]["tool_calls"] = json!(rest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(body: &Value) -> Result<TranslatedRequest<Option<CustomCalls>>, Failure> {
        read(body.to_string().into())
    }

    fn chat() -> Value {
        json!({"model": "m", "messages": [{"role": "user", "content": "Go."}], "seed": 1, "tools": [
            {"type": "custom", "custom": {"name": "edit", "description": "d"}},
            {"type": "function", "function": {"name": "f"}}]})
    }

    #[test]
    fn custom_tools_their_choice_and_their_calls_become_functions() {
        let mut body = chat();
        body["tool_choice"] = json!({"type": "custom", "custom": {"name": "edit"}});
        body["messages"] = json!([{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [
            {"id": "c", "type": "custom", "custom": {"name": "edit", "input": "x\n"}}]}]);
        let request = translated(&body).unwrap();
        let sent: Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!(sent["tools"][0]["function"]["name"], "edit");
        assert_eq!(sent["tools"][1], body["tools"][1]);
        assert_eq!(sent["tool_choice"]["function"]["name"], "edit");
        let call = &sent["messages"][1]["tool_calls"][0];
        assert_eq!(call["function"]["arguments"], "{\"input\":\"x\\n\"}");
        assert_eq!((&sent["seed"], &sent["model"]), (&json!(1), &json!("m")));
        assert!(request.teller.is_some());
    }

    #[test]
    fn chats_without_custom_tools_pass_byte_for_byte() {
        for body in [
            r#"{"model":"m","messages":[{"content":"{\"x\": \u00e9}"}]}"#,
            r#"not json"#,
        ] {
            let request = read(Bytes::from_static(body.as_bytes())).unwrap();
            assert_eq!(request.body, body);
            assert!(request.teller.is_none());
        }
        let source = json!({"model": "m", "messages": [{"role": "user", "content": "custom", "name": "custom"}]});
        let request = translated(&source).unwrap();
        assert_eq!(
            serde_json::from_slice::<Value>(&request.body).unwrap(),
            source
        );
        assert!(request.teller.is_none());
    }

    #[test]
    fn custom_tool_calls_are_returned_as_custom_in_complete_and_streamed_responses() {
        let mut calls = translated(&chat()).unwrap().teller.unwrap();
        let function = |name: &str, text: &str| json!({"name": name, "arguments": text});
        let response = json!({"choices": [{"message": {"tool_calls": [
            {"id": "c", "type": "function", "function": function("edit", "{\"input\": \"a\\n\"}")},
            {"id": "d", "type": "function", "function": function("f", "{}")}]}}]});
        let whole = calls.clone().respond(response.clone());
        let calls_out = &whole["choices"][0]["message"]["tool_calls"];
        assert_eq!(
            calls_out[0],
            json!({"id": "c", "type": "custom", "custom": {"name": "edit", "input": "a\n"}})
        );
        assert_eq!(
            calls_out[1],
            response["choices"][0]["message"]["tool_calls"][1]
        );
        let mut event = |call: Value, finish: Value| {
            let chunk = json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": finish}]});
            let calls_out = calls.event(format!("data: {chunk}\n\n").into_bytes());
            let chunk: Value = serde_json::from_slice(&data_of(&calls_out).unwrap()).unwrap();
            chunk["choices"][0]["delta"]["tool_calls"].clone()
        };
        let first = json!({"index": 0, "id": "c", "type": "function", "function": function("edit", "{\"input\"")});
        let first = event(first, Value::Null);
        assert_eq!(
            first[0],
            json!({"index": 0, "id": "c", "type": "custom", "custom": {"name": "edit", "input": ""}})
        );
        let more = json!({"index": 0, "function": {"arguments": ": \"a"}});
        assert_eq!(event(more, Value::Null)[0]["custom"]["input"], "a");
        let last = json!({"index": 0, "function": {"arguments": "b\"}"}});
        assert_eq!(event(last, json!("tool_calls"))[0]["custom"]["input"], "b");
        assert_eq!(
            calls.event(b"data: [DONE]\n\n".to_vec()),
            b"data: [DONE]\n\n"
        );
    }

    #[test]
    fn a_choice_ends_once_even_if_its_engine_repeats_the_finish_reason() {
        let mut calls = translated(&chat()).unwrap().teller.unwrap();
        let mut event = |choice: Value| {
            let chunk = json!({"choices": [choice]});
            let event = calls.event(format!("data: {chunk}\n\n").into_bytes());
            serde_json::from_slice::<Value>(&data_of(&event).unwrap()).unwrap()
        };
        let call = json!({"index": 0, "function": {"name": "edit", "arguments": "plain"}});
        event(json!({"index": 0, "delta": {"tool_calls": [call]}}));
        let end = json!({"index": 0, "delta": {}, "finish_reason": "tool_calls"});
        let place = "/choices/0/delta/tool_calls/0/custom/input";
        assert_eq!(event(end.clone()).pointer(place), Some(&json!("plain")));
        assert_eq!(event(end).pointer(place), None);
    }

    #[test]
    fn an_invalid_custom_tool_is_refused_by_name() {
        let mut body = chat();
        body["tools"][0]["custom"]["name"] = json!(3);
        let failure = translated(&body).unwrap_err();
        assert_eq!(
            failure.body.error.param.as_deref(),
            Some("tools[0].custom.name")
        );
    }
}
