//! Tests of shares without a pool: joins, seats and readings, and the order that follows.
//! One file because the cases share their builders.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::*;
use crate::types::groups::Group;

const HEAVY: KeyId = KeyId(1);
const LIGHT: KeyId = KeyId(2);
const REPLICA: ReplicaId = ReplicaId(1);
const MODEL: ModelId = ModelId(0);
const BY_TIME: Charging = Charging {
    costs: None,
    request: Some(Span(1_000)),
};

fn by_tokens() -> Charging {
    Charging {
        costs: Some(TokenCosts::new(100, 1_000)),
        ..BY_TIME
    }
}

fn group(id: u32, parent: Option<u32>, weight: u32) -> Group {
    Group {
        id: GroupId(id),
        name: id.to_string(),
        parent: parent.map(GroupId),
        weight,
        reserved_permille: 0,
    }
}

/// Shares with these groups and members.
fn shares(groups: Vec<Group>, members: &[(u64, u32)]) -> Shares {
    let mut shares = Shares::default();
    let members = members
        .iter()
        .map(|&(key, group)| (KeyId(key), GroupId(group)));
    let groups = Groups::new(groups, members).expect("the tree is valid");
    shares.set_groups(groups, core::iter::empty());
    shares
}

/// The key has two waiting requests, and so always one while the other is served.
fn waits(shares: &mut Shares, key: u64, class: ServiceClass) {
    for _ in 0..2 {
        shares.joins(KeyId(key), MODEL, class, Time(0));
    }
}

/// Gives `count` seats, one after the other, to requests of 1,000 prompt tokens that end immediately. Returns their keys.
fn serve(shares: &mut Shares, count: usize) -> Vec<u64> {
    let mut order = Vec::new();
    for _ in 0..count {
        let (key, lane) = shares.next(MODEL).expect("a request waits");
        let class = match lane {
            Lane::Flex => ServiceClass::Flex,
            Lane::Usual => ServiceClass::Default,
            Lane::Reserved => ServiceClass::Priority,
        };
        served(shares, key, class, 1_000);
        shares.joins(key, MODEL, class, Time(0));
        order.push(key.0);
        assert!(shares.is_index_right(), "{order:?}");
    }
    order
}

fn served(shares: &mut Shares, key: KeyId, class: ServiceClass, prompt: u64) {
    shares.leaves(key, MODEL, class);
    let tokens = Tokens { prompt, output: 0 };
    shares.takes_seat(key, class, REPLICA, Some(tokens), (by_tokens(), Time(0)));
    let mut seats = KeySeats::with_class(key, class);
    (seats.served, seats.ended_ms) = (tokens, prompt);
    shares.read(REPLICA, &[seats], by_tokens(), Time(0));
}

fn counts(order: &[u64]) -> BTreeMap<u64, usize> {
    let mut counts = BTreeMap::new();
    for key in order {
        *counts.entry(*key).or_default() += 1;
    }
    counts
}

/// The heavy key takes four seats at this time.
fn four_seats(shares: &mut Shares, now: Time) {
    let mut seats = KeySeats::new(HEAVY);
    (0..4).for_each(|_| seats.enters(now));
    shares.read(REPLICA, &[seats], BY_TIME, now);
}

fn lead(shares: &Shares) -> u64 {
    shares.level(HEAVY).saturating_sub(shares.level(LIGHT))
}

#[test]
fn service_counts_only_while_another_key_waits() {
    let mut shares = Shares::default();
    four_seats(&mut shares, Time(0));
    shares.count(Time(100_000));
    shares.joins(LIGHT, MODEL, ServiceClass::Default, Time(100_000));
    assert_eq!(lead(&shares), 0);
    shares.take_change();
    shares.count_sometimes(Time(120_480));
    assert_eq!(lead(&shares), 20, "20 s of four seats");
    assert_eq!(shares.take_change().replicas, BTreeSet::from([REPLICA]));
    shares.leaves(LIGHT, MODEL, ServiceClass::Default);
    shares.count(Time(900_000));
    assert_eq!(shares.level(HEAVY), 20);
}

