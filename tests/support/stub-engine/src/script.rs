//! Scripted output of the stub: reasoning, call arguments, the received request, an error, or a sequence of turns. Each has a flag
//! and is off by default.

use std::path::PathBuf;

use serde_json::{Value, json};

#[derive(Default)]
pub struct Script {
    /// `--reasoning TEXT`: sent as `reasoning_content` before the response of a chat, word by word.
    pub reasoning: Option<String>,
    /// `--endless-reasoning`: repeats the reasoning at the pace of tokens, and never responds.
    pub is_endless: bool,
    /// `--arguments TEXT`: arguments of its calls, instead of a city.
    pub arguments: Option<String>,
    /// `--argument-pieces N`: number of pieces of streamed arguments, instead of two.
    pub argument_pieces: Option<usize>,
    /// `--echo`: responds with the request's body, as JSON in one token.
    pub echo: bool,
    /// `--error-event JSON`: the first event of a stream is this error object.
    pub error_event: Option<Value>,
    /// `--refuse TEXT`: every completion gets 400 with this message.
    pub refuse: Option<String>,
    /// `--turns FILE`: an object that is read at each request. `turns` lists the responses with tools, each `{"call": NAME,
    /// "arguments": …}` or `{"say": TEXT}`; the number of tool results selects the turn, and the last turn repeats. `json` is the
    /// response for a required format, and `plain` the response otherwise.
    pub turns: Option<PathBuf>,
}

/// One turn of a conversation.
pub enum Turn {
    /// It calls this tool with these arguments.
    Call(String, String),
    Say(String),
}

impl Script {
    /// Parses a flag. Returns false if it belongs to another group.
    pub fn take(
        &mut self,
        name: &str,
        value: &mut impl FnMut() -> Result<String, String>,
    ) -> Result<bool, String> {
        match name {
            "--reasoning" => self.reasoning = Some(value()?),
            "--arguments" => self.arguments = Some(value()?),
            "--argument-pieces" => {
                let number = value()?.parse();
                let number = number.map_err(|error| format!("--argument-pieces: {error}"))?;
                self.argument_pieces = Some(number);
            }
            "--endless-reasoning" => self.is_endless = true,
            "--echo" => self.echo = true,
            "--error-event" => {
                let error: Value = serde_json::from_str(&value()?)
                    .map_err(|error| format!("--error-event: {error}"))?;
                self.error_event = Some(json!({ "error": error }));
            }
            "--refuse" => self.refuse = Some(value()?),
            "--turns" => self.turns = Some(value()?.into()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The words of the reasoning, each with the space before it.
    pub fn thoughts(&self) -> Vec<String> {
        let text = self.reasoning.as_deref().unwrap_or_default();
        text.split_inclusive(' ').map(str::to_owned).collect()
    }

    /// The current turn, if turns are configured. A tool is found by the end of its name.
    pub fn turn(&self, request: &Value) -> Result<Option<Turn>, String> {
        let Some(path) = &self.turns else {
            return Ok(None);
        };
        let text = std::fs::read_to_string(path).map_err(|error| format!("--turns: {error}"))?;
        let known: Value =
            serde_json::from_str(&text).map_err(|error| format!("--turns: {error}"))?;
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let messages = list(&request["messages"]);
        let results = messages
            .iter()
            .filter(|message| message["role"] == "tool")
            .count();
        let turns = list(&known["turns"]);
        let turn = turns.get(results).or(turns.last());
        let tools = list(&request["tools"]);
        if let Some(turn) = turn.filter(|_| !tools.is_empty()) {
            if let Some(text) = turn["say"].as_str() {
                return Ok(Some(Turn::Say(text.to_owned())));
            }
            let wanted = turn["call"].as_str().unwrap_or_default();
            let mut names = tools
                .iter()
                .filter_map(|tool| tool["function"]["name"].as_str());
            let name = names.find(|name| name.ends_with(wanted));
            let name = name.ok_or_else(|| format!("--turns: the request has no tool {wanted}"))?;
            let arguments = turn["arguments"].to_string();
            return Ok(Some(Turn::Call(name.to_owned(), arguments)));
        }
        let kind = request["response_format"]["type"]
            .as_str()
            .unwrap_or("text");
        Ok(match (kind, &known["json"], known["plain"].as_str()) {
            ("text", _, Some(text)) => Some(Turn::Say(text.to_owned())),
            ("text", _, None) | (_, Value::Null, _) => None,
            (_, json, _) => Some(Turn::Say(json.to_string())),
        })
    }

    /// The arguments of a call in stream pieces; the name comes with the first piece.
    pub fn call_pieces(&self, arguments: Option<&str>) -> Vec<String> {
        let text = arguments.or(self.arguments.as_deref());
        let text = text.unwrap_or("{\"city\": \"Ulm\"}");
        if let Some(pieces) = self.argument_pieces {
            let letters: Vec<char> = text.chars().collect();
            let pieces = letters.chunks(letters.len().div_ceil(pieces.max(1)));
            let pieces = pieces.map(|piece| piece.iter().collect());
            return std::iter::once(String::new()).chain(pieces).collect();
        }
        let middle = text.char_indices().nth(text.chars().count() / 2 + 1);
        let (begin, end) = text.split_at(middle.map_or(text.len(), |(place, _)| place));
        [String::new(), begin.to_owned(), end.to_owned()].to_vec()
    }
}
