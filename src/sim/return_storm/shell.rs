//! The shell of a storm of restarts: nodes join with their engines, loads and stops are carried out. Checks every action.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::{Due, Engine, LOAD, Play, RESTART, ReturnFault, limits};
use pool::{
    Action, DeviceId, DeviceReading, Event, GangReach, ModelId, NodeId, Refusal, ReplicaId, Share,
    Span, StopReason, Time, check,
};

impl Play {
    pub(super) fn joins(&mut self, at: Time, node: NodeId) {
        self.joined.insert(node);
        let of: Vec<DeviceId> = self.on(node).map(|(id, _)| id).collect();
        let mut events: Vec<Event> = self
            .on(node)
            .map(|(device, reading)| Event::DeviceRead { device, reading })
            .collect();
        let allowed = self.models.iter().filter_map(|(&model, known)| {
            let file = known.allowed.as_ref()?;
            let allowed = of.iter().filter(|id| file.contains(id)).copied().collect();
            let of = of.clone();
            Some(Event::DevicesAllowed { model, of, allowed })
        });
        let allowed: Vec<Event> = allowed.collect();
        let is_late = self.fault == Some(ReturnFault::AllowedLate);
        if !is_late {
            events.extend(allowed.iter().cloned());
        }
        let mut running = Vec::new();
        for (&replica, engine) in self
            .engines
            .iter()
            .filter(|(_, engine)| engine.node == node)
        {
            running.push(replica);
            self.report.adopted += 1;
            events.push(Event::ReplicaAdopted {
                replica,
                model: engine.model,
                placement: engine.shares.clone(),
                ready_for: Span::from_secs(60),
                in_flight: 0,
                last_end: None,
            });
        }
        events.push(Event::NodeJoined {
            node,
            name: format!("node-{}", node.0),
            running,
            demand: None,
            reach: GangReach::Network,
        });
        self.feed(at, events);
        if is_late {
            self.feed(at, allowed);
        }
    }

    fn on(&self, node: NodeId) -> impl Iterator<Item = (DeviceId, DeviceReading)> + '_ {
        let on = self
            .devices
            .iter()
            .filter(move |(_, device)| device.node == node);
        on.map(|(&id, device)| (id, device.clone()))
    }

    pub(super) fn feed(&mut self, at: Time, events: Vec<Event>) {
        let actions = self.world.feed_all(at, events);
        for action in &actions {
            self.carries_out(at, action);
        }
        let violations = check(&self.world.pool);
        let violations = violations.iter().map(ToString::to_string);
        self.report.broken.extend(violations);
    }

    fn carries_out(&mut self, at: Time, action: &Action) {
        match action {
            Action::Grant { ticket, .. } => {
                self.report.granted += 1;
                self.waiting.remove(ticket);
                self.timeline.push(at + Span(2_000), Due::Served(*ticket));
            }
            Action::Refuse { ticket, refusal } => {
                self.waiting.remove(ticket);
                // Every model fits on a node that exists.
                if matches!(refusal, Refusal::NeverFits { .. }) {
                    self.breaks(at, format!("{ticket} is refused: {refusal}"));
                }
            }
            Action::Launch {
                replica,
                model,
                placement,
                ..
            } => self.launches(at, *replica, *model, placement),
            Action::CloseGate { replica, .. } => self.drains(*replica, true),
            Action::SetGate { replica, .. } => self.drains(*replica, false),
            Action::Stop {
                replica, reason, ..
            } => self.stops(at, *replica, reason),
            _ => {}
        }
    }

    fn drains(&mut self, replica: ReplicaId, drains: bool) {
        if let Some(engine) = self.engines.get_mut(&replica) {
            engine.drains = drains;
        }
    }

    fn launches(&mut self, at: Time, replica: ReplicaId, model: ModelId, placement: &[Share]) {
        let node = self.devices[&placement[0].device].node;
        if !self.joined.contains(&node) {
            self.breaks(
                at,
                format!("{replica} is placed on {node}, which has not joined"),
            );
        }
        if self.has_restarted {
            self.report.launches += 1;
            let mut others = self.engines.values();
            let stays = |other: &&Engine| !other.drains && !other.ends;
            if let Some(other) = others.find(|other| other.model == model && stays(other)) {
                let is_away =
                    !self.joined.contains(&other.node) && !self.gone.contains(&other.node);
                let has_waited = at >= RESTART + limits().silent_grace;
                if !(is_away && has_waited) {
                    self.breaks(at, format!("{model} is loaded twice, as {replica}"));
                }
            }
        }
        let engine = Engine {
            model,
            node,
            shares: placement.to_vec(),
            is_ready: false,
            drains: false,
            ends: false,
        };
        self.engines.insert(replica, engine);
        self.timeline.push(at + LOAD, Due::Ready(replica));
    }

    fn stops(&mut self, at: Time, replica: ReplicaId, reason: &StopReason) {
        let Some(engine) = self.engines.get_mut(&replica) else {
            return;
        };
        engine.ends = true;
        let model = engine.model;
        self.timeline.push(at + Span(500), Due::Exits(replica));
        if !self.has_restarted {
            return;
        }
        let mut others = self.engines.values();
        let has_other = others.any(|other| {
            let is_reached = self.joined.contains(&other.node);
            other.model == model && other.is_ready && !other.ends && is_reached
        });
        match reason {
            StopReason::Surplus if has_other => self.report.surplus += 1,
            StopReason::Surplus | StopReason::NotAdopted { .. } => {
                self.breaks(
                    at,
                    format!("{replica} of {model} ends needlessly: {reason}"),
                );
            }
            _ if self.is_quick => {
                self.breaks(
                    at,
                    format!("{replica} of {model} ends although it was awaited: {reason}"),
                );
            }
            _ => {}
        }
    }

    pub(super) fn breaks(&mut self, at: Time, what: String) {
        self.report.broken.push(format!("N8: {at}: {what}"));
    }
}
