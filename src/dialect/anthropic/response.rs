//! Translates a chat response into a Messages API response: a single object or a sequence of events. Blocks are numbered as they
//! begin. A text block ends when a tool is called; calls end with the message because pieces of several calls may interleave.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::chunk::{CallPiece, Chunk, Tokens, too_many_calls};
use super::super::ids::new_id;
use super::super::seal::Sealer;
use super::super::translation::{Tell, write_event};
use super::errors::error_of;
use crate::damaged::CALLS_MAX;
use api_types::error::Failure;

/// The message, as far as it has been written.
#[derive(Clone, Debug)]
pub struct Message {
    id: String,
    model: String,
    /// The client's stop sequences.
    stops: Vec<String>,
    has_begun: bool,
    is_over: bool,
    blocks: usize,
    /// Signs the model's reasoning, which lets the client send it back.
    sealer: Sealer,
    /// True if the client wants readable thinking. Otherwise it receives the thinking sealed.
    shows_thinking: bool,
    /// Index and content of the open thinking block.
    thinking: Option<(usize, String)>,
    /// Index of the open text block.
    text: Option<usize>,
    /// Block index of each call, by the chat's tool call index.
    calls: BTreeMap<u64, usize>,
    finish: Option<String>,
    stopped_by: Option<String>,
    usage: Tokens,
}

impl Message {
    pub fn new(model: String, stops: Vec<String>, sealer: Sealer, shows_thinking: bool) -> Message {
        Message {
            id: new_id("msg"),
            model,
            stops,
            sealer,
            shows_thinking,
            thinking: None,
            has_begun: false,
            is_over: false,
            blocks: 0,
            text: None,
            calls: BTreeMap::new(),
            finish: None,
            stopped_by: None,
            usage: Tokens::default(),
        }
    }

    pub fn set_model(&mut self, name: &str) {
        name.clone_into(&mut self.model);
    }

    pub fn respond(mut self, chunk: Chunk) -> Result<Value, Failure> {
        self.note(&chunk);
        let mut content = Vec::new();
        if !chunk.reasoning.is_empty() {
            let signature = self.signature(&chunk.reasoning);
            let shown = if self.shows_thinking {
                chunk.reasoning
            } else {
                String::new()
            };
            content.push(json!({"type": "thinking", "thinking": shown, "signature": signature}));
        }
        if !chunk.text.is_empty() {
            content.push(text_block(&chunk.text));
        }
        for piece in &chunk.calls {
            let arguments = match piece.arguments.trim() {
                "" => "{}",
                given => given,
            };
            let input = serde_json::from_str(arguments)
                .ok()
                .filter(Value::is_object);
            match input {
                Some(input) => content.push(call_block(piece, input)),
                // Cut off by the token limit, as `stop_reason` reports.
                None if self.finish.as_deref() == Some("length") => {}
                None => {
                    let why = "it called a tool with arguments that are not a JSON object; retry the request";
                    return Err(Failure::engine(&self.model, why));
                }
            }
        }
        let calls = chunk.calls.iter().map(|piece| piece.index);
        self.calls.extend(calls.zip(0..));
        let (reason, sequence) = self.stop();
        let mut message = self.frame(content);
        message["stop_reason"] = json!(reason);
        message["stop_sequence"] = json!(sequence);
        Ok(message)
    }

    /// The `signature` that identifies a thinking block when it comes back. If the thinking is not shown, the signature contains
    /// the sealed text.
    fn signature(&self, thinking: &str) -> String {
        if self.shows_thinking {
            self.sealer.sign(thinking)
        } else {
            self.sealer.seal(thinking).unwrap_or_default()
        }
    }

    fn note(&mut self, chunk: &Chunk) {
        if chunk.finish.is_some() {
            self.finish.clone_from(&chunk.finish);
        }
        if chunk.stopped_by.is_some() {
            self.stopped_by.clone_from(&chunk.stopped_by);
        }
        if let Some(usage) = chunk.usage {
            self.usage = usage;
        }
    }

    /// A message with every field that Anthropic publishes, including empty ones: strict clients reject a message with missing
    /// fields.
    fn frame(&self, content: Vec<Value>) -> Value {
        let mut usage = self.usage();
        usage["cache_creation"] = Value::Null;
        usage["inference_geo"] = Value::Null;
        usage["service_tier"] = json!("standard");
        usage["speed"] = json!("standard");
        json!({"id": self.id, "type": "message", "role": "assistant", "model": self.model,
            "content": content, "stop_reason": null, "stop_sequence": null, "stop_details": null,
            "container": null, "diagnostics": null, "usage": usage})
    }

    /// Returns `stop_reason` and `stop_sequence`.
    fn stop(&self) -> (&'static str, Option<&str>) {
        let sequence = self.stopped_by.as_deref();
        let sequence = sequence.filter(|sequence| self.stops.iter().any(|stop| stop == sequence));
        let reason = match self.finish.as_deref() {
            Some("length") => "max_tokens",
            Some("content_filter") => "refusal",
            // Some engines report `stop` when the client forced the tool call.
            _ if !self.calls.is_empty() => "tool_use",
            _ if sequence.is_some() => "stop_sequence",
            _ => "end_turn",
        };
        (reason, sequence.filter(|_| reason == "stop_sequence"))
    }

