//! Storms of two keys, or two groups of keys, with a model each, of which only one fits: a closed loop of clients. Measures how much each key is served, and checks
//! the bounds of fairness between keys and between groups (P9).

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::random::Random;
use super::timeline::{Scene, Timeline};
use super::world::World;
use pool::{
    Action, Bytes, DeviceId, DeviceReading, Event, Exit, Group, GroupId, Groups, KeyId, Limits,
    ModelId, ModelSpec, Pool, ReplicaId, Span, Ticket, Time,
};

const KEYS: u64 = 2;
/// The number of keys of the first group.
const KEYS_OF_FIRST: u64 = 5;
const GIB: u64 = 1 << 30;
const LASTS: Time = Time(1_800_000);
const READ_EVERY: u64 = 1_000;
/// Smaller differences of service count as none.
const LEVEL: u64 = 4_096;
/// The lead from which a key comes before another one.
const LEAD: u64 = 15 * LEVEL;
const SWAPS_PER_TURN: u64 = 3;

/// The clients of a storm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyClients {
    /// Both keys always have more requests than seats: their service must stay close.
    Backlogged,
    /// The second key has one short request at a time, and pauses: its waits must be short.
    HeavyAndLight,
    /// Like `Backlogged`, for two groups of equal weight, of which one has several keys: the service of the groups must stay close.
    TwoGroups,
}

#[derive(Clone, Copy, Debug)]
pub struct KeyStorm {
    pub seed: u64,
    pub clients: KeyClients,
    /// All requests come with the same key: the planted fault that the check must find.
    pub hides_keys: bool,
}

#[derive(Clone, Debug, Default)]
pub struct KeyStormReport {
    pub requests: u64,
    pub swaps: u64,
    /// The largest difference of service or the longest wait, in thousandths of its bound.
    pub worst: u64,
    pub broken: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Asks(u64),
    Served(Ticket),
    Ready(ReplicaId),
    Gone(ReplicaId),
}

struct Play {
    storm: KeyStorm,
    random: Random,
    world: World,
    timeline: Timeline<Due>,
    tickets: u64,
    /// The key of each request, the time it came, and the time it took its seat.
    open: BTreeMap<Ticket, (u64, Time, Option<Time>)>,
    ready: BTreeMap<u64, ReplicaId>,
    models: BTreeMap<ReplicaId, u64>,
    served: [u64; KEYS as usize],
    seats: u32,
    load: u64,
    stop: u64,
    longest: u64,
    report: KeyStormReport,
}

impl KeyStorm {
    pub fn run(self) -> KeyStormReport {
        let mut play = Play::new(self);
        play.play(LASTS, u64::MAX);
        play.report
    }
}

impl Scene for Play {
    type Due = Due;

    fn timeline(&mut self) -> &mut Timeline<Due> {
        &mut self.timeline
    }

    fn world(&self) -> &World {
        &self.world
    }

    fn happens(&mut self, at: Time, due: Due) {
        match due {
            Due::Asks(nth) => self.asks(at, nth),
            Due::Served(ticket) => {
                let event = self.world.end(ticket, at);
                let Some((nth, _, Some(entered))) = self.open.remove(&ticket) else {
                    return;
                };
                self.served[nth as usize] += at.since(entered).0;
                self.gap_is_bounded(at);
                let pause = match (self.storm.clients, nth) {
                    (KeyClients::HeavyAndLight, 1) => self.random.below(20_000),
                    _ => 0,
                };
                self.timeline.push(at + Span(pause), Due::Asks(nth));
                if let Some(event) = event {
                    self.feed(at, event);
                }
            }
            Due::Ready(replica) => {
                self.ready.insert(self.models[&replica], replica);
                self.feed(at, Event::ReplicaReady { replica });
            }
            Due::Gone(replica) => {
                self.world.gates.remove(&replica);
                let exit = Exit::Requested;
                self.feed(at, Event::ReplicaExited { replica, exit });
            }
        }
    }

    fn timer_fires(&mut self, at: Time) {
        self.feed(at, Event::TimerFired);
    }

    fn is_broken(&self) -> bool {
        !self.report.broken.is_empty()
    }
}

