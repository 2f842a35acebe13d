//! Tests of `cheapest.rs`.

use super::*;
use crate::types::ids::{ModelId, Priority, ReplicaId};
use crate::types::rank::VictimRank;
use crate::types::share::Share;

/// A pseudo-random number below `end`.
fn below(state: &mut u64, end: u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % end
}

/// `count` candidates, with shares on some of the devices.
fn candidates(state: &mut u64, count: u64, devices: u64) -> Vec<Evictable> {
    (1..=count)
        .map(|nth| {
            let first = below(state, devices);
            let wide = below(state, devices - first) + 1;
            let bytes = Bytes(below(state, 40) + 1);
            let share = |device| Share {
                device: DeviceId(device as u32),
                bytes,
            };
            let all = Bytes(bytes.0 * wide);
            let loss = below(state, 5) * below(state, 9);
            Evictable {
                replica: ReplicaId(nth),
                model: ModelId(nth as u32),
                priority: Priority(below(state, 2) as u32),
                rank: VictimRank {
                    busy: below(state, 2) == 1,
                    value: loss / all.0.max(1),
                    bytes: Reverse(all),
                    replica: ReplicaId(nth),
                },
                loss,
                shares: (first..first + wide).map(share).collect(),
                planned: false,
            }
        })
        .collect()
}

fn world(state: &mut u64, count: u64) -> (Domain, Vec<Bytes>, Vec<Evictable>) {
    let devices = below(state, 3) + 1;
    let all = candidates(state, count, devices);
    let needs = (0..devices).map(|_| Bytes(below(state, 90) + 1)).collect();
    let free = (0..devices).map(|_| Bytes(below(state, 20))).collect();
    let devices = (0..devices).map(|nth| DeviceId(nth as u32)).collect();
    (Domain { devices, needs }, free, all)
}

#[test]
fn the_chosen_set_is_the_cheapest_among_up_to_twelve_replicas() {
    let mut state = 15;
    for _ in 0..600 {
        let count = below(&mut state, 12) + 1;
        let (domain, free, all) = world(&mut state, count);
        if fits(&domain, &free) {
            continue;
        }
        let sets = (1_u32..1 << all.len()).filter_map(|set| {
            let members = all.iter().enumerate();
            let members = members.filter(|(nth, _)| set >> nth & 1 == 1);
            let members: Vec<Evictable> = members.map(|(_, member)| member.clone()).collect();
            let room = fits(&domain, &with_freed(&domain, &free, &members));
            room.then(|| cost(&members))
        });
        let least = sets.min();
        let found = cheapest(&domain, &free, all);
        assert_eq!(found.map(|(cost, _)| cost), least, "{domain:?} {free:?}");
    }
}

#[test]
fn every_victim_among_hundreds_is_necessary() {
    let mut state = 7;
    for _ in 0..40 {
        let (mut domain, free, all) = world(&mut state, 300);
        for needs in &mut domain.needs {
            needs.0 *= 20;
        }
        let Some((paid, victims)) = cheapest(&domain, &free, all) else {
            continue;
        };
        assert!(fits(&domain, &with_freed(&domain, &free, &victims)));
        assert_eq!(paid, cost(&victims));
        for nth in 0..victims.len() {
            let mut fewer = victims.clone();
            fewer.remove(nth);
            assert!(!fits(&domain, &with_freed(&domain, &free, &fewer)));
        }
    }
}
