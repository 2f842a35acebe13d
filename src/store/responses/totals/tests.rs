//! Tests that the totals equal the sums of the rows after any writes.

use std::sync::Arc;

use super::*;
use crate::database::Store;
use crate::responses::background::{BackgroundBounds, BackgroundLimit, BackgroundResponse};
use crate::responses::named::NamedConversation;
use crate::responses::stored::{ResponseBounds, StoredItem, StoredResponse};
use crate::testing::stores;
use pool::{Bytes, Span, Time};

const HOLDERS: [&str; 2] = ["key:1", "key:2"];
const TABLES: [Table; 3] = [
    Table::Responses,
    Table::NamedConversations,
    Table::BackgroundResponses,
];
/// Small enough for each limit to be reached.
const BOUNDS: ResponseBounds = ResponseBounds {
    keep: Span(60),
    number_per_holder: 6,
    bytes_per_holder: Bytes(20 << 10),
    bytes: Bytes(24 << 10),
};
const WIDE: BackgroundBounds = BackgroundBounds {
    number_per_holder: 99,
    number: 99,
};

/// A generator of the sequence that its seed determines.
struct Draws(u64);

impl Draws {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn text(&mut self) -> String {
        "x".repeat(self.below(3000) as usize)
    }

    /// An id that earlier writes may have used.
    fn id(&mut self) -> String {
        format!("id{}", self.below(12))
    }

    fn items(&mut self) -> Vec<StoredItem> {
        let number = self.below(3);
        let item = |_| StoredItem {
            id: format!("item{}", self.below(6)),
            item: self.text(),
        };
        (0..number).map(item).collect()
    }
}

/// The totals of each table, as they are kept and as the rows have them.
async fn totals_and_sums(store: &Store) -> Vec<(Table, Total, Total)> {
    let mut found = Vec::new();
    for table in TABLES {
        let name = table.name();
        let kept = format!("SELECT number, bytes FROM response_totals WHERE name = '{name}'");
        let sum = format!(
            "SELECT count(*) AS number, CAST(coalesce(sum(bytes), 0) AS BIGINT) AS bytes FROM {name}"
        );
        let read = async |sql: String| {
            let row = query(sql).fetch_one(&store.readers).await.expect("a row");
            Total {
                number: from_integer(row.get("number")),
                bytes: from_integer(row.get("bytes")),
            }
        };
        found.push((table, read(kept).await, read(sum).await));
    }
    found
}

/// One write of any kind. The draws choose the kind and its values.
async fn write(store: &Store, draws: &mut Draws, now: Time) {
    let holder = HOLDERS[draws.below(2) as usize];
    let (id, other) = (draws.id(), draws.id());
    let response = |draws: &mut Draws| StoredResponse {
        id: id.clone(),
        holder: holder.to_owned(),
        previous: (draws.below(2) == 0).then(|| other.clone()),
        conversation: (draws.below(2) == 0).then(|| other.clone()),
        last_event: None,
        response: draws.text(),
        input: draws.items(),
        output: draws.items(),
    };
    let written = match draws.below(10) {
        0 | 1 => {
            let new = [Arc::new(response(draws))];
            store.add_responses(&new, now, BOUNDS).await
        }
        2 => store.delete_response(holder, &id).await.map(drop),
        3 => {
            let known = store.named_conversation(HOLDERS[0], &id).await.unwrap();
            let others = store.named_conversation(HOLDERS[1], &id).await.unwrap();
            if known.is_some() || others.is_some() {
                return;
            }
            let new = NamedConversation {
                id,
                holder: holder.to_owned(),
                created: now,
                bytes: 0,
                metadata: draws.text(),
            };
            let items = draws.items();
            store.add_conversation(&new, &items, BOUNDS).await.map(drop)
        }
        4 => {
            let items = draws.items();
            let added = store.add_conversation_items((holder, &id), &items, now, 8 << 10, BOUNDS);
            added.await.map(drop)
        }
        5 => {
            let text = draws.text();
            let changed = store.set_conversation_metadata((holder, &id), &text, now, BOUNDS);
            changed.await.map(drop)
        }
        6 => {
            let item = format!("item{}", draws.below(6));
            let deleted = store.delete_conversation_item((holder, &id), &item);
            deleted.await.map(drop)
        }
        7 => {
            if store.background_heads().await.unwrap().len() > 2 {
                return store
                    .delete_conversation(holder, &id)
                    .await
                    .map(drop)
                    .unwrap();
            }
            let new = BackgroundResponse {
                id: format!("{id}-{}", now.0),
                holder: holder.to_owned(),
                person: None,
                created: now,
                runs: 0,
                cuts: 0,
                is_streamed: false,
                request: draws.text(),
                response: draws.text(),
            };
            let added = store.add_background(&new, WIDE, BOUNDS).await;
            added.map(|limit| assert_ne!(limit, Some(BackgroundLimit::Number)))
        }
        8 => {
            let Some(head) = store.background_heads().await.unwrap().pop() else {
                return;
            };
            if draws.below(2) == 0 {
                let deleted = store.delete_background(&head.holder, &head.id).await;
                assert!(deleted.unwrap());
                return;
            }
            let result = StoredResponse {
                id: head.id,
                holder: head.holder,
                ..response(draws)
            };
            let ended = store.end_background(&result, now, BOUNDS).await;
            ended.map(|ended| assert!(ended))
        }
        _ => store.forget_responses(now, BOUNDS).await.map(drop),
    };
    written.unwrap();
}