#[test]
fn a_key_that_was_away_has_no_credit_and_a_lead_is_bounded() {
    let mut shares = Shares::default();
    four_seats(&mut shares, Time(0));
    shares.joins(LIGHT, MODEL, ServiceClass::Default, Time(0));
    shares.count(Time(3_600_000));
    let most = level(node::LEAD_MAX);
    assert!(
        (most * 15 / 16..=most).contains(&lead(&shares)),
        "{}",
        lead(&shares)
    );
    shares.leaves(LIGHT, MODEL, ServiceClass::Default);
    shares.joins(LIGHT, MODEL, ServiceClass::Default, Time(3_700_000));
    assert_eq!(lead(&shares), 0, "it starts where the active key is");
}

#[test]
fn requests_that_come_and_go_between_two_readings_count_in_full() {
    let mut shares = Shares::default();
    four_seats(&mut shares, Time(0));
    shares.joins(LIGHT, MODEL, ServiceClass::Default, Time(0));
    shares.count(Time(1_000));
    let mut seats = KeySeats::new(HEAVY);
    (0..4).for_each(|_| seats.enters(Time(0)));
    (0..3).for_each(|_| seats.leaves(Time(0), Time(20_000)));
    shares.read(REPLICA, &[seats], BY_TIME, Time(50_000));
    assert_eq!(
        shares.level(HEAVY),
        level(node::Counter::from((3 * 20_000 + 50_000) * MS))
    );
    shares.ends(REPLICA, Time(60_000));
    assert_eq!(shares.users(REPLICA).count(), 0);
}

#[test]
fn groups_are_served_by_weight_and_keys_of_a_group_alike() {
    let groups = vec![
        group(1, None, 10),
        group(2, None, 10),
        group(3, None, 20),
        group(4, Some(3), 3),
        group(5, Some(3), 1),
    ];
    let mut shares = shares(groups, &[(1, 1), (2, 1), (3, 2), (4, 4), (5, 5)]);
    for key in 1..=6 {
        waits(&mut shares, key, ServiceClass::Default);
    }
    let counts = counts(&serve(&mut shares, 500));
    let expected = [(1, 50), (2, 50), (3, 100), (4, 150), (5, 50), (6, 100)];
    for (key, times) in expected {
        assert!(counts[&key].abs_diff(times) <= 4, "{counts:?}");
    }
}

#[test]
fn a_returning_group_is_served_alike_from_its_return_on() {
    let mut shares = shares(
        vec![group(1, None, 1), group(2, None, 1)],
        &[(1, 1), (2, 2)],
    );
    waits(&mut shares, 1, ServiceClass::Default);
    serve(&mut shares, 300);
    waits(&mut shares, 2, ServiceClass::Default);
    let counts = counts(&serve(&mut shares, 20));
    assert!(counts[&1].abs_diff(10) <= 1, "{counts:?}");
}

#[test]
fn flex_waits_for_all_others_and_is_fair_among_itself() {
    let mut shares = shares(
        vec![group(1, None, 1), group(2, None, 3)],
        &[(1, 1), (2, 2), (3, 1)],
    );
    for key in [1, 2] {
        waits(&mut shares, key, ServiceClass::Flex);
    }
    let flex = counts(&serve(&mut shares, 40));
    assert!(flex[&1].abs_diff(10) <= 1, "{flex:?}");
    shares.joins(KeyId(3), MODEL, ServiceClass::Default, Time(0));
    assert_eq!(counts(&serve(&mut shares, 20)), BTreeMap::from([(3, 20)]));
}

#[test]
fn a_reserved_share_goes_first_and_no_further() {
    let reserved = Group {
        reserved_permille: 200,
        ..group(1, None, 1)
    };
    let mut shares = shares(vec![reserved, group(2, None, 9)], &[(1, 1), (2, 2)]);
    waits(&mut shares, 1, ServiceClass::Priority);
    waits(&mut shares, 2, ServiceClass::Default);
    let counts = counts(&serve(&mut shares, 200));
    assert!(
        counts[&1].abs_diff(40) <= 3,
        "a fifth, not a tenth: {counts:?}"
    );
}

