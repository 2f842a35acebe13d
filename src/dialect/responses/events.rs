//! Writes the events of a streamed response, numbered from 0: the response, the beginning, deltas and end of its items, and the
//! final response. A reasoning item ends when text begins, and both end when a tool is called; calls end with the response.

use serde_json::{Map, Value, json};

use super::super::chunk::{CallPiece, Chunk, too_many_calls};
use super::super::translation::{Tell, write_event};
use super::Response;
use super::response::{COMPLETED, CallKind, IN_PROGRESS, INCOMPLETE, Item, part, thought_part};
use crate::background_run::RunFailure;
use crate::damaged::CALLS_MAX;
use crate::stored::Unwritten;

impl Response {
    fn event(&mut self, kind: &str, fields: Value, sse: &mut String) {
        let mut data = Map::new();
        data.insert("type".to_owned(), json!(kind));
        data.insert("sequence_number".to_owned(), json!(self.sequence));
        if let Value::Object(fields) = fields {
            data.extend(fields);
        }
        self.sequence += 1;
        write_event(sse, kind, &Value::Object(data));
    }

    fn begin(&mut self, sse: &mut String) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        let run = self.background.as_ref();
        let is_announced = run.is_some_and(|run| run.is_announced());
        let kinds = ["response.created", "response.in_progress"];
        for kind in kinds.into_iter().skip(usize::from(is_announced)) {
            let response = self.object(IN_PROGRESS, None);
            self.event(kind, json!({"response": response}), sse);
        }
    }

    fn add(&mut self, item: Item, sse: &mut String) -> usize {
        let (nth, id) = (self.output.len(), item.id().to_owned());
        let added = item.object(IN_PROGRESS);
        let opened = match &item {
            Item::Text { .. } => Some(("response.content_part", "content_index", part(""))),
            Item::Thought { is_summary, .. } => {
                let (kind, index) = thought_place(*is_summary);
                Some((kind, index, thought_part("", *is_summary)))
            }
            Item::Call { .. } => None,
        };
        self.output.push(item);
        self.event(
            "response.output_item.added",
            json!({"output_index": nth, "item": added}),
            sse,
        );
        if let Some((kind, index, part)) = opened {
            let mut fields = json!({"item_id": id, "output_index": nth, "part": part});
            fields[index] = json!(0);
            self.event(&format!("{kind}.added"), fields, sse);
        }
        nth
    }

    fn add_text(&mut self, more: &str, sse: &mut String) {
        if !matches!(self.output.last(), Some(Item::Text { is_done: false, .. })) {
            self.end_open(COMPLETED, sse);
            self.add(Item::text(String::new()), sse);
        }
        let nth = self.output.len() - 1;
        let Some(Item::Text { id, text, .. }) = self.output.last_mut() else {
            return;
        };
        text.push_str(more);
        let fields = json!({"item_id": id, "output_index": nth, "content_index": 0, "delta": more, "logprobs": []});
        self.event("response.output_text.delta", fields, sse);
    }

    fn think(&mut self, more: &str, sse: &mut String) {
        if !matches!(
            self.output.last(),
            Some(Item::Thought { is_done: false, .. })
        ) {
            self.end_open(COMPLETED, sse);
            let thought = self.thought(String::new());
            self.add(thought, sse);
        }
        let nth = self.output.len() - 1;
        let Some(Item::Thought {
            id,
            text,
            is_summary,
            ..
        }) = self.output.last_mut()
        else {
            return;
        };
        text.push_str(more);
        let mut fields = json!({"item_id": id, "output_index": nth, "delta": more});
        let (kind, index) = thought_text(*is_summary);
        fields[index] = json!(0);
        self.event(&format!("{kind}.delta"), fields, sse);
    }

    fn call(&mut self, mut piece: CallPiece, sse: &mut String) {
        let written = std::mem::take(&mut piece.arguments);
        let index = piece.index;
        let nth = match self.calls.get(&index).copied() {
            Some(nth) => nth,
            None if self.calls.len() >= CALLS_MAX => return self.failed(&too_many_calls(), sse),
            None => {
                self.end_open(COMPLETED, sse);
                let call = self.called(piece);
                let nth = self.add(call, sse);
                self.calls.insert(index, nth);
                nth
            }
        };
        let Some(Item::Call {
            id,
            kind,
            arguments,
            ..
        }) = self.output.get_mut(nth)
        else {
            return;
        };
        let (event, more) = match kind {
            CallKind::Function { .. } => ("response.function_call_arguments.delta", written),
            CallKind::Custom(input) => (
                "response.custom_tool_call_input.delta",
                input.push(&written),
            ),
        };
        if !more.is_empty() {
            arguments.push_str(&more);
            let fields = json!({"item_id": id, "output_index": nth, "delta": more});
            self.event(event, fields, sse);
        }
    }

    /// Ends the open text or reasoning item, if any. No other item begins before.
    fn end_open(&mut self, status: &str, sse: &mut String) {
        let Some(nth) = self.output.len().checked_sub(1) else {
            return;
        };
        let (id, done, part_done, part) = match &mut self.output[nth] {
            Item::Text { id, text, is_done } if !*is_done => {
                *is_done = status == COMPLETED;
                let fields = json!({"content_index": 0, "text": text, "logprobs": []});
                let done = ("response.output_text.done", fields);
                (
                    id.clone(),
                    done,
                    ("response.content_part", "content_index"),
                    part(text),
                )
            }
            Item::Thought {
                id,
                text,
                is_summary,
                is_done,
                ..
            } if !*is_done => {
                *is_done = status == COMPLETED;
                let mut fields = json!({"text": text});
                let (kind, index) = thought_text(*is_summary);
                fields[index] = json!(0);
                let kind = match kind {
                    SUMMARY_TEXT => "response.reasoning_summary_text.done",
                    _ => "response.reasoning_text.done",
                };
                let part = thought_part(text, *is_summary);
                (id.clone(), (kind, fields), thought_place(*is_summary), part)
            }
            _ => return,
        };
        self.seal_last();
        let place = json!({"item_id": id, "output_index": nth});
        let (kind, mut fields) = done;
        merge(&mut fields, &place);
        self.event(kind, fields, sse);
        let (kind, index) = part_done;
        let mut fields = json!({"part": part});
        fields[index] = json!(0);
        merge(&mut fields, &place);
        self.event(&format!("{kind}.done"), fields, sse);
        let item = self.output[nth].object(status);
        self.event(
            "response.output_item.done",
            json!({"output_index": nth, "item": item}),
            sse,
        );
    }

    /// Writes the last event: the response as stored, or the error if it could not be stored.
    pub(super) fn close(&mut self, stored: Result<(), Unwritten>, sse: &mut String) {
        let Some(kind) = self.held.take() else {
            return;
        };
        let mut response = self.object(self.status(), None);
        if let Err(why) = stored {
            sse.push_str(&format!(": store: {why}\n\n"));
            response["store"] = json!(false);
        }
        self.event(kind, json!({"response": response}), sse);
    }

    fn end_calls(&mut self, status: &str, sse: &mut String) {
        for nth in 0..self.output.len() {
            let Item::Call {
                id,
                name,
                kind,
                arguments,
                ..
            } = &mut self.output[nth]
            else {
                continue;
            };
            let mut place = json!({"item_id": id, "output_index": nth});
            let event = match kind {
                CallKind::Function { .. } => {
                    place["name"] = json!(name);
                    place["arguments"] = json!(arguments);
                    "response.function_call_arguments.done"
                }
                CallKind::Custom(input) => {
                    let rest = input.finish();
                    arguments.push_str(&rest);
                    let complete = json!(arguments);
                    if !rest.is_empty() {
                        let mut fields = place.clone();
                        fields["delta"] = json!(rest);
                        self.event("response.custom_tool_call_input.delta", fields, sse);
                    }
                    place["input"] = complete;
                    "response.custom_tool_call_input.done"
                }
            };
            self.event(event, place, sse);
            let item = self.output[nth].object(status);
            self.event(
                "response.output_item.done",
                json!({"output_index": nth, "item": item}),
                sse,
            );
        }
    }
}

