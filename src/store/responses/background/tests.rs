//! Tests of background responses and of their limits.

use std::sync::Arc;

use super::*;
use crate::responses::named::{AddedItems, NamedConversation};
use crate::testing::stores;
use pool::{Bytes, Span};

const BOUNDS: BackgroundBounds = BackgroundBounds {
    number_per_holder: 2,
    number: 3,
};
const STORED: ResponseBounds = ResponseBounds {
    keep: Span::from_secs(1000),
    number_per_holder: 100,
    bytes_per_holder: Bytes(3 * BYTES_MIN as u64),
    bytes: Bytes(1 << 20),
};

fn background(id: &str, holder: &str, created: u64) -> BackgroundResponse {
    BackgroundResponse {
        id: id.to_owned(),
        holder: holder.to_owned(),
        person: (created == 2).then(|| "{}".to_owned()),
        created: Time(created),
        runs: 0,
        cuts: 0,
        is_streamed: created == 2,
        request: r#"{"background":true}"#.to_owned(),
        response: r#"{"status":"queued"}"#.to_owned(),
    }
}

fn result(id: &str, holder: &str) -> StoredResponse {
    StoredResponse {
        id: id.to_owned(),
        holder: holder.to_owned(),
        previous: None,
        conversation: None,
        last_event: Some(7),
        response: r#"{"status":"cancelled"}"#.to_owned(),
        input: Vec::new(),
        output: Vec::new(),
    }
}

async fn ids(store: &Store) -> Vec<String> {
    let heads = store.background_heads().await.expect("read");
    heads.into_iter().map(|head| head.id).collect()
}

#[tokio::test]
async fn a_background_response_ends_once_and_only_for_its_holder() {
    for store in stores().await {
        for (id, created) in [("b", 2), ("a", 1)] {
            let new = background(id, "key:1", created);
            let added = store.add_background(&new, BOUNDS, STORED).await;
            assert_eq!(added.unwrap(), None);
        }
        assert_eq!(ids(&store).await, ["a", "b"]);
        assert!(store.set_background_runs("b", 2, 1).await.unwrap());
        assert!(!store.set_background_runs("none", 2, 1).await.unwrap());
        let found = store.background("key:1", "b").await.unwrap().unwrap();
        assert_eq!((found.runs, found.cuts, found.is_streamed), (2, 1, true));
        assert_eq!(found.person.as_deref(), Some("{}"));
        assert_eq!(store.background("key:2", "b").await.unwrap(), None);
        assert!(!store.delete_background("key:2", "a").await.unwrap());
        let other = result("a", "key:2");
        assert!(!store.end_background(&other, Time(3), STORED).await.unwrap());
        let end = result("a", "key:1");
        assert!(store.end_background(&end, Time(3), STORED).await.unwrap());
        assert!(!store.end_background(&end, Time(3), STORED).await.unwrap());
        assert_eq!(store.response("key:1", "a").await.unwrap(), Some(end));
        let ended = store.ended_backgrounds(&["a", "b", "none"]).await.unwrap();
        assert_eq!(ended, ["a", "none"]);
        assert!(store.delete_background("key:1", "b").await.unwrap());
        assert!(ids(&store).await.is_empty());
    }
}

#[tokio::test]
async fn each_limit_refuses_a_further_background_response() {
    for store in stores().await {
        for (id, holder, expected) in [
            ("a", "key:1", None),
            ("b", "key:1", None),
            ("c", "key:1", Some(BackgroundLimit::NumberOfHolder)),
            ("d", "key:2", None),
            ("e", "key:3", Some(BackgroundLimit::Number)),
        ] {
            let new = background(id, holder, 1);
            let added = store.add_background(&new, BOUNDS, STORED).await.unwrap();
            assert_eq!(added, expected, "{id}");
        }
        let wide = BackgroundBounds {
            number_per_holder: 9,
            number: 9,
        };
        let mut long = background("f", "key:1", 1);
        long.request = "x".repeat(BYTES_MIN + 1);
        let added = store.add_background(&long, wide, STORED).await.unwrap();
        assert_eq!(added, Some(BackgroundLimit::BytesOfHolder));
        let full = ResponseBounds {
            bytes: Bytes(3 * BYTES_MIN as u64),
            ..STORED
        };
        let last = background("g", "key:4", 1);
        let added = store.add_background(&last, wide, full).await.unwrap();
        assert_eq!(added, Some(BackgroundLimit::Bytes));
    }
}

/// The bytes of a holder in all tables.
async fn bytes(store: &Store, holder: &str) -> u64 {
    let sum: i64 = query(
        "SELECT CAST(coalesce(sum(bytes), 0) AS BIGINT) FROM (
         SELECT bytes FROM background_responses WHERE holder = ?1
         UNION ALL SELECT bytes FROM named_conversations WHERE holder = ?1
         UNION ALL SELECT r.bytes FROM responses r
         JOIN conversations c ON c.id = r.conversation WHERE c.holder = ?1) AS everything",
    )
    .bind(holder)
    .fetch_value(&store.readers)
    .await
    .expect("a sum");
    from_integer(sum)
}

#[tokio::test]
async fn responses_conversations_and_background_responses_share_the_bytes_of_their_holder() {
    let wide = BackgroundBounds {
        number_per_holder: 9,
        number: 99,
    };
    let limit = STORED.bytes_per_holder.0;
    let text = || "x".repeat(BYTES_MIN);
    for store in stores().await {
        let mut stored = result("old", "key:1");
        stored.response = text();
        let other = result("other", "key:2");
        let both = [Arc::new(stored), Arc::new(other)];
        store.add_responses(&both, Time(1), STORED).await.unwrap();
        let named = NamedConversation {
            id: "conv".to_owned(),
            holder: "key:1".to_owned(),
            created: Time(2),
            bytes: 0,
            metadata: text(),
        };
        let added = store.add_conversation(&named, &[], STORED).await.unwrap();
        assert_eq!(added, AddedItems::Added);
        // The response used least recently makes room, and the conversation used last does not.
        let add = async |id: &str| {
            let new = background(id, "key:1", 3);
            let added = store.add_background(&new, wide, STORED).await.unwrap();
            assert!(bytes(&store, "key:1").await <= limit, "{id}");
            added
        };
        assert_eq!(add("a").await, None);
        assert!(store.response("key:1", "old").await.unwrap().is_none());
        assert_eq!(add("b").await, Some(BackgroundLimit::BytesOfHolder));
        assert!(store.delete_conversation("key:1", "conv").await.unwrap());
        assert_eq!((add("b").await, add("c").await), (None, None));
        // The rows take all of it: nothing else is stored, and others are unaffected.
        assert_eq!(add("d").await, Some(BackgroundLimit::BytesOfHolder));
        let refused = store.add_conversation(&named, &[], STORED).await.unwrap();
        assert_eq!(refused, AddedItems::NoRoom);
        assert!(bytes(&store, "key:1").await <= limit);
        assert!(store.response("key:2", "other").await.unwrap().is_some());
        // A row makes room for its result.
        let end = result("a", "key:1");
        assert!(store.end_background(&end, Time(5), STORED).await.unwrap());
        assert!(store.response("key:1", "a").await.unwrap().is_some());
        assert!(bytes(&store, "key:1").await <= limit);
    }
}
