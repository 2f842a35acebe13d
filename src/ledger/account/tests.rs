//! Tests of the account: a scripted day under a manual clock, random days, and single rules.

mod day;
mod tokens;

use std::collections::BTreeMap;

use super::*;
use pool::{ServiceClass, TokenTime};

const GIB: u64 = Bytes::GIB;
pub(super) const ADMINISTRATOR: Payer = Payer::Administrator;

pub(super) fn device(id: u32, gib: u64) -> DeviceState<'static> {
    const NAMES: [&str; 4] = ["gpu0", "gpu1", "gpu2", "gpu3"];
    DeviceState {
        device: DeviceId(id),
        name: NAMES[id as usize],
        total: Bytes(gib * GIB),
        foreign: Bytes::ZERO,
        is_cordoned: false,
        sight: Sight::Known,
    }
}

pub(super) fn replica(
    id: u64,
    model: &'static str,
    life: Life,
    devices: &[(u32, u64)],
) -> Tenancy<'static> {
    let share = |&(device, gib): &(u32, u64)| (DeviceId(device), Bytes(gib * GIB));
    Tenancy {
        replica: ReplicaId(id),
        model: ModelId(id as u32),
        name: model,
        life,
        devices: devices.iter().map(share).collect(),
        host: None,
        is_administrators: false,
        loaded_for: Payer::Key(KeyId(1)),
    }
}

/// Seats of a key: the times at which its requests inside came, and the seat time of the others.
pub(super) fn seats(key: u64, came: &[u64], ended_ms: u64) -> KeySeats {
    let mut seats = KeySeats::new(KeyId(key));
    came.iter().for_each(|at| seats.enters(Time(*at)));
    seats.ended_ms = ended_ms;
    seats
}

pub(super) fn gate(account: &mut Account, now: u64, id: u64, busy_ms: u64, keys: &[KeySeats]) {
    let in_flight = keys.iter().map(|seats| seats.in_flight).sum();
    let last = keys.iter().rfind(|seats| seats.ended_ms > 0);
    let news = GateNews {
        busy_ms,
        in_flight,
        last_key: last.map(|seats| seats.key),
        reports_tokens: keys
            .iter()
            .any(|seats| seats.token_time != TokenTime::default()),
        keys: Some(keys),
        batches: &[],
    };
    account.gate(Time(now), ReplicaId(id), &news);
}

/// The milliseconds of each state and payer.
pub(super) fn sums(parts: &[Part]) -> BTreeMap<(Use, Payer), u64> {
    let mut sums = BTreeMap::new();
    for part in parts {
        *sums.entry((part.state, part.payer)).or_default() += part.device_ms;
    }
    sums
}

pub(super) fn wall(parts: &[Part], device: &str) -> u64 {
    let of = parts.iter().filter(|part| part.device == device);
    of.map(|part| part.device_ms).sum()
}

const KEY_1: Payer = Payer::Key(KeyId(1));
const KEY_2: Payer = Payer::Key(KeyId(2));

#[test]
fn a_device_shared_by_two_models_is_divided_by_their_memory() {
    let mut account = Account::default();
    account.devices(Time(0), [device(0, 80)]);
    let both = || {
        [
            replica(1, "a", Life::Serving, &[(0, 20)]),
            replica(2, "b", Life::Loading, &[(0, 40)]),
        ]
    };
    account.replicas(Time(0), both());
    let parts = account.take(Time(80_000));
    let found = sums(&parts);
    assert_eq!(found[&(Use::Idle, KEY_1)], 20_000);
    assert_eq!(found[&(Use::Loading, KEY_1)], 40_000);
    assert_eq!(found[&(Use::Free, Payer::Unassigned)], 20_000);
    let bytes: u64 = parts.iter().map(|part| part.byte_seconds).sum();
    assert_eq!(bytes, 80 * GIB * 80);
}

#[test]
fn used_time_is_divided_by_seats_and_idle_time_is_charged_to_the_last_user() {
    let mut account = Account::default();
    account.devices(Time(0), [device(0, 10)]);
    account.replicas(Time(0), [replica(1, "a", Life::Serving, &[(0, 10)])]);
    // Key 1 has one seat for 10 s, key 2 has three for 10 s; then both leave, and key 2 is the last.
    gate(
        &mut account,
        1_000,
        1,
        0,
        &[seats(1, &[1_000], 0), seats(2, &[1_000, 1_000, 1_000], 0)],
    );
    gate(
        &mut account,
        11_000,
        1,
        10_000,
        &[seats(1, &[], 10_000), seats(2, &[], 30_000)],
    );
    let found = sums(&account.take(Time(60_000)));
    assert_eq!(found[&(Use::Used, KEY_1)], 2_500);
    assert_eq!(found[&(Use::Used, KEY_2)], 7_500);
    assert_eq!(found[&(Use::Idle, KEY_2)], 50_000);
    assert_eq!(found.len(), 3);
}

