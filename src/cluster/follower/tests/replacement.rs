//! Clusters that reuse ids, and that replace a node they have taken away on their own, and leases of an earlier run.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_replacement_node_serves_the_next_demand_or_is_released() {
    let mut story = Story::begin(Board::default());
    story.request(7);
    story.next().await;
    story.next().await;
    let node = "node-1".to_owned();
    story.order(ClusterOrder::Joined { node: node.clone() });
    story.pass(1).await;
    // The node is evicted, and a replacement waits.
    story
        .board
        .with(|scripted| scripted.leases[0].node = "node-1b".to_owned());
    story.order(ClusterOrder::Gone { node });
    story.pass(60).await;
    story.request(8);
    assert_eq!(story.next().await, "8 is node-1b");
    assert_eq!(
        story.board.calls(),
        ["request a1 without []"],
        "the second request needs none"
    );
    let node = "node-1b".to_owned();
    story.order(ClusterOrder::Joined { node: node.clone() });
    story.pass(1).await;
    story
        .board
        .with(|scripted| scripted.leases[0].node = "node-1c".to_owned());
    story.order(ClusterOrder::Gone { node });
    assert_eq!(story.calls_within(290).await, Vec::<String>::new());
    assert_eq!(story.calls_within(30).await, ["release 1 Now"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_has_left_is_not_used_again() {
    let mut story = Story::begin(Board::default());
    story.request(7);
    story.next().await;
    story.next().await;
    let node = "node-1".to_owned();
    story.order(ClusterOrder::Joined { node: node.clone() });
    story.order(ClusterOrder::Gone { node });
    story.pass(1).await;
    // Its job is still listed for a while.
    story.request(8);
    assert_eq!(story.next().await, "8 is node-2");
    assert_eq!(story.board.calls().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_keeps_a_node_that_has_joined() {
    let mut story = Story::begin(Board::default());
    story.pass(1).await;
    story.board.with(|scripted| scripted.is_away = true);
    story.request(7);
    assert!(story.next().await.contains("cannot be reached"));
    // The cluster has not named it yet.
    story.order(ClusterOrder::Joined {
        node: "node-1".to_owned(),
    });
    story.order(ClusterOrder::Cancel { demand: 7 });
    story.board.with(|scripted| scripted.is_away = false);
    assert_eq!(story.calls_within(60).await, ["request a1 without []"]);
}

#[tokio::test(start_paused = true)]
async fn a_reused_id_is_not_ended_by_a_release_of_its_former_lease() {
    let mut story = Story::begin(Board::default());
    story.request(7);
    story.next().await;
    story.next().await;
    story.board.with(|scripted| scripted.is_away = true);
    story.order(ClusterOrder::Cancel { demand: 7 });
    story.pass(1).await;
    // The lease ends on its own, and a new lease gets its id.
    story.board.with(|scripted| scripted.leases.clear());
    story.request(8);
    story.pass(1).await;
    story.board.with(|scripted| scripted.is_away = false);
    assert_eq!(
        story.calls_within(60).await,
        ["request a1 without []", "request a1 without []"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_node_does_not_start_is_released_with_the_reason() {
    let mut story = Story::begin(Board::default());
    story.request(7);
    story.next().await;
    story.next().await;
    let state = LeaseState::Starting {
        host: "gpu07".to_owned(),
        reason: "its image cannot be pulled".to_owned(),
    };
    story.board.set("1", state);
    assert_eq!(
        story.next().await,
        "7 pending: lease 1 runs on gpu07; its image cannot be pulled"
    );
    let refused = story.next().await;
    assert!(
        refused
            .contains("for 600 s and its node node-1 has not joined (its image cannot be pulled)"),
        "{refused}"
    );
    assert_eq!(
        story.calls_within(10).await,
        ["request a1 without []", "release 1 Now"]
    );
}

#[tokio::test(start_paused = true)]
async fn leases_of_an_earlier_run_serve_the_next_demand_or_are_released() {
    let board = Board::default();
    board.with(|scripted| {
        scripted.leases.push(lease("1", Some(3)));
        scripted.leases.push(lease("2", Some(4)));
        // A person requested this lease and gives it back.
        scripted.leases.push(lease("3", None));
    });
    let mut story = Story::begin(board);
    story.request(9);
    assert_eq!(story.next().await, "9 is node-1");
    assert_eq!(story.calls_within(330).await, ["release 2 Now"]);
}
