//! The stored form of a response: the request's items, each with an id, and the output items. Reasoning is included, sealed if the
//! client receives only a summary.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use store::{StoredItem, StoredResponse};

use super::super::ids::new_id;
use super::super::seal::Sealer;
use super::Response;
use super::items::check_items;
use super::response::Item;
use crate::stored::{Earlier, Unwritten};
use api_types::error::Failure;

/// The items of `input`, with references replaced by the items they refer to.
pub(super) fn items_of(input: &Value, earlier: &Earlier) -> Vec<StoredItem> {
    let message = |text: &str| json!({"type": "message", "role": "user", "content": text});
    match input {
        Value::String(text) => vec![with_id(&message(text))],
        Value::Array(items) => items
            .iter()
            .filter_map(|item| match item.get("type").and_then(Value::as_str) {
                Some("item_reference") => {
                    let id = item.get("id")?.as_str()?;
                    Some(StoredItem {
                        id: id.to_owned(),
                        item: earlier.item(id)?.to_owned(),
                    })
                }
                _ => Some(with_id(item)),
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// The items of the `input` of a request's body, without references. Empty if the body cannot be read.
pub fn input_items(body: &[u8]) -> Vec<StoredItem> {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    items_of(&body["input"], &Earlier::default())
}

/// The items that a client adds to a conversation.
pub fn given_items(items: &[Value], sealer: &Sealer) -> Result<Vec<StoredItem>, Failure> {
    check_items(items, sealer)?;
    Ok(items.iter().map(with_id).collect())
}

/// Completes an item as OpenAI returns it: with type, id, status, and its text as a part. Serializes it in one pass, since an input
/// may have ten thousand items.
fn with_id(item: &Value) -> StoredItem {
    let Value::Object(fields) = item else {
        return StoredItem {
            id: new_id("item"),
            item: item.to_string(),
        };
    };
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    let kind = text("type").unwrap_or("message");
    let prefix = match kind {
        "message" => "msg",
        "function_call" => "fc",
        "function_call_output" => "fco",
        "custom_tool_call" => "ctc",
        "custom_tool_call_output" => "ctco",
        "reasoning" => "rs",
        "compaction" => "cmp",
        _ => "item",
    };
    let id = text("id").filter(|id| !id.is_empty());
    let id = id.map_or_else(|| new_id(prefix), str::to_owned);
    let returned = Returned {
        fields,
        kind,
        id: &id,
    };
    // Serialization cannot fail: all keys are strings.
    let item = serde_json::to_string(&returned).unwrap_or_default();
    StoredItem { item, id }
}

/// Serializes an item that a client sent.
struct Returned<'a> {
    fields: &'a Map<String, Value>,
    kind: &'a str,
    id: &'a str,
}

/// A text as a part of a message.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum TextPart<'a> {
    InputText {
        text: &'a str,
    },
    OutputText {
        text: &'a str,
        annotations: [(); 0],
        logprobs: [(); 0],
    },
}

impl Serialize for Returned<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let own = ["type", "id"];
        let is_response = self.fields.get("role").and_then(Value::as_str) == Some("assistant");
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", self.kind)?;
        map.serialize_entry("id", self.id)?;
        let mut has_status = false;
        for (name, value) in self.fields {
            if value.is_null() || own.contains(&name.as_str()) {
                continue;
            }
            has_status |= name == "status";
            match value.as_str() {
                Some(text) if name == "content" && self.kind == "message" => {
                    let part = if is_response {
                        TextPart::OutputText {
                            text,
                            annotations: [],
                            logprobs: [],
                        }
                    } else {
                        TextPart::InputText { text }
                    };
                    map.serialize_entry(name, &[part])?;
                }
                _ => map.serialize_entry(name, value)?,
            }
        }
        if !has_status {
            map.serialize_entry("status", "completed")?;
        }
        map.end()
    }
}

