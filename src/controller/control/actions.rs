//! Carries out the pool's actions: one arm per action, with no conditions. Outcomes come back as events, immediately from a gate,
//! later from a process or the store.

use std::time::Duration;

use super::state::Control;
use crate::gates::{CutReason, Giver, Minute};
use crate::journal::{Job, NamedWish};
use pool::{Action, Event, Outcome, Record, RecordKind, Span, Wish};

impl Control {
    /// Carries out the action. Returns the event with its result, if it is known in the same turn.
    pub(super) fn execute(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::Grant { ticket, replica } => {
                let request = self.seats.remove(&ticket);
                if let Some(request) = &request {
                    let now = self.timers.turned();
                    self.forecasts.seated(ticket, request, now);
                }
                let user = request.as_ref().map(|request| request.user);
                let user = user.unwrap_or_default();
                let came = request.as_ref().map(|request| request.came);
                let waited = came.map_or(Span::ZERO, |came| self.timers.turned().since(came));
                let gate = self.engines.gate(replica);
                let lease = gate.map(|gate| gate.enter_granted(&user, waited));
                if let (Some(request), Some(lease)) = (request, lease) {
                    if let Some(route) = self.publishing.route(request.model) {
                        route.arrivals.waited(request.came, self.timers.turned());
                    }
                    // If the client has left, dropping the lease frees the seat.
                    let _ = request.reply.send(Ok(lease));
                }
            }
            Action::Refuse { ticket, refusal } => {
                if let Some(request) = self.seats.remove(&ticket) {
                    let now = self.timers.turned();
                    let refusal = self.forecasts.retry(request.model, refusal, now);
                    let _ = request.reply.send(Err(refusal));
                }
            }
            Action::Launch {
                replica,
                model,
                placement,
                ..
            } => {
                self.load_timeline.launched(replica, self.timers.turned());
                return self.launch(replica, model, &placement);
            }
            Action::Fetch { model } => return self.fetch(model),
            Action::EndFetch { model } => self.fetches.cancel(model),
            Action::Park { replica, .. } => return self.park(replica),
            Action::Wake { replica, deadline } => {
                self.load_timeline.launched(replica, self.timers.turned());
                return self.wake_engine(replica, deadline);
            }
            Action::SetGate {
                replica,
                gate: mode,
            } => {
                if let Some(gate) = self.engines.gate(replica) {
                    gate.set(mode);
                }
            }
            Action::CloseGate {
                replica,
                if_idle_at,
            } => {
                let closed = self
                    .engines
                    .gate(replica)
                    .map_or(Ok(0), |gate| gate.close(if_idle_at));
                return Some(match closed {
                    Ok(in_flight) => Event::GateClosed { replica, in_flight },
                    Err(reading) => Event::GateBusy { reading },
                });
            }
            Action::Stop {
                replica,
                grace,
                reason,
            } => {
                if let Some(gate) = self.engines.gate(replica) {
                    gate.cut(CutReason::Stopped(reason));
                }
                self.engines.stop(replica, Duration::from_millis(grace.0));
                for node in self.nodes_with(replica) {
                    self.stop_on(node, replica, grace);
                }
            }
            Action::Disown { node, replica } => self.disown(node, replica),
            Action::RequestNodes { demands, shape } => self.cluster.request(&demands, shape),
            Action::CancelNode { demand } => self.cluster.cancel(demand),
            Action::ReleaseNode { node } => {
                if let Some(name) = self.nodes.name(node) {
                    self.cluster.release(name);
                }
            }
            Action::Save { order, wish } => {
                let wish = self.named(wish);
                self.journal.write(Job::Wish {
                    order: Some(order),
                    wish,
                });
            }
            Action::Keep { wish } => {
                let wish = self.named(wish);
                self.journal.write(Job::Wish { order: None, wish });
            }
            Action::Settle { order, outcome } => {
                if let Outcome::Refused { refusal, .. } = &outcome {
                    tracing::info!(%order, %refusal, "order refused");
                }
                // A reset forgets figures.
                self.remember_shapes();
                self.orders.settle(order, outcome);
            }
            Action::Record(mut record) => {
                let giver = record.order.and_then(|order| self.orders.giver(order));
                record.asked_by = record.asked_by.or(giver.map(|giver| giver.key));
                record.reason.push_str(giver.map_or("", Giver::origin));
                let groups = self.pool.groups();
                record.group = record.asked_by.and_then(|key| groups.path(key));
                log(&record);
                self.note_load(&record);
                self.remember_places(&record);
                self.journal.write(Job::Record(record));
            }
            Action::Finished => self.finished = true,
        }
        None
    }

    fn note_load(&self, record: &Record) {
        let devices = || {
            let snapshot = self.publishing.snapshot.load();
            let shares = record.placement.iter();
            shares
                .map(|share| snapshot.device_name(share.device))
                .collect()
        };
        self.load_timeline.record(record, devices);
    }

    /// Records the final totals, which are kept even if another process takes over.
    pub(crate) fn record_final_sums(&mut self) {
        for record in self.pool.last_sums() {
            log(&record);
            self.journal.write(Job::Record(record));
        }
        self.remember();
        let minute = Minute::from_time(self.clock.now());
        self.keep_usage(minute);
        self.keep_ledger(minute);
    }

    fn named(&self, wish: Wish) -> NamedWish {
        match wish {
            Wish::Override { model, over } => NamedWish::Override {
                model: self.models.name(model),
                over,
            },
            Wish::Load { model, wish } => NamedWish::Load {
                model: self.models.name(model),
                wish,
            },
            Wish::LoadAndOverride { model, wish, over } => NamedWish::LoadAndOverride {
                model: self.models.name(model),
                wish,
                over,
            },
            Wish::ForgetLoads { before } => NamedWish::ForgetLoads { before },
            Wish::Cordon { device, cordon } => NamedWish::Cordon {
                device: self.devices.key(device),
                cordon,
            },
            // Shares the keys of devices, which never start with this prefix.
            Wish::DrainNode { name, drain } => NamedWish::Cordon {
                device: format!("{NODE_KEY}{name}"),
                cordon: drain,
            },
        }
    }
}

/// Prefix of a node's name in the store's table of cordons, where a device has its own key.
pub(super) const NODE_KEY: &str = "node:";

/// Logs one line per real decision.
fn log(record: &Record) {
    let who = match (&record.model, record.replica) {
        (Some(model), Some(replica)) => format!("{model} ({replica})"),
        (Some(model), None) => model.clone(),
        (None, _) => "the pool".to_owned(),
    };
    let kind = record.kind.name();
    let reason = &record.reason;
    match record.kind {
        RecordKind::LoadFailed | RecordKind::Crash => tracing::warn!("{kind} {who}: {reason}"),
        _ => tracing::info!("{kind} {who}: {reason}"),
    }
}
