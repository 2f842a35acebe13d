//! Silent nodes whose leases have ended, and leases of another pool.

use super::*;

fn ended(why: &str) -> LeaseState {
    LeaseState::Ended {
        why: why.to_owned(),
    }
}

fn silent(story: &Story, node: &str) {
    let node = node.to_owned();
    story.order(ClusterOrder::Silent { node });
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_has_ended_once_the_cluster_reports_the_end_of_its_lease() {
    let board = Board::default();
    board.with(|scripted| scripted.leases.push(lease("1", None)));
    board.set("1", running());
    let mut story = Story::begin(board);
    let node = "node-1".to_owned();
    story.order(ClusterOrder::Joined { node: node.clone() });
    silent(&story, &node);
    // The job may still run, and a cluster that does not respond reports nothing.
    story.pass(60).await;
    story.board.with(|scripted| scripted.is_away = true);
    story.board.set("1", ended("the job was cancelled"));
    story.pass(60).await;
    assert!(story.news.try_recv().is_err());
    story.board.with(|scripted| scripted.is_away = false);
    assert_eq!(
        story.next().await,
        "node-1 has ended: lease 1: the job was cancelled"
    );
    story.pass(600).await;
    assert!(story.news.try_recv().is_err(), "reported once");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_reconnects_is_not_reported_as_ended() {
    let board = Board::default();
    board.with(|scripted| scripted.leases.push(lease("1", None)));
    board.set("1", ended("the cluster reports nonsense"));
    let mut story = Story::begin(board);
    let node = "node-1".to_owned();
    story.order(ClusterOrder::Joined { node: node.clone() });
    story.pass(600).await;
    assert!(story.news.try_recv().is_err(), "it is connected");
    story.board.set("1", running());
    silent(&story, &node);
    story.pass(1).await;
    story.order(ClusterOrder::Joined { node });
    story.board.set("1", ended("the cluster reports nonsense"));
    story.pass(600).await;
    assert!(story.news.try_recv().is_err(), "it is connected again");
}

#[tokio::test(start_paused = true)]
async fn only_nodes_with_a_cluster_lease_are_reported_as_missing() {
    let mut story = Story::begin(Board::default());
    // After a restart, the first response may be older than the lease.
    silent(&story, "node-7");
    // A person has started this node.
    silent(&story, "gpu-2");
    assert_eq!(
        story.next().await,
        "node-7 has ended: the cluster no longer lists its lease"
    );
    story.pass(3600).await;
    assert!(story.news.try_recv().is_err(), "the other is unknown");
}

#[tokio::test(start_paused = true)]
async fn a_requeued_job_keeps_its_node() {
    let board = Board::default();
    board.with(|scripted| scripted.leases.push(lease("1", Some(3))));
    let mut story = Story::begin(board);
    silent(&story, "node-1");
    story.pass(290).await;
    assert!(story.news.try_recv().is_err(), "it is pending again");
}

#[tokio::test(start_paused = true)]
async fn leases_of_another_pool_with_the_same_name_are_not_touched() {
    let board = Board::default();
    board.with(|scripted| {
        for (id, owner) in [("1", "other"), ("2", "own")] {
            let mut lease = lease(id, Some(3));
            lease.owner = Some(owner.to_owned());
            scripted.leases.push(lease);
        }
    });
    let mut story = Story::begin(board);
    story.request(9);
    assert_eq!(story.next().await, "9 is node-2");
    story.order(ClusterOrder::Cancel { demand: 9 });
    assert_eq!(story.calls_within(900).await, ["release 2 Now"]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_can_never_start_is_reported_and_released_once_cancelled() {
    let mut story = Story::begin(Board::default());
    for (reason, outlook) in [
        (
            "lower it, so it never starts (PartitionTimeLimit)",
            Outlook::Never,
        ),
        (
            "this user has as many GPUs as the QOS allows",
            Outlook::Never,
        ),
        (
            "1 node is that large; it has no autoscaler to bring another",
            Outlook::Stuck,
        ),
    ] {
        story.request(7);
        story.next().await;
        story.next().await;
        let id = story
            .board
            .with(|scripted| scripted.leases[0].id.to_string());
        story.board.set(&id, pending(reason));
        let news = story.news.recv().await.expect("it runs");
        let reason = format!("lease {id}: {reason}");
        let expected = ClusterNews::Pending {
            demand: 7,
            reason,
            outlook,
        };
        assert_eq!(news, expected);
        story.order(ClusterOrder::Cancel { demand: 7 });
        story.pass(10).await;
        assert_eq!(
            story.board.calls(),
            [
                "request a1 without []".to_owned(),
                format!("release {id} Now")
            ]
        );
    }
    // A reason that passes is none.
    story.request(8);
    story.next().await;
    story.next().await;
    assert_eq!(story.calls_within(3600).await, ["request a1 without []"]);
}
