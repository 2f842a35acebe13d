//! Reduces responses and streams of all APIs to one comparable form: texts, calls, finish reasons and usage.

use serde_json::{Value, json};

use crate::assembler::Assembler;

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Summary {
    text: String,
    reasoning: String,
    /// Name, arguments and id of each call.
    calls: Vec<(String, Value, String)>,
    end: Vec<Value>,
}

impl Summary {
    fn call(&mut self, name: &Value, arguments: Value, id: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        self.calls.push((text(name), arguments, known(&text(id))));
    }
}

/// Keeps the engine's ids and drops the random ids of the pool.
fn known(id: &str) -> String {
    let is_known = id
        .strip_prefix("call_")
        .is_some_and(|rest| rest.contains('_'));
    if is_known {
        id.to_owned()
    } else {
        String::new()
    }
}

fn parsed(arguments: &Value) -> Value {
    let text = arguments.as_str().unwrap_or_default();
    serde_json::from_str(text).unwrap_or_else(|_| json!(text))
}

pub(crate) fn of_response(api: &str, response: &Value) -> Summary {
    let mut summary = Summary::default();
    match api {
        "messages" => of_message(response, &mut summary),
        "responses" => of_object(response, &mut summary),
        "ollama" => of_line(response, &mut summary),
        _ => of_chat(response, &mut summary),
    }
    summary
}

pub(crate) fn of_stream(api: &str, written: &str) -> Summary {
    let mut summary = Summary::default();
    let data = || {
        let lines = written
            .lines()
            .filter_map(|line| line.strip_prefix("data: "));
        lines.filter_map(|data| serde_json::from_str::<Value>(data).ok())
    };
    match api {
        "messages" => {
            let mut message = json!(null);
            let mut blocks: Vec<Value> = Vec::new();
            for event in data() {
                let nth = event["index"].as_u64().unwrap_or_default() as usize;
                match event["type"].as_str().unwrap() {
                    "message_start" => message = event["message"].clone(),
                    "content_block_start" => {
                        assert_eq!(nth, blocks.len());
                        blocks.push(event["content_block"].clone());
                        blocks[nth]["written"] = json!("");
                    }
                    "content_block_delta" => {
                        let delta = &event["delta"];
                        let texts = ["text", "thinking", "partial_json"];
                        let more = texts.iter().find_map(|name| delta[*name].as_str());
                        let known = blocks[nth]["written"].as_str().unwrap();
                        blocks[nth]["written"] =
                            json!(format!("{known}{}", more.unwrap_or_default()));
                    }
                    "message_delta" => {
                        message["stop_reason"] = event["delta"]["stop_reason"].clone();
                        message["usage"] = event["usage"].clone();
                    }
                    "error" => panic!("{event}"),
                    _ => {}
                }
            }
            for block in &mut blocks {
                let written = block["written"].take();
                match block["type"].as_str().unwrap() {
                    "tool_use" if written == "" => {}
                    "tool_use" => block["input"] = parsed(&written),
                    "thinking" => block["thinking"] = written,
                    _ => block["text"] = written,
                }
            }
            message["content"] = json!(blocks);
            of_message(&message, &mut summary);
        }
        "responses" => {
            let last = data().next_back().unwrap();
            of_object(&last["response"], &mut summary);
        }
        "ollama" => {
            for line in written.lines() {
                of_line(&serde_json::from_str(line).unwrap(), &mut summary);
            }
        }
        _ => {
            let mut assembler = Assembler::new(None, 1);
            assembler.push(written.as_bytes()).unwrap();
            of_chat(&assembler.finish().unwrap(), &mut summary);
        }
    }
    summary
}

/// Adds a chat with custom tools.
fn of_chat(response: &Value, summary: &mut Summary) {
    let choice = &response["choices"][0];
    let message = &choice["message"];
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let (function, custom) = (&call["function"], &call["custom"]);
        if call["type"] == "custom" {
            summary.call(&custom["name"], custom["input"].clone(), &call["id"]);
        } else {
            summary.call(
                &function["name"],
                function["arguments"].clone(),
                &call["id"],
            );
        }
    }
    let names = ["content", "reasoning", "reasoning_content", "refusal"];
    summary.end.extend(names.map(|name| message[name].clone()));
    summary
        .end
        .extend([choice["finish_reason"].clone(), response["usage"].clone()]);
}

fn of_message(message: &Value, summary: &mut Summary) {
    for block in message["content"].as_array().unwrap() {
        match block["type"].as_str().unwrap() {
            "tool_use" => summary.call(&block["name"], block["input"].clone(), &block["id"]),
            "thinking" => summary.reasoning += block["thinking"].as_str().unwrap(),
            _ => summary.text += block["text"].as_str().unwrap(),
        }
    }
    let usage = &message["usage"];
    let counts = ["input_tokens", "output_tokens", "cache_read_input_tokens"];
    summary.end.push(message["stop_reason"].clone());
    summary.end.extend(counts.map(|name| usage[name].clone()));
}

fn of_object(response: &Value, summary: &mut Summary) {
    for item in response["output"].as_array().unwrap() {
        match item["type"].as_str().unwrap() {
            "function_call" => {
                summary.call(&item["name"], parsed(&item["arguments"]), &item["call_id"])
            }
            "reasoning" => summary.reasoning += item["content"][0]["text"].as_str().unwrap(),
            _ => summary.text += item["content"][0]["text"].as_str().unwrap(),
        }
    }
    summary
        .end
        .extend(["status", "incomplete_details", "usage"].map(|name| response[name].clone()));
}

/// Adds one line of a stream, or a complete response.
fn of_line(line: &Value, summary: &mut Summary) {
    let message = &line["message"];
    summary.text += message["content"].as_str().unwrap();
    summary.reasoning += message["thinking"].as_str().unwrap_or_default();
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let function = &call["function"];
        summary.call(
            &function["name"],
            function["arguments"].clone(),
            &call["id"],
        );
    }
    if line["done"] == true {
        let names = ["done_reason", "prompt_eval_count", "eval_count"];
        summary.end.extend(names.map(|name| line[name].clone()));
    }
}
