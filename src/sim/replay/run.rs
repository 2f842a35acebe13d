//! The production core under a virtual clock. As in production, a request for a ready model takes a seat at its gate without the
//! core, so a day of a million requests takes seconds.
//! One file because the clock, the gates and the core take turns in one loop.

use alloc::collections::{BTreeMap, BinaryHeap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::accounts::Accounts;
use super::batches::{BatchDue, Batches};
use super::equals::{Standing, best};
use super::forecasts::{First, Forecasts};
use super::report::Report;
use super::scenario::{Arrival, Scenario};
use super::stay::Stay;
use crate::gate_keys::{GateKeys, Guest};
use pool::{
    Action, Bytes, Command, Event, Exit, GateMode, GateReading, KeyId, ModelId, NodeId, OrderId,
    Override, OverrideChange, Pool, Refusal, ReplicaId, Span, Ticket, Time, check,
};

/// The interval at which gates are read while they are used and no other event occurs.
const READ_GATES_EVERY: Span = Span::from_secs(1);

/// Optional data and checks of a replay.
#[derive(Clone, Debug)]
pub struct Options {
    /// The stay of every replica, for the timeline.
    pub holdings: bool,
    /// The history that the production core would have written.
    pub records: bool,
    /// Mean waits over intervals of this duration; zero disables them.
    pub curve_step: Span,
    /// The number of steps between checks of the invariants; 0 disables them.
    pub check_every: u64,
    /// Every n-th request that waits gets a forecast of its wait; 0 disables forecasts.
    pub forecast_every: u64,
    /// The pool sees the same key in all requests: among equal models and requests, the first to come is the first to be served.
    pub hides_keys: bool,
    /// Sets of models of equal use: a request for any of them is served by the best of the set.
    pub any_of: Vec<Vec<ModelId>>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            holdings: false,
            records: false,
            curve_step: Span::ZERO,
            check_every: 0,
            forecast_every: 0,
            hides_keys: false,
            any_of: Vec::new(),
        }
    }
}

/// The response to a request. A refused request has no service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    pub key: KeyId,
    /// The time of the seat or of the refusal.
    pub seated: Time,
    pub service: Span,
}

/// Replays the requests to the end. `progress` is called every 4096 requests.
pub fn run(
    scenario: &Scenario,
    arrivals: impl IntoIterator<Item = Arrival>,
    options: &Options,
    progress: &mut dyn FnMut(u64, Time),
) -> Report {
    let mut play = Play::new(scenario, options);
    let mut count = 0;
    for arrival in arrivals {
        play.until(arrival.at);
        play.arrives(arrival);
        count += 1;
        if count % 4096 == 0 {
            progress(count, arrival.at);
        }
    }
    play.finish()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// A request of the key that took its seat at this time.
    Ended(ReplicaId, KeyId, Time),
    Ready(ReplicaId),
    Asleep(ReplicaId),
    Gone(ReplicaId),
    Evening,
    Morning,
    Set(usize),
    Batch(BatchDue),
}

/// A replica's gate and its process.
pub(super) struct Live {
    pub(super) model: ModelId,
    pub(super) mode: Option<GateMode>,
    pub(super) closed: bool,
    pub(super) in_flight: u32,
    pub(super) entered: u64,
    last_end: Option<Time>,
    idle_before: Option<Span>,
    /// The gate has changed since the core last read it.
    changed: bool,
    pub(super) stopping: bool,
    pub(super) reason: &'static str,
    pub(super) stay: Stay,
}

struct Waiting {
    model: ModelId,
    key: KeyId,
    at: Time,
    service: Span,
    forecast: Option<First>,
}

