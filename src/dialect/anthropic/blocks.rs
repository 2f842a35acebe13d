//! Translates messages of the Messages API into OpenAI messages, block by block: images become data: URLs, tool uses become calls,
//! tool results become separate messages, and thinking signed by this pool becomes the turn's reasoning.

use serde_json::{Map, Value, json};

use super::super::seal::Sealer;
use super::super::translation::arguments_of;
use crate::fields::{RequestFields, wrong};
use api_types::error::Failure;
use reading::IgnoredFields;

/// Image types that the API accepts.
const PICTURES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];

/// Blocks left by server-side tools in an earlier conversation. They are not passed to the model.
const OF_A_SERVER: [&str; 9] = [
    "server_tool_use",
    "web_search_tool_result",
    "web_fetch_tool_result",
    "code_execution_tool_result",
    "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result",
    "tool_search_tool_result",
    "mcp_tool_use",
    "mcp_tool_result",
];

/// State collected while messages are read.
pub(super) struct Notes {
    pub ignored: IgnoredFields,
    sealer: Sealer,
}

impl Notes {
    pub fn new(sealer: Sealer) -> Notes {
        Notes {
            ignored: IgnoredFields::default(),
            sealer,
        }
    }

    /// Accepts a `cache_control` hint on any block and notes it as ignored.
    pub(crate) fn cache_control(&mut self, block: &mut RequestFields) -> Result<(), Failure> {
        if let Some(mut hint) = block.object("cache_control")? {
            hint.text("type")?;
            self.ignored.add("cache_control");
        }
        Ok(())
    }
}

/// Reads a string, or a list that contains only text blocks.
pub(super) fn text_of(at: &str, value: Value, notes: &mut Notes) -> Result<String, Failure> {
    let blocks = match value {
        Value::String(text) => return Ok(text),
        Value::Array(blocks) => blocks,
        _ => return Err(wrong(at, "a string or a list of blocks")),
    };
    let mut texts = Vec::new();
    for (nth, block) in blocks.into_iter().enumerate() {
        let mut block = RequestFields::new(format!("{at}[{nth}]"), block)?;
        let kind = block.need_text("type")?;
        if kind != "text" {
            return Err(block.not_here(
                "type",
                &format!("`{kind}` is not allowed in {at}; only text is"),
            ));
        }
        texts.push(text(block, notes)?);
    }
    Ok(texts.join("\n"))
}