/// Like [`seats`], with requests inside of this many tokens each.
#[test]
fn models_that_an_administrator_keeps_are_charged_to_the_administrator_while_idle() {
    let mut account = Account::default();
    account.devices(Time(0), [device(0, 10)]);
    let mut kept = replica(1, "a", Life::Serving, &[(0, 10)]);
    kept.is_administrators = true;
    account.replicas(Time(0), [kept]);
    gate(&mut account, 0, 1, 0, &[seats(2, &[0], 0)]);
    gate(&mut account, 1_000, 1, 1_000, &[seats(2, &[], 1_000)]);
    let found = sums(&account.take(Time(10_000)));
    assert_eq!(found[&(Use::Used, KEY_2)], 1_000);
    assert_eq!(found[&(Use::Idle, ADMINISTRATOR)], 9_000);
}

#[test]
fn unknown_time_is_never_free() {
    let mut account = Account::default();
    let seen = |sight| DeviceState {
        sight,
        ..device(0, 10)
    };
    let held = || [replica(1, "a", Life::Serving, &[(0, 4)])];
    account.devices(Time(0), [seen(Sight::Known)]);
    account.replicas(Time(0), held());
    account.devices(Time(10_000), [seen(Sight::Stale)]);
    account.devices(Time(20_000), [seen(Sight::Silent)]);
    account.devices(Time(30_000), [seen(Sight::Known)]);
    let found = sums(&account.take(Time(40_000)));
    assert_eq!(found[&(Use::Free, Payer::Unassigned)], 12_000);
    assert_eq!(found[&(Use::Unknown, Payer::Unassigned)], 16_000);
    assert_eq!(found[&(Use::Idle, KEY_1)], 12_000);
}

#[test]
fn measured_memory_counts_for_bytes_and_the_larger_claim_for_time() {
    let mut account = Account::default();
    let state = DeviceState {
        foreign: Bytes(2 * GIB),
        ..device(0, 10)
    };
    account.devices(Time(0), [state.clone()]);
    let none = BTreeMap::new();
    account.measured(Time(0), &state, Some(&none), (Time(0), None));
    account.replicas(Time(0), [replica(1, "a", Life::Serving, &[(0, 4)])]);
    let own = BTreeMap::from([(ReplicaId(1), Bytes(3 * GIB))]);
    account.measured(Time(10_000), &state, Some(&own), (Time(10_000), None));
    let parts = account.take(Time(20_000));
    let held: u64 = parts
        .iter()
        .filter(|part| part.model == "a")
        .map(|part| part.byte_seconds)
        .sum();
    assert_eq!(held, 30 * GIB, "nothing for 10 s, then 3 GiB");
    let foreign: u64 = parts
        .iter()
        .filter(|part| part.state == Use::Foreign)
        .map(|part| part.byte_seconds)
        .sum();
    assert_eq!(foreign, 40 * GIB);
    let found = sums(&parts);
    assert_eq!(
        found[&(Use::Idle, KEY_1)],
        8_000,
        "4 of 10 GiB are reserved"
    );
    assert_eq!(wall(&parts, "gpu0"), 20_000);
}

#[test]
fn claims_beyond_the_device_are_scaled() {
    let mut account = Account::default();
    let state = DeviceState {
        foreign: Bytes(8 * GIB),
        ..device(0, 10)
    };
    account.devices(Time(0), [state]);
    account.replicas(Time(0), [replica(1, "a", Life::Serving, &[(0, 8)])]);
    let found = sums(&account.take(Time(10_000)));
    assert_eq!(found[&(Use::Idle, KEY_1)], 5_000);
    assert_eq!(found[&(Use::Foreign, Payer::Unassigned)], 5_000);
}

#[test]
fn energy_is_divided_like_the_time_and_unknown_energy_is_not_zero() {
    let mut account = Account::default();
    let state = device(0, 10);
    account.devices(Time(0), [state.clone()]);
    account.replicas(Time(0), [replica(1, "a", Life::Serving, &[(0, 4)])]);
    let read = |account: &mut Account, at, mj| {
        let energy = Some(EnergyReading::Counter(mj));
        account.measured(Time(at), &device(0, 10), None, (Time(at), energy));
    };
    read(&mut account, 0, 1_000);
    read(&mut account, 10_000, 101_000);
    let parts = account.take(Time(10_000));
    let energy = |state| {
        parts
            .iter()
            .find(|part| part.state == state)
            .map(|part| (part.energy_mj, part.energy_ms))
    };
    assert_eq!(energy(Use::Idle), Some((40_000, 4_000)));
    assert_eq!(energy(Use::Free), Some((60_000, 6_000)));
    account.measured(Time(15_000), &state, None, (Time(15_000), None));
    let parts = account.take(Time(20_000));
    assert!(
        parts
            .iter()
            .all(|part| part.energy_ms == 0 && part.device_ms > 0)
    );
}