#[test]
fn service_of_an_idle_pool_does_not_cost_a_reserved_share_for_days() {
    let reserved = Group {
        reserved_permille: 200,
        ..group(1, None, 1)
    };
    let mut shares = shares(vec![reserved, group(2, None, 9)], &[(1, 1), (2, 2)]);
    // Hours of a seat that no other key wants, and then ten minutes of the others.
    shares.joins(KeyId(1), MODEL, ServiceClass::Priority, Time(0));
    served(&mut shares, KeyId(1), ServiceClass::Priority, 100_000_000);
    shares.joins(KeyId(2), MODEL, ServiceClass::Default, Time(0));
    served(&mut shares, KeyId(2), ServiceClass::Default, 6_100_000);
    waits(&mut shares, 1, ServiceClass::Priority);
    waits(&mut shares, 2, ServiceClass::Default);
    let counts = counts(&serve(&mut shares, 200));
    assert!(counts[&1].abs_diff(40) <= 3, "{counts:?}");
}

#[test]
fn a_reserved_share_holds_after_its_group_was_served_more_by_weight() {
    let reserved = |weight| Group {
        reserved_permille: 200,
        ..group(1, None, weight)
    };
    let members = [(1, 1), (2, 2)];
    let mut shares = shares(vec![reserved(9), group(2, None, 1)], &members);
    waits(&mut shares, 1, ServiceClass::Priority);
    waits(&mut shares, 2, ServiceClass::Default);
    let before = counts(&serve(&mut shares, 600));
    assert!(before[&1].abs_diff(540) <= 6, "by weight: {before:?}");
    let groups = vec![reserved(1), group(2, None, 19)];
    let groups = Groups::new(
        groups,
        members.map(|(key, group)| (KeyId(key), GroupId(group))),
    );
    let waiting = [
        (KeyId(1), MODEL, ServiceClass::Priority),
        (KeyId(2), MODEL, ServiceClass::Default),
    ];
    let waiting = waiting.into_iter().chain(waiting);
    shares.set_groups(groups.expect("the tree is valid"), waiting);
    let after = counts(&serve(&mut shares, 100));
    assert!(after[&1].abs_diff(20) <= 3, "the reserved share: {after:?}");
}

#[test]
fn shares_hold_after_years_of_service() {
    let reserved = Group {
        reserved_permille: 200,
        ..group(3, None, 1)
    };
    let groups = vec![group(1, None, 10), group(2, None, 10), reserved];
    let mut shares = shares(groups, &[(1, 1), (2, 2), (3, 3)]);
    waits(&mut shares, 1, ServiceClass::Default);
    waits(&mut shares, 2, ServiceClass::Default);
    waits(&mut shares, 3, ServiceClass::Priority);
    // Each round is 64 bits of nanoseconds for each group without a reserved share, and a fifth of all for the other.
    let most = u64::MAX;
    for _ in 0..4 {
        for (key, class, service) in [
            (1, ServiceClass::Default, most),
            (2, ServiceClass::Default, most),
            (3, ServiceClass::Priority, most / 2),
        ] {
            shares.tree.spend(KeyId(key), class, service);
        }
        shares.tree.spend_reserved(KeyId(3), most / 2);
    }
    let counts = counts(&serve(&mut shares, 500));
    for (key, times) in [(1, 200), (2, 200), (3, 100)] {
        assert!(counts[&key].abs_diff(times) <= 5, "{counts:?}");
    }
}

#[test]
fn a_million_announced_tokens_hold_back_a_group_by_a_few_requests() {
    let mut shares = shares(
        vec![group(1, None, 1), group(2, None, 1)],
        &[(1, 1), (2, 2)],
    );
    waits(&mut shares, 2, ServiceClass::Default);
    let million = Tokens {
        prompt: 0,
        output: 1_000_000,
    };
    let class = ServiceClass::Default;
    let other = ReplicaId(2);
    shares.takes_seat(HEAVY, class, other, Some(million), (by_tokens(), Time(0)));
    waits(&mut shares, 1, class);
    let before = serve(&mut shares, 60);
    let first = before
        .iter()
        .position(|key| *key == 1)
        .expect("it is served");
    assert!(
        (15..=21).contains(&first),
        "two seconds of requests of 100 ms: {first}"
    );
    shares.read(other, &[], by_tokens(), Time(0));
    let after = counts(&serve(&mut shares, 100));
    assert!(after[&1] < 100 && shares.is_index_right(), "{after:?}");
}