    fn usage(&self) -> Value {
        let Tokens {
            prompt,
            completion,
            cached,
            reasoning,
        } = self.usage;
        // Engines that do not count reasoning tokens report 0.
        let details = (reasoning > 0).then(|| json!({"thinking_tokens": reasoning}));
        json!({"input_tokens": prompt.saturating_sub(cached), "output_tokens": completion,
            "cache_creation_input_tokens": 0, "cache_read_input_tokens": cached,
            "output_tokens_details": details, "server_tool_use": null})
    }

    fn begin(&mut self, output: &mut String) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        let message = self.frame(Vec::new());
        write_event(
            output,
            "message_start",
            &json!({"type": "message_start", "message": message}),
        );
        write_event(output, "ping", &json!({"type": "ping"}));
    }

    fn open(&mut self, block: Value, output: &mut String) -> usize {
        let index = self.blocks;
        self.blocks += 1;
        let event = json!({"type": "content_block_start", "index": index, "content_block": block});
        write_event(output, "content_block_start", &event);
        index
    }

    fn close(index: usize, output: &mut String) {
        let event = json!({"type": "content_block_stop", "index": index});
        write_event(output, "content_block_stop", &event);
    }

    fn delta(index: usize, delta: Value, output: &mut String) {
        let event = json!({"type": "content_block_delta", "index": index, "delta": delta});
        write_event(output, "content_block_delta", &event);
    }

    fn think(&mut self, more: &str, output: &mut String) {
        let (block, mut thinking) = match self.thinking.take() {
            Some(open) => open,
            None => {
                self.close_texts(output);
                let block = json!({"type": "thinking", "thinking": "", "signature": ""});
                (self.open(block, output), String::new())
            }
        };
        thinking.push_str(more);
        self.thinking = Some((block, thinking));
        if self.shows_thinking {
            Message::delta(
                block,
                json!({"type": "thinking_delta", "thinking": more}),
                output,
            );
        }
    }

    /// Ends the open text and thinking blocks.
    fn close_texts(&mut self, output: &mut String) {
        if let Some((block, thinking)) = self.thinking.take() {
            let signature = self.signature(&thinking);
            let delta = json!({"type": "signature_delta", "signature": signature});
            Message::delta(block, delta, output);
            Message::close(block, output);
        }
        if let Some(text) = self.text.take() {
            Message::close(text, output);
        }
    }

    fn call(&mut self, piece: CallPiece, output: &mut String) {
        let block = match self.calls.get(&piece.index).copied() {
            Some(block) => block,
            None if self.calls.len() >= CALLS_MAX => {
                return self.failed(&too_many_calls(), output);
            }
            None => {
                self.close_texts(output);
                let block = self.open(call_block(&piece, json!({})), output);
                self.calls.insert(piece.index, block);
                block
            }
        };
        if !piece.arguments.is_empty() {
            let delta = json!({"type": "input_json_delta", "partial_json": piece.arguments});
            Message::delta(block, delta, output);
        }
    }
}

impl Tell for Message {
    fn chunk(&mut self, chunk: Chunk, output: &mut String) {
        if self.is_over {
            return;
        }
        self.begin(output);
        self.note(&chunk);
        if !chunk.reasoning.is_empty() {
            self.think(&chunk.reasoning, output);
        }
        if !chunk.text.is_empty() {
            let block = match self.text {
                Some(block) => block,
                None => {
                    self.close_texts(output);
                    self.open(text_block(""), output)
                }
            };
            self.text = Some(block);
            let delta = json!({"type": "text_delta", "text": chunk.text});
            Message::delta(block, delta, output);
        }
        for piece in chunk.calls {
            if self.is_over {
                return;
            }
            self.call(piece, output);
        }
    }

    fn end(&mut self, output: &mut String) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        self.begin(output);
        let mut open: Vec<usize> = self.calls.values().copied().collect();
        open.extend(self.text.take());
        open.sort_unstable();
        let thinking_block = self.thinking.as_ref().map(|(block, _)| *block);
        let behind = open.partition_point(|block| {
            thinking_block.is_some_and(|thinking_block| *block < thinking_block)
        });
        let later = open.split_off(behind);
        for block in open {
            Message::close(block, output);
        }
        self.close_texts(output);
        for block in later {
            Message::close(block, output);
        }
        let (reason, sequence) = self.stop();
        let delta = json!({"stop_reason": reason, "stop_sequence": sequence, "stop_details": null, "container": null});
        let event = json!({"type": "message_delta", "delta": delta, "usage": self.usage()});
        write_event(output, "message_delta", &event);
        write_event(output, "message_stop", &json!({"type": "message_stop"}));
    }

    fn failed(&mut self, error: &Value, output: &mut String) {
        if !std::mem::replace(&mut self.is_over, true) {
            write_event(output, "error", &error_of(error, None, None));
        }
    }
}

fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text, "citations": null})
}

/// The content block for the call that begins with this piece.
fn call_block(piece: &CallPiece, input: Value) -> Value {
    let id = piece.id.clone().unwrap_or_else(|| new_id("toolu"));
    let name = piece.name.clone().unwrap_or_default();
    json!({"type": "tool_use", "id": id, "name": name, "input": input, "caller": {"type": "direct"}})
}

#[cfg(test)]
mod tests;
