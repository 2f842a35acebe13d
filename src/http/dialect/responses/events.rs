//! The events of a streamed response, numbered from 0: the response, its items as they begin, grow and end,
//! and the response as it ended. A text ends where a function is called; calls end with the response.

use serde_json::{Map, Value, json};

use super::super::chunk::{CallPiece, Chunk};
use super::super::translation::{Tell, new_id, write_event};
use super::Response;
use super::answer::{COMPLETED, IN_PROGRESS, INCOMPLETE, Item, part};

impl Response {
    fn event(&mut self, kind: &str, fields: Value, told: &mut String) {
        let mut data = Map::new();
        data.insert("type".to_owned(), json!(kind));
        data.insert("sequence_number".to_owned(), json!(self.sequence));
        if let Value::Object(fields) = fields {
            data.extend(fields);
        }
        self.sequence += 1;
        write_event(told, kind, &Value::Object(data));
    }

    fn begin(&mut self, told: &mut String) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        for kind in ["response.created", "response.in_progress"] {
            let response = self.told(IN_PROGRESS, None);
            self.event(kind, json!({"response": response}), told);
        }
    }

    fn add(&mut self, item: Item, told: &mut String) -> usize {
        let (nth, id) = (self.output.len(), item.id().to_owned());
        let added = item.told(IN_PROGRESS);
        let is_said = matches!(item, Item::Said { .. });
        self.output.push(item);
        self.event(
            "response.output_item.added",
            json!({"output_index": nth, "item": added}),
            told,
        );
        if is_said {
            let fields =
                json!({"item_id": id, "output_index": nth, "content_index": 0, "part": part("")});
            self.event("response.content_part.added", fields, told);
        }
        nth
    }

    fn say(&mut self, more: &str, told: &mut String) {
        let open = self
            .output
            .iter()
            .position(|item| matches!(item, Item::Said { is_done: false, .. }));
        let nth = match open {
            Some(nth) => nth,
            None => self.add(Item::said(String::new()), told),
        };
        let Some(Item::Said { id, text, .. }) = self.output.get_mut(nth) else {
            return;
        };
        text.push_str(more);
        let fields = json!({"item_id": id, "output_index": nth, "content_index": 0, "delta": more, "logprobs": []});
        self.event("response.output_text.delta", fields, told);
    }

    fn call(&mut self, piece: CallPiece, told: &mut String) {
        let known = self
            .output
            .iter()
            .position(|item| matches!(item, Item::Call { index, .. } if *index == piece.index));
        let nth = match known {
            Some(nth) => nth,
            None => {
                self.end_text(COMPLETED, told);
                let item = Item::Call {
                    id: new_id("fc"),
                    index: piece.index,
                    call_id: piece.id.unwrap_or_else(|| new_id("call")),
                    name: piece.name.unwrap_or_default(),
                    arguments: String::new(),
                };
                self.add(item, told)
            }
        };
        let Some(Item::Call { id, arguments, .. }) = self.output.get_mut(nth) else {
            return;
        };
        if !piece.arguments.is_empty() {
            arguments.push_str(&piece.arguments);
            let fields = json!({"item_id": id, "output_index": nth, "delta": piece.arguments});
            self.event("response.function_call_arguments.delta", fields, told);
        }
    }

    /// Ends the text that is open, if one is.
    fn end_text(&mut self, status: &str, told: &mut String) {
        for nth in 0..self.output.len() {
            let Item::Said { id, text, is_done } = &mut self.output[nth] else {
                continue;
            };
            if *is_done {
                continue;
            }
            *is_done = status == COMPLETED;
            let (id, text) = (id.clone(), text.clone());
            let place = json!({"item_id": id, "output_index": nth, "content_index": 0});
            let with = |name: &str, value: Value| {
                let mut fields = place.clone();
                fields[name] = value;
                fields
            };
            let mut done = with("text", json!(text));
            done["logprobs"] = json!([]);
            self.event("response.output_text.done", done, told);
            self.event(
                "response.content_part.done",
                with("part", part(&text)),
                told,
            );
            let item = self.output[nth].told(status);
            self.event(
                "response.output_item.done",
                json!({"output_index": nth, "item": item}),
                told,
            );
        }
    }

    fn end_calls(&mut self, status: &str, told: &mut String) {
        for nth in 0..self.output.len() {
            let item = self.output[nth].clone();
            let Item::Call {
                id,
                name,
                arguments,
                ..
            } = &item
            else {
                continue;
            };
            let fields =
                json!({"item_id": id, "output_index": nth, "name": name, "arguments": arguments});
            self.event("response.function_call_arguments.done", fields, told);
            let item = item.told(status);
            self.event(
                "response.output_item.done",
                json!({"output_index": nth, "item": item}),
                told,
            );
        }
    }
}

impl Tell for Response {
    fn chunk(&mut self, chunk: Chunk, told: &mut String) {
        if self.is_over {
            return;
        }
        self.begin(told);
        self.note(&chunk);
        if !chunk.text.is_empty() {
            self.say(&chunk.text, told);
        }
        for piece in chunk.calls {
            self.call(piece, told);
        }
    }

