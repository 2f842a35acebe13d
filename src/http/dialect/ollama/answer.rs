//! Translates a chat's answer into Ollama's: one object, or a line for each piece. Tool calls are sent complete, so
//! that their pieces are kept until the end.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::super::chunk::{CallPiece, Chunk, Timings, Tokens};
use super::super::translation::Tell;
use super::errors::words_of;
use super::marks::Marks;
use crate::error::Failure;

pub(crate) const STREAM_TYPE: &str = "application/x-ndjson";
/// Keeps a stream alive before its first line: readers of lines take it for a part of that, and JSON begins with
/// spaces as it likes.
pub(crate) const PAUSE: &str = " ";
/// Calls longer than this are no calls.
const CALLS_BYTES_MAX: usize = 8 << 20;

/// Which route is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Chat,
    Generate,
}

/// One answer as far as it has been told.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    ask: Ask,
    /// The model's name as the client wrote it.
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
    pub fn of(ask: Ask, model: String, marks: Arc<Marks>) -> Answer {
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

    pub fn seated(&self) {
        self.marks.seated();
    }

    pub fn begun(&self) {
        self.marks.begun();
    }

    /// Nothing was to be answered: the model was loaded, or unloaded.
    pub fn without_text(&self, reason: &str) -> Value {
        let mut told = self.object(String::new(), String::new(), Vec::new(), true);
        told.insert("done_reason".to_owned(), json!(reason));
        Value::Object(told)
    }

    /// The whole answer as one object.
    pub fn whole(mut self, chunk: Chunk) -> Result<Value, Failure> {
        self.note(&chunk);
        let (text, thinking, logprobs) = (chunk.text, chunk.reasoning, chunk.logprobs);
        for piece in chunk.calls {
            self.keep(piece);
        }
        let calls = self.calls();
        let calls = calls.map_err(|why| Failure::engine(&self.model, why))?;
        let mut told = self.object(text, thinking, calls, true);
        add_logprobs(&mut told, logprobs);
        self.finish(&mut told);
        Ok(Value::Object(told))
    }

    fn note(&mut self, chunk: &Chunk) {
        if chunk.finish.is_some() {
            self.finish.clone_from(&chunk.finish);
        }
        self.usage = chunk.usage.or(self.usage);
        self.timings = chunk.timings.or(self.timings);
    }

    /// One piece of a call.
    fn keep(&mut self, piece: CallPiece) {
        self.calls_bytes += piece.arguments.len();
        let call = self.calls.entry(piece.index).or_default();
        call.id = call.id.take().or(piece.id);
        call.name = call.name.take().or(piece.name);
        if self.calls_bytes <= CALLS_BYTES_MAX {
            call.arguments.push_str(&piece.arguments);
        }
    }

    /// The calls with their arguments as objects.
    fn calls(&mut self) -> Result<Vec<Value>, &'static str> {
        if self.calls_bytes > CALLS_BYTES_MAX {
            return Err("it called a tool with more than 8 MiB of arguments");
        }
        let is_cut = self.finish.as_deref() == Some("length");
        let mut told = Vec::new();
        for (nth, call) in std::mem::take(&mut self.calls).into_values().enumerate() {
            let arguments = match call.arguments.trim() {
                "" => Ok(Map::new()),
                text => serde_json::from_str::<Map<String, Value>>(text),
            };
            match arguments {
                Ok(arguments) => {
                    let name = call.name.unwrap_or_default();
                    let function = json!({"index": nth, "name": name, "arguments": arguments});
                    let mut call_told = json!({"function": function});
                    if let Some(id) = call.id {
                        call_told["id"] = json!(id);
                    }
                    told.push(call_told);
                }
                // Cut in the middle; `done_reason` says so.
                Err(_) if is_cut => {}
                Err(_) => {
                    return Err(
                        "it called a tool with arguments that are no JSON object; ask again",
                    );
                }
            }
        }
        Ok(told)
    }

    /// What every object has.
    fn object(
        &self,
        text: String,
        thinking: String,
        calls: Vec<Value>,
        done: bool,
    ) -> Map<String, Value> {
        let mut told = Map::new();
        told.insert("model".to_owned(), json!(self.model));
        told.insert("created_at".to_owned(), json!(self.marks.created_at()));
        match self.ask {
            Ask::Chat => {
                let mut message = json!({"role": "assistant", "content": text});
                if !thinking.is_empty() {
                    message["thinking"] = json!(thinking);
                }
                if !calls.is_empty() {
                    message["tool_calls"] = json!(calls);
                }
                told.insert("message".to_owned(), message);
            }
            Ask::Generate => {
                told.insert("response".to_owned(), json!(text));
                if !thinking.is_empty() {
                    told.insert("thinking".to_owned(), json!(thinking));
                }
            }
        }
        told.insert("done".to_owned(), json!(done));
        told
    }

    /// Why it ended, and what it took.
    fn finish(&self, told: &mut Map<String, Value>) {
        let reason = match self.finish.as_deref() {
            // Ollama has no reason of its own for a call.
            None | Some("tool_calls" | "function_call") => "stop",
            Some(reason) => reason,
        };
        told.insert("done_reason".to_owned(), json!(reason));
        self.marks.of_answer(told, self.usage, self.timings);
    }
}

