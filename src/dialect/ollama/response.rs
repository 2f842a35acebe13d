//! Translates a chat response into Ollama's form: one object, or a line per piece. Tool calls are collected until the end and sent
//! complete.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::super::chunk::{CallPiece, Chunk, Timings, Tokens};
use super::super::translation::Tell;
use super::errors::message_of;
use super::marks::Marks;
use crate::damaged::{CALLS_MAX, Damaged};
use api_types::error::Failure;

pub const STREAM_TYPE: &str = "application/x-ndjson";
/// Keeps a stream alive before its first line. Line readers take it as part of that line, and JSON allows leading spaces.
pub const PAUSE: &str = " ";
/// Maximum total size of tool calls.
const CALLS_BYTES_MAX: usize = 8 << 20;

/// The route that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    Chat,
    Generate,
}

/// The response, as far as it has been written.
#[derive(Clone, Debug)]
pub struct Answer {
    ask: Ask,
    /// Model name as the client wrote it, or the member of a virtual model.
    model: String,
    marks: Arc<Marks>,
    calls: BTreeMap<u64, CallPiece>,
    calls_bytes: usize,
    finish: Option<String>,
    usage: Option<Tokens>,
    timings: Option<Timings>,
    is_over: bool,
}

impl Answer {
    pub fn new(ask: Ask, model: String, marks: Arc<Marks>) -> Answer {
        Answer {
            ask,
            model,
            marks,
            calls: BTreeMap::new(),
            calls_bytes: 0,
            finish: None,
            usage: None,
            timings: None,
            is_over: false,
        }
    }

    pub fn set_model(&mut self, name: &str) {
        name.clone_into(&mut self.model);
    }

    pub fn seated(&self) {
        self.marks.seated();
    }

    pub fn begun(&self) {
        self.marks.begun();
    }

    /// The response to a request that only loads or unloads the model.
    pub fn without_text(&self, reason: &str) -> Value {
        let mut output = self.object(String::new(), String::new(), Vec::new(), true);
        output.insert("done_reason".to_owned(), json!(reason));
        Value::Object(output)
    }

    /// Translates a complete response.
    pub fn respond(mut self, chunk: Chunk) -> Result<Value, Failure> {
        self.note(&chunk);
        let (text, thinking, logprobs) = (chunk.text, chunk.reasoning, chunk.logprobs);
        for piece in chunk.calls {
            self.keep(piece);
        }
        let calls = self.calls();
        let calls = calls.map_err(|why| Failure::engine(&self.model, why))?;
        let mut output = self.object(text, thinking, calls, true);
        add_logprobs(&mut output, logprobs);
        self.finish(&mut output);
        Ok(Value::Object(output))
    }

    fn note(&mut self, chunk: &Chunk) {
        if chunk.finish.is_some() {
            self.finish.clone_from(&chunk.finish);
        }
        self.usage = chunk.usage.or(self.usage);
        self.timings = chunk.timings.or(self.timings);
    }

    /// Collects one piece of a call.
    fn keep(&mut self, piece: CallPiece) {
        self.calls_bytes += piece.arguments.len();
        if self.calls.len() > CALLS_MAX {
            return;
        }
        let call = self.calls.entry(piece.index).or_default();
        call.id = call.id.take().or(piece.id);
        call.name = call.name.take().or(piece.name);
        if self.calls_bytes <= CALLS_BYTES_MAX {
            call.arguments.push_str(&piece.arguments);
        }
    }

