//! The `response` object: the request's fields, the output items, and the final status. `events` writes its events.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::super::chunk::{CallPiece, Chunk, Tokens};
use super::super::custom::{InputText, input_of};
use super::super::ids::new_id;
use super::super::seal::Sealer;
use super::super::translation::Reading;
use super::tools::ToolNames;
use crate::background_run::BackgroundRun;
use crate::stored::Ticket;
use api_types::error::Failure;

/// Forms in which the client receives the reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shows {
    /// Sealed, to be sent back with the next turn.
    pub(crate) encrypted: bool,
    /// As the summary, which clients display. It contains the full reasoning.
    pub summary: bool,
}

/// The response, as far as it has been written.
#[derive(Clone, Debug)]
pub struct Response {
    pub(super) id: String,
    model: String,
    created_seconds: u64,
    /// Request fields that the response repeats, serialized as JSON. Parsed values would take many times the memory while the
    /// request waits.
    echo: Arc<str>,
    names: ToolNames,
    pub(super) shows: Shows,
    pub(super) sealer: Sealer,
    /// Storage for the response, if it is stored.
    pub(super) ticket: Option<Arc<Ticket>>,
    /// The stream's last event, while it waits for the disk.
    pub(super) held: Option<&'static str>,
    pub(super) output: Vec<Item>,
    /// Position in `output` of each streamed call, by the chat's tool call index.
    pub(super) calls: BTreeMap<u64, usize>,
    pub(super) finish: Option<String>,
    usage: Option<Tokens>,
    tier: Cow<'static, str>,
    /// A tier that the engine names replaces `tier`.
    follows_engine: bool,
    pub(super) sequence: u64,
    pub(super) has_begun: bool,
    pub(super) is_over: bool,
    pub(super) background: Option<Arc<BackgroundRun>>,
}

/// One output item.
#[derive(Clone, Debug)]
pub(super) enum Item {
    Text {
        id: String,
        text: String,
        is_done: bool,
    },
    /// The model's reasoning.
    Thought {
        id: String,
        text: String,
        sealed: Option<String>,
        is_summary: bool,
        is_done: bool,
    },
    Call {
        id: String,
        call_id: String,
        name: String,
        kind: CallKind,
        /// The input, for a custom tool.
        arguments: String,
    },
}

/// Type of the called tool.
#[derive(Clone, Debug)]
pub(super) enum CallKind {
    Function {
        namespace: Option<String>,
    },
    /// The input arrives as JSON arguments of a function.
    Custom(InputText),
}

/// States of items and responses.
pub(super) const QUEUED: &str = "queued";
pub(super) const IN_PROGRESS: &str = "in_progress";
pub(super) const COMPLETED: &str = "completed";
pub(super) const INCOMPLETE: &str = "incomplete";

impl Response {
    pub(super) fn new(
        model: String,
        echo: &Map<String, Value>,
        names: ToolNames,
        shows: Shows,
        ticket: Option<Ticket>,
        reading: &Reading,
    ) -> Response {
        let background = reading.background.clone();
        let run = background.as_ref();
        Response {
            id: run.map_or_else(|| new_id("resp"), |run| run.id.clone()),
            model,
            created_seconds: run.map_or(reading.now_seconds, |run| run.created_seconds),
            echo: serde_json::to_string(echo).unwrap_or_default().into(),
            names,
            shows,
            sealer: reading.sealer.clone(),
            ticket: ticket.map(Arc::new),
            held: None,
            output: Vec::new(),
            calls: BTreeMap::new(),
            finish: None,
            usage: None,
            tier: Cow::Borrowed("default"),
            follows_engine: false,
            sequence: run.map_or(0, |run| run.first_event),
            has_begun: false,
            is_over: false,
            background,
        }
    }

    pub fn set_model(&mut self, name: &str) {
        name.clone_into(&mut self.model);
    }

    /// The object of a response that waits for its run.
    pub fn queued(&self) -> Value {
        self.object(QUEUED, None)
    }

    pub fn set_tier(&mut self, tier: &'static str, follows_engine: bool) {
        self.tier = Cow::Borrowed(tier);
        self.follows_engine = follows_engine;
    }

    pub fn respond(mut self, chunk: Chunk) -> Result<Value, Failure> {
        self.note(&chunk);
        let has_thought = !chunk.reasoning.is_empty();
        if has_thought {
            let thought = self.thought(chunk.reasoning);
            self.output.push(thought);
            self.seal_last();
        }
        if !chunk.text.is_empty() || (chunk.calls.is_empty() && !has_thought) {
            let text = chunk.text;
            self.output.push(Item::text(text));
        }
        for mut piece in chunk.calls {
            let written = std::mem::take(&mut piece.arguments);
            let mut call = self.called(piece);
            if let Item::Call {
                kind, arguments, ..
            } = &mut call
            {
                *arguments = match kind {
                    CallKind::Function { .. } => written,
                    CallKind::Custom(_) => input_of(&written),
                };
            }
            self.output.push(call);
        }
        let status = self.status();
        self.keep(status);
        Ok(self.object(status, None))
    }

    /// A reasoning item that begins with `text`.
    pub(super) fn thought(&self, text: String) -> Item {
        Item::Thought {
            id: new_id("rs"),
            text,
            sealed: None,
            is_summary: self.shows.summary,
            is_done: false,
        }
    }

