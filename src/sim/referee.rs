//! Watches a storm from outside: it keeps its own books of memory, seats, priorities and answers, from
//! what was asked and what was done, and believes nothing that the pool says of itself.

use std::collections::{BTreeMap, BTreeSet};

use crate::pool::{
    Action, Bytes, Command, DeviceId, Event, ModelId, ModelSpec, OrderId, Outcome, Override,
    Priority, ReplicaId, Share, Span, StopReason, Ticket, Time,
};

/// Rules and limits that the referee holds the pool to.
#[derive(Clone, Debug)]
pub struct Referee {
    capacity: BTreeMap<DeviceId, Bytes>,
    /// What processes really hold: from the launch to the true end.
    held: BTreeMap<DeviceId, Bytes>,
    replicas: BTreeMap<ReplicaId, Seen>,
    specs: BTreeMap<ModelId, ModelSpec>,
    overrides: BTreeMap<ModelId, Override>,
    asked_overrides: BTreeMap<OrderId, (ModelId, Override)>,
    names: BTreeMap<String, ModelId>,
    open_tickets: BTreeSet<Ticket>,
    open_orders: BTreeSet<OrderId>,
    preempt_drain: Span,
    night: bool,
    pub broken: Vec<String>,
}

#[derive(Clone, Debug)]
struct Seen {
    model: ModelId,
    shares: Vec<Share>,
    launched: Time,
    closed: Option<Time>,
    stopping: bool,
    idle_since: Option<Time>,
}

impl Referee {
    pub fn new(
        capacity: BTreeMap<DeviceId, Bytes>,
        specs: BTreeMap<ModelId, ModelSpec>,
        preempt_drain: Span,
    ) -> Referee {
        let names = specs
            .iter()
            .map(|(&id, spec)| (spec.name.clone(), id))
            .collect();
        Referee {
            capacity,
            held: BTreeMap::new(),
            replicas: BTreeMap::new(),
            specs,
            overrides: BTreeMap::new(),
            asked_overrides: BTreeMap::new(),
            names,
            open_tickets: BTreeSet::new(),
            open_orders: BTreeSet::new(),
            preempt_drain,
            night: false,
            broken: Vec::new(),
        }
    }

    fn priority(&self, model: ModelId, now: Time) -> Priority {
        let over = self
            .overrides
            .get(&model)
            .filter(|over| over.expires.is_none_or(|at| at > now));
        over.and_then(|over| over.priority)
            .unwrap_or(self.specs[&model].priority)
    }

    fn protected(&self, model: ModelId, now: Time) -> bool {
        !self.night && self.priority(model, now) >= Priority::ALWAYS_HOT
    }

    /// What happens, before the pool hears of it.
    pub fn event(&mut self, now: Time, event: &Event) {
        match event {
            Event::RequestArrived { ticket, .. } => {
                self.open_tickets.insert(*ticket);
            }
            Event::RequestLeft { ticket } => {
                self.open_tickets.remove(ticket);
            }
            Event::OrderAsked { order, command } => {
                self.open_orders.insert(*order);
                match command {
                    Command::Set { model, over } => {
                        self.asked_overrides.insert(*order, (*model, over.clone()));
                    }
                    Command::Load(load) => {
                        let mut over = self.overrides.get(&load.model).cloned().unwrap_or_default();
                        over.priority = load.priority.or(over.priority);
                        over.expires = load.lease.map(|lease| now + lease).or(over.expires);
                        self.asked_overrides.insert(*order, (load.model, over));
                    }
                    Command::Reopen => self.night = false,
                    _ => {}
                }
            }
            Event::Saved { order } => {
                if let Some((model, over)) = self.asked_overrides.remove(order) {
                    self.overrides.insert(model, over);
                }
            }
            _ => {}
        }
    }

    /// A cleanup counts from the moment the store has it.
    pub fn night_falls(&mut self) {
        self.night = true;
    }

    /// The process is truly gone.
    pub fn process_ended(&mut self, replica: ReplicaId) {
        let Some(seen) = self.replicas.remove(&replica) else {
            return;
        };
        for share in &seen.shares {
            let held = self.held.entry(share.device).or_default();
            *held = held.saturating_sub(share.bytes);
        }
    }

    pub fn seat_ended(&mut self, replica: ReplicaId, now: Time, in_flight: u32) {
        if let Some(seen) = self.replicas.get_mut(&replica) {
            seen.idle_since = (in_flight == 0).then_some(now);
        }
    }

    pub fn seat_taken(&mut self, replica: ReplicaId) {
        if let Some(seen) = self.replicas.get_mut(&replica) {
            seen.idle_since = None;
        }
    }

    pub fn ready(&mut self, replica: ReplicaId, now: Time) {
        if let Some(seen) = self.replicas.get_mut(&replica) {
            seen.idle_since = Some(now);
        }
    }