pub(super) struct Play<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) pool: Pool,
    pub(super) now: Time,
    wake: Option<Time>,
    idle_matters: bool,
    stepped: Time,
    steps: u64,
    check_every: u64,
    heap: BinaryHeap<Reverse<(Time, u64, Due)>>,
    sequence: u64,
    pub(super) live: BTreeMap<ReplicaId, Live>,
    pub(super) of_model: Vec<Vec<ReplicaId>>,
    /// The nodes whose host memory sleepers hold, and how much of it.
    pub(super) sleepers: BTreeMap<ReplicaId, (NodeId, Bytes)>,
    changed: Vec<ReplicaId>,
    keys: GateKeys,
    waiting: BTreeMap<Ticket, Waiting>,
    tickets: u64,
    orders: u64,
    /// The last cleanup, until it has ended.
    pub(super) cleanup: Option<OrderId>,
    pub(super) names: BTreeMap<String, ModelId>,
    pub(super) accounts: Accounts,
    keeps_records: bool,
    forecast_every: u64,
    forecasts: Forecasts,
    hides_keys: bool,
    any_of: Vec<Vec<ModelId>>,
    pub(super) batches: Batches,
    /// The response to each request as soon as its time is known, for clients that wait for it. `None` if no client waits.
    pub(super) responses: Option<Vec<Response>>,
}

