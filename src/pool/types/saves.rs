//! The wish that the store is writing, and the order that set each setting (D1).

use alloc::collections::BTreeSet;

use crate::types::action::Wish;
use crate::types::ids::{DeviceId, ModelId, OrderId};
use crate::types::model::{LoadWish, Override, OverrideChange};

/// The order that the store is writing.
#[derive(Clone, Debug)]
pub(crate) struct Save {
    pub order: OrderId,
    pub wish: Wish,
    /// Changed while the store was writing: the stored values may be older.
    pub overrides: BTreeSet<ModelId>,
    pub loads: BTreeSet<ModelId>,
    pub cordons: BTreeSet<DeviceId>,
}

/// The order that set each part of an override; `None` if no open order set it, so nothing reverts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SettingOrders {
    pub priority: Option<OrderId>,
    pub keep_hot: Option<OrderId>,
    pub expires: Option<OrderId>,
}

/// The state before a load took effect, in case the load fails.
#[derive(Clone, Debug, Default)]
pub(crate) struct Previous {
    pub over: Override,
    pub set_by: SettingOrders,
    /// The wish to load the model or to keep it away.
    pub wish: Option<LoadWish>,
}

impl SettingOrders {
    pub(crate) fn set(&mut self, order: OrderId, change: &OverrideChange) {
        let by = Some(order);
        self.priority = change.priority.map_or(self.priority, |_| by);
        self.keep_hot = change.keep_hot.map_or(self.keep_hot, |_| by);
        self.expires = change.expires.map_or(self.expires, |_| by);
    }
}
