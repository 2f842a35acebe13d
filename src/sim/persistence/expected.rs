//! The test's own record of administrators' confirmed orders: which order set what on each model, in which sequence, and how it
//! ended. It knows the rules (D1, P1, M7), but not the pool's implementation.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::disk::{Disk, FIELDS, Field, field};
use pool::{
    Command, Cordon, DeviceId, LoadOrder, ModelId, OrderId, Outcome, Override, OverrideChange,
    PoolView, Priority, Span, Time,
};

/// The order that set the value, if it may still fail, and the value.
type Setting = (Option<OrderId>, Option<u64>);

#[derive(Clone, Debug, Default)]
pub(super) struct ExpectedState {
    /// The settings of each field; the last one is in effect. Settings of a failed load are removed.
    settings: BTreeMap<(ModelId, Field), Vec<Setting>>,
    /// Loads that were accepted and have not ended.
    loads: BTreeMap<ModelId, OrderId>,
    cordons: BTreeMap<DeviceId, Cordoned>,
    received: BTreeMap<OrderId, ReceivedOrder>,
    /// Numbers the events, to determine their order.
    sequence: u64,
    pub broken: Vec<String>,
}

#[derive(Clone, Debug)]
struct ReceivedOrder {
    command: Command,
    at: Time,
    nth: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cordoned {
    is: bool,
    failed: bool,
    lost: bool,
    /// The number of the last event or order that decided it.
    nth: u64,
}

impl ExpectedState {
    pub fn received(&mut self, order: OrderId, command: Command, at: Time) {
        self.sequence += 1;
        let nth = self.sequence;
        self.received
            .insert(order, ReceivedOrder { command, at, nth });
    }

    /// The order's wish is confirmed.
    pub fn accepted(&mut self, order: OrderId) {
        let Some(received) = self.received.get(&order).cloned() else {
            return self
                .broken
                .push(format!("{order} is accepted and was never given"));
        };
        match received.command {
            Command::Set { model, change } => self.sets(order, model, &change),
            Command::Load(load) => {
                self.sets(order, load.model, &change_of(&load, received.at));
                self.loads.insert(load.model, order);
            }
            Command::Unload { model, .. } => {
                self.loads.remove(&model);
            }
            Command::Cleanup { .. } | Command::Reset => self.loads.clear(),
            Command::Cordon { device, .. } => self.cordon(device, received.nth, true),
            Command::Uncordon { device } => self.cordon(device, received.nth, false),
            // The devices of this world have no nodes to drain.
            Command::DrainNode { .. }
            | Command::UndrainNode { .. }
            | Command::Reopen
            | Command::Shutdown { .. } => {}
        }
    }

    fn sets(&mut self, order: OrderId, model: ModelId, change: &OverrideChange) {
        let before = Override {
            priority: self
                .current(model, Field::Priority)
                .map(|value| Priority(value as u32)),
            keep_hot: self.current(model, Field::KeepHot).map(Span),
            expires: self.current(model, Field::Expires).map(Time),
        };
        let over = change.on(&before);
        let named = [
            change.priority.is_some(),
            change.keep_hot.is_some(),
            // A lease ends with the last of its settings.
            change.expires.is_some() || over.expires != before.expires,
        ];
        for (which, is_named) in FIELDS.into_iter().zip(named) {
            if is_named {
                let settings = self.settings.entry((model, which)).or_default();
                settings.push((Some(order), field(&over, which)));
            }
        }
    }

    /// A device that failed after the order came stays out of service.
    fn cordon(&mut self, device: DeviceId, nth: u64, is: bool) {
        let cordon = self.cordons.entry(device).or_default();
        if nth > cordon.nth {
            let lost = cordon.lost && is;
            *cordon = Cordoned {
                is,
                failed: false,
                lost,
                nth,
            };
        }
    }

    /// The first failure is the cause, unless the store is writing the end of the cordon.
    pub fn device_fails(&mut self, device: DeviceId, lost: bool, is_ending: bool) {
        self.sequence += 1;
        let nth = self.sequence;
        let cordon = self.cordons.entry(device).or_default();
        if !cordon.is || is_ending || lost && !(cordon.failed && cordon.lost) {
            let lost = cordon.lost || lost;
            *cordon = Cordoned {
                is: true,
                failed: true,
                lost,
                nth,
            };
        }
    }

