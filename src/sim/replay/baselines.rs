//! Published eviction rules of comparable systems, and two yardsticks: recency, and knowledge of the future. Each rule names its
//! source and its omissions.
//! One file because it is a list of short rules that are compared with each other.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::rule::{Facts, Resident, Rule, Wish};
use pool::{DeviceId, ModelId, Span, Time};

/// The baselines by their names on the command line.
pub const BASELINES: [&str; 8] = [
    "lru",
    "fifo",
    "llama-swap",
    "llamacpp-router",
    "ollama",
    "modelmesh",
    "ncsa",
    "offline",
];

/// The eviction key of an idle model; the smallest leaves first.
type Key = (bool, u64, u64, u32);

/// Evicts idle models of a device in key order until the model fits. Chooses the device with the most free memory; a replica that
/// spans several devices takes the devices with the most free memory.
fn in_order(facts: &Facts<'_>, model: ModelId, key: impl Fn(&Resident) -> Key) -> Wish {
    let (count, needs) = facts.needs(model);
    let mut devices: Vec<DeviceId> = facts.free.keys().copied().collect();
    devices.sort_by_key(|device| (Reverse(facts.free_on(*device)), *device));
    let with_room = |device: &&DeviceId| facts.free_on(**device) >= needs.0;
    let free: Vec<DeviceId> = devices.iter().filter(with_room).copied().collect();
    if free.len() >= count as usize {
        return Wish::Load {
            devices: free[..count as usize].to_vec(),
            victims: Vec::new(),
            cut: false,
        };
    }
    if facts.large_enough(needs).len() < count as usize {
        return Wish::Refuse("never_fits");
    }
    let (mut chosen, mut victims) = (Vec::new(), BTreeSet::new());
    for device in devices {
        let mut free = facts.free_on(device);
        let mut idle: Vec<&Resident> = facts.idle_on(device).collect();
        idle.sort_by_key(|resident| key(resident));
        let mut here = Vec::new();
        for resident in idle {
            if free >= needs.0 {
                break;
            }
            free += facts.needs(resident.model).1.0;
            here.push(resident.model);
        }
        if free >= needs.0 {
            chosen.push(device);
            victims.extend(here);
            if chosen.len() == count as usize {
                return Wish::Load {
                    devices: chosen,
                    victims: victims.into_iter().collect(),
                    cut: false,
                };
            }
        }
    }
    Wish::Wait
}

/// Least recently used first: what most caches do.
#[derive(Debug, Default)]
pub struct Lru;

impl Rule for Lru {
    fn name(&self) -> &'static str {
        "lru"
    }

    fn wish(&mut self, facts: &Facts<'_>, model: ModelId) -> Wish {
        in_order(facts, model, |resident| {
            (false, resident.last_used.0, 0, resident.model.0)
        })
    }
}

/// Loaded longest ago first.
#[derive(Debug, Default)]
pub struct Fifo;

impl Rule for Fifo {
    fn name(&self) -> &'static str {
        "fifo"
    }

    fn wish(&mut self, facts: &Facts<'_>, model: ModelId) -> Wish {
        in_order(facts, model, |resident| {
            (false, resident.loaded.0, 0, resident.model.0)
        })
    }
}

/// llama-swap 0bdb372, with its default of a group with `swap: true` per device: everything else that runs in the group is stopped,
/// whether it would fit or not. A model belongs to one group, here chosen by its id. Priority only orders the queue; requests for a
/// running model bypass it.
#[derive(Debug, Default)]
pub struct LlamaSwap;

