//! The pool with gates: answers actions that the shell would answer in the same turn, and returns all others to the caller.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::gate_keys::{GateKeys, Guest};
use pool::{
    Action, Event, GateMode, GateReading, KeyId, OrderId, Pool, ReplicaId, ServiceClass, Span,
    Ticket, Time, Tokens,
};

/// The counts of a real gate.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    pub mode: Option<GateMode>,
    pub closed: bool,
    pub in_flight: u32,
    pub entered: u64,
    pub last_end: Option<Time>,
    idle_before: Option<Span>,
    reported: (u32, u64, Option<Time>),
}

impl Gate {
    fn reading(&self, replica: ReplicaId) -> GateReading {
        let Gate {
            in_flight,
            entered,
            last_end,
            idle_before,
            ..
        } = *self;
        GateReading {
            replica,
            in_flight,
            entered,
            last_end,
            idle_before,
        }
    }
}

/// The interval at which gates are read while they are used and no other event occurs.
const READ_GATES_EVERY: Span = Span::from_secs(1);

/// The maximum number of steps that follow from one turn. Decisions at one time must make progress: more steps than this mean that
/// they undo each other.
const STEPS_AT_ONE_TIME_MAX: u64 = 10_000;

#[derive(Clone, Debug)]
pub struct World {
    pub pool: Pool,
    pub now: Time,
    pub wake: Option<Time>,
    /// A replica that becomes idle is reported immediately.
    idle_matters: bool,
    /// The time the pool last observed an event.
    turned: Time,
    pub gates: BTreeMap<ReplicaId, Gate>,
    /// The replica of each seat.
    pub seats: BTreeMap<Ticket, ReplicaId>,
    /// Each request that waits or has a seat, and the time it took the seat.
    guests: BTreeMap<Ticket, (Guest, Time)>,
    gate_keys: GateKeys,
    /// Orders that the store has not confirmed; `None` if it confirms immediately.
    pub unsaved: Option<Vec<OrderId>>,
}

impl World {
    pub fn new(pool: Pool) -> World {
        World {
            pool,
            now: Time(0),
            wake: None,
            idle_matters: false,
            turned: Time(0),
            gates: BTreeMap::new(),
            seats: BTreeMap::new(),
            guests: BTreeMap::new(),
            gate_keys: GateKeys::default(),
            unsaved: None,
        }
    }

    /// Passes on an event and everything that follows from it in the same turn. Returns every action, in order.
    pub fn feed(&mut self, now: Time, event: Event) -> Vec<Action> {
        self.feed_all(now, [event])
    }

    /// The same for several events that the pool observes before it decides anything.
    pub fn feed_all(&mut self, now: Time, these: impl IntoIterator<Item = Event>) -> Vec<Action> {
        self.now = self.now.max(now);
        self.turned = self.now;
        let readings = self.gate_readings();
        let gates = self.gate_keys.read();
        let mut news = vec![Event::GatesRead { readings }, Event::KeysRead { gates }];
        news.extend(these);
        for event in &news {
            match event {
                Event::RequestArrived { ticket, key, .. } => {
                    self.guest(*ticket).key = *key;
                }
                Event::RequestDescribed {
                    ticket,
                    class,
                    expected,
                } => self.describe(*ticket, *class, *expected),
                _ => {}
            }
        }
        let mut events = VecDeque::new();
        let mut all = Vec::new();
        let mut steps = 0;
        while !news.is_empty() {
            steps += 1;
            assert!(
                steps <= STEPS_AT_ONE_TIME_MAX,
                "decisions undo each other at {}: {:#?}",
                self.now,
                last_reasons(&all)
            );
            let response = self.pool.step_all(self.now, news);
            self.wake = response.wake;
            self.idle_matters = response.idle_matters;
            for action in response.actions {
                if let Some(event) = self.respond(&action) {
                    events.push_back(event);
                }
                all.push(action);
            }
            news = events.pop_front().into_iter().collect();
        }
        all
    }

