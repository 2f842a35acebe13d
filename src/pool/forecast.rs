//! Forecasts when waiting requests get their seats. A copy of the pool decides on while loads, stops, fetches and requests take as long
//! as they were measured to take. The order of loads, the victims, turns and seats therefore match the decisions of the pool. Requests that
//! arrive later are unknown.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use crate::facts::state::Pool;
use crate::plan::together::stops_in;
use crate::types::action::{Action, Outcome};
use crate::types::event::{Event, Exit, FetchEnd, GateReading};
use crate::types::forecast::Forecast;
use crate::types::ids::{ModelId, OrderId, ReplicaId, Span, Ticket, Time};
use crate::types::replica::{Phase, Replica};

/// The duration of a request to a model without an ended request.
const UNMEASURED_REQUEST: Span = Span::from_secs(2);
/// The time after which readings show the memory of an ended process as free.
const RELEASED_IN: Span = Span(500);
/// The course ends after this many steps: a forecast takes a bounded time.
const STEPS_MAX: usize = 2_000;
/// The course does not reach further.
const HORIZON: Span = Span::from_secs(2 * 3_600);

/// The end of something that takes time outside of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    RequestEnds(ReplicaId),
    Gone(ReplicaId),
    Ready(ReplicaId),
    Asleep(ReplicaId),
    Fetched(ModelId),
}

/// A replica's gate in the course.
#[derive(Clone, Copy, Debug, Default)]
struct Gate {
    in_flight: u32,
    entered: u64,
    last_end: Option<Time>,
    is_closed: bool,
}

/// The end of the course.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    /// No request waits.
    NoneWaits,
    Seated(Ticket),
    Settled(OrderId),
}

/// The copy with the time that passes in it.
struct Course {
    pool: Pool,
    now: Time,
    wake: Option<Time>,
    due: BTreeSet<(Time, u64, Due)>,
    pushed: u64,
    gates: BTreeMap<ReplicaId, Gate>,
    loads: u32,
    seats: BTreeMap<Ticket, Forecast>,
    settled: BTreeMap<OrderId, (Time, bool)>,
}

impl Pool {
    /// The expected times of the seats of all waiting requests, made in a copy of the pool. Requests that are expected to be refused
    /// are missing, and so are those whose seat is too far away.
    pub fn forecasts(self, now: Time) -> BTreeMap<Ticket, Forecast> {
        let mut course = Course::new(self, now);
        course.run(Until::NoneWaits);
        course.seats
    }

    /// The expected time of the seat of one request.
    pub fn forecast(self, now: Time, ticket: Ticket) -> Option<Forecast> {
        let mut course = Course::new(self, now);
        course.run(Until::Seated(ticket));
        course.seats.get(&ticket).copied()
    }

    /// The time until an order is carried out. `None` if it is expected to be refused or to end too far away.
    pub(crate) fn settles_in(mut self, order: OrderId) -> Option<Span> {
        let begins = self.now;
        // The decision about the order may have been made and not carried out.
        self.touch_everything();
        let mut course = Course::new(self, begins);
        course.run(Until::Settled(order));
        let (at, is_done) = course.settled.get(&order)?;
        is_done.then(|| at.since(begins))
    }
}

impl Course {
    /// Begins with the loads, stops and requests that are in progress.
    fn new(mut pool: Pool, now: Time) -> Course {
        let wait = &mut pool.limits.release_wait;
        *wait = RELEASED_IN.min(*wait);
        let mut course = Course {
            now: pool.now.max(now),
            pool,
            wake: None,
            due: BTreeSet::new(),
            pushed: 0,
            gates: BTreeMap::new(),
            loads: 0,
            seats: BTreeMap::new(),
            settled: BTreeMap::new(),
        };
        let mut events = Vec::new();
        let replicas: Vec<ReplicaId> = course.pool.replicas.keys().copied().collect();
        for id in replicas {
            course.begin(id, &mut events);
        }
        let fetching: Vec<ModelId> = course.pool.models.fetching().iter().copied().collect();
        for id in fetching {
            let left = course.pool.fetched_in(id);
            course.push(left, Due::Fetched(id));
        }
        let saving = course.pool.orders.saving();
        events.extend(saving.map(|order| Event::Saved { order }));
        events.push(Event::TimerFired);
        course.step(events);
        course
    }