impl Rule for LlamaSwap {
    fn name(&self) -> &'static str {
        "llama-swap"
    }

    /// Its models stay until another one needs their memory: `globalTTL` and `models.*.ttl` are 0 by default, which never unloads
    /// (docs/kb/guides/model-runtime/ttl-and-unloading.md).
    fn keep_hot(&self, _facts: &Facts<'_>, _model: ModelId) -> Option<Span> {
        None
    }

    fn keeps_evening(&self) -> bool {
        false
    }

    fn wish(&mut self, facts: &Facts<'_>, model: ModelId) -> Wish {
        let (count, needs) = facts.needs(model);
        let fitting = facts.large_enough(needs);
        if fitting.len() < count as usize {
            return Wish::Refuse("never_fits");
        }
        let first = model.0 as usize % fitting.len();
        let devices: Vec<DeviceId> = (0..count as usize)
            .map(|nth| fitting[(first + nth) % fitting.len()])
            .collect();
        let mut victims = BTreeSet::new();
        for device in &devices {
            for resident in facts
                .residents
                .values()
                .filter(|resident| resident.devices.contains(device))
            {
                if resident.loading || resident.leaving || resident.in_flight > 0 {
                    return Wish::Wait;
                }
                victims.insert(resident.model);
            }
            // A planned swap that waits.
            if facts
                .residents
                .values()
                .all(|resident| !resident.devices.contains(device))
                && facts.free_on(*device) < facts.capacity[device].0
            {
                return Wish::Wait;
            }
        }
        Wish::Load {
            devices,
            victims: victims.into_iter().collect(),
            cut: false,
        }
    }

    fn order(&self, facts: &Facts<'_>) -> Vec<ModelId> {
        let mut order: Vec<ModelId> = facts.waiting.keys().copied().collect();
        order.sort_by_key(|model| {
            let priority = facts.scenario.models[model.0 as usize].priority;
            (Reverse(priority), facts.waiting[model][0].at, *model)
        });
        order
    }
}

/// llama.cpp's router (pull request 26572): limits the number of models; evicts the least recently used model without requests that
/// is not itself needed; the queue is in order of arrival. It counts models instead of memory. Here the limit is the number of
/// mean-sized models that fit, and additional victims leave if a model does not fit.
#[derive(Debug, Default)]
pub struct LlamaCppRouter;

impl Rule for LlamaCppRouter {
    fn name(&self) -> &'static str {
        "llamacpp-router"
    }

    /// An idle model stays: `--sleep-idle-seconds` is -1 by default, which disables it (tools/server/README.md).
    fn keep_hot(&self, _facts: &Facts<'_>, _model: ModelId) -> Option<Span> {
        None
    }

    fn keeps_evening(&self) -> bool {
        false
    }

    fn wish(&mut self, facts: &Facts<'_>, model: ModelId) -> Wish {
        let models = facts.scenario.models.len().max(1) as u64;
        let bytes = |spec: &pool::ModelSpec| {
            spec.bytes_per_device.0 * u64::from(spec.devices_per_replica.max(1))
        };
        let mean = facts.scenario.models.iter().map(bytes).sum::<u64>() / models;
        let capacity: u64 = facts.capacity.values().map(|bytes| bytes.0).sum();
        let most = (capacity / mean.max(1)).max(1) as usize;
        let wanted = |resident: &Resident| facts.waiting.contains_key(&resident.model);
        let key =
            |resident: &Resident| (wanted(resident), resident.last_used.0, 0, resident.model.0);
        let wish = in_order(facts, model, key);
        let running = facts
            .residents
            .values()
            .filter(|resident| !resident.leaving)
            .count();
        match wish {
            Wish::Load {
                devices,
                mut victims,
                cut,
            } if running - victims.len().min(running) >= most => {
                let mut idle: Vec<&Resident> = facts
                    .residents
                    .values()
                    .filter(|resident| {
                        resident.in_flight == 0 && !resident.loading && !resident.leaving
                    })
                    .filter(|resident| !victims.contains(&resident.model))
                    .collect();
                idle.sort_by_key(|resident| key(resident));
                let Some(last) = idle.first() else {
                    return Wish::Wait;
                };
                victims.push(last.model);
                Wish::Load {
                    devices,
                    victims,
                    cut,
                }
            }
            wish => wish,
        }
    }

    fn strict(&self) -> bool {
        true
    }
}

