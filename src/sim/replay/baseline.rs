//! The simulation of the baselines: the same devices, models, load times, seats and requests as a replay of the core, with another
//! rule for placement and eviction. Contains what the rules have in common; `baselines` has the rules.
//! One file because the world and the loop that moves it are one simulation.

use alloc::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::accounts::Accounts;
use super::report::Report;
use super::rule::{Facts, Queued, Resident, Rule, Wish};
use super::run::Options;
use super::scenario::{Arrival, Scenario};
use super::stay::Stay;
use pool::{Bytes, DeviceId, ModelId, NodeId, Priority, Span, Time, UNTIL_NEEDED};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// The number identifies the stay, to recognise late events.
    Ended(ModelId, u64),
    Ready(ModelId, u64),
    Gone(ModelId, u64),
    Idle(ModelId, u64),
    Patience,
    Evening,
}

/// A load that waits for its victims.
struct Pending {
    devices: Vec<DeviceId>,
    victims: BTreeSet<ModelId>,
}

struct World<'a, R> {
    scenario: &'a Scenario,
    rule: R,
    now: Time,
    heap: BinaryHeap<Reverse<(Time, u64, Due)>>,
    sequence: u64,
    residents: BTreeMap<ModelId, Resident>,
    stays: BTreeMap<ModelId, (u64, Stay)>,
    free: BTreeMap<DeviceId, Bytes>,
    capacity: BTreeMap<DeviceId, Bytes>,
    waiting: BTreeMap<ModelId, VecDeque<Queued>>,
    pending: BTreeMap<ModelId, Pending>,
    /// A node loads one model at a time, as from a single disk.
    loading: BTreeMap<NodeId, ModelId>,
    nodes: BTreeMap<DeviceId, NodeId>,
    accounts: Accounts,
}

/// Replays the requests under a rule to the end.
pub fn run_baseline(
    scenario: &Scenario,
    rule: impl Rule,
    arrivals: impl IntoIterator<Item = Arrival>,
    options: &Options,
    progress: &mut dyn FnMut(u64, Time),
) -> Report {
    let room = |(id, reading): &(DeviceId, pool::DeviceReading)| {
        (
            *id,
            reading
                .total
                .saturating_sub(reading.headroom)
                .saturating_sub(reading.foreign),
        )
    };
    let capacity: BTreeMap<DeviceId, Bytes> = scenario.devices.iter().map(room).collect();
    let mut world = World {
        scenario,
        now: Time(0),
        heap: BinaryHeap::new(),
        sequence: 0,
        residents: BTreeMap::new(),
        stays: BTreeMap::new(),
        free: capacity.clone(),
        capacity,
        waiting: BTreeMap::new(),
        pending: BTreeMap::new(),
        loading: BTreeMap::new(),
        nodes: scenario
            .devices
            .iter()
            .map(|(id, reading)| (*id, reading.node))
            .collect(),
        accounts: Accounts::new(rule.name(), scenario, options.holdings, options.curve_step),
        rule,
    };
    if world.rule.keeps_evening() {
        for &at in &scenario.evenings {
            world.push(at, Due::Evening);
        }
    }
    let mut count = 0;
    for arrival in arrivals {
        world.until(arrival.at);
        world.arrives(arrival);
        count += 1;
        if count % 4096 == 0 {
            progress(count, arrival.at);
        }
    }
    world.finish()
}