impl Response {
    /// Stores the response with its final status, if it is stored.
    pub(super) fn keep(&self, status: &str) {
        let Some(ticket) = &self.ticket else {
            return;
        };
        let mut response = self.object(status, None);
        response["output"] = json!([]);
        let stored = |item: &Item| {
            let mut written_out = item.object(status);
            if let Item::Thought { text, sealed, .. } = item
                && sealed.is_none()
            {
                written_out["encrypted_content"] = json!(self.sealer.seal(text));
            }
            StoredItem {
                id: item.id().to_owned(),
                item: written_out.to_string(),
            }
        };
        let output = self.output.iter().map(stored).collect();
        // The next event is the last one.
        let last_event = self.background.as_ref().map(|_| self.sequence);
        ticket.keep(self.id.clone(), last_event, response.to_string(), output);
    }

    /// Returns true if the client wants the response to survive a restart, and storage supports it.
    pub(super) fn is_for_disk(&self) -> bool {
        self.ticket
            .as_ref()
            .is_some_and(|ticket| ticket.is_written())
    }

    /// Resolves when the response is on disk, if it is written there.
    pub async fn stored(&self) -> Result<(), Unwritten> {
        match &self.ticket {
            Some(ticket) => ticket.written().await,
            None => Ok(()),
        }
    }

    /// Returns true if the stream's last event waits for [`Response::closed`].
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Waits until the response is on disk and returns the stream's last event.
    pub async fn closed(&mut self) -> String {
        let stored = self.stored().await;
        let mut written_out = String::new();
        self.close(stored, &mut written_out);
        written_out
    }
}

/// A stored item as a client sees it. Sealed reasoning is included only on request.
pub fn shown(item: &StoredItem, is_sealed_shown: bool) -> Value {
    let mut shown: Value = serde_json::from_str(&item.item).unwrap_or_default();
    if !is_sealed_shown && shown["type"] == "reasoning" {
        shown["encrypted_content"] = Value::Null;
    }
    shown
}

/// A stored response as a client sees it.
pub fn shown_response(found: &StoredResponse, is_sealed_shown: bool) -> Value {
    let mut response: Value = serde_json::from_str(&found.response).unwrap_or_default();
    let output = found.output.iter();
    let output: Vec<Value> = output.map(|item| shown(item, is_sealed_shown)).collect();
    response["output"] = json!(output);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_has_a_type_an_id_and_a_status() {
        let earlier = Earlier::default();
        let text = items_of(&json!("Hi"), &earlier);
        let item: Value = serde_json::from_str(&text[0].item).unwrap();
        assert!(text[0].id.starts_with("msg_"));
        assert_eq!(item["id"], text[0].id.as_str());
        assert_eq!(
            item["content"],
            json!([{"type": "input_text", "text": "Hi"}])
        );
        let items = items_of(
            &json!([
                {"role": "assistant", "content": "Hm", "id": null},
                {"type": "function_call_output", "call_id": "c", "output": "5", "status": "incomplete"},
                {"type": "reasoning", "id": "rs_1", "summary": []},
                {"type": "item_reference", "id": "msg_gone"}
            ]),
            &earlier,
        );
        let items: Vec<Value> = items
            .iter()
            .map(|stored| serde_json::from_str(&stored.item).unwrap())
            .collect();
        assert_eq!(items.len(), 3);
        assert_eq!(items[0]["content"][0]["type"], "output_text");
        assert!(items[0]["id"].as_str().unwrap().starts_with("msg_"));
        assert_eq!(
            (&items[1]["output"], &items[1]["status"]),
            (&json!("5"), &json!("incomplete"))
        );
        assert!(items[1]["id"].as_str().unwrap().starts_with("fco_"));
        assert_eq!(items[2]["id"], "rs_1");
    }

    #[test]
    fn sealed_reasoning_is_included_only_if_requested() {
        let item = StoredItem {
            id: "rs_1".to_owned(),
            item: json!({"type": "reasoning", "encrypted_content": "mp1.x"}).to_string(),
        };
        assert_eq!(shown(&item, false)["encrypted_content"], Value::Null);
        assert_eq!(shown(&item, true)["encrypted_content"], "mp1.x");
    }
}