fn add_logprobs(told: &mut Map<String, Value>, logprobs: Vec<Value>) {
    if !logprobs.is_empty() {
        told.insert("logprobs".to_owned(), Value::Array(logprobs));
    }
}

fn write_line(told: &mut String, line: Map<String, Value>) {
    told.push_str(&Value::Object(line).to_string());
    told.push('\n');
}

impl Tell for Answer {
    fn chunk(&mut self, chunk: Chunk, told: &mut String) {
        if self.is_over {
            return;
        }
        self.note(&chunk);
        let says = !chunk.text.is_empty() || !chunk.reasoning.is_empty();
        if says || !chunk.calls.is_empty() {
            self.marks.begun();
        }
        for piece in chunk.calls {
            self.keep(piece);
        }
        if says || !chunk.logprobs.is_empty() {
            let mut line = self.object(chunk.text, chunk.reasoning, Vec::new(), false);
            add_logprobs(&mut line, chunk.logprobs);
            write_line(told, line);
        }
    }

    fn end(&mut self, told: &mut String) {
        if self.is_over {
            return;
        }
        match self.calls() {
            Err(why) => return self.failed(&json!({"message": why}), told),
            Ok(calls) if calls.is_empty() => {}
            Ok(calls) => {
                let line = self.object(String::new(), String::new(), calls, false);
                write_line(told, line);
            }
        }
        self.is_over = true;
        let mut line = self.object(String::new(), String::new(), Vec::new(), true);
        self.finish(&mut line);
        write_line(told, line);
    }

    fn failed(&mut self, error: &Value, told: &mut String) {
        if !std::mem::replace(&mut self.is_over, true) {
            let line = json!({"error": words_of(error)});
            told.push_str(&format!("{line}\n"));
        }
    }

