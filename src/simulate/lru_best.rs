//! The best of the simple rules, as a fair baseline on several devices: least recently used, on the device whose victims were used
//! longest ago, keeping victims that turn out to be unnecessary.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use pool::{DeviceId, ModelId};
use sim::replay::{Facts, Resident, Rule, Wish};

/// A replica that spans several devices takes the devices with the oldest victims.
#[derive(Debug, Default)]
pub struct LruBest;

impl Rule for LruBest {
    fn name(&self) -> &'static str {
        "lru-best"
    }

    fn wish(&mut self, facts: &Facts<'_>, model: ModelId) -> Wish {
        let (count, needs) = facts.needs(model);
        let devices = facts.large_enough(needs);
        if devices.len() < count as usize {
            return Wish::Refuse("never_fits");
        }
        let mut places: Vec<_> = devices
            .into_iter()
            .filter_map(|device| {
                let victims = oldest(facts, device, needs.0)?;
                let newest = victims.iter().map(|resident| resident.last_used).max();
                let left_over = Reverse(facts.free_on(device));
                let victims: Vec<ModelId> = victims.iter().map(|resident| resident.model).collect();
                Some((newest, left_over, device, victims))
            })
            .collect();
        if places.len() < count as usize {
            return Wish::Wait;
        }
        places.sort();
        places.truncate(count as usize);
        let victims: BTreeSet<ModelId> = places
            .iter()
            .flat_map(|(_, _, _, victims)| victims.clone())
            .collect();
        Wish::Load {
            devices: places.iter().map(|(_, _, device, _)| *device).collect(),
            victims: victims.into_iter().collect(),
            cut: false,
        }
    }
}

/// The idle models of a device that must leave to free this many bytes: the oldest first, without the unnecessary ones.
fn oldest<'a>(facts: &'a Facts<'_>, device: DeviceId, needs: u64) -> Option<Vec<&'a Resident>> {
    let bytes = |resident: &Resident| facts.needs(resident.model).1.0;
    let mut idle: Vec<&Resident> = facts.idle_on(device).collect();
    idle.sort_by_key(|resident| (resident.last_used, resident.model));
    let mut free = facts.free_on(device);
    let mut victims: Vec<&Resident> = Vec::new();
    for resident in idle {
        if free >= needs {
            break;
        }
        free += bytes(resident);
        victims.push(resident);
    }
    if free < needs {
        return None;
    }
    for nth in (0..victims.len()).rev() {
        if free - bytes(victims[nth]) >= needs {
            free -= bytes(victims[nth]);
            victims.remove(nth);
        }
    }
    Some(victims)
}
