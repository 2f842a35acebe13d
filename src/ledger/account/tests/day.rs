//! A day of events under a manual clock, scripted and drawn. The parts of each device sum to its wall time, and the held bytes to the
//! integral of the readings.

use super::*;

const DAY: u64 = 86_400_000;

/// Numbers that follow from a seed (SplitMix64).
struct Draw(u64);

impl Draw {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }
}

/// A replica of the drawn day, as the test counts it.
#[derive(Clone)]
struct Stay {
    id: u64,
    life: Life,
    devices: Vec<(u32, u64)>,
    busy_ms: u64,
    inside_since: Option<u64>,
    key: u64,
    /// Measured memory, in GiB.
    held: u64,
}

impl Stay {
    fn busy(&self, now: u64) -> u64 {
        self.busy_ms + self.inside_since.map_or(0, |since| now - since)
    }
}

fn tenancies(stays: &[Stay]) -> Vec<Tenancy<'static>> {
    let tenancy = |stay: &Stay| replica(stay.id, "a", stay.life, &stay.devices);
    stays.iter().map(tenancy).collect()
}

fn within_a_thousandth(found: u64, expected: u64) -> bool {
    found.abs_diff(expected) * 1_000 <= expected
}

#[test]
fn a_scripted_day_sums_to_the_wall_time_of_each_device() {
    const HOUR: u64 = 3_600_000;
    let mut account = Account::default();
    let states = |cordon: bool, sight| {
        let second = DeviceState {
            is_cordoned: cordon,
            ..device(1, 24)
        };
        [
            DeviceState {
                sight,
                ..device(0, 24)
            },
            second,
        ]
    };
    account.devices(Time(0), states(false, Sight::Known));
    // At 8 a model loads for 5 minutes for key 1, serves two keys until 12, and stays idle until 13.
    let model = |life| [replica(1, "a", life, &[(0, 12)])];
    account.replicas(Time(8 * HOUR), model(Life::Loading));
    let ready = 8 * HOUR + HOUR / 12;
    account.replicas(Time(ready), model(Life::Serving));
    gate(
        &mut account,
        ready,
        1,
        0,
        &[seats(1, &[ready], 0), seats(2, &[ready], 0)],
    );
    let end = 12 * HOUR;
    gate(
        &mut account,
        end,
        1,
        end - ready,
        &[seats(1, &[], end - ready), seats(2, &[], end - ready)],
    );
    account.replicas(Time(13 * HOUR), []);
    // The second device is cordoned from 14 to 16. The node is silent from 18 to 19.
    account.devices(Time(14 * HOUR), states(true, Sight::Known));
    account.devices(Time(16 * HOUR), states(false, Sight::Known));
    account.devices(Time(18 * HOUR), states(false, Sight::Silent));
    account.devices(Time(19 * HOUR), states(false, Sight::Known));
    let parts = account.take(Time(24 * HOUR));
    assert_eq!(wall(&parts, "gpu0"), DAY);
    assert_eq!(wall(&parts, "gpu1"), DAY);
    let found = sums(&parts);
    let used = (end - ready) / 4;
    assert_eq!(found[&(Use::Loading, KEY_1)], (ready - 8 * HOUR) / 2);
    assert_eq!(found[&(Use::Used, KEY_1)], used);
    assert_eq!(found[&(Use::Used, KEY_2)], used);
    assert_eq!(found[&(Use::Idle, KEY_2)], HOUR / 2);
    assert_eq!(found[&(Use::Cordoned, Payer::Unassigned)], 2 * HOUR);
    assert_eq!(found[&(Use::Unknown, Payer::Unassigned)], HOUR);
    assert_eq!(found.values().sum::<u64>(), 2 * DAY);
}

#[test]
fn drawn_days_sum_to_wall_time_held_memory_and_busy_time() {
    for seed in 0..40 {
        drawn_day(seed);
    }
}