/// Ollama fb30760: the shortest session first, ties by name; one victim at a time; five minutes of idleness; the single device that
/// fits best. Requests in order of arrival.
#[derive(Debug, Default)]
pub struct Ollama;

impl Rule for Ollama {
    fn name(&self) -> &'static str {
        "ollama"
    }

    fn wish(&mut self, facts: &Facts<'_>, model: ModelId) -> Wish {
        let names: BTreeMap<&str, u64> = {
            let mut names: Vec<&str> = facts
                .scenario
                .models
                .iter()
                .map(|model| model.name.as_str())
                .collect();
            names.sort_unstable();
            names.into_iter().zip(0..).collect()
        };
        let rank = |resident: &Resident| {
            names[facts.scenario.models[resident.model.0 as usize]
                .name
                .as_str()]
        };
        in_order(facts, model, |resident| {
            (false, rank(resident), 0, resident.model.0)
        })
    }

    /// `OLLAMA_KEEP_ALIVE` is 5m by default (envconfig/config.go).
    fn keep_hot(&self, _facts: &Facts<'_>, _model: ModelId) -> Option<Span> {
        Some(Span::from_secs(300))
    }

    fn keeps_evening(&self) -> bool {
        false
    }

    fn strict(&self) -> bool {
        true
    }
}

/// ModelMesh ea13cdc: least recently used by bytes; a load is refused while the least recently used model is younger
/// than the churn age of ten minutes.
#[derive(Debug, Default)]
pub struct ModelMesh;

impl Rule for ModelMesh {
    fn name(&self) -> &'static str {
        "modelmesh"
    }

    fn wish(&mut self, facts: &Facts<'_>, model: ModelId) -> Wish {
        const CHURN_AGE: Span = Span::from_secs(600);
        let wish = in_order(facts, model, |resident| {
            (false, resident.last_used.0, 0, resident.model.0)
        });
        let Wish::Load { victims, .. } = &wish else {
            return wish;
        };
        let oldest = facts
            .residents
            .values()
            .filter(|resident| !resident.loading && !resident.leaving)
            .map(|resident| resident.last_used)
            .min();
        let young = oldest.is_some_and(|at| facts.now.since(at) < CHURN_AGE);
        if !victims.is_empty() && young {
            return Wish::Refuse("churn");
        }
        wish
    }

    fn keep_hot(&self, _facts: &Facts<'_>, _model: ModelId) -> Option<Span> {
        None // It leaves only for space.
    }

    fn keeps_evening(&self) -> bool {
        false
    }
}

/// NCSA's service, the predecessor: devices are counted, not measured, so a device serves one model. Candidates have at most the
/// same priority; the least recently served leaves first whatever its priority, busy or not, and its requests are cut. Idle models
/// leave after ten minutes.
#[derive(Debug, Default)]
pub struct Ncsa;

impl Rule for Ncsa {
    fn name(&self) -> &'static str {
        "ncsa"
    }

    fn wish(&mut self, facts: &Facts<'_>, model: ModelId) -> Wish {
        let (count, needs) = facts.needs(model);
        let count = count as usize;
        let fitting = facts.large_enough(needs);
        if fitting.len() < count {
            return Wish::Refuse("never_fits");
        }
        let whole = |device: &&DeviceId| facts.free_on(**device) == facts.capacity[*device].0;
        let mut devices: Vec<DeviceId> = fitting.iter().filter(whole).copied().collect();
        let own = facts.scenario.models[model.0 as usize].priority;
        let mut candidates: Vec<&Resident> = facts
            .residents
            .values()
            .filter(|resident| !resident.loading && !resident.leaving)
            .filter(|resident| facts.scenario.models[resident.model.0 as usize].priority <= own)
            .collect();
        candidates.sort_by_key(|resident| (resident.last_used, resident.model));
        let mut victims = Vec::new();
        for candidate in candidates {
            if devices.len() >= count {
                break;
            }
            let here = candidate
                .devices
                .iter()
                .filter(|device| fitting.contains(device));
            devices.extend(here);
            victims.push(candidate.model);
        }
        if devices.len() < count {
            return Wish::Wait;
        }
        devices.truncate(count);
        Wish::Load {
            devices,
            victims,
            cut: true,
        }
    }

    fn keep_hot(&self, _facts: &Facts<'_>, _model: ModelId) -> Option<Span> {
        Some(Span::from_secs(600))
    }
}