impl<R: Rule> World<'_, R> {
    fn push(&mut self, at: Time, due: Due) {
        self.sequence += 1;
        self.heap.push(Reverse((at, self.sequence, due)));
    }

    fn until(&mut self, at: Time) {
        while let Some(&Reverse((due, ..))) = self.heap.peek() {
            if due > at {
                break;
            }
            let Reverse((due, _, what)) = self.heap.pop().expect("peeked");
            self.now = self.now.max(due);
            self.happens(what);
        }
        self.now = self.now.max(at);
    }

    fn arrives(&mut self, arrival: Arrival) {
        let Arrival {
            at,
            model,
            key,
            service,
        } = arrival;
        self.rule.used(model, at);
        let resident = self.residents.get(&model);
        let ready = resident.is_some_and(|resident| !resident.loading && !resident.leaving);
        self.accounts.arrived(model, at, !ready);
        let spec = &self.scenario.models[model.0 as usize];
        let seats = spec.seats_per_replica.max(1);
        let free = resident.is_some_and(|resident| resident.in_flight < seats);
        if ready && free && !self.waiting.contains_key(&model) {
            self.accounts.seated(model, key, at, at);
            self.seat(model, service);
            return;
        }
        let queue = self.waiting.entry(model).or_default();
        if queue.len() >= spec.queue_limit as usize {
            self.accounts.refused(model, "queue_full");
            return;
        }
        queue.push_back(Queued { key, at, service });
        self.push(at + spec.queue_timeout, Due::Patience);
        self.serve();
    }

    fn seat(&mut self, model: ModelId, service: Span) {
        let now = self.now;
        let resident = self.residents.get_mut(&model).expect("ready");
        resident.in_flight += 1;
        resident.last_used = now;
        let (stay, accounts) = self.stays.get_mut(&model).expect("ready");
        accounts.busy(now);
        let stay = *stay;
        self.push(now + service, Due::Ended(model, stay));
    }

    fn happens(&mut self, due: Due) {
        match due {
            Due::Ended(model, stay) if self.is(model, stay) => self.ended(model, stay),
            Due::Ready(model, stay) if self.is(model, stay) => {
                let now = self.now;
                let resident = self.residents.get_mut(&model).expect("loading");
                resident.loading = false;
                (resident.loaded, resident.last_used) = (now, now);
                self.stays.get_mut(&model).expect("loading").1.is_ready(now);
                self.loading.retain(|_, loading| *loading != model);
                self.rule.loaded(model, now);
                self.give_seats(model);
                self.may_leave(model);
                self.serve();
            }
            Due::Gone(model, stay) if self.is(model, stay) => self.gone(model),
            Due::Idle(model, stay) if self.is(model, stay) => {
                let resident = &self.residents[&model];
                let keep_hot = self.rule.keep_hot(&self.facts(), model);
                let keep_hot = keep_hot.unwrap_or(Span(u64::MAX));
                let idle = resident.in_flight == 0 && !resident.leaving && !resident.loading;
                if idle && self.now.since(resident.last_used) >= keep_hot {
                    self.leaves(model, "keep_hot");
                }
            }
            Due::Patience => self.patience_ends(),
            Due::Evening => self.cleanup(),
            _ => {}
        }
    }

    fn is(&self, model: ModelId, stay: u64) -> bool {
        self.stays
            .get(&model)
            .is_some_and(|(known, _)| *known == stay)
    }

    fn ended(&mut self, model: ModelId, stay: u64) {
        let now = self.now;
        let resident = self.residents.get_mut(&model).expect("has a stay");
        // A cut request has been counted already.
        if resident.in_flight == 0 {
            return;
        }
        resident.in_flight -= 1;
        resident.last_used = now;
        let (idle, leaving) = (resident.in_flight == 0, resident.leaving);
        if idle {
            self.stays.get_mut(&model).expect("there").1.idle(now);
        }
        if leaving {
            if idle {
                self.push(now + self.scenario.stop_takes, Due::Gone(model, stay));
            }
            return;
        }
        self.give_seats(model);
        self.may_leave(model);
        if idle || !self.waiting.is_empty() {
            self.serve();
        }
    }

    fn give_seats(&mut self, model: ModelId) {
        let seats = self.scenario.models[model.0 as usize]
            .seats_per_replica
            .max(1);
        while self.residents[&model].in_flight < seats {
            let Some(queue) = self.waiting.get_mut(&model) else {
                return;
            };
            let next = queue.pop_front().expect("no empty queue is kept");
            if queue.is_empty() {
                self.waiting.remove(&model);
            }
            self.accounts.seated(model, next.key, next.at, self.now);
            self.seat(model, next.service);
        }
    }

    fn may_leave(&mut self, model: ModelId) {
        let idle = self.residents[&model].in_flight == 0;
        let keep_hot = self.rule.keep_hot(&self.facts(), model);
        let ends = keep_hot.filter(|keep_hot| idle && *keep_hot != UNTIL_NEEDED);
        if let Some(keep_hot) = ends {
            let stay = self.stays[&model].0;
            self.push(self.now + keep_hot, Due::Idle(model, stay));
        }
    }

    /// Starts loads that can start, then asks the rule about the others in the queue.
    fn serve(&mut self) {
        self.start_loads();
        if self.waiting.is_empty() || self.enough_ahead() {
            return;
        }
        let order = self.rule.order(&self.facts());
        for model in order {
            if self.enough_ahead() {
                break;
            }
            if !self.waiting.contains_key(&model)
                || self.residents.contains_key(&model)
                || self.pending.contains_key(&model)
            {
                continue;
            }
            let Self {
                rule,
                scenario,
                now,
                residents,
                free,
                capacity,
                waiting,
                ..
            } = self;
            let facts = Facts {
                scenario,
                now: *now,
                residents,
                free,
                capacity,
                waiting,
            };
            match rule.wish(&facts, model) {
                Wish::Wait if self.rule.strict() => break,
                Wish::Wait => {}
                Wish::Refuse(why) => {
                    for _ in self.waiting.remove(&model).into_iter().flatten() {
                        self.accounts.refused(model, why);
                    }
                }
                Wish::Load {
                    devices,
                    victims,
                    cut,
                } => {
                    for &victim in &victims {
                        let (own, by) = (self.priority(victim), self.priority(model));
                        if own > by {
                            self.accounts.inversion();
                        }
                        if cut {
                            self.cut(victim);
                        }
                        self.rule.evicted(victim);
                        self.leaves(victim, "evicted");
                    }
                    let needs = self.scenario.models[model.0 as usize].bytes_per_device;
                    for device in &devices {
                        let free = self.free.get_mut(device).expect("known");
                        // Reserved immediately; the victims' memory is returned once they are gone.
                        *free = Bytes(free.0.wrapping_sub(needs.0));
                    }
                    let victims = victims.into_iter().collect();
                    self.pending.insert(model, Pending { devices, victims });
                    self.start_loads();
                }
            }
        }
    }

    /// As in the core, nothing is evicted for a load while enough others are ahead of it.
    fn enough_ahead(&self) -> bool {
        let nodes: BTreeSet<&NodeId> = self.nodes.values().collect();
        self.pending.len() >= nodes.len().max(1)
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            scenario: self.scenario,
            now: self.now,
            residents: &self.residents,
            free: &self.free,
            capacity: &self.capacity,
            waiting: &self.waiting,
        }
    }

    fn priority(&self, model: ModelId) -> Priority {
        self.scenario.models[model.0 as usize].priority
    }

    fn cut(&mut self, model: ModelId) {
        let resident = self.residents.get_mut(&model).expect("a victim");
        let cut = core::mem::take(&mut resident.in_flight);
        if cut > 0 {
            self.stays.get_mut(&model).expect("there").1.idle(self.now);
        }
        self.accounts.cut(u64::from(cut));
    }

    fn leaves(&mut self, model: ModelId, why: &str) {
        let resident = self.residents.get_mut(&model).expect("there");
        resident.leaving = true;
        self.accounts.evicted(model, why);
        if resident.in_flight == 0 {
            let stay = self.stays[&model].0;
            self.push(self.now + self.scenario.stop_takes, Due::Gone(model, stay));
        }
    }

    fn gone(&mut self, model: ModelId) {
        let resident = self.residents.remove(&model).expect("there");
        let (_, stay) = self.stays.remove(&model).expect("there");
        let bytes = self.scenario.models[model.0 as usize].bytes_per_device;
        for device in &resident.devices {
            let free = self.free.get_mut(device).expect("known");
            *free = Bytes(free.0.wrapping_add(bytes.0));
        }
        self.accounts.left(stay, self.now, "evicted");
        for pending in self.pending.values_mut() {
            pending.victims.remove(&model);
        }
        self.serve();
    }

    /// On each node that loads nothing, the first load whose victims are gone.
    fn start_loads(&mut self) {
        while self.start_load() {}
    }

    fn start_load(&mut self) -> bool {
        let ready = self
            .pending
            .iter()
            .filter(|(_, pending)| pending.victims.is_empty())
            .filter(|(_, pending)| !self.loading.contains_key(&self.node(pending)))
            .min_by_key(|(model, _)| {
                let since = self.waiting.get(model).map(|queue| queue[0].at);
                (since.is_none(), since, **model)
            });
        let Some((&model, _)) = ready else {
            return false;
        };
        let pending = self.pending.remove(&model).expect("found");
        let node = self.node(&pending);
        let now = self.now;
        self.sequence += 1;
        let spec = &self.scenario.models[model.0 as usize];
        let stay = Stay::new(model, pending.devices.clone(), spec.bytes_per_device, now);
        self.stays.insert(model, (self.sequence, stay));
        self.residents.insert(
            model,
            Resident {
                model,
                devices: pending.devices,
                loaded: now,
                last_used: now,
                in_flight: 0,
                loading: true,
                leaving: false,
            },
        );
        self.accounts.load_began(model);
        self.loading.insert(node, model);
        let number = self.sequence;
        self.push(now + spec.reload, Due::Ready(model, number));
        true
    }

    /// A load over several nodes, which no engine does, counts on the first.
    fn node(&self, pending: &Pending) -> NodeId {
        self.nodes[&pending.devices[0]]
    }

    /// Every loaded model leaves once its requests have ended. A loading one serves its waiting requests and stays.
    fn cleanup(&mut self) {
        let residents = self.residents.values();
        let stay = |resident: &&Resident| resident.loading || resident.leaving;
        let leaving: Vec<ModelId> = residents
            .filter(|resident| !stay(resident))
            .map(|resident| resident.model)
            .collect();
        for model in leaving {
            self.leaves(model, "cleanup");
        }
    }

    fn patience_ends(&mut self) {
        let now = self.now;
        let mut empty = Vec::new();
        for (&model, queue) in &mut self.waiting {
            let patience = self.scenario.models[model.0 as usize].queue_timeout;
            while let Some(first) = queue.front().filter(|request| request.at + patience <= now) {
                self.accounts.timed_out(model, first.at, now);
                queue.pop_front();
            }
            if queue.is_empty() {
                empty.push(model);
            }
        }
        for model in empty {
            self.waiting.remove(&model);
        }
    }

    fn finish(mut self) -> Report {
        while !self.waiting.is_empty() {
            let Some(&Reverse((next, ..))) = self.heap.peek() else {
                break;
            };
            self.until(next);
        }
        let now = self.now;
        for (_, (_, stay)) in core::mem::take(&mut self.stays) {
            self.accounts.left(stay, now, "still there");
        }
        self.accounts.close()
    }
}
