//! The messages of the Messages API, block by block, as OpenAI's: pictures become data: URLs, uses of tools
//! calls, and their results messages of their own.

use serde_json::{Map, Value, json};

use super::super::taken::Taken;
use crate::error::Failure;

/// Kinds of pictures that the API has.
const PICTURES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];

/// Hints that change no answer and have no effect here.
#[derive(Debug, Default)]
pub(super) struct Noted {
    cache: bool,
}

impl Noted {
    pub fn cache_control(&mut self, block: &mut Taken) -> Result<(), Failure> {
        if let Some(mut hint) = block.object("cache_control")? {
            hint.refuse("type", &[json!("ephemeral")], "there is `ephemeral`")?;
            hint.text("ttl")?;
            hint.finish()?;
            self.cache = true;
        }
        Ok(())
    }

    pub fn ignored(&self) -> Vec<String> {
        let names = self.cache.then(|| "cache_control".to_owned());
        names.into_iter().collect()
    }
}

/// A text, or blocks of nothing but text.
pub(super) fn text_of(at: &str, value: Value, noted: &mut Noted) -> Result<String, Failure> {
    let blocks = match value {
        Value::String(text) => return Ok(text),
        Value::Array(blocks) => blocks,
        _ => return Err(wrong(at, "a string or a list of blocks")),
    };
    let mut texts = Vec::new();
    for (nth, block) in blocks.into_iter().enumerate() {
        let mut block = Taken::of(format!("{at}[{nth}]"), block)?;
        let kind = block.need_text("type")?;
        if kind != "text" {
            return Err(block.not_here(
                "type",
                &format!("`{kind}` has no place in {at}, only text has"),
            ));
        }
        texts.push(text(block, noted)?);
    }
    Ok(texts.join("\n"))
}

/// OpenAI's messages for these.
pub(super) fn messages(given: Vec<Value>, noted: &mut Noted) -> Result<Vec<Value>, Failure> {
    let mut turns: Vec<Turn> = Vec::new();
    for (nth, message) in given.into_iter().enumerate() {
        let at = format!("messages[{nth}]");
        let mut message = Taken::of(at, message)?;
        let role = message.need_text("role")?;
        let is_user = match role.as_str() {
            "user" => true,
            "assistant" => false,
            _ => {
                return Err(message.wrong(
                    "role",
                    "user or assistant (a system prompt stands in `system`)",
                ));
            }
        };
        // Turns of one role that follow each other are one turn.
        if turns.last().is_none_or(|turn| turn.is_user != is_user) {
            turns.push(Turn::of(is_user));
        }
        let turn = turns.last_mut().expect("just pushed");
        let at = message.path("content");
        match message.need("content")? {
            Value::String(text) => turn.text(text),
            Value::Array(blocks) => {
                for (nth, block) in blocks.into_iter().enumerate() {
                    turn.block(Taken::of(format!("{at}[{nth}]"), block)?, noted)?;
                }
            }
            _ => return Err(wrong(&at, "a string or a list of blocks")),
        }
        message.finish()?;
    }
    match turns.last() {
        None => Err(wrong("messages", "a list of at least one message")),
        Some(turn) if !turn.is_user => Err(Failure::invalid(
            "messages".to_owned(),
            "the last message must be the user's: an answer that is begun for the model is not supported here",
        )),
        Some(_) => Ok(turns.into_iter().flat_map(Turn::written).collect()),
    }
}

/// All that one side says before the other does.
struct Turn {
    is_user: bool,
    /// OpenAI's content parts.
    parts: Vec<Value>,
    calls: Vec<Value>,
    /// Messages that go before this one.
    results: Vec<Value>,
}

impl Turn {
    fn of(is_user: bool) -> Turn {
        Turn {
            is_user,
            parts: Vec::new(),
            calls: Vec::new(),
            results: Vec::new(),
        }
    }

    fn text(&mut self, text: String) {
        self.parts.push(json!({"type": "text", "text": text}));
    }