#[test]
fn sleepers_hold_host_memory_separately() {
    let mut account = Account::default();
    account.devices(Time(0), [device(0, 10)]);
    account.host(NodeId(0), "lab");
    account.replicas(Time(0), [replica(1, "a", Life::Serving, &[(0, 10)])]);
    let mut asleep = replica(1, "a", Life::Asleep, &[(0, 1)]);
    asleep.host = Some((NodeId(0), Bytes(9 * GIB)));
    account.replicas(Time(10_000), [asleep]);
    let parts = account.take(Time(20_000));
    assert_eq!(wall(&parts, "gpu0"), 20_000);
    let host = parts
        .iter()
        .find(|part| part.device == "host of lab")
        .expect("a part");
    assert_eq!(
        (host.state, host.device_ms, host.byte_seconds),
        (Use::Asleep, 0, 90 * GIB)
    );
    assert_eq!(sums(&parts)[&(Use::Asleep, KEY_1)], 1_000);
}

#[test]
fn hosts_of_ended_nodes_are_forgotten_while_a_device_stays() {
    let mut account = Account::default();
    account.devices(Time(0), [device(0, 10)]);
    for node in 1..100 {
        account.host(NodeId(node), &format!("node-{node}"));
        let mut asleep = replica(u64::from(node), "a", Life::Asleep, &[]);
        asleep.host = Some((NodeId(node), Bytes(GIB + 1)));
        let begins = u64::from(node) * 1_000;
        account.replicas(Time(begins), [asleep]);
        account.replicas(Time(begins + 7), []);
        let parts = account.take(Time(begins + 10));
        let name = format!("host of node-{node}");
        assert!(parts.iter().any(|part| part.device == name), "{parts:?}");
    }
    assert!(account.hosts.is_empty() && account.host_carry.is_empty());
    assert!(account.models.is_empty());
}

#[test]
fn ten_thousand_keys_take_bounded_memory_and_lose_no_time() {
    let mut account = Account::default();
    account.devices(Time(0), (0..4).map(|id| device(id, 10)));
    let held = |id: u64| replica(id + 1, "a", Life::Serving, &[(id as u32, 10)]);
    account.replicas(Time(0), (0..4).map(held));
    let mut now = 0;
    for key in 0..40_000 {
        now += 2;
        for id in 1..=4 {
            gate(&mut account, now, id, now, &[seats(key + 10, &[], 2)]);
        }
    }
    let parts = account.take(Time(now));
    assert!(parts.len() <= PARTS_MAX + 16, "{}", parts.len());
    assert!(parts.iter().any(|part| part.payer == Payer::Others));
    for name in ["gpu0", "gpu1", "gpu2", "gpu3"] {
        assert_eq!(wall(&parts, name), now);
    }
}

#[test]
fn a_device_that_leaves_is_counted_to_its_end_and_begins_anew() {
    let mut account = Account::default();
    account.devices(Time(0), [device(0, 10), device(1, 10)]);
    account.devices(Time(5_000), [device(0, 10)]);
    let parts = account.take(Time(20_000));
    assert_eq!(
        (wall(&parts, "gpu0"), wall(&parts, "gpu1")),
        (20_000, 5_000)
    );
    account.devices(Time(30_000), [device(0, 10), device(1, 10)]);
    let parts = account.take(Time(40_000));
    assert_eq!(
        (wall(&parts, "gpu0"), wall(&parts, "gpu1")),
        (20_000, 10_000)
    );
}

#[test]
fn a_gate_that_claims_more_than_the_time_passed_is_bounded() {
    let mut account = Account::default();
    account.devices(Time(0), [device(0, 10)]);
    account.replicas(Time(0), [replica(1, "a", Life::Serving, &[(0, 10)])]);
    gate(
        &mut account,
        1_000,
        1,
        u64::MAX / 4,
        &[seats(1, &[], u64::MAX / 4)],
    );
    let found = sums(&account.take(Time(2_000)));
    assert_eq!(found.values().sum::<u64>(), 2_000);
}