    /// Seals the reasoning item that just ended, if the client wants it sealed.
    pub(super) fn seal_last(&mut self) {
        if let Some(Item::Thought { text, sealed, .. }) = self.output.last_mut()
            && self.shows.encrypted
        {
            *sealed = self.sealer.seal(text);
        }
    }

    /// The call that begins with this piece, without its arguments.
    pub(super) fn called(&self, piece: CallPiece) -> Item {
        let function = piece.name.unwrap_or_default();
        let tool = self.names.of_client(&function).cloned();
        let (name, kind, prefix) = match tool {
            None => (function, CallKind::Function { namespace: None }, "fc"),
            Some(tool) if tool.is_custom => {
                (tool.name, CallKind::Custom(InputText::default()), "ctc")
            }
            Some(tool) => {
                let namespace = tool.namespace;
                (tool.name, CallKind::Function { namespace }, "fc")
            }
        };
        Item::Call {
            id: new_id(prefix),
            call_id: piece.id.unwrap_or_else(|| new_id("call")),
            name,
            kind,
            arguments: String::new(),
        }
    }

    pub(super) fn note(&mut self, chunk: &Chunk) {
        if chunk.finish.is_some() {
            self.finish.clone_from(&chunk.finish);
        }
        self.usage = chunk.usage.or(self.usage);
        if let Some(tier) = chunk.tier.as_ref().filter(|_| self.follows_engine) {
            self.tier = Cow::Owned(tier.clone());
        }
    }

    /// The final status.
    pub(super) fn status(&self) -> &'static str {
        match self.finish.as_deref() {
            Some("length" | "content_filter") => INCOMPLETE,
            _ => COMPLETED,
        }
    }

    /// The object in its current state. `error` holds `code` and `message` of a failed response.
    pub(super) fn object(&self, status: &str, error: Option<Value>) -> Value {
        let has_ended = ![QUEUED, IN_PROGRESS].contains(&status);
        let reason = match self.finish.as_deref() {
            Some("content_filter") => "content_filter",
            _ => "max_output_tokens",
        };
        let details = (status == INCOMPLETE).then(|| json!({"reason": reason}));
        let output = if has_ended {
            self.output.iter().map(|item| item.object(status)).collect()
        } else {
            Vec::new()
        };
        let mut all = json!({
            "id": self.id, "object": "response", "created_at": self.created_seconds,
            "status": status, "background": false, "error": error,
            "incomplete_details": details, "model": self.model, "output": output,
            "previous_response_id": null, "reasoning": {"effort": null, "summary": null},
            "service_tier": self.tier, "store": false, "top_logprobs": 0, "truncation": "disabled",
        });
        if let Value::Object(all) = &mut all {
            let echo: Map<String, Value> = serde_json::from_str(&self.echo).unwrap_or_default();
            all.extend(echo);
        }
        if let Some(usage) = self.usage.filter(|_| has_ended) {
            all["usage"] = usage_object(usage);
        }
        all
    }
}

/// The usage of a response.
pub(super) fn usage_object(usage: Tokens) -> Value {
    json!({
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt.saturating_add(usage.completion),
    })
}

impl Item {
    pub fn text(text: String) -> Item {
        Item::Text {
            id: new_id("msg"),
            text,
            is_done: false,
        }
    }

    pub fn id(&self) -> &str {
        match self {
            Item::Text { id, .. } | Item::Thought { id, .. } | Item::Call { id, .. } => id,
        }
    }

    /// The item within a response of this status. An item completed before a failure stays completed.
    pub fn object(&self, status: &str) -> Value {
        let status = match status {
            COMPLETED | IN_PROGRESS => status,
            _ => INCOMPLETE,
        };
        match self {
            Item::Text { id, text, is_done } => {
                let status = if *is_done { COMPLETED } else { status };
                let content = match status {
                    IN_PROGRESS => json!([]),
                    _ => json!([part(text)]),
                };
                json!({"type": "message", "id": id, "status": status, "role": "assistant", "content": content})
            }
            Item::Thought {
                id,
                text,
                sealed,
                is_summary,
                is_done,
            } => {
                let status = if *is_done { COMPLETED } else { status };
                let parts = match status {
                    IN_PROGRESS => json!([]),
                    _ => json!([thought_part(text, *is_summary)]),
                };
                let mut item =
                    json!({"type": "reasoning", "id": id, "status": status, "summary": []});
                let place = if *is_summary { "summary" } else { "content" };
                item[place] = parts;
                item["encrypted_content"] = json!(sealed);
                item
            }
            Item::Call {
                id,
                call_id,
                name,
                kind,
                arguments,
                ..
            } => match kind {
                CallKind::Custom(_) => {
                    json!({"type": "custom_tool_call", "id": id, "call_id": call_id, "name": name,
                        "input": arguments, "status": status})
                }
                CallKind::Function { namespace } => {
                    let mut item = json!({"type": "function_call", "id": id, "call_id": call_id,
                        "name": name, "arguments": arguments, "status": status});
                    if let Some(namespace) = namespace {
                        item["namespace"] = json!(namespace);
                    }
                    item
                }
            },
        }
    }
}

pub(super) fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

/// A content part with reasoning, for the summary or the content list.
pub(super) fn thought_part(text: &str, is_summary: bool) -> Value {
    let kind = if is_summary {
        "summary_text"
    } else {
        "reasoning_text"
    };
    json!({"type": kind, "text": text})
}

#[cfg(test)]
pub(super) mod tests;