impl Play {
    fn new(storm: KeyStorm) -> Play {
        let mut random = Random::new(storm.seed);
        let load = random.between(100, 10_000);
        let stop = random.between(10, 2_000);
        let longest = random.between(100, 20_000);
        let seats = random.between(3, 8) as u32;
        let mut play = Play {
            storm,
            world: World::new(Pool::new(Limits::default(), false, ReplicaId(1))),
            timeline: Timeline::new(),
            tickets: 0,
            open: BTreeMap::new(),
            ready: BTreeMap::new(),
            models: BTreeMap::new(),
            served: [0; KEYS as usize],
            seats,
            load,
            stop,
            longest,
            report: KeyStormReport::default(),
            random,
        };
        let reading = DeviceReading {
            name: "gpu0".into(),
            total: Bytes(10 * GIB),
            ..DeviceReading::default()
        };
        let device = DeviceId(0);
        play.feed(Time(0), Event::DeviceRead { device, reading });
        for nth in 0..KEYS {
            let model = ModelId(nth as u32);
            let spec = ModelSpec {
                name: format!("m{nth}"),
                bytes_per_device: Bytes(8 * GIB),
                seats_per_replica: seats,
                reload: Span(load),
                queue_limit: 1_000,
                queue_timeout: Span::from_secs(86_400),
                keep_hot: Span::from_secs(3_600),
                ..ModelSpec::default()
            };
            play.feed(Time(0), Event::ModelSet { model, spec });
        }
        if storm.clients == KeyClients::TwoGroups && !storm.hides_keys {
            let groups = [1, 2].map(|id| Group {
                id: GroupId(id),
                name: format!("group-{id}"),
                parent: None,
                weight: 1,
                reserved_permille: 0,
            });
            let members = (1..=KEYS_OF_FIRST).map(|key| (KeyId(key), GroupId(1)));
            let members = members.chain([(KeyId(KEYS_OF_FIRST + 1), GroupId(2))]);
            let groups = Groups::new(groups.into(), members).expect("the tree is valid");
            play.feed(Time(0), Event::GroupsSet { groups });
        }
        let light = storm.clients == KeyClients::HeavyAndLight;
        for _ in 0..seats * 2 + 2 {
            play.timeline.push(Time(0), Due::Asks(0));
            if !light {
                play.timeline.push(Time(0), Due::Asks(1));
            }
        }
        if light {
            let first = Time(play.random.below(60_000));
            play.timeline.push(first, Due::Asks(1));
        }
        play
    }

    fn asks(&mut self, at: Time, nth: u64) {
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        self.report.requests += 1;
        let key = KeyId(match self.storm.clients {
            KeyClients::TwoGroups if nth == 0 => 1 + self.random.below(KEYS_OF_FIRST),
            KeyClients::TwoGroups => KEYS_OF_FIRST + 1,
            _ if self.storm.hides_keys => 0,
            _ => nth + 1,
        });
        self.world.now = self.world.now.max(at);
        if let Some(&replica) = self.ready.get(&nth)
            && self.world.enter((ticket, key), replica, self.seats, at)
        {
            self.open.insert(ticket, (nth, at, None));
            self.takes_seat(at, ticket);
            return;
        }
        self.open.insert(ticket, (nth, at, None));
        let model = ModelId(nth as u32);
        self.feed(at, Event::RequestArrived { ticket, model, key });
    }

    fn takes_seat(&mut self, at: Time, ticket: Ticket) {
        let Some((nth, since, seat)) = self.open.get_mut(&ticket) else {
            return;
        };
        *seat = Some(at);
        let (nth, waited) = (*nth, at.since(*since));
        let is_light = self.storm.clients == KeyClients::HeavyAndLight && nth == 1;
        let most = if is_light { 200 } else { self.longest };
        let took = self.random.between(20, most.max(21));
        self.timeline.push(at + Span(took), Due::Served(ticket));
        if is_light {
            self.wait_is_bounded(waited);
        }
    }

    fn feed(&mut self, at: Time, event: Event) {
        for action in self.world.feed(at, event) {
            match action {
                Action::Grant { ticket, .. } => self.takes_seat(at, ticket),
                Action::Launch { replica, model, .. } => {
                    self.report.swaps += 1;
                    self.models.insert(replica, u64::from(model.0));
                    self.timeline
                        .push(at + Span(self.load), Due::Ready(replica));
                }
                Action::Stop { replica, .. } => {
                    let model = self.models[&replica];
                    self.ready.remove(&model);
                    self.timeline.push(at + Span(self.stop), Due::Gone(replica));
                }
                Action::Refuse { ticket, refusal } => {
                    self.report
                        .broken
                        .push(format!("{ticket} is refused: {refusal}"));
                }
                _ => {}
            }
        }
    }

    fn swap(&self) -> u64 {
        self.load + self.stop
    }

    /// The longest turn of a key that leads: until its lead counts or for three swaps, and then until its requests have ended.
    fn turn(&self) -> u64 {
        let lead = (LEAD + LEVEL) / u64::from(self.seats);
        lead.max(SWAPS_PER_TURN * self.swap()) + self.longest + READ_EVERY
    }

    /// A key leads by no more than two such turns of all seats.
    fn gap_is_bounded(&mut self, now: Time) {
        if self.storm.clients == KeyClients::HeavyAndLight {
            return;
        }
        let inside = |nth: u64| -> u64 {
            let open = self.open.values().filter(|(key, ..)| *key == nth);
            open.filter_map(|(.., seat)| Some(now.since((*seat)?).0))
                .sum()
        };
        let [first, second] = [0, 1].map(|nth| self.served[nth as usize] + inside(nth));
        let bound = 2 * u64::from(self.seats) * self.turn();
        self.judge(
            first.abs_diff(second),
            bound,
            "the difference of service is",
        );
    }

    /// A request of the light key waits for such a turn of the heavy one, whose lead is noticed when a request ends, for its load, and for a
    /// swap back if that has begun.
    fn wait_is_bounded(&mut self, waited: Span) {
        let bound = self.turn() + self.longest + 2 * self.swap();
        self.judge(waited.0, bound, "the light key waits for");
    }

    fn judge(&mut self, ms: u64, bound: u64, what: &str) {
        self.report.worst = self.report.worst.max(ms * 1_000 / bound);
        if ms > bound {
            self.report.broken.push(format!(
                "P9: {what} {ms} ms, more than {bound}: {} seats, {} ms to load, {} to stop, requests of up to {} ms",
                self.seats, self.load, self.stop, self.longest
            ));
        }
    }
}
