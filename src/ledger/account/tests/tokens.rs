//! Used time by the tokens of requests, and by seats where an engine reports none.

use super::*;

fn token_seats(key: u64, came: &[u64], tokens: u64) -> KeySeats {
    let mut seats = seats(key, came, 0);
    for at in came {
        seats.token_time.changes(Time(*at), 0, tokens);
    }
    seats
}

/// The seats of a key after its only request has left.
fn left(key: u64, (entered, now): (u64, u64), tokens: u64) -> KeySeats {
    let mut seats = seats(key, &[], now - entered);
    seats.token_time.leaves(Time(entered), Time(now), tokens);
    seats
}

fn account_of_one_model() -> Account {
    let mut account = Account::default();
    account.devices(Time(0), [device(0, 10)]);
    account.replicas(Time(0), [replica(1, "a", Life::Serving, &[(0, 10)])]);
    account
}

#[test]
fn ten_times_the_tokens_in_flight_pay_for_ten_times_the_device() {
    let mut account = account_of_one_model();
    let inside = [token_seats(1, &[0], 3_000), token_seats(2, &[0], 300)];
    gate(&mut account, 0, 1, 0, &inside);
    let found = sums(&account.take(Time(33_000)));
    let expected = [((Use::Used, KEY_1), 30_000), ((Use::Used, KEY_2), 3_000)];
    assert_eq!(found, BTreeMap::from(expected));
    // Ten other requests of key 2 follow its first one.
    let mut second = token_seats(2, &[33_000; 10], 300);
    second.ended_ms = 33_000;
    second.token_time.ended = 33_000 * 300;
    let inside = [token_seats(1, &[0], 3_000), second];
    gate(&mut account, 33_000, 1, 33_000, &inside);
    let found = sums(&account.take(Time(66_000)));
    assert_eq!(found[&(Use::Used, KEY_1)], found[&(Use::Used, KEY_2)]);
}

#[test]
fn an_engine_that_reports_no_tokens_is_divided_by_seats() {
    for reports_tokens in [false, true] {
        let mut account = account_of_one_model();
        let keys = [token_seats(1, &[0], 9_000), token_seats(2, &[0], 1_000)];
        let news = GateNews {
            busy_ms: 0,
            in_flight: 2,
            last_key: None,
            reports_tokens,
            keys: Some(&keys),
            batches: &[],
        };
        account.gate(Time(0), ReplicaId(1), &news);
        let found = sums(&account.take(Time(10_000)));
        let of_first = if reports_tokens { 9_000 } else { 5_000 };
        assert_eq!(found[&(Use::Used, KEY_1)], of_first);
        assert_eq!(found[&(Use::Used, KEY_2)], 10_000 - of_first);
    }
}

#[test]
fn an_estimate_of_tokens_is_replaced_by_what_the_request_took() {
    let mut account = account_of_one_model();
    gate(
        &mut account,
        0,
        1,
        0,
        &[token_seats(1, &[0], 1_000), token_seats(2, &[0], 100)],
    );
    gate(
        &mut account,
        10_000,
        1,
        10_000,
        &[left(1, (0, 10_000), 50), left(2, (0, 10_000), 150)],
    );
    let found = sums(&account.take(Time(10_000)));
    assert_eq!(found[&(Use::Used, KEY_1)], 2_500);
    assert_eq!(found[&(Use::Used, KEY_2)], 7_500);
    // An estimate that an earlier minute has charged is set off against further requests of the key.
    let mut account = account_of_one_model();
    let inside = [token_seats(1, &[0, 0], 600), token_seats(2, &[0], 600)];
    gate(&mut account, 0, 1, 0, &inside);
    account.take(Time(60_000));
    let mut first = token_seats(1, &[0], 600);
    first.token_time.ended = 60_000 * 100;
    gate(
        &mut account,
        60_000,
        1,
        60_000,
        &[first, token_seats(2, &[0], 600)],
    );
    let found = sums(&account.take(Time(120_000)));
    let of_first = 120_000 * 600 + 60_000 * 100 - 2 * 60_000 * 600;
    let expected = 60_000 * of_first / (of_first + 60_000 * 600);
    assert_eq!(found[&(Use::Used, KEY_1)], expected);
}