    fn end(&mut self, told: &mut String) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        self.begin(told);
        if self.output.is_empty() {
            self.add(Item::said(String::new()), told);
        }
        let status = self.status();
        self.end_text(status, told);
        self.end_calls(status, told);
        let kind = match status {
            INCOMPLETE => "response.incomplete",
            _ => "response.completed",
        };
        let response = self.told(status, None);
        self.event(kind, json!({"response": response}), told);
    }

    fn failed(&mut self, error: &Value, told: &mut String) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        self.begin(told);
        let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
        // Their list of codes has these two for what can happen here.
        let code = match text("type") {
            "rate_limit_error" => "rate_limit_exceeded",
            _ => "server_error",
        };
        let error = json!({"code": code, "message": text("message")});
        let response = self.told("failed", Some(error));
        self.event("response.failed", json!({"response": response}), told);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response() -> Response {
        Response::of("m".to_owned(), &Map::new(), 7)
    }

    fn chunk(delta: Value, finish: Option<&str>) -> Chunk {
        Chunk::of_event(&json!({"choices": [{"delta": delta, "finish_reason": finish}]}))
    }

    /// The events' data; their numbers have no gap.
    fn events(told: &str) -> Vec<Value> {
        let data = told.lines().filter_map(|line| line.strip_prefix("data: "));
        let events: Vec<Value> = data
            .map(|data| serde_json::from_str(data).unwrap())
            .collect();
        for (nth, event) in events.iter().enumerate() {
            assert_eq!(event["sequence_number"], nth);
        }
        events
    }

    fn kinds(events: &[Value]) -> Vec<&str> {
        let kinds = events.iter().map(|event| event["type"].as_str().unwrap());
        kinds
            .map(|kind| kind.strip_prefix("response.").unwrap())
            .collect()
    }

    #[test]
    fn a_text_begins_grows_and_ends() {
        let mut response = response();
        let mut told = String::new();
        response.chunk(
            chunk(json!({"role": "assistant", "content": ""}), None),
            &mut told,
        );
        response.chunk(chunk(json!({"content": "Hel"}), None), &mut told);
        response.chunk(chunk(json!({"content": "lo"}), Some("stop")), &mut told);
        let usage = json!({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}});
        response.chunk(Chunk::of_event(&usage), &mut told);
        response.end(&mut told);
        let events = events(&told);
        let expected = [
            "created",
            "in_progress",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "completed",
        ];
        assert_eq!(kinds(&events), expected);
        assert_eq!(events[0]["response"]["status"], "in_progress");
        assert_eq!(events[6]["text"], "Hello");
        let last = &events[9]["response"];
        assert_eq!(last["output"][0]["content"][0]["text"], "Hello");
        assert_eq!(last["output"][0]["id"], events[2]["item"]["id"]);
        assert_eq!(last["usage"]["total_tokens"], 7);
    }

    #[test]
    fn functions_are_called_after_the_text_and_their_arguments_grow() {
        let mut response = response();
        let mut told = String::new();
        response.chunk(chunk(json!({"content": "I look."}), None), &mut told);
        let begin = json!({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}]});
        response.chunk(chunk(begin, None), &mut told);
        let piece =
            |text: &str| json!({"tool_calls": [{"index": 0, "function": {"arguments": text}}]});
        response.chunk(chunk(piece("{\"a\""), None), &mut told);
        response.chunk(chunk(piece(":1}"), Some("tool_calls")), &mut told);
        response.end(&mut told);
        let events = events(&told);
        let expected = [
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "output_item.added",
            "function_call_arguments.delta",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "output_item.done",
            "completed",
        ];
        assert_eq!(kinds(&events)[5..], expected);
        let item = &events[12]["item"];
        assert_eq!(
            (&item["arguments"], &item["call_id"]),
            (&json!("{\"a\":1}"), &json!("c"))
        );
        assert_eq!(events[13]["response"]["output"][1], *item);
        assert_eq!(events[13]["response"]["output"][0]["status"], "completed");
    }

    #[test]
    fn an_answer_that_was_cut_short_ends_incomplete_and_an_empty_one_has_an_empty_message() {
        let mut response = response();
        let mut told = String::new();
        response.chunk(chunk(json!({}), Some("length")), &mut told);
        response.end(&mut told);
        let last = events(&told).pop().unwrap();
        assert_eq!(last["type"], "response.incomplete");
        assert_eq!(
            last["response"]["incomplete_details"]["reason"],
            "max_output_tokens"
        );
        assert_eq!(last["response"]["output"][0]["content"][0]["text"], "");
    }

    #[test]
    fn an_error_is_a_failed_response_also_before_anything_was_said() {
        let mut response = response();
        let mut told = String::new();
        let error = json!({"message": "the queue is full", "type": "rate_limit_error"});
        response.failed(&error, &mut told);
        response.end(&mut told);
        let events = events(&told);
        assert_eq!(kinds(&events), ["created", "in_progress", "failed"]);
        let error = json!({"code": "rate_limit_exceeded", "message": "the queue is full"});
        assert_eq!(events[2]["response"]["error"], error);
        assert_eq!(events[2]["response"]["status"], "failed");
    }
}
