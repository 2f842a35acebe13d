//! Clusters whose leases can have several nodes: a set is one lease.

use super::*;

fn with_sets() -> Board {
    let board = Board::default();
    board.with(|scripted| scripted.has_sets = true);
    board
}

fn joined(story: &Story, node: &str) {
    let node = node.to_owned();
    story.order(ClusterOrder::Joined { node });
}

/// The next news of this kind, up to this number.
async fn next_with(story: &mut Story, part: &str, count: usize) -> Vec<String> {
    let mut found = Vec::new();
    while found.len() < count {
        let news = story.next().await;
        if news.contains(part) {
            found.push(news);
        }
    }
    found
}

#[tokio::test(start_paused = true)]
async fn a_set_is_one_lease_that_is_drained_once() {
    let mut story = Story::begin(with_sets());
    story.request_set(&[7, 8, 9]);
    assert_eq!(
        next_with(&mut story, " is node-", 3).await,
        ["7 is node-1-0", "8 is node-1-1", "9 is node-1-2"]
    );
    story.board.set("1", running());
    for node in ["node-1-2", "node-1-0", "node-1-1"] {
        joined(&story, node);
    }
    assert_eq!(
        story.calls_within(3600).await,
        ["request 3 x a1 without []"]
    );
    for _ in 0..3 {
        let size = story.sizes.try_recv().expect("a size");
        assert!(matches!(size, ClusterNews::Sized { set: Some(7), .. }));
    }
    // The pool gives back each node. A second signal would end the nodes before they have drained.
    story.board.with(|scripted| scripted.keeps_released = true);
    for node in ["node-1-0", "node-1-1", "node-1-2"] {
        let node = node.to_owned();
        story.order(ClusterOrder::Release { node });
    }
    assert_eq!(story.calls_within(600).await, ["release 1 Drain"]);
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_request_ends_the_lease_of_its_set_even_if_a_node_has_joined() {
    for joins in [false, true] {
        let mut story = Story::begin(with_sets());
        story.request_set(&[7, 8]);
        next_with(&mut story, " is node-", 2).await;
        if joins {
            story.board.set("1", running());
            joined(&story, "node-1-1");
        }
        for demand in [7, 8] {
            story.order(ClusterOrder::Cancel { demand });
        }
        let calls = story.calls_within(600).await;
        assert_eq!(calls, ["request 2 x a1 without []", "release 1 Now"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_or_ended_lease_ends_all_requests_of_its_set() {
    let board = with_sets();
    board.with(|scripted| {
        scripted.requests = vec![Err(ClusterError::Refused {
            program: "sbatch".to_owned(),
            message: "Invalid qos".to_owned(),
            advice: String::new(),
        })];
    });
    let mut story = Story::begin(board);
    story.request_set(&[7, 8]);
    assert_eq!(story.next().await, "7 refused: sbatch refuses: Invalid qos");
    story.request_set(&[9, 10]);
    next_with(&mut story, " pending: ", 2).await;
    let why = "it was cancelled".to_owned();
    story.board.set("1", LeaseState::Ended { why });
    let refused = next_with(&mut story, " refused: ", 2).await;
    assert_eq!(
        refused,
        [
            "9 refused: lease 1 has ended: it was cancelled",
            "10 refused: lease 1 has ended: it was cancelled"
        ]
    );
    assert_eq!(story.board.calls().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_node_of_a_set_that_never_joins_ends_the_lease() {
    let mut story = Story::begin(with_sets());
    story.request_set(&[7, 8]);
    next_with(&mut story, " is node-", 2).await;
    story.board.set("1", running());
    joined(&story, "node-1-0");
    let refused = next_with(&mut story, " refused: ", 1).await;
    assert!(
        refused[0].contains("its node node-1-1 has not joined"),
        "{refused:?}"
    );
    let calls = story.calls_within(10).await;
    assert_eq!(calls[1..], ["release 1 Now"]);
}

#[tokio::test(start_paused = true)]
async fn a_set_of_an_earlier_run_serves_a_set_of_its_size_and_nothing_else() {
    let board = with_sets();
    board.with(|scripted| scripted.leases.extend(nodes_of("1", &[3, 4])));
    let mut story = Story::begin(board);
    story.request(9);
    assert_eq!(story.next().await, "9 is node-3");
    story.request_set(&[10, 11, 12]);
    next_with(&mut story, " is node-", 3).await;
    assert_eq!(
        story.board.calls(),
        ["request a1 without []", "request 3 x a1 without []"]
    );
    story.order(ClusterOrder::Cancel { demand: 10 });
    story.request_set(&[13, 14]);
    assert_eq!(
        next_with(&mut story, " is node-", 2).await,
        ["13 is node-1-0", "14 is node-1-1"]
    );
    joined(&story, "node-1-0");
    joined(&story, "node-1-1");
    assert_eq!(story.calls_within(600).await, ["release 4 Now"]);
}

#[tokio::test(start_paused = true)]
async fn an_unused_set_of_an_earlier_run_is_given_back_once() {
    let board = with_sets();
    board.with(|scripted| scripted.leases.extend(nodes_of("1", &[3, 4])));
    let story = Story::begin(board);
    assert_eq!(story.calls_within(330).await, ["release 1 Now"]);
}

#[tokio::test(start_paused = true)]
async fn a_set_whose_response_was_lost_is_found_by_its_demands_or_sent_again_as_a_set() {
    for is_accepted in [true, false] {
        let board = with_sets();
        board.with(|scripted| scripted.requests = vec![Err(away())]);
        let mut story = Story::begin(board);
        story.request_set(&[7, 8]);
        story.pass(1).await;
        if is_accepted {
            let leases = nodes_of("5", &[7, 8]);
            story.board.with(|scripted| scripted.leases.extend(leases));
        }
        let id = if is_accepted { "5" } else { "1" };
        assert_eq!(
            next_with(&mut story, " is node-", 2).await,
            [format!("7 is node-{id}-0"), format!("8 is node-{id}-1")]
        );
        let calls = story.calls_within(600).await;
        assert_eq!(calls.len(), if is_accepted { 1 } else { 2 }, "{calls:?}");
        assert!(calls.iter().all(|call| call == "request 2 x a1 without []"));
    }
}
