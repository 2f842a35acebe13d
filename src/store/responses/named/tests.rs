//! Tests of conversations that clients create.

use std::sync::Arc;

use super::*;
use crate::responses::stored::StoredResponse;
use crate::testing::stores;
use pool::{Bytes, Span};

const BOUNDS: ResponseBounds = ResponseBounds {
    keep: Span::from_secs(1000),
    number_per_holder: 2,
    bytes_per_holder: Bytes(1 << 20),
    bytes: Bytes(1 << 20),
};
const MOST: usize = 4 << 10;

fn new(id: &str, created: u64) -> NamedConversation {
    NamedConversation {
        id: id.to_owned(),
        holder: "key:1".to_owned(),
        created: Time(created),
        bytes: 0,
        metadata: "{}".to_owned(),
    }
}

fn entry(id: &str) -> StoredItem {
    StoredItem {
        id: id.to_owned(),
        item: format!("{{\"id\":\"{id}\"}}"),
    }
}

fn ids(items: &[StoredItem]) -> Vec<&str> {
    items.iter().map(|item| item.id.as_str()).collect()
}

#[tokio::test]
async fn items_are_listed_added_and_deleted_only_by_the_holder() {
    for store in stores().await {
        let (own, other) = (("key:1", "c1"), ("key:2", "c1"));
        let first = [entry("a"), entry("b")];
        store
            .add_conversation(&new("c1", 1), &first, BOUNDS)
            .await
            .unwrap();
        let more = [entry("b"), entry("c")];
        let added = store
            .add_conversation_items(own, &more, Time(2), MOST, BOUNDS)
            .await;
        assert_eq!(added.unwrap(), Some(AddedItems::Added));
        let refused = store
            .add_conversation_items(other, &more, Time(2), MOST, BOUNDS)
            .await;
        assert_eq!(refused.unwrap(), None);
        let long = [StoredItem {
            id: "d".to_owned(),
            item: "x".repeat(MOST),
        }];
        let full = store
            .add_conversation_items(own, &long, Time(2), MOST, BOUNDS)
            .await;
        assert_eq!(full.unwrap(), Some(AddedItems::TooLarge));
        let all = store.all_conversation_items("key:1", "c1").await.unwrap();
        assert_eq!(ids(&all), ["a", "b", "c"], "each once");
        let page = |is_rising, after| ItemPage {
            is_rising,
            after,
            limit: 2,
        };
        let last = store
            .conversation_items(own, page(false, None))
            .await
            .unwrap();
        assert_eq!(ids(&last), ["c", "b"]);
        let rest = store
            .conversation_items(own, page(true, Some("b")))
            .await
            .unwrap();
        assert_eq!(ids(&rest), ["c"]);
        assert_eq!(store.conversation_item(other, "a").await.unwrap(), None);
        assert!(!store.delete_conversation_item(other, "a").await.unwrap());
        let before = store
            .named_conversation("key:1", "c1")
            .await
            .unwrap()
            .unwrap();
        assert!(store.delete_conversation_item(own, "a").await.unwrap());
        let after = store
            .named_conversation("key:1", "c1")
            .await
            .unwrap()
            .unwrap();
        assert_eq!(before.bytes - after.bytes, item_bytes(&entry("a")));
        let changed = store
            .set_conversation_metadata(("key:1", "c1"), r#"{"a":"b"}"#, Time(9), BOUNDS)
            .await;
        assert_eq!(changed.unwrap().unwrap().metadata, r#"{"a":"b"}"#);
        assert!(!store.delete_conversation("key:2", "c1").await.unwrap());
        assert!(store.delete_conversation("key:1", "c1").await.unwrap());
        assert!(
            store
                .all_conversation_items("key:1", "c1")
                .await
                .unwrap()
                .is_empty()
        );
    }
}

#[tokio::test]
async fn a_response_adds_its_items_and_the_least_recently_used_conversation_is_deleted() {
    for store in stores().await {
        store
            .add_conversation(&new("c1", 1), &[], BOUNDS)
            .await
            .unwrap();
        store
            .add_conversation(&new("c2", 2), &[], BOUNDS)
            .await
            .unwrap();
        let response = StoredResponse {
            id: "r".to_owned(),
            holder: "key:1".to_owned(),
            previous: None,
            conversation: Some("c1".to_owned()),
            last_event: None,
            response: "{}".to_owned(),
            input: vec![entry("in")],
            output: vec![entry("out")],
        };
        store
            .add_responses(&[Arc::new(response)], Time(3), BOUNDS)
            .await
            .unwrap();
        let items = store.all_conversation_items("key:1", "c1").await.unwrap();
        assert_eq!(ids(&items), ["in", "out"]);
        store
            .add_conversation(&new("c3", 4), &[], BOUNDS)
            .await
            .unwrap();
        assert!(
            store
                .named_conversation("key:1", "c1")
                .await
                .unwrap()
                .is_some()
        );
        assert_eq!(store.named_conversation("key:1", "c2").await.unwrap(), None);
        let late = Time(5_000_000);
        while store.forget_responses(late, BOUNDS).await.unwrap() {}
        assert_eq!(store.named_conversation("key:1", "c3").await.unwrap(), None);
    }
}
