//! Sets of requests: nodes for one replica that come together.

use super::*;

fn refused() -> ClusterError {
    ClusterError::Refused {
        program: "sbatch".to_owned(),
        message: "Invalid qos".to_owned(),
        advice: String::new(),
    }
}

fn joined(story: &Story, node: &str) {
    let node = node.to_owned();
    story.order(ClusterOrder::Joined { node });
}

/// Withdraws the requests, as the pool does with a set of which one failed.
fn cancel(story: &Story, demands: &[u64]) {
    for demand in demands {
        let demand = *demand;
        story.order(ClusterOrder::Cancel { demand });
    }
}

/// The next names of nodes, up to this number.
async fn named(story: &mut Story, count: usize) -> Vec<String> {
    let mut named = Vec::new();
    while named.len() < count {
        let news = story.next().await;
        if news.contains(" is node-") {
            named.push(news);
        }
    }
    named
}

#[tokio::test(start_paused = true)]
async fn each_request_of_a_set_has_a_lease() {
    let mut story = Story::begin(Board::default());
    story.request_set(&[7, 8, 9]);
    let named = named(&mut story, 3).await;
    assert_eq!(named, ["7 is node-1", "8 is node-2", "9 is node-3"]);
    assert_eq!(story.next().await, "9 pending: lease 3: Resources");
    for node in ["node-3", "node-1", "node-2"] {
        joined(&story, node);
    }
    assert_eq!(story.calls_within(3600).await, ["request a1 without []"; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_ends_a_set_and_the_rest_is_not_submitted() {
    let board = Board::default();
    board.with(|scripted| scripted.requests = vec![Ok(()), Ok(()), Err(refused())]);
    let mut story = Story::begin(board);
    story.request_set(&[7, 8, 9, 10]);
    assert_eq!(story.next().await, "9 refused: sbatch refuses: Invalid qos");
    // A request that was never submitted has nothing to withdraw.
    cancel(&story, &[7, 8, 10]);
    let calls = story.calls_within(600).await;
    assert_eq!(calls[..3], ["request a1 without []"; 3]);
    assert_eq!(calls[3..], ["release 1 Now", "release 2 Now"]);
    assert!(story.board.with(|scripted| scripted.leases.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_set_keeps_the_leases_of_nodes_that_have_joined() {
    let mut story = Story::begin(Board::default());
    story.request_set(&[7, 8, 9]);
    for _ in 0..6 {
        story.next().await;
    }
    story.board.set("2", running());
    joined(&story, "node-2");
    cancel(&story, &[7, 8, 9]);
    let calls = story.calls_within(600).await;
    assert_eq!(calls[3..], ["release 1 Now", "release 3 Now"]);
    let node = "node-2".to_owned();
    story.order(ClusterOrder::Release { node });
    assert_eq!(story.calls_within(1).await, ["release 2 Drain"]);
}

#[tokio::test(start_paused = true)]
async fn a_set_takes_leases_of_an_earlier_run_and_requests_the_others() {
    let board = Board::default();
    board.with(|scripted| scripted.leases.push(lease("1", Some(3))));
    let mut story = Story::begin(board);
    story.pass(1).await;
    story.request_set(&[7, 8]);
    let named = named(&mut story, 2).await;
    assert_eq!(named, ["7 is node-1", "8 is node-2"]);
    assert_eq!(story.calls_within(600).await, ["request a1 without []"]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_response_within_a_set_does_not_keep_the_others_from_being_submitted() {
    let board = Board::default();
    board.with(|scripted| scripted.requests = vec![Ok(()), Err(away()), Ok(())]);
    let mut story = Story::begin(board);
    story.request_set(&[7, 8, 9]);
    let named = named(&mut story, 3).await;
    assert_eq!(named, ["7 is node-1", "9 is node-2", "8 is node-3"]);
    assert_eq!(story.calls_within(600).await, ["request a1 without []"; 4]);
}
