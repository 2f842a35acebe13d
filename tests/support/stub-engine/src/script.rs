//! What the stub is told to say: a reasoning, the arguments of its calls, the request that it got, or an error. Each has a
//! flag and is off by default.

use serde_json::{Value, json};

#[derive(Default)]
pub struct Script {
    /// `--reasoning TEXT`: said as `reasoning_content` before the answer of a chat, word by word.
    pub reasoning: Option<String>,
    /// `--arguments TEXT`: of its calls, instead of a city.
    pub arguments: Option<String>,
    /// `--echo`: the answer is the request's body, as JSON in one token.
    pub echo: bool,
    /// `--error-event JSON`: the first event of a stream is this error object.
    pub error_event: Option<Value>,
    /// `--refuse TEXT`: every completion gets 400 with this message.
    pub refuse: Option<String>,
}

impl Script {
    /// Whether it is one of the flags above.
    pub fn take(
        &mut self,
        name: &str,
        value: &mut impl FnMut() -> Result<String, String>,
    ) -> Result<bool, String> {
        match name {
            "--reasoning" => self.reasoning = Some(value()?),
            "--arguments" => self.arguments = Some(value()?),
            "--echo" => self.echo = true,
            "--error-event" => {
                let error: Value = serde_json::from_str(&value()?)
                    .map_err(|error| format!("--error-event: {error}"))?;
                self.error_event = Some(json!({ "error": error }));
            }
            "--refuse" => self.refuse = Some(value()?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The words of the reasoning, each with the space before it.
    pub fn thoughts(&self) -> Vec<String> {
        let text = self.reasoning.as_deref().unwrap_or_default();
        text.split_inclusive(' ').map(str::to_owned).collect()
    }

    /// The arguments of a call, in the pieces of a stream: the name comes with the first.
    pub fn call_pieces(&self) -> Vec<String> {
        let text = self.arguments.as_deref().unwrap_or("{\"city\": \"Ulm\"}");
        let middle = text.char_indices().nth(text.chars().count() / 2 + 1);
        let (begin, end) = text.split_at(middle.map_or(text.len(), |(place, _)| place));
        [String::new(), begin.to_owned(), end.to_owned()].to_vec()
    }
}