/// Belady's rule with costs and sizes: evicts the model whose next use is last, weighted by reload time and bytes. Unnecessary
/// victims stay; of several devices it chooses the one with the smallest loss. It knows when each model is needed next, which no
/// real rule can.
#[derive(Debug)]
pub struct Offline {
    /// The future uses of each model.
    uses: Vec<alloc::collections::VecDeque<Time>>,
}

impl Offline {
    /// `uses` is the time and model of every request, in order.
    pub fn new(models: usize, uses: impl IntoIterator<Item = (Time, ModelId)>) -> Offline {
        let mut of_model = vec![alloc::collections::VecDeque::new(); models];
        for (at, model) in uses {
            of_model[model.0 as usize].push_back(at);
        }
        Offline { uses: of_model }
    }

    /// Seconds of reload lost per second until the next use, in 10⁻⁹.
    fn loss(&self, facts: &Facts<'_>, model: ModelId) -> u128 {
        if facts.waiting.contains_key(&model) {
            return u128::MAX >> 32;
        }
        let reload = u128::from(facts.scenario.models[model.0 as usize].reload.0);
        match self.uses[model.0 as usize].front() {
            Some(at) => reload * 1_000_000_000 / u128::from(at.since(facts.now).0.max(1)),
            None => 0,
        }
    }
}

impl Rule for Offline {
    fn name(&self) -> &'static str {
        "offline"
    }

    fn used(&mut self, model: ModelId, _now: Time) {
        self.uses[model.0 as usize].pop_front();
    }

    fn wish(&mut self, facts: &Facts<'_>, model: ModelId) -> Wish {
        let (count, needs) = facts.needs(model);
        let mut places = Vec::new();
        let mut fitting = 0;
        for (&device, capacity) in facts.capacity {
            if *capacity < needs {
                continue;
            }
            fitting += 1;
            let free = facts.free_on(device);
            let mut idle: Vec<(u128, u128, ModelId, u64)> = facts
                .idle_on(device)
                .map(|resident| {
                    let bytes = facts.needs(resident.model).1.0;
                    let loss = self.loss(facts, resident.model);
                    let value = loss.saturating_mul(1 << 20) / u128::from(bytes.max(1));
                    (value, loss, resident.model, bytes)
                })
                .collect();
            idle.sort_unstable();
            let mut victims = Vec::new();
            let mut freed = free;
            for candidate in idle {
                if freed >= needs.0 {
                    break;
                }
                freed += candidate.3;
                victims.push(candidate);
            }
            if freed < needs.0 {
                continue;
            }
            victims.sort_by_key(|(_, loss, model, _)| Reverse((*loss, *model)));
            victims.retain(|victim| {
                let spare = freed - victim.3 >= needs.0;
                if spare {
                    freed -= victim.3;
                }
                !spare
            });
            let lost = victims
                .iter()
                .fold(0_u128, |sum, victim| sum.saturating_add(victim.1));
            let victims: Vec<ModelId> = victims.iter().map(|(_, _, model, _)| *model).collect();
            places.push((lost, freed - needs.0, device, victims));
        }
        if fitting < count {
            return Wish::Refuse("never_fits");
        }
        places.sort();
        if places.len() < count as usize {
            return Wish::Wait;
        }
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