fn drawn_day(seed: u64) {
    let mut draw = Draw(seed);
    let mut account = Account::default();
    let mut stays: Vec<Stay> = Vec::new();
    let mut parts = Vec::new();
    // The test's own count: measured GiB-milliseconds, and busy milliseconds times the share of the device.
    let (mut held, mut used) = (0_u64, 0_u64);
    let (mut now, mut next_id, mut next_take) = (0, 1, 60_000);
    let known: Vec<DeviceState<'_>> = (0..4).map(|id| device(id, 24)).collect();
    account.devices(Time(0), known.iter().cloned());
    for state in &known {
        account.measured(Time(0), state, Some(&BTreeMap::new()), (Time(0), None));
    }
    while now < DAY {
        let longest = if draw.next(10) == 0 { 600_000 } else { 3_000 };
        let step = 1 + draw.next(longest);
        let then = (now + step).min(next_take).min(DAY);
        for stay in &stays {
            held += stay.held * stay.devices.len() as u64 * (then - now);
            if stay.inside_since.is_some() && stay.life == Life::Serving {
                let share: u64 = stay
                    .devices
                    .iter()
                    .map(|(_, gib)| gib.max(&stay.held))
                    .sum();
                used += share * (then - now);
            }
        }
        now = then;
        if now == next_take || now == DAY {
            parts.extend(account.take(Time(now)));
            next_take += 60_000;
        }
        let free = |stays: &[Stay], device: u32| {
            let on = stays.iter().flat_map(|stay| &stay.devices);
            24 - on
                .filter(|(id, _)| *id == device)
                .map(|(_, gib)| gib)
                .sum::<u64>()
        };
        let chosen = (!stays.is_empty()).then(|| draw.next(stays.len() as u64) as usize);
        match (draw.next(8), chosen) {
            (0, _) => {
                let devices: Vec<u32> = (0..4).filter(|id| free(&stays, *id) >= 8).collect();
                let devices: Vec<(u32, u64)> = devices
                    .into_iter()
                    .take(1 + draw.next(2) as usize)
                    .map(|id| (id, 8))
                    .collect();
                if !devices.is_empty() {
                    let id = next_id;
                    next_id += 1;
                    stays.push(Stay {
                        id,
                        life: Life::Loading,
                        devices,
                        busy_ms: 0,
                        inside_since: None,
                        key: 1,
                        held: 0,
                    });
                }
            }
            (1, Some(nth)) => stays[nth].life = Life::Serving,
            (2, Some(nth)) if draw.next(3) == 0 => drop(stays.remove(nth)),
            (3 | 4, Some(nth)) if stays[nth].life == Life::Serving => {
                let stay = &mut stays[nth];
                let key = stay.key;
                let busy = stay.busy(now);
                stay.busy_ms = busy;
                match stay.inside_since.take() {
                    Some(since) => gate(
                        &mut account,
                        now,
                        stay.id,
                        busy,
                        &[seats(key, &[], now - since)],
                    ),
                    None => {
                        stay.inside_since = Some(now);
                        stay.key = 1 + draw.next(5);
                        gate(
                            &mut account,
                            now,
                            stay.id,
                            busy,
                            &[seats(stay.key, &[now], 0)],
                        );
                    }
                }
            }
            (5, Some(nth)) => {
                stays[nth].held = draw.next(9);
                for (id, _) in stays[nth].devices.clone() {
                    let on = |stay: &&Stay| stay.devices.iter().any(|(device, _)| *device == id);
                    let own = stays
                        .iter()
                        .filter(on)
                        .map(|stay| (ReplicaId(stay.id), Bytes(stay.held * GIB)));
                    let state = &known[id as usize];
                    account.measured(Time(now), state, Some(&own.collect()), (Time(now), None));
                }
            }
            _ => {}
        }
        account.replicas(Time(now), tenancies(&stays));
    }
    for name in ["gpu0", "gpu1", "gpu2", "gpu3"] {
        assert_eq!(wall(&parts, name), DAY, "seed {seed}");
    }
    let of_models = parts.iter().filter(|part| !part.model.is_empty());
    let bytes: u64 = of_models.map(|part| part.byte_seconds / 1_024).sum();
    let expected = held / 1_000 * (GIB / 1_024);
    assert!(
        within_a_thousandth(bytes, expected),
        "seed {seed}: {bytes} of {expected}"
    );
    let states = parts.iter().filter(|part| part.state == Use::Used);
    let found: u64 = states.map(|part| part.device_ms).sum();
    let expected = used / 24;
    assert!(
        within_a_thousandth(found, expected),
        "seed {seed}: {found} of {expected}"
    );
}