#[test]
fn absurd_usage_costs_no_more_than_a_multiple_of_the_time_in_the_seat() {
    let mut shares = Shares::default();
    shares.joins(LIGHT, MODEL, ServiceClass::Default, Time(0));
    let mut seats = KeySeats::new(HEAVY);
    seats.ended_ms = 100;
    seats.served = Tokens {
        prompt: u64::MAX,
        output: u64::MAX,
    };
    shares.read(REPLICA, &[seats], by_tokens(), Time(100));
    let most = SURPLUS_NS + TIMES_SEAT_MAX * 100 * MS;
    assert_eq!(lead(&shares), level(node::Counter::from(most)));
}

#[test]
fn a_group_that_is_deleted_while_its_requests_wait_and_run_gives_its_keys_no_credit() {
    let members = [(1, 1), (2, 2)];
    let mut shares = shares(vec![group(1, None, 1), group(2, None, 1)], &members);
    for key in [1, 2] {
        waits(&mut shares, key, ServiceClass::Default);
    }
    serve(&mut shares, 101);
    four_seats(&mut shares, Time(0));
    let waiting = [HEAVY, LIGHT, HEAVY, LIGHT].map(|key| (key, MODEL, ServiceClass::Default));
    let groups = Groups::new(vec![group(1, None, 1)], [(HEAVY, GroupId(1))]).expect("valid");
    shares.set_groups(groups, waiting.into_iter());
    assert!(shares.is_index_right());
    assert_eq!((shares.waiting(), shares.users(REPLICA).count()), (4, 1));
    shares.read(REPLICA, &[], BY_TIME, Time(0));
    let counts = counts(&serve(&mut shares, 100));
    assert!(counts[&1].abs_diff(50) <= 2, "{counts:?}");
    shares.set_groups(Groups::default(), waiting.into_iter());
    assert!(shares.is_index_right() && shares.waiting() == 4);
}

#[test]
fn a_key_that_alternates_between_two_groups_moves_with_its_requests_and_seats_without_credit() {
    let members = [(1, 1), (2, 2), (3, 1)];
    let reserved = Group {
        reserved_permille: 100,
        ..group(2, None, 1)
    };
    let mut shares = shares(vec![group(1, None, 1), reserved], &members);
    let classes = [
        ServiceClass::Default,
        ServiceClass::Priority,
        ServiceClass::Flex,
    ];
    let mut waiting: Vec<(ModelId, ServiceClass)> = Vec::new();
    for class in classes.into_iter().chain(classes) {
        shares.joins(HEAVY, MODEL, class, Time(0));
        waiting.push((MODEL, class));
    }
    waits(&mut shares, 2, ServiceClass::Default);
    waits(&mut shares, 3, ServiceClass::Default);
    for class in classes {
        let now = (by_tokens(), Time(0));
        shares.takes_seat(HEAVY, class, ReplicaId(2), None, now);
    }
    for nth in 0..20 {
        let group = [Some(GroupId(2)), Some(GroupId(1)), None][nth % 3];
        assert!(shares.move_member(HEAVY, group, &waiting));
        assert!(!shares.move_member(HEAVY, group, &waiting), "already there");
        assert!(shares.is_index_right(), "{nth}");
        assert_eq!(shares.group(HEAVY), group);
        assert_eq!(
            (shares.waiting(), shares.users(ReplicaId(2)).count()),
            (10, 3)
        );
        serve(&mut shares, 7);
    }
    shares.read(ReplicaId(2), &[], by_tokens(), Time(0));
    assert!(shares.is_index_right());
    let groups = Groups::clone(shares.groups());
    let all = [1, 2, 3].map(|key| (KeyId(key), MODEL, ServiceClass::Default));
    let mut rebuilt = shares.clone();
    rebuilt.set_groups(groups, all.into_iter());
    assert!(rebuilt.is_index_right());
}

#[test]
fn ten_thousand_keys_that_come_and_go_take_bounded_memory() {
    let mut shares = Shares::default();
    shares.joins(LIGHT, MODEL, ServiceClass::Default, Time(0));
    for nth in 0..10_000 {
        let mut seats = KeySeats::new(KeyId(nth + 10));
        seats.enters(Time(0));
        seats.leaves(Time(0), Time(nth + 1));
        shares.read(ReplicaId(nth + 10), &[seats], BY_TIME, Time(20_000));
    }
    let (keys, _) = shares.tree.sizes();
    assert!(keys <= 2 * 1_024 + 1, "{keys}");
    assert!(shares.users.is_empty() && shares.is_index_right());
}
