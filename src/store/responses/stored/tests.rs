//! Tests of stored responses: their holders, reading conversations, and deletion.

use super::*;
use crate::responses::reads::ChainBounds;
use crate::testing::stores;

const BOUNDS: ResponseBounds = ResponseBounds {
    keep: Span::from_secs(1000),
    number_per_holder: 100_000,
    bytes_per_holder: Bytes(64 << 20),
    bytes: Bytes(64 << 20),
};
const FAR: ChainBounds = ChainBounds {
    responses: 1000,
    bytes: 1 << 20,
};

fn item(id: &str, text: &str) -> StoredItem {
    StoredItem {
        id: id.to_owned(),
        item: format!("{{\"text\":\"{text}\"}}"),
    }
}

fn response(id: &str, holder: &str, previous: Option<&str>) -> Arc<StoredResponse> {
    Arc::new(StoredResponse {
        id: id.to_owned(),
        holder: holder.to_owned(),
        previous: previous.map(str::to_owned),
        conversation: None,
        last_event: None,
        response: format!("{{\"id\":\"{id}\"}}"),
        input: vec![item(&format!("in_{id}"), "question")],
        output: vec![item(&format!("out_{id}"), "answer")],
    })
}

async fn add(store: &Store, response: Arc<StoredResponse>, at: u64, bounds: ResponseBounds) {
    let added = store.add_responses(&[response], Time(at), bounds).await;
    added.expect("stored");
}

/// The ids of a conversation, latest first.
async fn read(store: &Store, holder: &str, id: &str, bounds: ChainBounds) -> Vec<String> {
    let links = store.conversation(holder, id, bounds).await.expect("read");
    links.into_iter().map(|link| link.id).collect()
}

#[tokio::test]
async fn a_stored_response_is_found_only_by_its_holder_with_all_its_items() {
    for store in stores().await {
        let first = response("a", "key:1", None);
        add(&store, Arc::clone(&first), 1, BOUNDS).await;
        let found = store.response("key:1", "a").await.unwrap();
        assert_eq!(found.as_ref(), Some(first.as_ref()));
        assert_eq!(store.response("key:2", "a").await.unwrap(), None);
        assert!(read(&store, "key:2", "a", FAR).await.is_empty());
        assert!(store.items_of("key:2", &["a"]).await.unwrap().is_empty());
        let whole = [item("in_a", "question"), item("out_a", "answer")];
        assert_eq!(store.items_of("key:1", &["a"]).await.unwrap(), whole);
        let wanted = ["out_a", "in_a", "out_b"];
        let places = store.item_places("key:1", &wanted).await.unwrap();
        assert!(places.iter().all(|place| place.bytes >= 17) && places.len() == 2);
        let mut items = store.items_at(&places).await.unwrap();
        items.sort_by(|a, b| a.id.cmp(&b.id));
        assert_eq!(items, whole);
        let others = store.item_places("key:2", &wanted).await.unwrap();
        assert!(others.is_empty());
        assert!(!store.delete_response("key:2", "a").await.unwrap());
        assert!(store.delete_response("key:1", "a").await.unwrap());
        assert_eq!(store.response("key:1", "a").await.unwrap(), None);
        let left: i64 = query(
            "SELECT (SELECT count(*) FROM conversations) + (SELECT count(*) FROM response_items)",
        )
        .fetch_value(&store.readers)
        .await
        .unwrap();
        assert_eq!(left, 0, "nothing of it is left");
    }
}

#[tokio::test]
async fn the_items_of_a_large_stored_response_keep_their_order() {
    for store in stores().await {
        let mut many = (*response("a", "key:1", None)).clone();
        for number in [ITEMS_AT_ONCE - 1, ITEMS_AT_ONCE, 3 * ITEMS_AT_ONCE + 7] {
            many.id = format!("a{number}");
            let input = 0..number - many.output.len();
            many.input = input
                .map(|nth| item(&format!("in_{number}_{nth}"), &nth.to_string()))
                .collect();
            many.output = vec![item(&format!("out_{number}"), "answer")];
            add(&store, Arc::new(many.clone()), 1, BOUNDS).await;
            let found = store.response("key:1", &many.id).await.unwrap();
            assert_eq!(found.as_ref(), Some(&many), "{number} items");
        }
    }
}

