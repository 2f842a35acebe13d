//! Administrators' orders in progress, those on their way to the store, and wishes from before a restart for models that are not
//! known yet (D1). Reads like a map of the orders. Makes no choices.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Deref;

use crate::types::action::Wish;
use crate::types::ids::{DeviceId, ModelId, OrderId};
use crate::types::model::{LoadWish, Override};
use crate::types::order::Order;
use crate::types::saves::Save;

#[derive(Clone, Debug, Default)]
pub(crate) struct Orders {
    open: BTreeMap<OrderId, Order>,
    /// The order that the store is writing.
    saving: Option<Save>,
    /// Orders that wait for the store.
    queue: VecDeque<OrderId>,
    /// Orders that have begun in this step.
    begun: Vec<OrderId>,
    /// Wishes from before a restart for models that the catalogue does not have yet.
    unmet: BTreeMap<ModelId, (Override, Option<LoadWish>)>,
}

impl Deref for Orders {
    type Target = BTreeMap<OrderId, Order>;

    fn deref(&self) -> &Self::Target {
        &self.open
    }
}

impl Orders {
    pub fn open(&mut self, id: OrderId, order: Order) {
        self.open.insert(id, order);
    }

    pub fn close(&mut self, id: OrderId) -> Option<Order> {
        self.open.remove(&id)
    }

    pub fn get_mut(&mut self, id: &OrderId) -> Option<&mut Order> {
        self.open.get_mut(id)
    }

    /// The store holds the order's wish, so the order begins.
    pub fn begin(&mut self, id: OrderId) {
        if let Some(order) = self.open.get_mut(&id) {
            order.saved = true;
            self.begun.push(id);
        }
    }

    /// Returns true if the order has begun in this step.
    pub fn begins(&self, id: OrderId) -> bool {
        self.begun.contains(&id)
    }

    /// The open orders that have begun in this step.
    pub fn begun(&self) -> impl Iterator<Item = (OrderId, &Order)> {
        let open = |id: &OrderId| Some((*id, self.open.get(id)?));
        self.begun.iter().filter_map(open)
    }

    pub fn end_step(&mut self) {
        self.begun.clear();
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Order> {
        self.open.values_mut()
    }
}

/// The store writes one order at a time.
impl Orders {
    pub fn is_saving(&self, id: OrderId) -> bool {
        self.saving.as_ref().is_some_and(|save| save.order == id)
    }

    /// The order that the store is writing.
    pub fn saving(&self) -> Option<OrderId> {
        self.saving.as_ref().map(|save| save.order)
    }

    pub fn saving_mut(&mut self) -> Option<&mut Save> {
        self.saving.as_mut()
    }

    /// Returns true if the store is writing that the device serves again.
    pub fn uncordons(&self, of: DeviceId) -> bool {
        self.saving.as_ref().is_some_and(
            |save| matches!(&save.wish, Wish::Cordon { device, cordon: None } if *device == of),
        )
    }

    /// Returns true if an order has to wait for others before it is written.
    pub fn are_saving(&self) -> bool {
        self.saving.is_some() || !self.queue.is_empty()
    }

    pub fn queue(&mut self, id: OrderId) {
        self.queue.push_back(id);
    }

    /// Takes the next order to write; `None` while one is being written.
    pub fn next_to_save(&mut self) -> Option<OrderId> {
        match self.saving {
            Some(_) => None,
            None => self.queue.pop_front(),
        }
    }

    pub fn begin_save(&mut self, save: Save) {
        self.saving = Some(save);
    }

    pub fn end_save(&mut self) -> Option<Save> {
        self.saving.take()
    }
}

/// Wishes for models that are not known yet.
impl Orders {
    pub fn keep_unmet(&mut self, model: ModelId, over: Override, load: Option<LoadWish>) {
        self.unmet.insert(model, (over, load));
    }

    pub fn take_unmet(&mut self, model: ModelId) -> Option<(Override, Option<LoadWish>)> {
        self.unmet.remove(&model)
    }

    pub fn forget_unmet_loads(&mut self, outlives: impl Fn(&LoadWish) -> bool) {
        for (_, load) in self.unmet.values_mut() {
            *load = load.take().filter(&outlives);
        }
    }
}