const SUMMARY_TEXT: &str = "response.reasoning_summary_text";

/// Event names for reasoning text, and the name of the part's index.
fn thought_text(is_summary: bool) -> (&'static str, &'static str) {
    if is_summary {
        (SUMMARY_TEXT, "summary_index")
    } else {
        ("response.reasoning_text", "content_index")
    }
}

/// Event names for the part that contains the text.
fn thought_place(is_summary: bool) -> (&'static str, &'static str) {
    if is_summary {
        ("response.reasoning_summary_part", "summary_index")
    } else {
        ("response.content_part", "content_index")
    }
}

fn merge(fields: &mut Value, more: &Value) {
    if let (Value::Object(fields), Value::Object(more)) = (fields, more) {
        fields.extend(more.clone());
    }
}

impl Tell for Response {
    fn chunk(&mut self, chunk: Chunk, sse: &mut String) {
        if self.is_over {
            return;
        }
        self.note(&chunk);
        self.begin(sse);
        if !chunk.reasoning.is_empty() {
            self.think(&chunk.reasoning, sse);
        }
        if !chunk.text.is_empty() {
            self.add_text(&chunk.text, sse);
        }
        for piece in chunk.calls {
            if self.is_over {
                return;
            }
            self.call(piece, sse);
        }
    }

    fn end(&mut self, sse: &mut String) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        self.begin(sse);
        if self.output.is_empty() {
            self.add(Item::text(String::new()), sse);
        }
        let status = self.status();
        self.end_open(status, sse);
        self.end_calls(status, sse);
        let kind = match status {
            INCOMPLETE => "response.incomplete",
            _ => "response.completed",
        };
        self.keep(status);
        self.held = Some(kind);
        if !self.is_for_disk() {
            self.close(Ok(()), sse);
        }
    }

    fn failed(&mut self, error: &Value, sse: &mut String) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        self.begin(sse);
        let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
        // OpenAI's error codes that can occur here. Clients shorten the conversation on the first.
        let code = match (text("code"), text("type")) {
            ("context_length_exceeded", _) => "context_length_exceeded",
            (_, "rate_limit_error") => "rate_limit_exceeded",
            (_, "invalid_request_error" | "BadRequestError") => "invalid_prompt",
            _ => "server_error",
        };
        let shown = json!({"code": code, "message": text("message")});
        let response = self.object("failed", Some(shown));
        if let Some(run) = &self.background {
            run.set_failure(RunFailure {
                error: error.clone(),
                response: response.clone(),
            });
        }
        self.event("response.failed", json!({"response": response}), sse);
    }
}

#[cfg(test)]
mod tests;
