//! A chat's answer in the words of the Messages API: whole, or as its events. Blocks are numbered as they
//! begin; a text ends where a tool is called, calls end with the message, so that pieces of several may come
//! in any order.

use serde_json::{Value, json};

use super::super::chunk::{CallPiece, Chunk, Tokens};
use super::super::translation::{Tell, new_id, write_event};
use super::errors::error_of;
use crate::error::Failure;

/// One answer as far as it has been told.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    id: String,
    model: String,
    /// What the client wanted it to stop at.
    stops: Vec<String>,
    has_begun: bool,
    is_over: bool,
    blocks: usize,
    /// The block that texts go into.
    text: Option<usize>,
    calls: Vec<Call>,
    finish: Option<String>,
    stopped_by: Option<String>,
    usage: Tokens,
}

#[derive(Clone, Debug)]
struct Call {
    index: u64,
    block: usize,
}

impl Message {
    pub fn of(model: String, stops: Vec<String>) -> Message {
        Message {
            id: new_id("msg"),
            model,
            stops,
            has_begun: false,
            is_over: false,
            blocks: 0,
            text: None,
            calls: Vec::new(),
            finish: None,
            stopped_by: None,
            usage: Tokens::default(),
        }
    }

    pub(crate) fn whole(mut self, chunk: Chunk) -> Result<Value, Failure> {
        self.note(&chunk);
        let mut content = Vec::new();
        if !chunk.text.is_empty() {
            content.push(json!({"type": "text", "text": chunk.text}));
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
                Some(input) => content.push(json!({"type": "tool_use", "id": id_of(piece),
                    "name": piece.name.clone().unwrap_or_default(), "input": input})),
                // Cut in the middle; `stop_reason` says so.
                None if self.finish.as_deref() == Some("length") => {}
                None => {
                    let why = "it called a tool with arguments that are no JSON object; ask again";
                    return Err(Failure::engine(&self.model, why));
                }
            }
        }
        let calls = chunk.calls.iter().map(|piece| piece.index);
        self.calls
            .extend(calls.map(|index| Call { index, block: 0 }));
        let (reason, sequence) = self.stop();
        let mut message = self.frame(content);
        message["stop_reason"] = json!(reason);
        message["stop_sequence"] = json!(sequence);
        message["usage"] = self.usage();
        Ok(message)
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

    fn frame(&self, content: Vec<Value>) -> Value {
        json!({"id": self.id, "type": "message", "role": "assistant", "model": self.model,
            "content": content, "stop_reason": null, "stop_sequence": null, "usage": null})
    }

    /// `stop_reason` and `stop_sequence`.
    fn stop(&self) -> (&'static str, Option<&str>) {
        let sequence = self.stopped_by.as_deref();
        let sequence = sequence.filter(|it| self.stops.iter().any(|stop| stop == it));
        let reason = match self.finish.as_deref() {
            Some("length") => "max_tokens",
            Some("content_filter") => "refusal",
            // Some engines say `stop` where the client had chosen the tool.
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
            ..
        } = self.usage;
        json!({"input_tokens": prompt.saturating_sub(cached), "output_tokens": completion,
            "cache_creation_input_tokens": 0, "cache_read_input_tokens": cached})
    }

    fn begin(&mut self, told: &mut String) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        let mut message = self.frame(Vec::new());
        message["usage"] = self.usage();
        write_event(
            told,
            "message_start",
            &json!({"type": "message_start", "message": message}),
        );
        write_event(told, "ping", &json!({"type": "ping"}));
    }

    fn open(&mut self, block: Value, told: &mut String) -> usize {
        let index = self.blocks;
        self.blocks += 1;
        let event = json!({"type": "content_block_start", "index": index, "content_block": block});
        write_event(told, "content_block_start", &event);
        index
    }

    fn close(index: usize, told: &mut String) {
        let event = json!({"type": "content_block_stop", "index": index});
        write_event(told, "content_block_stop", &event);
    }

    fn delta(index: usize, delta: Value, told: &mut String) {
        let event = json!({"type": "content_block_delta", "index": index, "delta": delta});
        write_event(told, "content_block_delta", &event);
    }

    fn call(&mut self, piece: CallPiece, told: &mut String) {
        let known = self.calls.iter().find(|call| call.index == piece.index);
        let block = match known.map(|call| call.block) {
            Some(block) => block,
            None => {
                if let Some(text) = self.text.take() {
                    Message::close(text, told);
                }
                let block = json!({"type": "tool_use", "id": id_of(&piece),
                    "name": piece.name.unwrap_or_default(), "input": {}});
                let block = self.open(block, told);
                self.calls.push(Call {
                    index: piece.index,
                    block,
                });
                block
            }
        };
        if !piece.arguments.is_empty() {
            let delta = json!({"type": "input_json_delta", "partial_json": piece.arguments});
            Message::delta(block, delta, told);
        }
    }
}