impl<'a> Play<'a> {
    pub(super) fn new(scenario: &'a Scenario, options: &Options) -> Play<'a> {
        let mut play = Play {
            scenario,
            pool: Pool::new(
                scenario.limits.clone(),
                scenario.starts_at_night,
                ReplicaId(1),
            ),
            now: Time(0),
            wake: None,
            idle_matters: false,
            stepped: Time(0),
            steps: 0,
            check_every: options.check_every,
            heap: BinaryHeap::new(),
            sequence: 0,
            live: BTreeMap::new(),
            of_model: vec![Vec::new(); scenario.models.len()],
            sleepers: BTreeMap::new(),
            changed: Vec::new(),
            keys: GateKeys::default(),
            waiting: BTreeMap::new(),
            tickets: 0,
            orders: 0,
            cleanup: None,
            names: BTreeMap::new(),
            accounts: Accounts::new("model-pool", scenario, options.holdings, options.curve_step),
            keeps_records: options.records,
            forecast_every: options.forecast_every,
            forecasts: Forecasts::default(),
            hides_keys: options.hides_keys,
            any_of: options.any_of.clone(),
            batches: Batches::default(),
            responses: None,
        };
        let mut events = Vec::new();
        if !scenario.groups.all().is_empty() {
            let groups = scenario.groups.clone();
            events.push(Event::GroupsSet { groups });
        }
        for (device, reading) in scenario.devices.clone() {
            events.push(Event::DeviceRead { device, reading });
        }
        for &(node, reading) in &scenario.hosts {
            events.push(Event::HostRead { node, reading });
        }
        for (nth, spec) in scenario.models.iter().enumerate() {
            let model = ModelId(nth as u32);
            play.names.insert(spec.name.clone(), model);
            let spec = spec.clone();
            events.push(Event::ModelSet { model, spec });
        }
        play.step(events);
        for &at in &scenario.evenings {
            play.push(at, Due::Evening);
        }
        for &at in &scenario.mornings {
            play.push(at, Due::Morning);
        }
        for (nth, (at, ..)) in scenario.sets.iter().enumerate() {
            play.push(*at, Due::Set(nth));
        }
        play.begin_batches();
        play
    }

    pub(super) fn push(&mut self, at: Time, due: Due) {
        self.sequence += 1;
        self.heap.push(Reverse((at, self.sequence, due)));
    }

    /// The time of the next event other than a request.
    pub(super) fn next(&self) -> Option<Time> {
        let due = self.heap.peek().map(|Reverse((due, ..))| *due);
        due.into_iter().chain(self.next_turn()).min()
    }

    /// The time of the core's next turn without an event: its wake, or when used gates are read.
    fn next_turn(&self) -> Option<Time> {
        let read =
            (!self.changed.is_empty()).then(|| (self.stepped + READ_GATES_EVERY).max(self.now));
        self.wake.into_iter().chain(read).min()
    }

    /// Processes everything up to and including a time.
    pub(super) fn until(&mut self, at: Time) {
        loop {
            let due = self.heap.peek().map(|Reverse((due, ..))| *due);
            let Some(next) = self.next().filter(|next| *next <= at) else {
                break;
            };
            self.now = self.now.max(next);
            if due.is_none_or(|due| due > next) {
                self.step(vec![Event::TimerFired]);
                continue;
            }
            let Reverse((_, _, due)) = self.heap.pop().expect("peeked");
            self.happens(due);
        }
        self.now = self.now.max(at);
    }

    pub(super) fn arrives(&mut self, arrival: Arrival) {
        let Arrival {
            at,
            model,
            key,
            service,
        } = arrival;
        let model = self.member(model);
        let seats = self.scenario.models[model.0 as usize]
            .seats_per_replica
            .max(1);
        let mut ready = false;
        let mut open: Option<ReplicaId> = None;
        let mut least = u32::MAX;
        for &id in &self.of_model[model.0 as usize] {
            let gate = &self.live[&id];
            ready |= gate.mode.is_some() && !gate.closed;
            let free = gate.mode == Some(GateMode::Open) && !gate.closed && gate.in_flight < seats;
            if free && gate.in_flight < least {
                (open, least) = (Some(id), gate.in_flight);
            }
        }
        self.accounts.arrived(model, at, !ready);
        if let Some(id) = open {
            self.seat(id, key, service);
            self.accounts.seated(model, key, at, at);
            return;
        }
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        self.waiting.insert(
            ticket,
            Waiting {
                model,
                key,
                at,
                service,
                forecast: None,
            },
        );
        let key = self.seen(key);
        self.step(vec![Event::RequestArrived { ticket, model, key }]);
        if self.forecast_every > 0 && ticket.0.is_multiple_of(self.forecast_every) {
            self.foresee(ticket);
        }
    }

    /// The model that serves a request for this one: the best of its set, if it has one.
    fn member(&self, model: ModelId) -> ModelId {
        let mut sets = self.any_of.iter();
        let set = sets.find(|set| set.contains(&model));
        let best = set.and_then(|set| best(set, |member| self.standing(member)));
        best.unwrap_or(model)
    }

    fn standing(&self, model: ModelId) -> Standing {
        let spec = &self.scenario.models[model.0 as usize];
        let replicas = self.of_model[model.0 as usize].iter();
        let live = replicas.map(|id| &self.live[id]);
        let mut live = live.filter(|gate| !gate.closed && !gate.stopping);
        let ready = live.clone().filter(|gate| gate.mode.is_some());
        if let Some(least) = ready.map(|gate| gate.in_flight).min() {
            return if least < spec.seats_per_replica.max(1) {
                Standing::Free
            } else {
                Standing::Full(least)
            };
        }
        let is_waited_for = || self.waiting.values().any(|request| request.model == model);
        if live.next().is_some() || is_waited_for() {
            Standing::Coming
        } else {
            Standing::Cold(spec.reload)
        }
    }

    /// Makes a forecast for a request that waits.
    fn foresee(&mut self, ticket: Ticket) {
        let Some(waiting) = self.waiting.get_mut(&ticket) else {
            return;
        };
        let forecast = self.pool.clone().forecast(self.now, ticket);
        waiting.forecast = forecast.map(|forecast| self.forecasts.first(forecast, self.now));
    }

    fn seat(&mut self, id: ReplicaId, key: KeyId, service: Span) {
        let now = self.now;
        self.keys.enters(id, &guest(self.seen(key)), now);
        let gate = self.live.get_mut(&id).expect("open");
        if gate.in_flight == 0 {
            gate.idle_before = gate.last_end.map(|end| now.since(end));
        }
        gate.in_flight += 1;
        gate.entered += 1;
        gate.stay.busy(now);
        if !core::mem::replace(&mut gate.changed, true) {
            self.changed.push(id);
        }
        let model = gate.model;
        self.push(now + service, Due::Ended(id, key, now));
        self.responded(key, service);
        self.batch_room_changes(model);
    }

    fn responded(&mut self, key: KeyId, service: Span) {
        if let Some(responses) = &mut self.responses {
            responses.push(Response {
                key,
                seated: self.now,
                service,
            });
        }
    }

    /// The key that the pool sees.
    fn seen(&self, key: KeyId) -> KeyId {
        if self.hides_keys { KeyId(0) } else { key }
    }

    fn happens(&mut self, due: Due) {
        match due {
            Due::Ended(id, key, entered) => self.ended(id, key, entered),
            Due::Ready(id) => {
                let now = self.now;
                if let Some(live) = self.live.get_mut(&id).filter(|live| !live.stopping) {
                    live.stay.is_ready(now);
                    let mut events = vec![Event::ReplicaReady { replica: id }];
                    events.extend(self.leaves_host(id));
                    self.step(events);
                }
            }
            Due::Asleep(id) => {
                if self.live.get(&id).is_some_and(|live| !live.stopping) {
                    let mut events = vec![Event::ReplicaAsleep { replica: id }];
                    events.extend(self.is_in_host(id));
                    self.step(events);
                }
            }
            Due::Gone(id) => {
                let live = self.live.remove(&id).expect("stopped once");
                self.of_model[live.model.0 as usize].retain(|replica| *replica != id);
                self.changed.retain(|replica| *replica != id);
                self.keys.ends(id);
                self.accounts.left(live.stay, self.now, live.reason);
                let exit = Exit::Requested;
                let mut events = vec![Event::ReplicaExited { replica: id, exit }];
                events.extend(self.leaves_host(id));
                self.step(events);
            }
            Due::Batch(due) => self.batch_happens(due),
            Due::Evening => self.cleans_up(),
            Due::Morning => {
                let order = self.next_order();
                self.order(order, Command::Reopen);
            }
            Due::Set(nth) => {
                let (_, model, priority) = self.scenario.sets[nth];
                let over = Override {
                    priority: Some(priority),
                    ..Override::default()
                };
                let change = OverrideChange::replace_all(over);
                let order = self.next_order();
                self.order(order, Command::Set { model, change });
            }
        }
    }

    pub(super) fn next_order(&mut self) -> OrderId {
        self.orders += 1;
        OrderId(self.orders - 1)
    }

    pub(super) fn order(&mut self, order: OrderId, command: Command) {
        self.step(vec![Event::OrderReceived { order, command }]);
    }

    fn ended(&mut self, id: ReplicaId, key: KeyId, entered: Time) {
        let now = self.now;
        let guest = guest(self.seen(key));
        // A cut request is gone together with its replica.
        let Some(gate) = self.live.get_mut(&id).filter(|live| live.in_flight > 0) else {
            return;
        };
        self.keys.leaves(id, &guest, entered, now);
        gate.in_flight -= 1;
        gate.last_end = Some(now);
        if gate.in_flight == 0 {
            gate.stay.idle(now);
        }
        if !core::mem::replace(&mut gate.changed, true) {
            self.changed.push(id);
        }
        let model = gate.model;
        if gate.closed && gate.in_flight == 0 {
            self.step(vec![Event::Drained { replica: id }]);
        } else if !gate.closed
            && (gate.mode == Some(GateMode::Queued) || (self.idle_matters && gate.in_flight == 0))
        {
            self.step(vec![Event::TimerFired]);
        }
        self.batch_room_changes(model);
    }

    fn readings(&mut self) -> Vec<GateReading> {
        let live = &mut self.live;
        let readings = self.changed.drain(..).filter_map(|replica| {
            let gate = live.get_mut(&replica)?;
            gate.changed = false;
            Some(gate.reading(replica))
        });
        readings.collect()
    }

    /// Runs a step of the core, including everything that its actions answer immediately.
    pub(super) fn step(&mut self, events: Vec<Event>) {
        self.stepped = self.now;
        let mut news = vec![
            Event::GatesRead {
                readings: self.readings(),
            },
            Event::KeysRead {
                gates: self.keys.read(),
            },
        ];
        news.extend(events);
        let mut responses = VecDeque::new();
        loop {
            let response = self.pool.step_all(self.now, news);
            self.wake = response.wake;
            self.idle_matters = response.idle_matters;
            for action in response.actions {
                responses.extend(self.act(action));
            }
            match responses.pop_front() {
                Some(event) => news = vec![event],
                None => break,
            }
        }
        self.batch_step_ends();
        self.steps += 1;
        if self.check_every > 0 && self.steps.is_multiple_of(self.check_every) {
            for violation in check(&self.pool) {
                self.accounts.broken(format!("{}: {violation}", self.now));
            }
        }
    }

    fn act(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::Grant { ticket, replica } => {
                let waiting = self.waiting.remove(&ticket).expect("granted once");
                if let Some(first) = waiting.forecast {
                    self.forecasts.seated(first, self.now.since(waiting.at));
                }
                self.accounts
                    .seated(waiting.model, waiting.key, waiting.at, self.now);
                self.seat(replica, waiting.key, waiting.service);
                // The core has already counted the seat.
                let gate = self.live.get_mut(&replica).expect("open");
                gate.changed = false;
                self.changed.retain(|id| *id != replica);
                None
            }
            Action::Refuse { ticket, refusal } => {
                let waiting = self.waiting.remove(&ticket).expect("refused once");
                self.responded(waiting.key, Span::ZERO);
                match refusal {
                    Refusal::TimedOut { .. } => {
                        self.accounts.timed_out(waiting.model, waiting.at, self.now);
                    }
                    other => self.accounts.refused(waiting.model, other.name()),
                }
                None
            }
            Action::Launch {
                replica,
                model,
                placement,
                ..
            } => {
                self.batch_load_begins(replica, model);
                let devices = placement.iter().map(|share| share.device).collect();
                let bytes = placement[0].bytes;
                self.accounts.load_began(model);
                let stay = Stay::new(model, devices, bytes, self.now);
                self.live.insert(replica, Live::new(model, stay));
                self.of_model[model.0 as usize].push(replica);
                let reload = self.scenario.models[model.0 as usize].reload;
                self.push(self.now + reload, Due::Ready(replica));
                None
            }
            // Replayed models need no fetch, and replayed nodes stay.
            Action::Fetch { .. }
            | Action::EndFetch { .. }
            | Action::Disown { .. }
            | Action::RequestNodes { .. }
            | Action::CancelNode { .. }
            | Action::ReleaseNode { .. } => None,
            Action::Park { replica, .. } => {
                self.parks(replica);
                None
            }
            Action::Wake { replica, .. } => {
                self.wakes(replica);
                None
            }
            Action::SetGate { replica, gate } => {
                let live = self.live.get_mut(&replica)?;
                (live.mode, live.closed) = (Some(gate), false);
                let model = live.model;
                self.batch_room_changes(model);
                None
            }
            Action::CloseGate {
                replica,
                if_idle_at,
            } => {
                let gate = self.live.get_mut(&replica)?;
                let in_flight = gate.in_flight;
                if if_idle_at.is_some_and(|entered| in_flight > 0 || gate.entered != entered) {
                    let reading = gate.reading(replica);
                    return Some(Event::GateBusy { reading });
                }
                gate.closed = true;
                let model = gate.model;
                self.batch_room_changes(model);
                Some(Event::GateClosed { replica, in_flight })
            }
            Action::Stop {
                replica, reason, ..
            } => {
                self.stops(replica, &reason);
                None
            }
            Action::Save { order, .. } => Some(Event::Saved { order }),
            Action::Record(record) => {
                self.batch_recorded(&record);
                if self.keeps_records {
                    self.accounts.recorded(record);
                }
                None
            }
            Action::Settle { order, .. } => self.settled(order),
            Action::Keep { .. } | Action::Finished => None,
        }
    }

