//! Tests of `memory.rs`.

use super::*;

const DAY: Day = Day {
    number: 20_000,
    rest: Span::from_secs(3600),
};

fn bucket(id: &str, limit: Limit) -> Bucket {
    Bucket {
        id: id.to_owned(),
        description: format!("the key {id}"),
        limit,
    }
}

fn figure(refused: Result<RemainingLimits, LimitRefusal>) -> (Figure, Span) {
    match refused {
        Err(LimitRefusal::Over { figure, retry, .. }) => (figure, retry),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_burst_of_requests_is_followed_by_an_even_rate() {
    let mut memory = Memory::default();
    let key = [bucket(
        "k1",
        Limit {
            requests_per_minute: Some(3),
            ..Limit::default()
        },
    )];
    for left in [2, 1, 0] {
        let standing = memory.admit(Time(1_000), &DAY, &key, 0).unwrap();
        assert_eq!(standing.requests.unwrap().left, left);
    }
    let refused = figure(memory.admit(Time(1_000), &DAY, &key, 0));
    assert_eq!(refused, (Figure::Requests, Span::from_secs(20)));
    assert!(memory.admit(Time(20_999), &DAY, &key, 0).is_err());
    assert!(memory.admit(Time(21_000), &DAY, &key, 0).is_ok());
    let other = [bucket("k2", key[0].limit)];
    assert!(
        memory.admit(Time(21_000), &DAY, &other, 0).is_ok(),
        "each its own"
    );
}

#[test]
fn tokens_are_counted_once_they_are_known_and_a_deficit_delays_requests() {
    let mut memory = Memory::default();
    let key = [bucket(
        "k1",
        Limit {
            tokens_per_minute: Some(100),
            ..Limit::default()
        },
    )];
    memory.admit(Time(0), &DAY, &key, 20).unwrap();
    memory.settle(Time(0), &DAY, &key, 20, 150);
    let refused = figure(memory.admit(Time(0), &DAY, &key, 20));
    assert_eq!(refused.0, Figure::Tokens);
    assert!(memory.admit(Time(refused.1.0), &DAY, &key, 0).is_ok());
    // Tokens that were only estimated are returned.
    let mut memory = Memory::default();
    memory.admit(Time(0), &DAY, &key, 99).unwrap();
    memory.settle(Time(0), &DAY, &key, 99, 0);
    let standing = memory.admit(Time(0), &DAY, &key, 0).unwrap();
    assert_eq!(standing.tokens.unwrap().left, 100);
}

#[test]
fn concurrent_requests_are_released_when_they_end() {
    let mut memory = Memory::default();
    let one = Limit {
        concurrent_requests: Some(1),
        ..Limit::default()
    };
    let both = [
        bucket("k1", one),
        bucket(
            "m",
            Limit {
                requests_per_minute: Some(100),
                ..Limit::default()
            },
        ),
    ];
    memory.admit(Time(0), &DAY, &both, 0).unwrap();
    assert_eq!(
        figure(memory.admit(Time(0), &DAY, &both, 0)).0,
        Figure::Concurrent
    );
    memory.settle(Time(0), &DAY, &both, 0, 0);
    let standing = memory.admit(Time(0), &DAY, &both, 0).unwrap();
    assert_eq!(
        standing.requests.unwrap().left,
        98,
        "the refused one took none"
    );
}

#[test]
fn each_day_has_its_own_token_budget_and_a_restart_does_not_reset_it() {
    let mut memory = Memory::default();
    let key = [bucket(
        "k1",
        Limit {
            tokens_per_day: Some(50),
            ..Limit::default()
        },
    )];
    memory.admit(Time(0), &DAY, &key, 0).unwrap();
    memory.settle(Time(0), &DAY, &key, 0, 60);
    assert_eq!(
        figure(memory.admit(Time(0), &DAY, &key, 0)),
        (Figure::Day, DAY.rest)
    );
    let days = memory.take_days();
    assert_eq!(
        days,
        [DayTokens {
            day: 20_000,
            bucket: "k1".to_owned(),
            tokens: 60
        }]
    );
    assert_eq!(memory.take_days(), []);
    let mut again = Memory::default();
    again.restore_days(days.into_iter());
    assert_eq!(figure(again.admit(Time(0), &DAY, &key, 0)).0, Figure::Day);
    let next = Day {
        number: 20_001,
        ..DAY
    };
    assert!(again.admit(Time(0), &next, &key, 0).is_ok());
}

#[test]
fn stale_rate_limit_counters_are_removed() {
    let mut memory = Memory::default();
    let limit = Limit {
        requests_per_minute: Some(5),
        tokens_per_minute: Some(10),
        ..Limit::default()
    };
    for nth in 0..5_000 {
        memory
            .admit(
                Time(0),
                &DAY,
                &[bucket(&format!("address:{nth}"), limit)],
                1,
            )
            .unwrap();
        if nth > 0 {
            memory.settle(
                Time(0),
                &DAY,
                &[bucket(&format!("address:{nth}"), limit)],
                1,
                1,
            );
        }
    }
    memory
        .admit(Time(600_000), &DAY, &[bucket("new", limit)], 0)
        .unwrap();
    assert_eq!(memory.counts.len(), 2, "one is still inside, one is new");
}

#[test]
fn many_addresses_use_bounded_memory_and_do_not_displace_the_counters_of_keys() {
    let mut memory = Memory::default();
    let limit = Limit {
        tokens_per_day: Some(10),
        ..Limit::default()
    };
    let key = [bucket("key:1", limit)];
    memory.admit(Time(0), &DAY, &key, 10).unwrap();
    memory.settle(Time(0), &DAY, &key, 10, 10);
    for nth in 0..3 * KEPT_MAX as u64 / 2 {
        let one = [bucket(&format!("address:{nth}"), limit)];
        memory.admit(Time(nth / 100), &DAY, &one, 1).unwrap();
        memory.settle(Time(nth / 100), &DAY, &one, 1, 1);
    }
    assert!(
        memory.counts.len() <= KEPT_MAX + 1,
        "{}",
        memory.counts.len()
    );
    let now = Time(3 * KEPT_MAX as u64);
    assert!(
        memory.admit(now, &DAY, &key, 0).is_err(),
        "the key's day is used up"
    );
}
