//! Tests of `nodes.rs`: permanent numbers, tokens and credentials.

use super::*;
use crate::testing::stores;

fn names(begin: usize, count: usize) -> Vec<String> {
    (begin..begin + count)
        .map(|nth| format!("gpu{nth}"))
        .collect()
}

async fn count(store: &Store, table: &str) -> usize {
    let rows = query(format!("SELECT id FROM {table}"));
    rows.fetch_all(&store.readers).await.expect("rows").len()
}

#[tokio::test]
async fn b3_a_node_that_keeps_changing_devices_leaves_bounded_records() {
    for store in stores().await {
        let mut kept = names(0, 16);
        let first = store.node_numbers("n", &kept, Time(1)).await.expect("kept");
        for turn in 1..12 {
            kept.truncate(16);
            kept.extend(names(turn * 1000, 240));
            let numbers = store.node_numbers("n", &kept, Time(2)).await.expect("kept");
            assert_eq!(numbers.devices.len(), 256);
            assert_eq!(numbers.devices[..16], first.devices, "those in use stay");
            let again = store.node_numbers("n", &kept, Time(3)).await.expect("kept");
            assert_eq!(again, numbers);
        }
        assert_eq!(count(&store, "node_devices").await, NODE_DEVICES_KEPT_MAX);
        let gone = store.node_numbers("n", &names(1000, 1), Time(4)).await;
        let gone = gone.expect("kept").devices[0];
        assert!(gone > *first.devices.last().expect("some"), "a new number");
    }
}

#[tokio::test]
async fn a_token_is_valid_between_its_creation_and_its_expiry() {
    for store in stores().await {
        let (created, expires) = (Time(10_000_000), Time(11_000_000));
        let text = crate::keys::api_keys::generate_key().expect("a key");
        let added = store.add_node_token(&text, created, expires).await;
        added.expect("saved");
        let pass = async |now| {
            store
                .node_pass(text.reveal(), Time(now))
                .await
                .expect("read")
        };
        assert_eq!(pass(10_000_000).await, Ok(NodePass::Token));
        assert_eq!(pass(9_800_000).await, Ok(NodePass::Token), "a correction");
        let expired = TokenRefusal::Expired { at: expires };
        assert_eq!(pass(11_000_000).await, Err(expired));
        assert_eq!(pass(0).await, Err(TokenRefusal::Early { created }));
        let token = &store.node_tokens().await.expect("read")[0];
        let state = |now| {
            token
                .check(Time(now))
                .map_or_else(TokenRefusal::name, |()| "valid")
        };
        let states = [0, 9_800_000, 10_000_000, 11_000_000].map(state);
        assert_eq!(states, ["not_yet_valid", "valid", "valid", "expired"]);
    }
}

#[tokio::test]
async fn b3_many_new_nodes_leave_a_bounded_number_of_records_and_nodes_with_credentials_stay() {
    for store in stores().await {
        let one = names(0, 1);
        let stays = store
            .node_numbers("stays", &one, Time(1))
            .await
            .expect("kept");
        let credential = crate::keys::api_keys::generate_key().expect("a key");
        let saved = store.save_node_credential("stays", Some(&credential)).await;
        saved.expect("saved");
        let limit = usize::try_from(NODES_KEPT_MAX).expect("small");
        for nth in 0..limit + 20 {
            let name = format!("n{nth}");
            store
                .node_numbers(&name, &one, Time(2))
                .await
                .expect("kept");
        }
        assert_eq!(count(&store, "nodes").await, limit + 1);
        assert_eq!(count(&store, "node_devices").await, limit + 1);
        let again = store
            .node_numbers("stays", &one, Time(3))
            .await
            .expect("kept");
        assert_eq!(again, stays);
    }
}