    fn begin(&mut self, id: ReplicaId, events: &mut Vec<Event>) {
        let replica = &self.pool.replicas[&id];
        // It is unknown on a silent node.
        if self.pool.is_silent(replica) {
            return;
        }
        let gate = Gate {
            in_flight: replica.in_flight,
            entered: replica.entered,
            last_end: replica.last_end,
            is_closed: !matches!(replica.phase, Phase::Ready { .. }),
        };
        match &replica.phase {
            Phase::Launching { since, .. } => {
                let left = self.rest(*since, self.pool.loads_in(id));
                self.push(left, Due::Ready(id));
            }
            Phase::Ready { .. } => self.seated(id, gate),
            Phase::Draining { closed, .. } => {
                if !closed {
                    events.push(Event::GateClosed {
                        replica: id,
                        in_flight: gate.in_flight,
                    });
                }
                if gate.in_flight == 0 {
                    events.push(Event::Drained { replica: id });
                }
                self.seated(id, gate);
            }
            Phase::Parking { since, .. } => {
                let left = self.rest(*since, self.pool.models[&replica.model].wake());
                self.push(left, Due::Asleep(id));
            }
            Phase::Asleep { .. } => {
                self.gates.insert(id, gate);
            }
            Phase::Stopping { since, .. } => {
                let left = self.rest(*since, stops_in(&self.pool, replica));
                self.push(left, Due::Gone(id));
            }
        }
    }

    /// Lets the requests at a gate end one after the other. With durations without memory, the first of n ends after an n-th of the
    /// mean.
    fn seated(&mut self, id: ReplicaId, gate: Gate) {
        let takes = self.request_takes(&self.pool.replicas[&id]);
        let mut after = Span::ZERO;
        for left in (1..=gate.in_flight).rev() {
            after = after + Span(takes.0 / u64::from(left));
            self.push(after, Due::RequestEnds(id));
        }
        self.gates.insert(id, gate);
    }

    /// The rest of something that usually takes this long. It is expected to take as long again as it is late.
    fn rest(&self, since: Time, usual: Span) -> Span {
        let passed = self.now.since(since);
        Span(usual.0.abs_diff(passed.0))
    }

    fn request_takes(&self, replica: &Replica) -> Span {
        let model = &self.pool.models[&replica.model];
        model.request_times.mean().unwrap_or(UNMEASURED_REQUEST)
    }

    fn push(&mut self, after: Span, due: Due) {
        self.pushed += 1;
        let at = self.now + after.max(Span(1));
        self.due.insert((at, self.pushed, due));
    }

    fn is_over(&self, until: Until) -> bool {
        match until {
            Until::NoneWaits => self.pool.queues.len() == 0,
            Until::Seated(ticket) => self.pool.queues.get(ticket).is_none(),
            Until::Settled(order) => self.settled.contains_key(&order),
        }
    }