    fn block(&mut self, mut block: Taken, noted: &mut Noted) -> Result<(), Failure> {
        let kind = block.need_text("type")?;
        match (kind.as_str(), self.is_user) {
            ("text", _) => self.text(text(block, noted)?),
            ("image", true) => self.parts.push(picture(block, noted)?),
            ("tool_result", true) if !self.parts.is_empty() => {
                return Err(block.not_here(
                    "type",
                    "results of tools stand before everything else that the user says",
                ));
            }
            ("tool_result", true) => self.results.push(result(block, noted)?),
            ("tool_use", false) => self.calls.push(call(block, noted)?),
            ("thinking" | "redacted_thinking", false) => {
                return Err(block.not_here(
                    "type",
                    "the models here are given no thinking of before; leave the block out",
                ));
            }
            ("document", true) => {
                return Err(block.not_here(
                    "type",
                    "documents are not read; send their text as a text block",
                ));
            }
            (_, is_user) => {
                let allowed = match is_user {
                    true => "text, image or tool_result in a user's message",
                    false => "text or tool_use in an assistant's message",
                };
                return Err(block.wrong("type", allowed));
            }
        }
        Ok(())
    }

    fn written(self) -> Vec<Value> {
        let mut all = self.results;
        let content = content(self.parts);
        let mut message = Map::new();
        let role = if self.is_user { "user" } else { "assistant" };
        message.insert("role".to_owned(), json!(role));
        let is_said = !content.is_null();
        if is_said || !self.calls.is_empty() || all.is_empty() {
            message.insert(
                "content".to_owned(),
                match is_said || !self.calls.is_empty() {
                    true => content,
                    false => json!(""),
                },
            );
            if !self.calls.is_empty() {
                message.insert("tool_calls".to_owned(), json!(self.calls));
            }
            all.push(Value::Object(message));
        }
        all
    }
}

/// One text where there are only texts: templates of chats know those best.
fn content(parts: Vec<Value>) -> Value {
    let texts: Option<Vec<&str>> = parts.iter().map(|part| part["text"].as_str()).collect();
    match texts {
        Some(texts) if texts.is_empty() => Value::Null,
        Some(texts) => json!(texts.join("\n")),
        None => json!(parts),
    }
}

fn text(mut block: Taken, noted: &mut Noted) -> Result<String, Failure> {
    let text = block.need_text("text")?;
    noted.cache_control(&mut block)?;
    block.refuse("citations", &[json!([])], "there are no documents to cite")?;
    block.finish()?;
    Ok(text)
}

fn picture(mut block: Taken, noted: &mut Noted) -> Result<Value, Failure> {
    let at = block.path("source");
    let mut source = Taken::of(at, block.need("source")?)?;
    let kind = source.need_text("type")?;
    if kind != "base64" {
        return Err(source.not_here(
            "type",
            "pictures are sent as base64; nothing is fetched from addresses, and no files are kept",
        ));
    }
    let media = source.need_text("media_type")?;
    if !PICTURES.contains(&media.as_str()) {
        return Err(source.wrong("media_type", &format!("one of {}", PICTURES.join(", "))));
    }
    let data = source.need_text("data")?;
    source.finish()?;
    noted.cache_control(&mut block)?;
    block.finish()?;
    let url = format!("data:{media};base64,{data}");
    Ok(json!({"type": "image_url", "image_url": {"url": url}}))
}

fn result(mut block: Taken, noted: &mut Noted) -> Result<Value, Failure> {
    let id = block.need_text("tool_use_id")?;
    let at = block.path("content");
    let content = block.take("content");
    let content = content
        .map(|content| text_of(&at, content, noted))
        .transpose()?;
    let mut content = content.unwrap_or_default();
    // OpenAI's messages have no other place for it.
    if block.flag("is_error")? == Some(true) {
        content = format!("Error: {content}");
    }
    noted.cache_control(&mut block)?;
    block.finish()?;
    Ok(json!({"role": "tool", "tool_call_id": id, "content": content}))
}

