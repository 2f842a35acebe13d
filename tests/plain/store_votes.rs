//! Votes in the store: ratings, duplicates, order, and limits.

use model_pool::pool::{Span, Time};
use model_pool::store::{NewVote, Rating, Retention, START, Store, VoteResult};

use super::state::State;

const NO_BOUND: u32 = 1_000_000;

struct Room {
    state: State,
    store: Store,
}

impl Room {
    async fn new() -> Option<Room> {
        let state = State::new()?;
        let store = state.open().await;
        Some(Room { state, store })
    }

    async fn reopened(self) -> Room {
        self.store.close().await;
        let store = self.state.open().await;
        Room { store, ..self }
    }

    async fn vote(&self, vote: &NewVote) -> VoteResult {
        self.store.vote(vote, NO_BOUND).await.unwrap()
    }

    /// Names with points, best first.
    async fn board(&self) -> Vec<(String, i64)> {
        let ratings = self.store.ratings().await.unwrap();
        let told = ratings
            .into_iter()
            .map(|rating| (rating.model, rating.millipoints));
        told.collect()
    }
}

fn vote(nth: u64, models: &[&str], best: Option<usize>) -> NewVote {
    NewVote {
        at: Time(1_000_000 + nth),
        holder: "key:1".to_owned(),
        comparison: format!("c-{nth}"),
        models: models.iter().map(|model| (*model).to_owned()).collect(),
        best,
    }
}

#[tokio::test]
async fn votes_count_in_their_order_and_survive_a_reopen() {
    let Some(room) = Room::new().await else {
        return;
    };
    let first = room.vote(&vote(1, &["a", "b"], Some(0))).await;
    let VoteResult::Counted(ratings) = first else {
        panic!("{first:?}");
    };
    let changes: Vec<(i64, i64)> = ratings
        .iter()
        .map(|(rating, by)| (rating.millipoints, *by))
        .collect();
    assert_eq!(changes, [(1_016_000, 16_000), (984_000, -16_000)]);
    room.vote(&vote(2, &["b", "c"], Some(1))).await;
    room.vote(&vote(3, &["c", "a"], None)).await;
    let before = room.board().await;
    let names: Vec<&str> = before.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "c", "b"]);
    assert_eq!(
        before.iter().map(|(_, points)| *points).sum::<i64>(),
        3 * START
    );
    let room = room.reopened().await;
    assert_eq!(room.board().await, before);
    let ratings = room.store.ratings().await.unwrap();
    let counts = |rating: &Rating| {
        (
            rating.comparisons,
            rating.wins,
            rating.losses(),
            rating.ties,
        )
    };
    let counts: Vec<_> = ratings.iter().map(counts).collect();
    assert_eq!(counts, [(2, 1, 0, 1), (2, 1, 0, 1), (2, 0, 2, 0)]);
    // Another order of the votes yields other ratings.
    let Some(other) = Room::new().await else {
        return;
    };
    for nth in [3_u64, 2, 1] {
        let (models, best): (&[&str], _) = match nth {
            1 => (&["a", "b"], Some(0)),
            2 => (&["b", "c"], Some(1)),
            _ => (&["c", "a"], None),
        };
        other.vote(&vote(nth, models, best)).await;
    }
    assert_ne!(other.board().await, before);
}

#[tokio::test]
async fn each_voter_votes_once_per_comparison() {
    let Some(room) = Room::new().await else {
        return;
    };
    let first = vote(1, &["a", "b"], Some(0));
    room.vote(&first).await;
    let again = NewVote {
        best: Some(1),
        at: Time(2_000_000),
        ..first.clone()
    };
    assert_eq!(room.vote(&again).await, VoteResult::Twice);
    assert_eq!(room.board().await[0], ("a".to_owned(), 1_016_000));
    let other = NewVote {
        holder: "key:2".to_owned(),
        ..first
    };
    assert!(matches!(room.vote(&other).await, VoteResult::Counted(_)));
}

#[tokio::test]
async fn a_key_that_votes_too_often_waits_until_the_minute_is_over() {
    let Some(room) = Room::new().await else {
        return;
    };
    let at = |nth: u64, milliseconds: u64| NewVote {
        at: Time(1_000_000 + milliseconds),
        ..vote(nth, &["a", "b"], None)
    };
    for (nth, milliseconds) in [(1, 0), (2, 10_000), (3, 20_000)] {
        let voted = room.store.vote(&at(nth, milliseconds), 3).await.unwrap();
        assert!(matches!(voted, VoteResult::Counted(_)), "{voted:?}");
    }
    let voted = room.store.vote(&at(4, 25_000), 3).await.unwrap();
    let again_in = Span(35_000);
    assert_eq!(voted, VoteResult::TooOften { again_in });
    let other = NewVote {
        holder: "key:2".to_owned(),
        ..at(4, 25_000)
    };
    assert!(matches!(
        room.store.vote(&other, 3).await.unwrap(),
        VoteResult::Counted(_)
    ));
    let voted = room.store.vote(&at(4, 60_000), 3).await.unwrap();
    assert!(matches!(voted, VoteResult::Counted(_)), "{voted:?}");
}

#[tokio::test]
async fn old_and_excess_votes_are_deleted_and_the_ratings_stay() {
    let Some(room) = Room::new().await else {
        return;
    };
    for nth in 1..=20 {
        room.vote(&vote(nth, &["a", "b"], Some(0))).await;
    }
    let before = room.board().await;
    let year = Span::from_secs(365 * 24 * 3600);
    let keep = Retention { age: year, rows: 5 };
    let now = Time(1_000_100);
    assert_eq!(room.store.forget_votes(now, keep).await.unwrap(), 15);
    assert_eq!(room.store.forget_votes(now, keep).await.unwrap(), 0);
    assert_eq!(
        room.vote(&vote(20, &["a", "b"], None)).await,
        VoteResult::Twice
    );
    let short = Retention {
        age: Span(10),
        rows: 5,
    };
    assert_eq!(room.store.forget_votes(now, short).await.unwrap(), 5);
    assert_eq!(room.board().await, before);
}

#[tokio::test]
async fn ratings_of_models_without_recent_votes_are_bounded() {
    let Some(room) = Room::new().await else {
        return;
    };
    for nth in 0..2_600_u64 {
        let models = (0..4)
            .map(|place| format!("m{}", nth * 4 + place))
            .collect();
        let new = NewVote {
            models,
            ..vote(nth, &[], None)
        };
        room.vote(&new).await;
    }
    let keep = Retention {
        age: Span::from_secs(3600),
        rows: 10,
    };
    while room
        .store
        .forget_votes(Time(1_002_700), keep)
        .await
        .unwrap()
        > 0
    {}
    let kept = room.board().await;
    assert_eq!(kept.len(), 10_000);
    assert!(
        kept.iter().all(|(name, _)| name != "m0") && kept.iter().any(|(name, _)| name == "m10399")
    );
}