    /// The calls with their arguments as objects.
    fn calls(&mut self) -> Result<Vec<Value>, String> {
        if self.calls.len() > CALLS_MAX {
            return Err(Damaged::TooManyCalls.to_string());
        }
        if self.calls_bytes > CALLS_BYTES_MAX {
            return Err("it called a tool with more than 8 MiB of arguments".to_owned());
        }
        let is_cut = self.finish.as_deref() == Some("length");
        let mut output = Vec::new();
        for (nth, call) in std::mem::take(&mut self.calls).into_values().enumerate() {
            let arguments = match call.arguments.trim() {
                "" => Ok(Map::new()),
                text => serde_json::from_str::<Map<String, Value>>(text),
            };
            match arguments {
                Ok(arguments) => {
                    let name = call.name.unwrap_or_default();
                    let function = json!({"index": nth, "name": name, "arguments": arguments});
                    let mut call_object = json!({"function": function});
                    if let Some(id) = call.id {
                        call_object["id"] = json!(id);
                    }
                    output.push(call_object);
                }
                // Cut off by the token limit, as `done_reason` reports.
                Err(_) if is_cut => {}
                Err(_) => {
                    let why = "it called a tool with arguments that are not a JSON object; retry the request";
                    return Err(why.to_owned());
                }
            }
        }
        Ok(output)
    }

    /// Writes the fields that every object has.
    fn object(
        &self,
        text: String,
        thinking: String,
        calls: Vec<Value>,
        done: bool,
    ) -> Map<String, Value> {
        let mut output = Map::new();
        output.insert("model".to_owned(), json!(self.model));
        output.insert("created_at".to_owned(), json!(self.marks.created_at()));
        match self.ask {
            Ask::Chat => {
                let mut message = json!({"role": "assistant", "content": text});
                if !thinking.is_empty() {
                    message["thinking"] = json!(thinking);
                }
                if !calls.is_empty() {
                    message["tool_calls"] = json!(calls);
                }
                output.insert("message".to_owned(), message);
            }
            Ask::Generate => {
                output.insert("response".to_owned(), json!(text));
                if !thinking.is_empty() {
                    output.insert("thinking".to_owned(), json!(thinking));
                }
            }
        }
        output.insert("done".to_owned(), json!(done));
        output
    }

    /// Writes the finish reason, the token counts and the durations.
    fn finish(&self, output: &mut Map<String, Value>) {
        let reason = match self.finish.as_deref() {
            // Ollama has no separate reason for tool calls.
            None | Some("tool_calls" | "function_call") => "stop",
            Some(reason) => reason,
        };
        output.insert("done_reason".to_owned(), json!(reason));
        self.marks.of_response(output, self.usage, self.timings);
    }
}

fn add_logprobs(output: &mut Map<String, Value>, logprobs: Vec<Value>) {
    if !logprobs.is_empty() {
        output.insert("logprobs".to_owned(), Value::Array(logprobs));
    }
}

fn write_line(output: &mut String, line: Map<String, Value>) {
    output.push_str(&Value::Object(line).to_string());
    output.push('\n');
}

impl Tell for Answer {
    fn chunk(&mut self, chunk: Chunk, output: &mut String) {
        if self.is_over {
            return;
        }
        self.note(&chunk);
        let has_text = !chunk.text.is_empty() || !chunk.reasoning.is_empty();
        if has_text || !chunk.calls.is_empty() {
            self.marks.begun();
        }
        for piece in chunk.calls {
            self.keep(piece);
        }
        if has_text || !chunk.logprobs.is_empty() {
            let mut line = self.object(chunk.text, chunk.reasoning, Vec::new(), false);
            add_logprobs(&mut line, chunk.logprobs);
            write_line(output, line);
        }
    }

    fn end(&mut self, output: &mut String) {
        if self.is_over {
            return;
        }
        match self.calls() {
            Err(why) => return self.failed(&json!({"message": why}), output),
            Ok(calls) if calls.is_empty() => {}
            Ok(calls) => {
                let line = self.object(String::new(), String::new(), calls, false);
                write_line(output, line);
            }
        }
        self.is_over = true;
        let mut line = self.object(String::new(), String::new(), Vec::new(), true);
        self.finish(&mut line);
        write_line(output, line);
    }

    fn failed(&mut self, error: &Value, output: &mut String) {
        if !std::mem::replace(&mut self.is_over, true) {
            let line = json!({"error": message_of(error)});
            output.push_str(&format!("{line}\n"));
        }
    }

    fn has_comments(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