    /// What the pool does. `in_flight` are the seats that are truly taken on a replica.
    pub fn action(&mut self, now: Time, action: &Action, in_flight: impl Fn(ReplicaId) -> u32) {
        match action {
            Action::Grant { ticket, replica } => {
                self.answered(*ticket);
                self.seat_taken(*replica);
                match self.replicas.get(replica) {
                    None => self.broken.push(format!(
                        "Q4: {ticket} got a seat on {replica}, which is not there"
                    )),
                    Some(seen) if seen.stopping || seen.closed.is_some() => {
                        self.broken.push(format!(
                            "L1: {ticket} got a seat on {replica}, which leaves"
                        ));
                    }
                    Some(_) => {}
                }
            }
            Action::Refuse { ticket, .. } => self.answered(*ticket),
            Action::Launch {
                replica,
                model,
                placement,
                ..
            } => {
                for share in placement {
                    let held = self.held.entry(share.device).or_default();
                    *held = *held + share.bytes;
                    if *held > self.capacity[&share.device] {
                        self.broken.push(format!(
                            "M3: with {replica} {} holds {held} of {}",
                            share.device, self.capacity[&share.device]
                        ));
                    }
                }
                let seen = Seen {
                    model: *model,
                    shares: placement.clone(),
                    launched: now,
                    closed: None,
                    stopping: false,
                    idle_since: None,
                };
                if self.replicas.insert(*replica, seen).is_some() {
                    self.broken.push(format!("{replica} was launched twice"));
                }
            }
            Action::SetGate { replica, .. } => {
                if let Some(seen) = self.replicas.get_mut(replica) {
                    seen.closed = None;
                }
            }
            Action::CloseGate {
                replica,
                if_idle_at,
            } => {
                let busy = in_flight(*replica) > 0;
                if let Some(seen) = self.replicas.get_mut(replica)
                    && !(if_idle_at.is_some() && busy)
                {
                    seen.closed = Some(now);
                }
            }
            Action::Stop {
                replica, reason, ..
            } => self.stop(now, *replica, reason, in_flight(*replica)),
            Action::Settle { order, outcome } => {
                if !self.open_orders.remove(order) {
                    self.broken.push(format!("{order} was settled twice"));
                }
                if let Outcome::Loaded(result) = outcome
                    && result.ready.len() < result.wanted as usize
                    && result.shortfall.is_none()
                {
                    self.broken
                        .push(format!("{order} got less than asked and was not told why"));
                }
            }
            Action::Keep {
                wish: crate::pool::Wish::Override { model, over },
            } => {
                self.overrides.insert(*model, over.clone());
            }
            _ => {}
        }
    }

    fn answered(&mut self, ticket: Ticket) {
        if !self.open_tickets.remove(&ticket) {
            self.broken
                .push(format!("Q4: {ticket} was answered twice, or after it left"));
        }
    }

    fn stop(&mut self, now: Time, replica: ReplicaId, reason: &StopReason, in_flight: u32) {
        let Some(seen) = self.replicas.get_mut(&replica) else {
            return;
        };
        if seen.stopping {
            self.broken.push(format!("{replica} was stopped twice"));
        }
        seen.stopping = true;
        let seen = seen.clone();
        let model = seen.model;
        let mut wrong = |text: String| self.broken.push(format!("{text} ({replica}: {reason})"));
        match reason {
            StopReason::KeepHot { .. } => {
                let idle = seen.idle_since.map_or(Span::ZERO, |since| now.since(since));
                let over = self.overrides.get(&model).and_then(|over| over.keep_hot);
                if in_flight > 0 || idle < over.unwrap_or(self.specs[&model].keep_hot) {
                    wrong(format!("L2: {in_flight} in flight, idle for {idle}"));
                }
            }
            StopReason::TurnEnded { by, .. } => {
                if in_flight > 0 {
                    wrong(format!("P3: {in_flight} streams of an equal are cut"));
                }
                let spec = &self.specs[&model];
                let least = spec.min_resident.unwrap_or(Span::from_secs(10));
                let min_resident = least.min(spec.max_turn.unwrap_or(Span::from_secs(5)));
                if now.since(seen.launched) < min_resident {
                    wrong(format!(
                        "P3: it was there for {} only",
                        now.since(seen.launched)
                    ));
                }
                if !self.names.contains_key(by) {
                    wrong("an unknown model takes the turn".to_owned());
                }
            }
            StopReason::Preempted { priority, own, .. } => {
                let drained = seen.closed.map_or(Span::ZERO, |closed| now.since(closed));
                if own >= priority {
                    wrong("P2: not strictly lower".to_owned());
                }
                if in_flight > 0 && drained < self.preempt_drain {
                    wrong(format!("P2: {in_flight} streams cut after {drained}"));
                }
            }
            _ => {}
        }
    }

    /// Eviction is judged when the gate closes, by the priorities of that moment.
    pub fn eviction(&mut self, now: Time, replica: ReplicaId, reason: &str) {
        let Some(seen) = self.replicas.get(&replica) else {
            return;
        };
        let forced = reason.contains("forced");
        if self.protected(seen.model, now) && !forced {
            self.broken.push(format!(
                "P4: {replica} is always-hot and was evicted: {reason}"
            ));
        }
    }

    /// Nothing may be left when the pool has finished.
    pub fn finish(&mut self) {
        for ticket in &self.open_tickets {
            self.broken.push(format!("Q4: {ticket} was never answered"));
        }
        for order in &self.open_orders {
            self.broken.push(format!("{order} was never settled"));
        }
    }
}