fn call(mut block: Taken, noted: &mut Noted) -> Result<Value, Failure> {
    let id = block.need_text("id")?;
    let name = block.need_text("name")?;
    let input = block.need("input")?;
    if !input.is_object() {
        return Err(block.wrong("input", "an object"));
    }
    noted.cache_control(&mut block)?;
    // As it was told: by the model itself.
    block.refuse(
        "caller",
        &[json!({"type": "direct"})],
        "only the model calls tools",
    )?;
    block.finish()?;
    let function = json!({"name": name, "arguments": input.to_string()});
    Ok(json!({"id": id, "type": "function", "function": function}))
}

fn wrong(path: &str, wanted: &str) -> Failure {
    Failure::invalid(path.to_owned(), format!("`{path}` must be {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(given: Value) -> Result<Value, Failure> {
        let given = given.as_array().unwrap().clone();
        messages(given, &mut Noted::default()).map(|all| json!(all))
    }

    #[test]
    fn a_tool_that_was_used_and_its_result_are_a_call_and_a_message() {
        let told = told(json!([
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": [{"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Ulm"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "rain"}], "is_error": true},
                {"type": "text", "text": "And?"}]},
        ]))
        .unwrap();
        let expected = json!([
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": "I look.", "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Ulm\"}"}}]},
            {"role": "tool", "tool_call_id": "t1", "content": "Error: rain"},
            {"role": "user", "content": "And?"},
        ]);
        assert_eq!(told, expected);
    }

    #[test]
    fn a_result_alone_is_no_empty_turn_and_turns_of_one_role_are_one() {
        let told = told(json!([
            {"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "text", "text": "b"}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]},
        ]))
        .unwrap();
        assert_eq!(told[0], json!({"role": "user", "content": "a\nb"}));
        assert_eq!(told[1]["content"], Value::Null);
        assert_eq!(
            told[2],
            json!({"role": "tool", "tool_call_id": "t", "content": ""})
        );
        assert_eq!(told.as_array().unwrap().len(), 3);
    }

    #[test]
    fn a_picture_becomes_a_data_url_and_none_is_fetched() {
        let message = |source: Value| json!([{"role": "user", "content": [{"type": "image", "source": source}]}]);
        let source = json!({"type": "base64", "media_type": "image/png", "data": "AA=="});
        let told_one = told(message(source)).unwrap();
        assert_eq!(
            told_one[0]["content"][0]["image_url"]["url"],
            "data:image/png;base64,AA=="
        );
        for (source, named) in [
            (
                json!({"type": "url", "url": "http://127.0.0.1/"}),
                "messages[0].content[0].source.type",
            ),
            (
                json!({"type": "file", "file_id": "f"}),
                "messages[0].content[0].source.type",
            ),
            (
                json!({"type": "base64", "media_type": "text/html", "data": ""}),
                "messages[0].content[0].source.media_type",
            ),
        ] {
            let failure = told(message(source)).unwrap_err();
            assert_eq!(failure.body.error.param.as_deref(), Some(named));
        }
    }

    #[test]
    fn turns_that_no_model_can_take_are_named() {
        for (given, named) in [
            (json!([]), "messages"),
            (
                json!([{"role": "assistant", "content": "I am"}]),
                "messages",
            ),
            (
                json!([{"role": "system", "content": "x"}]),
                "messages[0].role",
            ),
            (json!([{"role": "user"}]), "messages[0].content"),
            (
                json!([{"role": "user", "content": [{"type": "document"}]}]),
                "messages[0].content[0].type",
            ),
            (
                json!([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "tool_result", "tool_use_id": "t"}]}]),
                "messages[0].content[1].type",
            ),
            (
                json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "thinking"}]}]),
                "messages[1].content[0].type",
            ),
            (
                json!([{"role": "user", "content": "a", "name": "n"}]),
                "messages[0].name",
            ),
        ] {
            let failure = told(given.clone()).unwrap_err();
            assert_eq!(failure.body.error.param.as_deref(), Some(named), "{given}");
        }
    }
}
