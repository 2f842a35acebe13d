//! The store, with writes in flight: they complete in order, after a delay. A killed controller finds what had been written before.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;

use pool::{Cordon, DeviceId, LoadWish, ModelId, OrderId, Override, Priority, Span, Time, Wish};

/// A stored setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Field {
    Priority,
    KeepHot,
    Expires,
}

pub(super) const FIELDS: [Field; 3] = [Field::Priority, Field::KeepHot, Field::Expires];

/// Converts a field to a number, to compare all fields in the same way.
pub(super) fn field(over: &Override, field: Field) -> Option<u64> {
    match field {
        Field::Priority => over.priority.map(|Priority(priority)| u64::from(priority)),
        Field::KeepHot => over.keep_hot.map(|Span(span)| span),
        Field::Expires => over.expires.map(|Time(time)| time),
    }
}

#[derive(Clone, Debug)]
pub(super) struct Write {
    /// The order that waits for it.
    pub order: Option<OrderId>,
    pub wish: Wish,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    pub overrides: BTreeMap<ModelId, Override>,
    pub loads: BTreeMap<ModelId, LoadWish>,
    pub cordons: BTreeMap<DeviceId, Cordon>,
    /// By node name.
    pub drains: BTreeMap<String, Cordon>,
    pub in_flight: VecDeque<Write>,
}

impl Disk {
    pub fn write(&mut self, wish: Wish) {
        match wish {
            Wish::Override { model, over } => self.override_of(model, over),
            Wish::Load { model, wish } => self.load_of(model, wish),
            Wish::LoadAndOverride { model, wish, over } => {
                self.override_of(model, over);
                self.load_of(model, Some(wish));
            }
            Wish::ForgetLoads { before: None } => self.loads.clear(),
            Wish::ForgetLoads {
                before: Some(before),
            } => self.loads.retain(|_, wish| wish.since > before),
            Wish::Cordon { device, cordon } => {
                self.cordons.remove(&device);
                self.cordons.extend(cordon.map(|cordon| (device, cordon)));
            }
            Wish::DrainNode { name, drain } => {
                self.drains.remove(&name);
                self.drains.extend(drain.map(|drain| (name, drain)));
            }
        }
    }

    fn override_of(&mut self, model: ModelId, over: Override) {
        self.overrides.insert(model, over);
    }

    fn load_of(&mut self, model: ModelId, wish: Option<LoadWish>) {
        self.loads.remove(&model);
        self.loads.extend(wish.map(|wish| (model, wish)));
    }

    pub fn over(&self, model: ModelId) -> Override {
        self.overrides.get(&model).cloned().unwrap_or_default()
    }

    /// Returns true if a write in flight will change the field, or an order's write delays others.
    pub fn changes(&self, of: ModelId, which: Field) -> bool {
        let now = field(&self.over(of), which);
        self.in_flight.iter().any(|write| match &write.wish {
            Wish::Override { model, over } | Wish::LoadAndOverride { model, over, .. } => {
                *model == of && (write.order.is_some() || field(over, which) != now)
            }
            _ => false,
        })
    }

    /// Returns true if a write in flight concerns the model's load.
    pub fn writes_load(&self, of: ModelId) -> bool {
        self.in_flight.iter().any(|write| match &write.wish {
            Wish::Load { model, .. } | Wish::LoadAndOverride { model, .. } => *model == of,
            Wish::ForgetLoads { .. } => true,
            Wish::Override { .. } | Wish::Cordon { .. } | Wish::DrainNode { .. } => false,
        })
    }

    /// Returns true if an order that uncordons the device is being written.
    pub fn uncordons(&self, of: DeviceId) -> bool {
        self.in_flight.iter().any(|write| match &write.wish {
            Wish::Cordon {
                device,
                cordon: None,
            } => *device == of && write.order.is_some(),
            _ => false,
        })
    }

    pub fn writes_cordon(&self, of: DeviceId) -> bool {
        let is_of_it =
            |write: &Write| matches!(&write.wish, Wish::Cordon { device, .. } if *device == of);
        self.in_flight.iter().any(is_of_it)
    }
}
