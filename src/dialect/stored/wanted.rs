//! Reads the references of a Responses request before the request itself: an earlier response, and single items of earlier ones.
//! Errors are left to the code that parses the complete request.

use std::borrow::Cow;

use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Largest number of references, counting repetitions.
pub(super) const ITEMS_MAX: usize = 1000;

/// The references of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub previous: Option<String>,
    pub conversation: Option<String>,
    /// Ids of referenced items, with repetitions.
    pub items: Vec<String>,
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    previous_response_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    conversation: Option<Conversation<'a>>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

/// A conversation by its id. Other values are refused when the request is read.
#[derive(Deserialize)]
#[serde(untagged)]
enum Conversation<'a> {
    Id(#[serde(borrow)] Cow<'a, str>),
    Object {
        #[serde(borrow)]
        id: Cow<'a, str>,
    },
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
}

impl Wanted {
    /// Reads a request's body; empty if it cannot be read.
    pub fn new(body: &[u8]) -> Wanted {
        let has = |word: &str| memmem::find(body, word.as_bytes()).is_some();
        let has_references = has("item_reference");
        let has_previous = has("previous_response_id") || has("\"conversation\"");
        if !has_references && !has_previous {
            return Wanted::default();
        }
        let Ok(head) = serde_json::from_slice::<Head<'_>>(body) else {
            return Wanted::default();
        };
        let input = head.input.filter(|_| has_references);
        let items =
            input.and_then(|input| serde_json::from_str::<Vec<&RawValue>>(input.get()).ok());
        let items = items.unwrap_or_default().into_iter().filter_map(|item| {
            let item: Item<'_> = serde_json::from_str(item.get()).ok()?;
            let is_reference = item.kind.as_deref() == Some("item_reference");
            item.id.filter(|_| is_reference).map(Cow::into_owned)
        });
        Wanted {
            previous: head.previous_response_id.map(Cow::into_owned),
            conversation: head.conversation.map(|conversation| match conversation {
                Conversation::Id(id) | Conversation::Object { id } => id.into_owned(),
            }),
            items: items.take(ITEMS_MAX + 1).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn wanted(body: serde_json::Value) -> Wanted {
        Wanted::new(body.to_string().as_bytes())
    }

    #[test]
    fn a_request_names_its_previous_response_and_items() {
        let found = wanted(json!({"previous_response_id": "resp_1", "input": [
            {"type": "item_reference", "id": "msg_1"}, {"role": "user", "content": "item_reference"},
            {"type": "item_reference", "id": "msg_1"}, {"type": "item_reference"}, 5]}));
        assert_eq!(found.previous.as_deref(), Some("resp_1"));
        assert_eq!(found.items, ["msg_1", "msg_1"]);
        for named in [json!("conv_1"), json!({"id": "conv_1"})] {
            let found = wanted(json!({"conversation": named, "input": "x"}));
            assert_eq!(found.conversation.as_deref(), Some("conv_1"));
        }
        for nothing in [
            json!({"input": "item_reference"}),
            json!({"conversation": 5, "input": "x"}),
            json!({"previous_response_id": null, "input": "x"}),
            json!({"previous_response_id": 5, "input": []}),
            json!([]),
        ] {
            assert_eq!(wanted(nothing.clone()), Wanted::default(), "{nothing}");
        }
        assert_eq!(Wanted::new(b"{\"previous_response_id\""), Wanted::default());
    }
}