impl Tell for Message {
    fn chunk(&mut self, chunk: Chunk, told: &mut String) {
        if self.is_over {
            return;
        }
        self.begin(told);
        self.note(&chunk);
        if !chunk.text.is_empty() {
            let block = match self.text {
                Some(block) => block,
                None => self.open(json!({"type": "text", "text": ""}), told),
            };
            self.text = Some(block);
            let delta = json!({"type": "text_delta", "text": chunk.text});
            Message::delta(block, delta, told);
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
        let mut open: Vec<usize> = self.calls.iter().map(|call| call.block).collect();
        open.extend(self.text.take());
        open.sort_unstable();
        open.into_iter()
            .for_each(|block| Message::close(block, told));
        let (reason, sequence) = self.stop();
        let delta = json!({"stop_reason": reason, "stop_sequence": sequence});
        let event = json!({"type": "message_delta", "delta": delta, "usage": self.usage()});
        write_event(told, "message_delta", &event);
        write_event(told, "message_stop", &json!({"type": "message_stop"}));
    }

    fn failed(&mut self, error: &Value, told: &mut String) {
        if !std::mem::replace(&mut self.is_over, true) {
            write_event(told, "error", &error_of(error, None, None));
        }
    }
}

fn id_of(piece: &CallPiece) -> String {
    piece.id.clone().unwrap_or_else(|| new_id("toolu"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Message {
        Message::of("m".to_owned(), vec!["END".to_owned()])
    }

    fn chunk(delta: Value, finish: Option<&str>) -> Chunk {
        Chunk::of_event(&json!({"choices": [{"delta": delta, "finish_reason": finish}]}))
    }

    /// The events' names and data.
    fn events(told: &str) -> Vec<Value> {
        let data = told.lines().filter_map(|line| line.strip_prefix("data: "));
        let events: Vec<Value> = data
            .map(|data| serde_json::from_str(data).unwrap())
            .collect();
        let names = told.lines().filter_map(|line| line.strip_prefix("event: "));
        assert!(names.eq(events.iter().map(|event| event["type"].as_str().unwrap())));
        events
    }

    fn kinds(events: &[Value]) -> Vec<&str> {
        events
            .iter()
            .map(|event| event["type"].as_str().unwrap())
            .collect()
    }

    #[test]
    fn a_text_is_one_block_between_the_start_and_the_stop() {
        let mut message = message();
        let mut told = String::new();
        message.chunk(
            chunk(json!({"role": "assistant", "content": ""}), None),
            &mut told,
        );
        message.chunk(chunk(json!({"content": "Hel"}), None), &mut told);
        message.chunk(chunk(json!({"content": "lo"}), Some("stop")), &mut told);
        let usage = json!({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}});
        message.chunk(Chunk::of_event(&usage), &mut told);
        message.end(&mut told);
        message.end(&mut told);
        let events = events(&told);
        let expected = [
            "message_start",
            "ping",
            "content_block_start",
            "content_block_delta",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ];
        assert_eq!(kinds(&events), expected);
        assert_eq!(events[0]["message"]["model"], "m");
        assert_eq!(
            events[3]["delta"],
            json!({"type": "text_delta", "text": "Hel"})
        );
        assert_eq!(events[6]["delta"]["stop_reason"], "end_turn");
        assert_eq!(events[6]["usage"]["input_tokens"], 5);
        assert_eq!(events[6]["usage"]["output_tokens"], 2);
    }

    #[test]
    fn calls_of_tools_are_blocks_whose_pieces_may_come_in_any_order() {
        let mut message = message();
        let mut told = String::new();
        let begin = |index: u64, name: &str| json!({"index": index, "id": format!("t{index}"), "function": {"name": name, "arguments": ""}});
        let piece =
            |index: u64, text: &str| json!({"index": index, "function": {"arguments": text}});
        message.chunk(chunk(json!({"content": "I look."}), None), &mut told);
        let both = json!({"tool_calls": [begin(0, "f"), begin(1, "g")]});
        message.chunk(chunk(both, None), &mut told);
        let pieces = json!({"tool_calls": [piece(1, "{\"b\""), piece(0, "{}"), piece(1, ":1}")]});
        message.chunk(chunk(pieces, Some("stop")), &mut told);
        message.end(&mut told);
        let events = events(&told);
        assert_eq!(events[4], json!({"type": "content_block_stop", "index": 0}));
        let block = json!({"type": "tool_use", "id": "t1", "name": "g", "input": {}});
        assert_eq!(events[6]["content_block"], block);
        let input: String = events
            .iter()
            .filter(|event| event["index"] == 2)
            .filter_map(|event| event["delta"]["partial_json"].as_str())
            .collect();
        assert_eq!(input, "{\"b\":1}");
        assert_eq!(events[12]["delta"]["stop_reason"], "tool_use");
        let stops = events
            .iter()
            .filter(|event| event["type"] == "content_block_stop");
        assert_eq!(stops.count(), 3);
    }

    #[test]
    fn an_error_ends_the_stream_and_nothing_follows_it() {
        let mut message = message();
        let mut told = String::new();
        message.chunk(chunk(json!({"content": "a"}), None), &mut told);
        let error = json!({"message": "out of memory", "type": "server_error"});
        message.failed(&error, &mut told);
        message.end(&mut told);
        let last = events(&told).pop().unwrap();
        assert_eq!(
            last["error"],
            json!({"type": "api_error", "message": "out of memory"})
        );
    }

    #[test]
    fn a_whole_answer_has_its_blocks_its_reason_and_its_usage() {
        let answer = json!({"choices": [{"message": {"content": "Hi", "tool_calls": [
                {"id": "t", "function": {"name": "f", "arguments": "{\"a\":1}"}}]}, "finish_reason": "tool_calls"}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}});
        let told = message().whole(Chunk::of_answer(&answer)).unwrap();
        let content = json!([{"type": "text", "text": "Hi"}, {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}]);
        assert_eq!(told["content"], content);
        assert_eq!(
            (&told["stop_reason"], &told["stop_sequence"]),
            (&json!("tool_use"), &Value::Null)
        );
        assert_eq!(told["usage"]["input_tokens"], 3);
        assert_eq!(told["usage"]["cache_read_input_tokens"], 4);
    }

    #[test]
    fn the_reason_of_the_end_is_told_in_their_words() {
        for (finish, stopped_by, reason) in [
            ("stop", json!(null), "end_turn"),
            ("stop", json!("END"), "stop_sequence"),
            ("stop", json!("of the model's file"), "end_turn"),
            ("length", json!(null), "max_tokens"),
            ("content_filter", json!(null), "refusal"),
        ] {
            let answer = json!({"choices": [{"message": {"content": "x"}, "finish_reason": finish, "stop_reason": stopped_by}]});
            let told = message().whole(Chunk::of_answer(&answer)).unwrap();
            assert_eq!(told["stop_reason"], reason);
            assert_eq!(told["stop_sequence"] == "END", reason == "stop_sequence");
        }
    }

    #[test]
    fn a_call_that_is_no_json_is_left_out_where_it_was_cut_and_an_error_otherwise() {
        let answer = |finish: &str| {
            let calls = json!([{"id": "t", "function": {"name": "f", "arguments": "{\"a\""}}]);
            let answer =
                json!({"choices": [{"message": {"tool_calls": calls}, "finish_reason": finish}]});
            message().whole(Chunk::of_answer(&answer))
        };
        assert_eq!(answer("length").unwrap()["content"], json!([]));
        assert_eq!(answer("tool_calls").unwrap_err().status.as_u16(), 502);
    }
}