    pub fn settled(&mut self, order: OrderId, outcome: &Outcome) {
        let received = self
            .received
            .get(&order)
            .map(|received| received.command.clone());
        let Some(Command::Load(load)) = received else {
            return;
        };
        let was_accepted = self.loads.get(&load.model) == Some(&order);
        if was_accepted {
            self.loads.remove(&load.model);
        }
        let superseded = matches!(
            outcome,
            Outcome::Refused {
                refusal: pool::Refusal::Superseded,
                ..
            }
        );
        if matches!(outcome, Outcome::Refused { .. }) && !superseded {
            for which in FIELDS {
                if let Some(settings) = self.settings.get_mut(&(load.model, which)) {
                    settings.retain(|(by, _)| *by != Some(order));
                }
            }
        }
    }

    /// The model was forced out or removed from the catalogue: no order for it continues.
    pub fn load_is_over(&mut self, model: ModelId) {
        self.loads.remove(&model);
    }

    pub fn lease_ends(&mut self, model: ModelId, now: Time) {
        let ends = self.current(model, Field::Expires);
        if ends.is_none_or(|ends| ends > now.0) {
            self.broken.push(format!(
                "P1: a lease of {model} until {ends:?} ends at {now}"
            ));
        }
        for which in FIELDS {
            self.settings.remove(&(model, which));
        }
    }

    fn current(&self, model: ModelId, which: Field) -> Option<u64> {
        let last = self
            .settings
            .get(&(model, which))
            .and_then(|settings| settings.last());
        last.and_then(|(_, value)| *value)
    }

    /// After each step: confirmed settings hold in memory and, except for writes in flight, in the store.
    pub fn compare(&mut self, disk: &Disk, view: &PoolView) {
        for model in &view.models {
            let id = model.model;
            for which in FIELDS {
                let expected = self.current(id, which);
                let has = field(&model.over, which);
                if has != expected {
                    self.broken.push(format!(
                        "D1: {which:?} of {id} is {has:?}, and {expected:?} was confirmed"
                    ));
                }
                let kept = field(&disk.over(id), which);
                if kept != expected && !disk.changes(id, which) {
                    self.broken.push(format!(
                        "D1: the store holds {kept:?} as {which:?} of {id}, and {expected:?} was confirmed"
                    ));
                }
            }
            let kept = disk.loads.get(&id);
            if !disk.writes_load(id) && kept != model.wish.as_ref() {
                self.broken.push(format!(
                    "D1: the store holds {kept:?} as the load of {id}, and the pool {:?}",
                    model.wish
                ));
            }
            if let Some(order) = self.loads.get(&id)
                && kept.is_none_or(|wish| wish.replicas == 0)
            {
                self.broken.push(format!(
                    "D1: {order} is accepted and not over, and the store holds {kept:?}"
                ));
            }
        }
        for device in &view.devices {
            let expected = self
                .cordons
                .get(&device.device)
                .copied()
                .unwrap_or_default();
            let has = device.cordon.as_ref();
            if has.is_some() != expected.is
                || has.is_some_and(|cordon| cordon.failed) != expected.failed
            {
                self.broken.push(format!(
                    "M7: {} has {has:?}, and {expected:?} was confirmed",
                    device.device
                ));
            }
            let kept = disk.cordons.get(&device.device);
            if !disk.writes_cordon(device.device) && kept != has {
                self.broken.push(format!(
                    "D1: the store holds {kept:?} of {}, and the pool {has:?}",
                    device.device
                ));
            }
        }
    }

    /// A new controller knows only what the store holds.
    pub fn begin_again(&mut self, disk: &Disk) {
        self.loads = BTreeMap::new();
        self.received = BTreeMap::new();
        self.settings = BTreeMap::new();
        for (&model, over) in &disk.overrides {
            for which in FIELDS {
                let settings = vec![(None, field(over, which))];
                self.settings.insert((model, which), settings);
            }
        }
        let again = |kept: &Cordon| Cordoned {
            is: true,
            failed: kept.failed,
            lost: false,
            nth: self.sequence,
        };
        let kept = disk.cordons.iter();
        self.cordons = kept.map(|(&device, kept)| (device, again(kept))).collect();
    }
}

fn change_of(load: &LoadOrder, received: Time) -> OverrideChange {
    OverrideChange {
        priority: load.priority.map(Some),
        keep_hot: load.keep_hot.map(Some),
        expires: load.lease.map(|lease| Some(received + lease)),
    }
}
