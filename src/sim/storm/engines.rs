//! Engines of a storm: processes that load, crash, run out of memory, send false reports and end.

use alloc::borrow::ToOwned;
use alloc::vec::Vec;

use super::{Due, Fault, HOUR_MS, Play};
use pool::{
    Action, Bytes, Event, Exit, KindId, ModelId, RecordKind, ReplicaId, Share, Span, Ticket, Tier,
    Time, peak_after_exit, peak_after_reading,
};

impl Play {
    /// Most engines become ready; some crash while loading, some later, some never report, and some need more memory
    /// than they have.
    pub(super) fn launches(
        &mut self,
        at: Time,
        replica: ReplicaId,
        model: ModelId,
        placement: &[Share],
    ) {
        self.report.launches += 1;
        let part = if self.conditions.measured {
            self.random.between(800, 1000)
        } else {
            1000
        };
        let process = Process {
            model,
            runs: true,
            shares: placement.to_vec(),
            awake: placement.to_vec(),
            measured: None,
        };
        for share in placement {
            let bytes = Bytes(share.bytes.0 / 1000 * part);
            self.device(share.device).starts(replica, bytes);
        }
        self.processes.insert(replica, process);
        let usual = self.specs[&model].reload.0;
        if let Some(fairness) = &self.fairness {
            let load = Span(self.random.between(1, fairness.load.0));
            self.push(at + load, Due::Ready(replica));
            return;
        }
        let load = Span(self.random.between(usual / 2, usual * 2));
        let tier = Tier::ALL[self.random.below(4) as usize];
        if self.fault == Some(Fault::LoaderLies) {
            // Reported immediately and only to the pool: the referee knows that the weights are read from the disk.
            let tier = Tier::Asleep;
            let now = self.world.now;
            self.world
                .pool
                .step(now, Event::LoadsFrom { replica, tier });
        } else if self.random.chance(300) {
            let soon = Span(self.random.below(load.0));
            self.push(at + soon, Due::Source(replica, tier));
        }
        if let Some(&needs) = self.truly_needs.get(&model)
            && placement.iter().any(|share| share.bytes < needs)
        {
            let early = Span(self.random.below(load.0));
            return self.push(at + early, Due::OutOfMemory(replica, needs));
        }
        if self.conditions.growth && self.random.chance(300) {
            let later = Span(self.random.below(HOUR_MS / 4));
            self.push(at + later, Due::Grows(replica));
        }
        match self.random.below(100) {
            0..=9 => {
                let early = Span(self.random.below(load.0));
                self.push(at + early, Due::Crash(replica));
            }
            10..=12 => {}
            13..=19 => {
                self.push(at + load, Due::Ready(replica));
                let later = Span(self.random.below(HOUR_MS / 4));
                self.push(at + load + later, Due::Crash(replica));
            }
            20..=26 => {
                self.push(at + load, Due::Ready(replica));
                let kind = self.random.below(3);
                self.push(at + load + Span(5_000), Due::Lie(replica, kind));
            }
            _ => self.push(at + load, Due::Ready(replica)),
        }
    }

    pub(super) fn is_ready(&mut self, at: Time, replica: ReplicaId) {
        let Some(process) = self.processes.get(&replica).filter(|process| process.runs) else {
            return;
        };
        let (model, shares) = (process.model, process.shares.clone());
        self.referee.ready(replica, at);
        self.feed(at, Event::ReplicaReady { replica });
        if self.conditions.learns && self.random.chance(300) {
            let peak = Bytes(shares[0].bytes.0 / 1000 * self.random.between(700, 1_050));
            if let Some(process) = self.processes.get_mut(&replica) {
                process.measured = Some((at, peak));
            }
            let of = self.measured_as(model, &shares);
            let measurements = peak_after_reading(self.measurements.peaks.get(&of).copied(), peak);
            self.keeps_peak(at, of, measurements);
        }
    }

    fn measured_as(&mut self, model: ModelId, shares: &[Share]) -> (ModelId, u32, KindId) {
        let kind = self.device(shares[0].device).constant.kind;
        (model, shares.len() as u32, kind)
    }

    fn keeps_peak(&mut self, at: Time, of: (ModelId, u32, KindId), measurements: Bytes) {
        self.measurements.peaks.insert(of, measurements);
        let (model, devices, kind) = of;
        self.feed(
            at,
            Event::ModelMeasured {
                model,
                devices,
                kind,
                bytes_per_device: measurements,
            },
        );
    }

    /// The process is gone, and the pool is informed. A measured peak below the kept one lets the kept one decay.
    pub(super) fn exits(&mut self, at: Time, replica: ReplicaId, exit: Exit) {
        let Some(process) = self.processes.get(&replica).cloned() else {
            return;
        };
        self.process_gone(at, replica);
        self.feed(at, Event::ReplicaExited { replica, exit });
        let Some((ready, peak)) = process.measured else {
            return;
        };
        let of = self.measured_as(process.model, &process.awake);
        let ready_for = Some(at.since(ready));
        let measurements = self.measurements.peaks.get(&of).copied();
        let faded =
            measurements.and_then(|measurements| peak_after_exit(measurements, peak, ready_for));
        if let Some(faded) = faded.filter(|faded| Some(*faded) != measurements) {
            self.report.faded += 1;
            self.keeps_peak(at, of, faded);
        }
    }