#[test]
fn absurd_tokens_change_no_sum() {
    let mut account = account_of_one_model();
    let mut absurd = left(1, (0, 1_000), u64::MAX);
    absurd.token_time.changes(Time(0), 0, u64::MAX);
    absurd.in_flight = 1;
    absurd.token_time.ended = u128::MAX;
    gate(
        &mut account,
        1_000,
        1,
        1_000,
        &[absurd, token_seats(2, &[0], 100)],
    );
    for end in [60_000, 120_000] {
        let parts = account.take(Time(end));
        assert_eq!(sums(&parts).values().sum::<u64>(), 60_000);
    }
}

#[test]
fn the_time_of_batches_is_counted_apart_and_the_parts_sum_to_the_wall_time() {
    for reports_tokens in [false, true] {
        let mut account = account_of_one_model();
        let mut read = |now, keys: &[KeySeats], batches: &[KeySeats]| {
            let news = GateNews {
                busy_ms: now,
                in_flight: 3,
                last_key: None,
                reports_tokens,
                keys: Some(keys),
                batches,
            };
            account.gate(Time(now), ReplicaId(1), &news);
            account.take(Time(now))
        };
        let all = [token_seats(1, &[0, 0], 300), token_seats(2, &[0], 100)];
        let batches = [token_seats(1, &[0], 100)];
        read(0, &all, &batches);
        let found = sums(&read(30_000, &all, &batches));
        assert_eq!(found.values().sum::<u64>(), 30_000);
        let of_first = found[&(Use::Used, KEY_1)] + found[&(Use::UsedByBatches, KEY_1)];
        let of_second = found[&(Use::Used, KEY_2)];
        assert_eq!(of_first + of_second, 30_000);
        assert!(!found.contains_key(&(Use::UsedByBatches, KEY_2)));
        // Its batch has half of its seats, and a sixth of its tokens.
        let is_half = found[&(Use::UsedByBatches, KEY_1)] == found[&(Use::Used, KEY_1)];
        assert_eq!(is_half, !reports_tokens, "{found:?}");
    }
}

#[test]
fn the_classes_of_a_key_are_counted_together() {
    let mut account = Account::default();
    account.devices(Time(0), [device(0, 10)]);
    account.replicas(Time(0), [replica(1, "a", Life::Serving, &[(0, 10)])]);
    let flex = |came: &[u64], ended_ms| KeySeats {
        class: ServiceClass::Flex,
        ..seats(1, came, ended_ms)
    };
    let inside = [seats(1, &[0], 0), flex(&[0], 0), seats(2, &[0], 0)];
    gate(&mut account, 0, 1, 0, &inside);
    let ended = [seats(1, &[], 30_000), flex(&[], 30_000), seats(2, &[0], 0)];
    gate(&mut account, 30_000, 1, 30_000, &ended);
    let found = sums(&account.take(Time(30_000)));
    assert_eq!(found[&(Use::Used, KEY_1)], 20_000);
    assert_eq!(found[&(Use::Used, KEY_2)], 10_000);
}

#[test]
fn a_request_that_stays_inside_is_counted_without_news_of_its_gate() {
    let mut account = Account::default();
    account.devices(Time(0), [device(0, 10)]);
    account.replicas(Time(0), [replica(1, "a", Life::Serving, &[(0, 10)])]);
    gate(&mut account, 0, 1, 0, &[seats(2, &[0], 0)]);
    for minute in 1..=3 {
        let found = sums(&account.take(Time(minute * 60_000)));
        assert_eq!(found, BTreeMap::from([((Use::Used, KEY_2), 60_000)]));
    }
}
