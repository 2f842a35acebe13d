//! Checks items that clients add to a conversation, and adds a request of the pool to one.

use serde_json::{Value, json};

use super::{Chat, join};
use crate::fields::RequestFields;
use crate::responses::tools::ToolNames;
use crate::seal::Sealer;
use api_types::error::Failure;
use reading::IgnoredFields;

/// Checks items as they are added to a conversation, named `items` in messages.
pub fn check_items(items: &[Value], sealer: &Sealer) -> Result<(), Failure> {
    let mut chat = Chat {
        messages: Vec::new(),
        thought: None,
        pictures: Vec::new(),
        earlier: None,
        names: &ToolNames::default(),
        sealer,
        ignored: &mut IgnoredFields::default(),
    };
    for (nth, item) in items.iter().enumerate() {
        let item = RequestFields::new(format!("items[{nth}]"), item.clone())?;
        if item.get("type").and_then(Value::as_str) == Some("item_reference") {
            return Err(item.wrong("type", "the type of an item with its content"));
        }
        chat.item(item)?;
    }
    Ok(())
}

/// Adds a request of the user at the end of a conversation.
pub fn add_request(messages: &mut Vec<Value>, text: &str) {
    match messages.last_mut() {
        Some(last) if last["role"] == "user" => join(&mut last["content"], json!(text)),
        _ => messages.push(json!({"role": "user", "content": text})),
    }
}