#[tokio::test]
async fn a_conversation_of_ten_thousand_responses_is_read_from_its_end_within_the_limits() {
    for store in stores().await {
        let mut all = vec![response("r0", "key:1", None)];
        for nth in 1..10_000 {
            let previous = format!("r{}", nth - 1);
            all.push(response(&format!("r{nth}"), "key:1", Some(&previous)));
        }
        for some in all.chunks(500) {
            let added = store.add_responses(some, Time(1), BOUNDS).await;
            added.expect("stored");
        }
        let near = ChainBounds {
            responses: 3,
            ..FAR
        };
        let ids = read(&store, "key:1", "r9999", near).await;
        assert_eq!(ids, ["r9999", "r9998", "r9997"]);
        assert_eq!(read(&store, "key:1", "r9999", FAR).await.len(), 1000);
        let few = ChainBounds { bytes: 1000, ..FAR };
        let links = store.conversation("key:1", "r9999", few).await.unwrap();
        let bytes: usize = links.iter().map(|link| link.bytes).sum();
        assert!(
            bytes > 1000,
            "the one beyond the bound shows that it is one"
        );
        assert!(links.len() < 5);
        let ids = ["r7", "r3"];
        let items = store.items_of("key:1", &ids).await.unwrap();
        let items: Vec<&str> = items.iter().map(|item| item.id.as_str()).collect();
        assert_eq!(items, ["in_r7", "out_r7", "in_r3", "out_r3"]);
    }
}

#[tokio::test]
async fn conversations_beyond_the_limits_are_deleted_least_used_first() {
    for store in stores().await {
        let few = ResponseBounds {
            number_per_holder: 4,
            ..BOUNDS
        };
        add(&store, response("a1", "key:1", None), 1, few).await;
        add(&store, response("b1", "key:1", None), 2, few).await;
        add(&store, response("x", "key:2", None), 2, few).await;
        add(&store, response("a2", "key:1", Some("a1")), 3, few).await;
        add(&store, response("a3", "key:1", Some("a2")), 4, few).await;
        add(&store, response("a4", "key:1", Some("a3")), 5, few).await;
        assert_eq!(read(&store, "key:1", "b1", FAR).await.len(), 0);
        assert_eq!(read(&store, "key:1", "a4", FAR).await.len(), 4);
        // A branch displaces the oldest end of another branch, never a response with a continuation.
        add(&store, response("a5", "key:1", Some("a1")), 6, few).await;
        assert_eq!(read(&store, "key:1", "a5", FAR).await, ["a5", "a1"]);
        assert_eq!(read(&store, "key:1", "a3", FAR).await, ["a3", "a2", "a1"]);
        assert!(read(&store, "key:1", "a4", FAR).await.is_empty());
        assert_eq!(read(&store, "key:2", "x", FAR).await.len(), 1);
        let small = ResponseBounds {
            bytes_per_holder: Bytes(10),
            ..BOUNDS
        };
        add(&store, response("y", "key:2", None), 7, small).await;
        assert!(read(&store, "key:2", "y", FAR).await.is_empty());
    }
}

#[tokio::test]
async fn old_revoked_and_excess_conversations_are_deleted() {
    for store in stores().await {
        for (id, holder, at) in [
            ("old", "key:1", 1),
            ("new", "key:1", 5000),
            ("x", "key:2", 6000),
        ] {
            add(&store, response(id, holder, None), at, BOUNDS).await;
        }
        let now = Time(1_000_000 + 4000);
        assert!(store.forget_responses(now, BOUNDS).await.unwrap());
        assert!(!store.forget_responses(now, BOUNDS).await.unwrap());
        assert!(store.response("key:1", "old").await.unwrap().is_none());
        assert!(store.response("key:1", "new").await.unwrap().is_some());
        let revoked = store.write("revoke a key", async |connection| {
        query("INSERT INTO keys (id, name, role, prefix, hash, created_at, revoked) VALUES (2, 'k', 'user', 'mp-', ?, 0, 1)")
            .bind(&[0; 32][..])
            .execute(connection)
            .await
    });
        revoked.await.unwrap();
        assert!(store.forget_responses(now, BOUNDS).await.unwrap());
        assert!(store.response("key:2", "x").await.unwrap().is_none());
        let none = ResponseBounds {
            bytes: Bytes(0),
            ..BOUNDS
        };
        assert!(store.forget_responses(now, none).await.unwrap());
        assert!(store.response("key:1", "new").await.unwrap().is_none());
        assert!(!store.forget_responses(now, none).await.unwrap());
    }
}