    /// The process ends on its own.
    pub(super) fn dies(&mut self, at: Time, replica: ReplicaId, exit: Exit) {
        if self.processes.contains_key(&replica) {
            self.report.crashes += 1;
            self.exits(at, replica, exit);
        }
    }

    pub(super) fn runs_out_of_memory(&mut self, at: Time, replica: ReplicaId, needs: Bytes) {
        let message = "CUDA out of memory".to_owned();
        let needed = self.random.chance(500).then_some(needs);
        if self.processes.contains_key(&replica) {
            self.report.ran_out_of_memory += 1;
        }
        self.dies(at, replica, Exit::OutOfMemory { message, needed });
    }

    /// Requests inside a process that is gone end with it. Its memory is returned gradually.
    pub(super) fn process_gone(&mut self, at: Time, replica: ReplicaId) {
        let process = self.processes.remove(&replica);
        let shares = process.map(|process| process.shares).unwrap_or_default();
        let mut lingers = Vec::new();
        for share in &shares {
            let bytes = self.device(share.device).ends(replica, at);
            if !self.device(share.device).measured {
                continue;
            }
            lingers.push((share.device, bytes));
            // Most memory is returned within a second, some takes longer, and some is never returned.
            let late = match self.random.below(100) {
                _ if self.fairness.is_some() => Some(self.random.below(8_000)),
                0..=59 => Some(self.random.below(1_000)),
                60..=94 => Some(self.random.below(15_000)),
                _ => None,
            };
            let late = late.unwrap_or(HOUR_MS * 12);
            self.push(at + Span(late), Due::Returned(share.device, replica));
            let hardware = self.device(share.device);
            if !core::mem::replace(&mut hardware.settles, true) {
                let period = self.conditions.settle_period;
                self.push(at + period, Due::Reading(share.device, true));
            }
        }
        self.referee.process_ended(replica, at, &lingers);
        let inside: Vec<Ticket> = self
            .world
            .seats
            .iter()
            .filter(|(_, on)| **on == replica)
            .map(|(&ticket, _)| ticket)
            .collect();
        for ticket in inside {
            self.world.end(ticket, at);
        }
        self.world.gates.remove(&replica);
    }

    /// The fault: a gate with requests inside reports that it is empty, which makes the pool stop its replica.
    pub(super) fn lie_about_gates(&mut self) {
        let closed: Vec<ReplicaId> = self
            .world
            .gates
            .iter()
            .filter(|(_, gate)| gate.closed && gate.in_flight > 0)
            .map(|(&id, _)| id)
            .collect();
        for replica in closed {
            let now = self.world.now;
            let response = self.world.pool.step(now, Event::Drained { replica });
            for action in response.actions {
                let in_flight = self
                    .world
                    .gates
                    .get(&replica)
                    .map_or(0, |gate| gate.in_flight);
                self.referee.action(now, &action, |_| in_flight);
            }
        }
    }

    pub(super) fn carry_out(&mut self, at: Time, action: &Action) {
        match action {
            Action::Grant { ticket, .. } => {
                self.report.granted += 1;
                self.waiting.remove(ticket);
                self.is_served(at, *ticket);
                if let Some(fairness) = &mut self.fairness {
                    fairness.granted(at, *ticket, &mut self.report.broken);
                }
                if self.fault == Some(Fault::AnsweredTwice) && self.random.chance(10) {
                    let again = action.clone();
                    self.referee.action(at, &again, |_| 0);
                }
            }
            Action::Refuse { ticket, refusal } => {
                self.report.refused += 1;
                self.waiting.remove(ticket);
                if let Some(fairness) = &mut self.fairness {
                    fairness.refused(*ticket, refusal, &mut self.report.broken);
                }
            }
            Action::Launch {
                replica,
                model,
                placement,
                ..
            } => self.launches(at, *replica, *model, placement),
            Action::Stop { replica, grace, .. } => {
                let Some(process) = self.processes.get_mut(replica) else {
                    return;
                };
                process.runs = false;
                let slow = self.random.below(grace.0 + 500);
                self.push(at + Span(slow), Due::Gone(*replica));
                if self.fault == Some(Fault::StoppingCountsAsFree) {
                    self.world.gates.remove(replica);
                    let exit = Exit::Requested;
                    let replica = *replica;
                    self.feed(at, Event::ReplicaExited { replica, exit });
                }
            }
            Action::Fetch { model } => self.fetches(at, *model),
            Action::EndFetch { model } => self.fetch_is_to_end(at, *model),
            Action::Park { replica, .. } => self.parks(at, *replica),
            Action::Wake { replica, .. } => self.wakes(at, *replica),
            Action::Save { order, .. } => {
                let slow = self.random.below(200);
                self.push(at + Span(slow), Due::Saved(*order));
            }
            Action::Settle { .. } => self.report.settled += 1,
            Action::Record(record) if record.kind == RecordKind::Evict => {
                self.report.evictions += 1;
            }
            Action::Finished => self.report.finished = true,
            _ => {}
        }
    }
}

/// A process that is really running.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub model: ModelId,
    /// False once it has been ordered to stop.
    pub runs: bool,
    /// Its shares now, and when it is awake.
    pub shares: Vec<Share>,
    pub awake: Vec<Share>,
    /// The time it became ready, and the peak measured then.
    pub measured: Option<(Time, Bytes)>,
}
