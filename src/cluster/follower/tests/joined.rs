//! Reports about the nodes of leases when they join: their end and their size.

use super::*;

#[tokio::test(start_paused = true)]
async fn the_ends_of_leases_are_reported_when_their_nodes_join_and_when_they_change() {
    let board = Board::default();
    let ends = |unix: u64| {
        move |scripted: &mut Scripted| {
            scripted.leases[0].state = running();
            scripted.leases[0].ends_unix = Some(unix);
        }
    };
    // A person requested this lease; its end is reported as well.
    board.with(|scripted| scripted.leases.push(lease("1", None)));
    board.with(ends(5000));
    let mut story = Story::begin(board);
    story.pass(60).await;
    assert!(story.news.try_recv().is_err(), "it has not joined");
    let node = "node-1".to_owned();
    story.board.with(|scripted| scripted.is_away = true);
    story.order(ClusterOrder::Joined { node: node.clone() });
    story.pass(60).await;
    assert!(story.news.try_recv().is_err(), "nothing is known yet");
    story.board.with(|scripted| scripted.is_away = false);
    assert_eq!(story.next().await, "node-1 ends at 5000");
    // The job is preempted, which is noticed within half a minute.
    story.board.with(ends(4000));
    assert_eq!(story.next().await, "node-1 ends at 4000");
    // The node was signalled, which causes a poll without delay.
    story.board.with(ends(3000));
    story.order(ClusterOrder::Leaves { node: node.clone() });
    story.pass(1).await;
    let news = story.news.try_recv().expect("known immediately");
    assert_eq!(
        news,
        ClusterNews::Ends {
            node: node.clone(),
            unix: 3000
        }
    );
    // A cluster that does not respond changes nothing.
    story.board.with(|scripted| scripted.is_away = true);
    story.pass(120).await;
    assert!(story.news.try_recv().is_err());
    story.order(ClusterOrder::Gone { node });
    story.pass(120).await;
    assert!(story.board.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_size_of_a_requested_node_is_reported_once_each_time_it_joins() {
    let board = Board::default();
    board.with(|scripted| {
        scripted.leases = vec![lease("1", Some(7)), lease("2", None)];
        for lease in &mut scripted.leases {
            lease.state = running();
        }
    });
    let mut story = Story::begin(board);
    for _ in 0..2 {
        for node in ["node-1", "node-2"] {
            let node = node.to_owned();
            story.order(ClusterOrder::Joined { node });
        }
        story.pass(120).await;
        let (node, shape) = ("node-1".to_owned(), "a1".to_owned());
        let size = story.sizes.try_recv().expect("a size");
        let set = None;
        assert_eq!(size, ClusterNews::Sized { node, shape, set });
        assert!(
            story.sizes.try_recv().is_err(),
            "a person requested the other"
        );
        story.order(ClusterOrder::Gone {
            node: "node-1".to_owned(),
        });
        story.pass(60).await;
    }
}