    fn has_comments(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use controller::Clock;

    fn answer(ask: Ask) -> Answer {
        Answer::of(
            ask,
            "m:latest".to_owned(),
            Arc::new(Marks::begin(Clock::start())),
        )
    }

    fn chunk(delta: Value, finish: Option<&str>) -> Chunk {
        Chunk::of_event(&json!({"choices": [{"delta": delta, "finish_reason": finish}]}))
    }

    fn lines(told: &str) -> Vec<Value> {
        assert!(told.is_empty() || told.ends_with('\n'));
        told.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[test]
    fn a_stream_is_a_line_for_each_piece_and_one_with_what_it_took() {
        let mut answer = answer(Ask::Chat);
        answer.seated();
        let mut told = String::new();
        answer.chunk(
            chunk(json!({"role": "assistant", "content": ""}), None),
            &mut told,
        );
        assert_eq!(told, "", "a piece without a text is no line");
        answer.chunk(chunk(json!({"reasoning_content": "hm"}), None), &mut told);
        answer.chunk(chunk(json!({"content": "Hel"}), None), &mut told);
        answer.chunk(chunk(json!({"content": "lo"}), Some("length")), &mut told);
        let usage = json!({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}});
        answer.chunk(Chunk::of_event(&usage), &mut told);
        answer.end(&mut told);
        answer.end(&mut told);
        let lines = lines(&told);
        let messages: Vec<&Value> = lines.iter().map(|line| &line["message"]).collect();
        let text = |text: &str| json!({"role": "assistant", "content": text});
        let thought = json!({"role": "assistant", "content": "", "thinking": "hm"});
        assert_eq!(messages, [&thought, &text("Hel"), &text("lo"), &text("")]);
        let done: Vec<&Value> = lines.iter().map(|line| &line["done"]).collect();
        assert_eq!(done, [false, false, false, true]);
        let last = &lines[3];
        assert_eq!(
            (&last["done_reason"], &last["model"]),
            (&json!("length"), &json!("m:latest"))
        );
        assert_eq!(
            (&last["prompt_eval_count"], &last["eval_count"]),
            (&json!(5), &json!(2))
        );
        for name in [
            "total_duration",
            "load_duration",
            "prompt_eval_duration",
            "eval_duration",
        ] {
            assert!(last[name].is_u64(), "{name}: {last}");
        }
    }

    #[test]
    fn calls_are_told_whole_with_objects_for_arguments() {
        let piece =
            |text: &str| json!({"tool_calls": [{"index": 0, "function": {"arguments": text}}]});
        let begin = json!({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}]});
        let mut answer = answer(Ask::Chat);
        let mut told = String::new();
        for delta in [begin, piece("{\"city\":"), piece(" \"Ulm\"}")] {
            answer.chunk(chunk(delta, None), &mut told);
        }
        assert_eq!(told, "");
        answer.chunk(chunk(json!({}), Some("tool_calls")), &mut told);
        answer.end(&mut told);
        let lines = lines(&told);
        let call =
            json!({"id": "c", "function": {"index": 0, "name": "f", "arguments": {"city": "Ulm"}}});
        assert_eq!(lines[0]["message"]["tool_calls"], json!([call]));
        assert_eq!((lines.len(), &lines[1]["done_reason"]), (2, &json!("stop")));
    }

    #[test]
    fn arguments_that_are_none_are_an_error_unless_the_answer_was_cut() {
        let call =
            json!({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{\"a\""}}]});
        for (finish, is_error) in [("tool_calls", true), ("length", false)] {
            let mut streamed = answer(Ask::Chat);
            let mut told = String::new();
            streamed.chunk(chunk(call.clone(), Some(finish)), &mut told);
            streamed.end(&mut told);
            let lines = lines(&told);
            assert_eq!(
                (lines.len(), lines[0].get("error").is_some()),
                (1, is_error)
            );
            let body = json!({"choices": [{"message": call, "finish_reason": finish}]});
            let whole = answer(Ask::Chat).whole(Chunk::of_answer(&body));
            assert_eq!(whole.is_err(), is_error);
        }
    }

    #[test]
    fn a_whole_answer_is_one_object_and_a_prompts_has_its_text_in_response() {
        let body = json!({"choices": [{"message": {"content": "Hi", "reasoning_content": "hm"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 1}});
        let told = answer(Ask::Generate)
            .whole(Chunk::of_answer(&body))
            .unwrap();
        assert_eq!(
            (&told["response"], &told["thinking"]),
            (&json!("Hi"), &json!("hm"))
        );
        assert_eq!(
            (&told["done"], &told["done_reason"]),
            (&json!(true), &json!("stop"))
        );
        assert_eq!(told.get("message"), None);
        let text = json!({"choices": [{"text": "raw"}]});
        let told = answer(Ask::Generate)
            .whole(Chunk::of_answer(&text))
            .unwrap();
        assert_eq!(told["response"], "raw");
        assert_eq!(told.get("prompt_eval_count"), None, "what nobody counted");
        let loaded = answer(Ask::Chat).without_text("load");
        assert_eq!(
            loaded["message"],
            json!({"role": "assistant", "content": ""})
        );
        assert_eq!(
            (&loaded["done"], &loaded["done_reason"]),
            (&json!(true), &json!("load"))
        );
    }

    #[test]
    fn an_error_is_the_last_line() {
        let mut answer = answer(Ask::Generate);
        let mut told = String::new();
        answer.chunk(chunk(json!({"content": "a"}), None), &mut told);
        answer.failed(&json!({"message": "out of memory"}), &mut told);
        answer.end(&mut told);
        assert_eq!(
            lines(&told).last(),
            Some(&json!({"error": "out of memory"}))
        );
    }
}