/// Translates a list of messages.
pub(super) fn messages(items: Vec<Value>, notes: &mut Notes) -> Result<Vec<Value>, Failure> {
    let mut turns: Vec<Turn> = Vec::new();
    for (nth, message) in items.into_iter().enumerate() {
        let at = format!("messages[{nth}]");
        let mut message = RequestFields::new(at, message)?;
        let role = message.need_text("role")?;
        let is_user = match role.as_str() {
            "user" => true,
            "assistant" => false,
            "system" => {
                instructions(&mut turns, message, notes)?;
                continue;
            }
            _ => return Err(message.wrong("role", "user, assistant or system")),
        };
        // Consecutive messages of the same role form one turn.
        if turns.last().is_none_or(|turn| turn.is_user != is_user) {
            turns.push(Turn::new(is_user));
        }
        let turn = turns.last_mut().expect("just pushed");
        let at = message.path("content");
        match message.need("content")? {
            Value::String(text) => turn.text(text),
            Value::Array(blocks) => {
                for (nth, block) in blocks.into_iter().enumerate() {
                    turn.block(RequestFields::new(format!("{at}[{nth}]"), block)?, notes)?;
                }
            }
            _ => return Err(wrong(&at, "a string or a list of blocks")),
        }
        message.drop_rest(&mut notes.ignored);
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

/// Adds instructions from the middle of a conversation. Chat templates accept a single system message at the beginning, so later
/// instructions are added to the user's text with a mark.
fn instructions(
    turns: &mut Vec<Turn>,
    mut message: RequestFields,
    notes: &mut Notes,
) -> Result<(), Failure> {
    let at = message.path("content");
    let text = text_of(&at, message.need("content")?, notes)?;
    notes.cache_control(&mut message)?;
    message.drop_rest(&mut notes.ignored);
    if turns.last().is_none_or(|turn| !turn.is_user) {
        turns.push(Turn::new(true));
    }
    let turn = turns.last_mut().expect("just pushed");
    turn.text(format!("<system>\n{text}\n</system>"));
    Ok(())
}

/// Consecutive messages from one side of the conversation.
struct Turn {
    is_user: bool,
    /// OpenAI content parts.
    parts: Vec<Value>,
    calls: Vec<Value>,
    /// Messages that precede this one.
    results: Vec<Value>,
    /// Images from tool results, as content parts of this message.
    pictures: Vec<Value>,
    /// Reasoning that precedes this text.
    thinking: Vec<String>,
}

impl Turn {
    fn new(is_user: bool) -> Turn {
        Turn {
            is_user,
            parts: Vec::new(),
            calls: Vec::new(),
            results: Vec::new(),
            pictures: Vec::new(),
            thinking: Vec::new(),
        }
    }

    fn text(&mut self, text: String) {
        self.parts.push(json!({"type": "text", "text": text}));
    }

    fn block(&mut self, mut block: RequestFields, notes: &mut Notes) -> Result<(), Failure> {
        let kind = block.need_text("type")?;
        match (kind.as_str(), self.is_user) {
            ("text", _) => self.text(text(block, notes)?),
            ("image", true) => self.parts.push(picture(block, notes)?),
            // Other user content follows the tool results, which must come directly after the calls.
            ("tool_result", true) => self.result(block, notes)?,
            ("tool_use", false) => self.calls.push(call(block, notes)?),
            ("thinking" | "redacted_thinking", false) => {
                self.thinking.extend(thinking(&kind, block, notes)?);
            }
            ("document", true) => self.text(document(block, notes)?),
            (other, false) if OF_A_SERVER.contains(&other) => {
                notes.ignored.add(format!("messages.{other}"));
            }
            (_, is_user) => {
                let allowed = if is_user {
                    "text, image, document or tool_result in a user's message"
                } else {
                    "text, thinking, redacted_thinking or tool_use in an assistant's message"
                };
                return Err(block.wrong("type", allowed));
            }
        }
        Ok(())
    }

    /// Reads a tool result. Tool messages of a chat cannot contain images, so images follow in a user message.
    fn result(&mut self, mut block: RequestFields, notes: &mut Notes) -> Result<(), Failure> {
        let id = block.need_text("tool_use_id")?;
        let at = block.path("content");
        let blocks = match block.take("content") {
            None => Vec::new(),
            Some(Value::String(text)) => vec![json!({"type": "text", "text": text})],
            Some(Value::Array(blocks)) => blocks,
            Some(_) => return Err(wrong(&at, "a string or a list of blocks")),
        };
        let (mut texts, mut pictures) = (Vec::new(), Vec::new());
        for (nth, inner) in blocks.into_iter().enumerate() {
            let mut inner = RequestFields::new(format!("{at}[{nth}]"), inner)?;
            match inner.need_text("type")?.as_str() {
                "text" => texts.push(text(inner, notes)?),
                "image" => pictures.push(picture(inner, notes)?),
                "document" => texts.push(document(inner, notes)?),
                // A tool found by tool search. The model already knows every tool.
                "tool_reference" => texts.push(inner.need_text("tool_name")?),
                _ => {
                    let allowed = "text, image, document or tool_reference in a result";
                    return Err(inner.wrong("type", allowed));
                }
            }
        }
        let mut content = texts.join("\n");
        // OpenAI messages have no field for tool errors.
        if block.flag("is_error")? == Some(true) {
            content = format!("Error: {content}");
        }
        notes.cache_control(&mut block)?;
        block.drop_rest(&mut notes.ignored);
        if !pictures.is_empty() {
            let about = format!("Images returned by call {id}:");
            self.pictures.push(json!({"type": "text", "text": about}));
            self.pictures.extend(pictures);
        }
        self.results
            .push(json!({"role": "tool", "tool_call_id": id, "content": content}));
        Ok(())
    }

    fn written(self) -> Vec<Value> {
        let mut all = self.results;
        let mut parts = self.pictures;
        parts.extend(self.parts);
        let content = content(parts);
        let mut message = Map::new();
        let role = if self.is_user { "user" } else { "assistant" };
        message.insert("role".to_owned(), json!(role));
        let has_content = !content.is_null();
        if has_content || !self.calls.is_empty() || all.is_empty() {
            message.insert(
                "content".to_owned(),
                if has_content || !self.calls.is_empty() {
                    content
                } else {
                    json!("")
                },
            );
            if !self.thinking.is_empty() {
                let thinking = self.thinking.join("\n\n");
                message.insert("reasoning_content".to_owned(), json!(thinking));
            }
            if !self.calls.is_empty() {
                message.insert("tool_calls".to_owned(), json!(self.calls));
            }
            all.push(Value::Object(message));
        }
        all
    }
}

/// Joins text-only content into one string, the form that chat templates support best.
fn content(parts: Vec<Value>) -> Value {
    let texts: Option<Vec<&str>> = parts.iter().map(|part| part["text"].as_str()).collect();
    match texts {
        Some(texts) if texts.is_empty() => Value::Null,
        Some(texts) => json!(texts.join("\n")),
        None => json!(parts),
    }
}

fn text(mut block: RequestFields, notes: &mut Notes) -> Result<String, Failure> {
    let text = block.need_text("text")?;
    notes.cache_control(&mut block)?;
    // Citations of an earlier response, with their sources.
    if block
        .list("citations")?
        .is_some_and(|citations| !citations.is_empty())
    {
        notes.ignored.add("citations");
    }
    block.drop_rest(&mut notes.ignored);
    Ok(text)
}

fn picture(mut block: RequestFields, notes: &mut Notes) -> Result<Value, Failure> {
    let at = block.path("source");
    let mut source = RequestFields::new(at, block.need("source")?)?;
    let kind = source.need_text("type")?;
    if kind != "base64" {
        return Err(source.not_here(
            "type",
            "send images as base64; addresses are not fetched, and files are not stored",
        ));
    }
    let media = source.need_text("media_type")?;
    if !PICTURES.contains(&media.as_str()) {
        return Err(source.wrong("media_type", &format!("one of {}", PICTURES.join(", "))));
    }
    let data = source.need_text("data")?;
    source.drop_rest(&mut notes.ignored);
    notes.cache_control(&mut block)?;
    block.drop_rest(&mut notes.ignored);
    let url = format!("data:{media};base64,{data}");
    Ok(json!({"type": "image_url", "image_url": {"url": url}}))
}

/// Reads the model's reasoning, if this pool wrote it for this key. Other reasoning is unreadable and is dropped.
fn thinking(
    kind: &str,
    mut block: RequestFields,
    notes: &mut Notes,
) -> Result<Option<String>, Failure> {
    notes.cache_control(&mut block)?;
    let known = match kind {
        "thinking" => {
            let text = block.need_text("thinking")?;
            let signature = block.need_text("signature")?;
            if text.is_empty() {
                notes.sealer.open(&signature)
            } else {
                Some(text).filter(|text| notes.sealer.has_signed(text, &signature))
            }
        }
        _ => notes.sealer.open(&block.need_text("data")?),
    };
    block.drop_rest(&mut notes.ignored);
    if known.is_none() {
        notes.ignored.add(format!("messages.{kind}"));
    }
    Ok(known)
}

/// Reads a text document.
fn document(mut block: RequestFields, notes: &mut Notes) -> Result<String, Failure> {
    let at = block.path("source");
    let mut source = RequestFields::new(at, block.need("source")?)?;
    if source.need_text("type")? != "text" {
        return Err(source.not_here(
            "type",
            "of documents only plain text is read (\"type\": \"text\"); send the text of others",
        ));
    }
    source.one_of("media_type", &["text/plain"])?;
    let text = source.need_text("data")?;
    source.drop_rest(&mut notes.ignored);
    let title = block.text("title")?;
    let context = block.text("context")?;
    if let Some(mut citations) = block.object("citations")? {
        let why = "models here do not produce citations";
        citations.refuse("enabled", &[json!(false)], why)?;
        citations.drop_rest(&mut notes.ignored);
    }
    notes.cache_control(&mut block)?;
    block.drop_rest(&mut notes.ignored);
    let parts = [title, context, Some(text)];
    Ok(parts.into_iter().flatten().collect::<Vec<_>>().join("\n"))
}

fn call(mut block: RequestFields, notes: &mut Notes) -> Result<Value, Failure> {
    let id = block.need_text("id")?;
    let name = block.need_text("name")?;
    let input = arguments_of(block.take("input"));
    notes.cache_control(&mut block)?;
    // The model itself made the call.
    block.refuse(
        "caller",
        &[json!({"type": "direct"})],
        "only the model calls tools",
    )?;
    block.drop_rest(&mut notes.ignored);
    let function = json!({"name": name, "arguments": input});
    Ok(json!({"id": id, "type": "function", "function": function}))
}

#[cfg(test)]
mod tests;