    /// Answers all waiting requests, then counts what is still held.
    pub(super) fn finish(mut self) -> Report {
        while !self.waiting.is_empty() || self.batches.is_any_open() {
            let Some(next) = self.next() else { break };
            self.until(next);
        }
        for (ticket, waiting) in core::mem::take(&mut self.waiting) {
            let (model, since) = (waiting.model, waiting.at);
            self.accounts.broken(format!(
                "{ticket} for {model} since {since} was never answered"
            ));
        }
        let now = self.now;
        for (_, live) in core::mem::take(&mut self.live) {
            self.accounts.left(live.stay, now, "still there");
        }
        Report {
            shadows: Some(self.pool.shadow_costs()),
            forecasts: (self.forecast_every > 0).then(|| self.forecasts.report()),
            batches: self.batches.report(),
            ..self.accounts.close()
        }
    }
}

impl Live {
    pub(super) fn new(model: ModelId, stay: Stay) -> Live {
        Live {
            model,
            mode: None,
            closed: false,
            in_flight: 0,
            entered: 0,
            last_end: None,
            idle_before: None,
            changed: false,
            stopping: false,
            reason: "",
            stay,
        }
    }

    fn reading(&self, replica: ReplicaId) -> GateReading {
        GateReading {
            replica,
            in_flight: self.in_flight,
            entered: self.entered,
            last_end: self.last_end,
            idle_before: self.idle_before,
        }
    }
}

/// Traces have no classes and no tokens: requests are charged for the time of their seats.
fn guest(key: KeyId) -> Guest {
    Guest {
        key,
        ..Guest::default()
    }
}