    fn run(&mut self, until: Until) {
        let end = self.now + HORIZON;
        for _ in 0..STEPS_MAX {
            let due = self.due.first().map(|(at, ..)| *at);
            let next = due.into_iter().chain(self.wake).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                return;
            };
            if self.is_over(until) {
                return;
            }
            self.now = self.now.max(next);
            if due == Some(next) {
                let (_, _, due) = self.due.pop_first().expect("it was the first");
                let events = self.events_of(due);
                self.step(events);
            } else {
                self.step(vec![Event::TimerFired]);
            }
        }
    }

    fn events_of(&mut self, due: Due) -> Vec<Event> {
        match due {
            Due::RequestEnds(id) => self.request_ends(id),
            Due::Gone(replica) => {
                self.gates.remove(&replica);
                let exit = Exit::Requested;
                vec![Event::ReplicaExited { replica, exit }]
            }
            Due::Ready(replica) => vec![Event::ReplicaReady { replica }],
            Due::Asleep(replica) => vec![Event::ReplicaAsleep { replica }],
            Due::Fetched(model) => {
                let Some(known) = self.pool.models.get(&model) else {
                    return Vec::new();
                };
                let mut spec = known.spec.clone();
                (spec.absent, spec.damage) = (false, None);
                let end = FetchEnd::Complete;
                vec![
                    Event::ModelSet { model, spec },
                    Event::FetchEnded { model, end },
                ]
            }
        }
    }

    fn request_ends(&mut self, id: ReplicaId) -> Vec<Event> {
        let now = self.now;
        let gate = self.gates.get_mut(&id);
        let Some(gate) = gate.filter(|gate| gate.in_flight > 0) else {
            return Vec::new();
        };
        gate.in_flight -= 1;
        gate.last_end = Some(now);
        let is_drained = gate.is_closed && gate.in_flight == 0;
        let readings = vec![gate.reading(id)];
        let mut events = vec![Event::GatesRead { readings }];
        events.extend(is_drained.then_some(Event::Drained { replica: id }));
        events
    }

    fn step(&mut self, mut events: Vec<Event>) {
        while !events.is_empty() {
            let response = self.pool.step_all(self.now, core::mem::take(&mut events));
            self.wake = response.wake;
            for action in response.actions {
                events.extend(self.act(action));
            }
        }
    }

    /// Begins what the pool orders. Returns the event that follows immediately.
    fn act(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::Grant { ticket, replica } => {
                let (at, loads) = (self.now, self.loads);
                self.seats.insert(ticket, Forecast { at, loads });
                let takes = self.request_takes(&self.pool.replicas[&replica]);
                let gate = self.gates.entry(replica).or_default();
                gate.in_flight += 1;
                gate.entered += 1;
                self.push(takes, Due::RequestEnds(replica));
            }
            Action::Launch { replica, .. } | Action::Wake { replica, .. } => {
                self.loads += 1;
                self.gates.entry(replica).or_default().is_closed = false;
                let takes = self.pool.loads_in(replica);
                self.push(takes, Due::Ready(replica));
            }
            Action::Park { replica, .. } => {
                let model = self.pool.replicas[&replica].model;
                let takes = self.pool.models[&model].wake();
                self.push(takes, Due::Asleep(replica));
            }
            Action::Stop { replica, .. } => {
                let stopped = self.pool.replicas.get(&replica)?;
                let takes = stops_in(&self.pool, stopped);
                if let Some(gate) = self.gates.get_mut(&replica) {
                    gate.in_flight = 0;
                }
                self.push(takes, Due::Gone(replica));
            }
            Action::SetGate { replica, .. } => {
                self.gates.entry(replica).or_default().is_closed = false;
            }
            Action::CloseGate {
                replica,
                if_idle_at,
            } => {
                let gate = self.gates.entry(replica).or_default();
                let in_flight = gate.in_flight;
                let is_used = |entered| in_flight > 0 || gate.entered != entered;
                if if_idle_at.is_some_and(is_used) {
                    let reading = gate.reading(replica);
                    return Some(Event::GateBusy { reading });
                }
                gate.is_closed = true;
                return Some(Event::GateClosed { replica, in_flight });
            }
            Action::Fetch { model, .. } => {
                let takes = self.pool.fetched_in(model);
                self.push(takes, Due::Fetched(model));
            }
            Action::Save { order, .. } => return Some(Event::Saved { order }),
            Action::Settle { order, outcome } => {
                let is_done = !matches!(outcome, Outcome::Refused { .. });
                self.settled.insert(order, (self.now, is_done));
            }
            // Other actions have no known end. A requested node comes at an unknown time.
            _ => {}
        }
        None
    }
}

impl Gate {
    fn reading(&self, replica: ReplicaId) -> GateReading {
        GateReading {
            replica,
            in_flight: self.in_flight,
            entered: self.entered,
            last_end: self.last_end,
            idle_before: None,
        }
    }
}

#[cfg(test)]
mod tests;