#[tokio::test]
async fn the_totals_are_the_sums_of_the_rows_after_any_writes() {
    for store in stores().await {
        let mut draws = Draws(7);
        let mut largest = Total::default();
        for nth in 0..100 {
            write(&store, &mut draws, Time(nth * 3)).await;
            for (table, kept, sum) in totals_and_sums(&store).await {
                assert_eq!(kept, sum, "{table:?} after write {nth}");
                largest.number = largest.number.max(sum.number);
                largest.bytes = largest.bytes.max(sum.bytes);
            }
        }
        assert!(largest.number > 2 && largest.bytes > 4 << 10, "{largest:?}");
        // Without a row, nothing is left of the totals.
        for head in store.background_heads().await.unwrap() {
            let deleted = store.delete_background(&head.holder, &head.id).await;
            assert!(deleted.unwrap());
        }
        while store.forget_responses(Time(9999), BOUNDS).await.unwrap() {}
        for (table, kept, sum) in totals_and_sums(&store).await {
            assert_eq!(
                (kept, sum),
                (Total::default(), Total::default()),
                "{table:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_second_process_on_the_database_changes_the_same_totals() {
    for store in stores().await {
        let other = store.open_again().await.expect("a second store");
        for (nth, store) in [&store.store, &other, &store.store].into_iter().enumerate() {
            let response = StoredResponse {
                id: format!("r{nth}"),
                holder: "key:1".to_owned(),
                previous: None,
                conversation: None,
                last_event: None,
                response: "x".repeat(100 * nth),
                input: Vec::new(),
                output: Vec::new(),
            };
            let responses = [Arc::new(response)];
            let added = store.add_responses(&responses, Time(1), BOUNDS);
            added.await.expect("stored");
        }
        assert!(other.delete_response("key:1", "r0").await.expect("deleted"));
        other.close().await;
        for (table, kept, sum) in totals_and_sums(&store).await {
            let number = if table == Table::Responses { 2 } else { 0 };
            assert_eq!((kept, kept.number), (sum, number), "{table:?}");
        }
    }
}

#[tokio::test]
async fn what_was_used_least_recently_makes_room_for_all_tables_together() {
    for store in stores().await {
        let bounds = ResponseBounds {
            keep: Span::from_secs(1000),
            bytes: Bytes(5000),
            ..BOUNDS
        };
        let add = async |nth: u64| {
            let id = format!("id{nth}");
            if nth.is_multiple_of(2) {
                let new = NamedConversation {
                    id,
                    holder: "key:1".to_owned(),
                    created: Time(nth),
                    bytes: 0,
                    metadata: "x".repeat(1500),
                };
                store.add_conversation(&new, &[], bounds).await.map(drop)
            } else {
                let response = StoredResponse {
                    id,
                    holder: "key:2".to_owned(),
                    previous: None,
                    conversation: None,
                    last_event: None,
                    response: "x".repeat(1500),
                    input: Vec::new(),
                    output: Vec::new(),
                };
                let new = [Arc::new(response)];
                store.add_responses(&new, Time(nth), bounds).await
            }
        };
        for nth in 0..4 {
            add(nth).await.expect("stored");
        }
        // Each table alone is below the limit.
        assert!(store.forget_responses(Time(9), bounds).await.unwrap());
        assert!(!store.forget_responses(Time(9), bounds).await.unwrap());
        assert!(
            store
                .named_conversation("key:1", "id0")
                .await
                .unwrap()
                .is_none()
        );
        assert!(
            store
                .named_conversation("key:1", "id2")
                .await
                .unwrap()
                .is_some()
        );
        assert!(store.response("key:2", "id1").await.unwrap().is_some());
    }
}
