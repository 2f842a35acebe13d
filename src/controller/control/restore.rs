//! Restores the pool's persistent state before its first decision, and stores it again while the pool runs.

use super::actions::NODE_KEY;
use super::parts::Start;
use super::state::Control;
use crate::gates::Minute;
use crate::journal::Job;
use inventory::Inventory;
use pool::{Cordon, Event, ModelId, Record, RecordKind};

impl Control {
    /// Gives the pool its initial state before the first request: devices, models and wishes. All of it arrives in one turn, so the
    /// first decision takes everything into account (P4: of always-hot models the higher one wins).
    pub(crate) fn begin(&mut self, start: Start) -> Inventory {
        let mut events = self.devices.unread(self.devices.known().keys());
        events.push(self.devices.links(&self.devices_on(None)));
        events.extend(self.cordons_of(start.cordons));
        events.extend(self.nodes_of(start.nodes));
        events.extend(self.cluster_shapes());
        events.extend(self.cluster.remembered(&start.remembered));
        events.extend(self.take_catalog(start.catalog, start.figures.0));
        events.extend(self.remembered_costs(&start.remembered));
        for (name, numbers) in start.remembered {
            if let Some(model) = self.models.find(&name) {
                self.usage.remember(model, &numbers);
                events.push(Event::Remembered { model, numbers });
            }
        }
        for wish in start.wishes {
            // A model whose file is missing today may return with the next reload.
            let model = self.models.id(&wish.model);
            let (over, load) = (wish.over, wish.load);
            events.push(Event::WishesRestored { model, over, load });
        }
        // Placed after all events that affect whether engines can stay, and before any decision.
        let seats = self.earlier_seats.reported();
        events.extend(self.take_found(start.found, &seats));
        // A controller that has been deposed decides nothing: its loop stops, and `serve` ends this process (D4).
        if self.journal.leads() {
            self.turn_all(events);
        }
        self.account_for(self.clock.now());
        self.publish();
        start.inventory
    }

    /// The cordons of existing devices. A cordon of an absent device stays in the store until the device returns.
    fn cordons_of(&mut self, cordons: Vec<(String, Cordon)>) -> Vec<Event> {
        let mut events = Vec::new();
        for (key, cordon) in cordons {
            if let Some(name) = key.strip_prefix(NODE_KEY) {
                tracing::info!("node {name} drains: {} (N5)", cordon.reason);
                let (name, drain) = (name.to_owned(), cordon);
                events.push(Event::NodeDrainRestored { name, drain });
                continue;
            }
            match self.devices.find(&key) {
                Some(device) => {
                    let (name, reason) = (self.devices.name(device), &cordon.reason);
                    tracing::info!("device {name} is cordoned: {reason} (M7)");
                    events.push(Event::CordonRestored { device, cordon });
                }
                None => {
                    tracing::warn!(
                        device = key,
                        reason = cordon.reason,
                        "a cordoned device is not there; its cordon is kept"
                    );
                    // The device may come with a node.
                    self.nodes.keep_cordon(key, cordon);
                }
            }
        }
        events
    }

    /// Stores the use since the last call under this minute, for replays.
    pub(crate) fn keep_usage(&mut self, minute: Minute) {
        let minutes = self.usage.take_minutes(&self.publishing, minute);
        if !minutes.is_empty() {
            self.journal.write(Job::Usage(minutes));
        }
    }

    /// Stores the remembered demand of models that changed since the last call.
    pub(crate) fn remember(&mut self) {
        let models: Vec<ModelId> = self.models.facts().keys().copied().collect();
        for model in models {
            self.remember_model(model);
        }
        self.remember_shapes();
        self.measure_all_tokens();
    }

    /// Stores the measured figures of node sizes that have changed since the last call.
    pub(super) fn remember_shapes(&mut self) {
        let pool = &self.pool;
        let changed = self.cluster.remember(|shape| pool.remembered_shape(shape));
        for (model, numbers) in changed {
            self.journal.write(Job::Remembered { model, numbers });
        }
    }

    /// The same for a model whose replicas on nodes, or for batches, have changed: the next controller must know them (N8, B5).
    pub(super) fn remember_places(&mut self, record: &Record) {
        let has_changed = matches!(
            record.kind,
            RecordKind::Ready | RecordKind::Adopt | RecordKind::Gone | RecordKind::Crash
        );
        if !has_changed {
            return;
        }
        let name = record.model.as_deref();
        let model = name.and_then(|name| self.models.find(name));
        let has_nodes = !self.nodes.is_empty();
        let model = model.filter(|model| has_nodes || self.pool.has_batch_replicas(*model));
        if let Some(model) = model {
            self.remember_model(model);
        }
        if has_nodes {
            self.remember_shapes();
        }
    }

    fn remember_model(&mut self, model: ModelId) {
        let Some(numbers) = self.pool.remembered(model) else {
            return;
        };
        if self.usage.remember(model, &numbers) {
            self.journal.write(Job::Remembered {
                model: self.models.name(model),
                numbers,
            });
        }
    }
}