    fn respond(&mut self, action: &Action) -> Option<Event> {
        match action {
            Action::Grant { ticket, replica } => {
                let gate = self.gates.entry(*replica).or_default();
                gate.in_flight += 1;
                gate.entered += 1;
                gate.idle_before = None;
                gate.reported = (gate.in_flight, gate.entered, gate.last_end);
                let guest = *self.guest(*ticket);
                self.guests.insert(*ticket, (guest, self.now));
                self.gate_keys.enters(*replica, &guest, self.now);
                self.seats.insert(*ticket, *replica);
                None
            }
            Action::Launch { replica, .. } => {
                self.gates.insert(*replica, Gate::default());
                None
            }
            Action::SetGate { replica, gate } => {
                let counts = self.gates.entry(*replica).or_default();
                (counts.mode, counts.closed) = (Some(*gate), false);
                None
            }
            Action::CloseGate {
                replica,
                if_idle_at,
            } => {
                let replica = *replica;
                // The shell treats a missing gate as empty: its requests have ended.
                let Some(gate) = self.gates.get_mut(&replica) else {
                    return Some(Event::GateClosed {
                        replica,
                        in_flight: 0,
                    });
                };
                let in_flight = gate.in_flight;
                if if_idle_at.is_some_and(|entered| in_flight > 0 || gate.entered != entered) {
                    return Some(Event::GateBusy {
                        reading: gate.reading(replica),
                    });
                }
                gate.closed = true;
                Some(Event::GateClosed { replica, in_flight })
            }
            Action::Save { order, .. } => match &mut self.unsaved {
                Some(unsaved) => {
                    unsaved.push(*order);
                    None
                }
                None => Some(Event::Saved { order: *order }),
            },
            _ => None,
        }
    }

    fn guest(&mut self, ticket: Ticket) -> &mut Guest {
        let (guest, _) = self.guests.entry(ticket).or_default();
        guest
    }

    /// Sets the class and the expected tokens of a request that has not taken a seat.
    pub fn describe(&mut self, ticket: Ticket, class: ServiceClass, expected: Tokens) {
        let guest = self.guest(ticket);
        (guest.class, guest.expected) = (class, expected);
    }

    /// A request with a seat has taken these tokens.
    pub fn takes_tokens(&mut self, ticket: Ticket, tokens: Tokens) {
        if let Some(replica) = self.seats.get(&ticket)
            && let Some((guest, _)) = self.guests.get_mut(&ticket)
        {
            self.gate_keys.takes(*replica, guest, tokens);
        }
    }

    /// The hot path: takes a seat without the pool, if a gate is open and has a free seat.
    pub fn enter(
        &mut self,
        (ticket, key): (Ticket, KeyId),
        replica: ReplicaId,
        seats: u32,
        now: Time,
    ) -> bool {
        let Some(gate) = self.gates.get_mut(&replica) else {
            return false;
        };
        if gate.closed || gate.mode != Some(GateMode::Open) || gate.in_flight >= seats {
            return false;
        }
        if gate.in_flight == 0 {
            gate.idle_before = gate.last_end.map(|end| now.since(end));
        }
        gate.in_flight += 1;
        gate.entered += 1;
        let guest = Guest {
            key,
            ..*self.guest(ticket)
        };
        self.gate_keys.enters(replica, &guest, now);
        self.guests.insert(ticket, (guest, now));
        self.seats.insert(ticket, replica);
        true
    }

    /// A seat ends, for any cause. Returns what the shell would report to the loop; `None` if the gate is open and no request
    /// waits.
    pub fn end(&mut self, ticket: Ticket, now: Time) -> Option<Event> {
        let replica = self.seats.remove(&ticket)?;
        if let Some((guest, entered)) = self.guests.remove(&ticket) {
            self.gate_keys.leaves(replica, &guest, entered, now);
        }
        let gate = self.gates.get_mut(&replica)?;
        gate.in_flight -= 1;
        gate.last_end = Some(now);
        if gate.closed {
            return (gate.in_flight == 0).then_some(Event::Drained { replica });
        }
        let last = self.idle_matters && gate.in_flight == 0;
        (gate.mode == Some(GateMode::Queued) || last).then_some(Event::TimerFired)
    }

    /// The time of the shell's next turn without an event: the pool's wake, or when used gates are due to be read.
    pub fn next_turn(&self) -> Option<Time> {
        let unread = |gate: &Gate| (gate.in_flight, gate.entered, gate.last_end) != gate.reported;
        let read = self.gates.values().any(unread);
        let read = read.then(|| (self.turned + READ_GATES_EVERY).max(self.now));
        self.wake.into_iter().chain(read).min()
    }

    fn gate_readings(&mut self) -> Vec<GateReading> {
        let mut readings = Vec::new();
        for (&replica, gate) in &mut self.gates {
            let now = (gate.in_flight, gate.entered, gate.last_end);
            if now != gate.reported {
                gate.reported = now;
                readings.push(gate.reading(replica));
            }
        }
        readings
    }
}

/// The reasons of the last decisions, for the report of a loop.
fn last_reasons(actions: &[Action]) -> Vec<&str> {
    let mut reasons = Vec::new();
    for action in actions.iter().rev() {
        if let Action::Record(record) = action {
            reasons.push(record.reason.as_str());
        }
        if reasons.len() == 8 {
            break;
        }
    }
    reasons
}
