//! Tracks what the store should hold of administrators' wishes (D1). Orders are written one at a time, each merged with the current
//! content of the store. Other changes of a wish in the meantime are written afterwards.
//!
//! ```text
//!   order ──▶ queue ──▶ written ──▶ takes effect ──▶ (a load that fails takes back what is unchanged since)
//!                          │
//!                          └─ in the meantime: leases end, replicas leave, devices fail ──▶ written after it
//! ```

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use crate::commit::actions::Actions;
use crate::commit::order_intake::refusal_before_save;
use crate::facts::state::Pool;
use crate::types::action::{Action, Wish};
use crate::types::event::{CleanupScope, Command};
use crate::types::ids::{DeviceId, ModelId, OrderId};
use crate::types::model::{Cordon, LoadWish, OverrideChange};
use crate::types::reason::Refusal;
use crate::types::saves::{Previous, Save};

impl Pool {
    /// Queues an accepted order for the store if it changes what the store holds.
    pub(crate) fn order_accepted(&mut self, id: OrderId, actions: &mut Actions) {
        let is_kept = match &self.orders[&id].command {
            Command::Load(_)
            | Command::Set { .. }
            | Command::Reopen
            | Command::Reset
            | Command::Cordon { .. }
            | Command::Uncordon { .. }
            | Command::DrainNode { .. }
            | Command::UndrainNode { .. } => true,
            Command::Unload { replica, .. } => replica.is_none(),
            Command::Cleanup { scope, .. } => *scope == CleanupScope::All,
            Command::Shutdown { .. } => false,
        };
        if !is_kept {
            self.order_begins(id, actions);
        } else if self.orders.are_saving() {
            self.orders.queue(id);
        } else {
            self.save(id, actions);
        }
    }

    fn save(&mut self, id: OrderId, actions: &mut Actions) {
        let Some(wish) = self.wish_of(id) else {
            return self.order_begins(id, actions);
        };
        self.orders.begin_save(Save {
            order: id,
            wish: wish.clone(),
            overrides: BTreeSet::new(),
            loads: BTreeSet::new(),
            cordons: BTreeSet::new(),
        });
        self.orders.get_mut(&id).expect("accepted").wish = Some(wish.clone());
        actions.push(Action::Save { order: id, wish });
    }

    /// The content of the store after the order takes effect.
    fn wish_of(&self, id: OrderId) -> Option<Wish> {
        let order = &self.orders[&id];
        let over_of = |model: &ModelId| order.change.on(&self.models[model].over);
        Some(match &order.command {
            Command::Load(load) => {
                let (model, over) = (load.model, over_of(&load.model));
                let wish = LoadWish {
                    replicas: self.replicas_wanted(load),
                    devices: load.devices,
                    since: order.since,
                };
                // The override may be the current one, and its lease may end before the order takes effect.
                if order.change == OverrideChange::default() {
                    let wish = Some(wish);
                    Wish::Load { model, wish }
                } else {
                    Wish::LoadAndOverride { model, wish, over }
                }
            }
            Command::Unload { model, .. } => {
                let away = LoadWish {
                    replicas: 0,
                    devices: None,
                    since: order.since,
                };
                Wish::Load {
                    model: *model,
                    wish: self.models.hot().contains(model).then_some(away),
                }
            }
            Command::Set { model, .. } => Wish::Override {
                model: *model,
                over: over_of(model),
            },
            Command::Cleanup { begun, .. } => Wish::ForgetLoads { before: *begun },
            Command::Reset => Wish::ForgetLoads { before: None },
            Command::Cordon {
                device,
                reason,
                until,
                ..
            } => Wish::Cordon {
                device: *device,
                cordon: Some(Cordon {
                    reason: reason.clone(),
                    since: order.since,
                    until: *until,
                    failed: false,
                }),
            },
            Command::Uncordon { device } => Wish::Cordon {
                device: *device,
                cordon: None,
            },
            Command::DrainNode {
                node,
                reason,
                until,
                ..
            } => Wish::DrainNode {
                name: self.node_name(*node),
                drain: Some(Cordon {
                    reason: reason.clone(),
                    since: order.since,
                    until: *until,
                    failed: false,
                }),
            },
            Command::UndrainNode { node } => Wish::DrainNode {
                name: self.node_name(*node),
                drain: None,
            },
            Command::Reopen | Command::Shutdown { .. } => return None,
        })
    }

    /// The store has written the order's wish: it takes effect, and the next one is written.
    pub(crate) fn order_saved(&mut self, id: OrderId, actions: &mut Actions) {
        if !self.orders.is_saving(id) {
            return;
        }
        self.order_begins(id, actions);
        let save = self.orders.end_save().expect("just seen");
        self.write_what_changed(&save, Some(&save.wish), actions);
        self.save_next(actions);
    }

    /// The store could not write the wish, so nothing changes. The exception is the evening cleanup, which empties the pool even
    /// then (E1); its wish is written as soon as possible.
    pub(crate) fn save_failed(&mut self, id: OrderId, message: String, actions: &mut Actions) {
        if !self.orders.is_saving(id) {
            return;
        }
        let is_cleanup = matches!(self.orders[&id].command, Command::Cleanup { .. });
        if is_cleanup {
            self.order_begins(id, actions);
        } else {
            self.refuse_order(id, Refusal::NotSaved { message }, None, actions);
        }
        let save = self.orders.end_save().expect("just seen");
        if is_cleanup {
            // A cleanup whose wish could not be stored still forgets loads.
            actions.push(Action::Keep {
                wish: save.wish.clone(),
            });
        }
        self.write_what_changed(&save, None, actions);
        self.save_next(actions);
    }

    /// Saves the next queued order. It is checked again, because it may have become impossible while it was queued.
    fn save_next(&mut self, actions: &mut Actions) {
        while let Some(id) = self.orders.next_to_save() {
            match refusal_before_save(self, id, &self.orders[&id]) {
                Some((refusal, plan)) => self.refuse_order(id, refusal, plan, actions),
                None => self.save(id, actions),
            }
        }
    }

    fn write_what_changed(&mut self, save: &Save, written: Option<&Wish>, actions: &mut Actions) {
        for &model in &save.overrides {
            let over = &self.models[&model].over;
            let is_written = match written {
                Some(
                    Wish::Override { over: stored, .. }
                    | Wish::LoadAndOverride { over: stored, .. },
                ) => stored == over,
                _ => false,
            };
            if !is_written {
                self.keep_override(model, actions);
            }
        }
        for &model in &save.loads {
            let wish = &self.models[&model].wish;
            let is_written = match written {
                Some(Wish::Load { wish: stored, .. }) => stored == wish,
                Some(Wish::LoadAndOverride { wish: stored, .. }) => Some(stored) == wish.as_ref(),
                Some(Wish::ForgetLoads { before: None }) => wish.is_none(),
                _ => false,
            };
            if !is_written {
                self.keep_load(model, actions);
            }
        }
        for &device in &save.cordons {
            self.keep_cordon(device, actions);
        }
    }

    /// Writes the model's override to the store.
    pub(crate) fn keep_override(&mut self, model: ModelId, actions: &mut Actions) {
        if let Some(save) = self.orders.saving_mut()
            && let Wish::Override { model: of, .. } | Wish::LoadAndOverride { model: of, .. } =
                &save.wish
            && *of == model
        {
            save.overrides.insert(model);
            return;
        }
        let over = self.models[&model].over.clone();
        let wish = Wish::Override { model, over };
        actions.push(Action::Keep { wish });
    }

    /// Writes to the store whether the model should be loaded.
    pub(crate) fn keep_load(&mut self, model: ModelId, actions: &mut Actions) {
        if let Some(save) = self.orders.saving_mut() {
            let is_of_it = match &save.wish {
                Wish::Load { model: of, .. } | Wish::LoadAndOverride { model: of, .. } => {
                    *of == model
                }
                Wish::ForgetLoads { .. } => true,
                Wish::Override { .. } | Wish::Cordon { .. } | Wish::DrainNode { .. } => false,
            };
            if is_of_it {
                save.loads.insert(model);
                return;
            }
        }
        let wish = self.models[&model].wish.clone();
        let wish = Wish::Load { model, wish };
        actions.push(Action::Keep { wish });
    }

    /// Writes to the store whether the device is cordoned.
    pub(crate) fn keep_cordon(&mut self, device: DeviceId, actions: &mut Actions) {
        if let Some(save) = self.orders.saving_mut()
            && let Wish::Cordon { device: of, .. } = &save.wish
            && *of == device
        {
            save.cordons.insert(device);
            return;
        }
        let cordon = self.devices.cordon_of(device).cloned();
        let wish = Wish::Cordon { device, cordon };
        actions.push(Action::Keep { wish });
    }

    /// Returns true if the device failed after the order was given. The failure is newer than the order and stays.
    pub(crate) fn failed_meanwhile(&mut self, id: OrderId, device: DeviceId) -> bool {
        let requested = self.orders[&id].since;
        let known = self.devices.get(&device);
        let cordon = known.and_then(|device| device.cordon.as_ref());
        let failed = cordon.is_some_and(|cordon| cordon.failed && cordon.since > requested);
        if let Some(save) = self.orders.saving_mut().filter(|_| failed) {
            save.cordons.insert(device);
        }
        failed
    }

    /// Applies the order's changes of the override.
    pub(crate) fn override_counts(&mut self, id: OrderId, model: ModelId) {
        let change = self.orders[&id].change.clone();
        let ordered = self.models.get_mut(&model).expect("accepted");
        let over = change.on(&ordered.over);
        // It may also have ended the lease.
        let is_other_lease = over.expires != ordered.over.expires;
        ordered.over = over;
        ordered.set_by.set(id, &change);
        if is_other_lease {
            ordered.set_by.expires = Some(id);
        }
    }

    /// Applies the order's wish to have the model loaded or kept away.
    pub(crate) fn load_counts(&mut self, id: OrderId, model: ModelId) {
        let order = self.orders.get_mut(&id).expect("accepted");
        let wish = match order.wish.clone() {
            Some(Wish::Load { wish, .. }) => wish,
            Some(Wish::LoadAndOverride { wish, .. }) => Some(wish),
            _ => None,
        };
        let ordered = self.models.get_mut(&model).expect("accepted");
        order.previous = Previous {
            over: ordered.over.clone(),
            set_by: ordered.set_by,
            wish: ordered.wish.take(),
        };
        ordered.wish = wish;
        ordered.wished_by = Some(id);
        self.models.set_restoring(model, false);
    }

    /// Reverts what a failed load set, unless it has been changed since. The wish for an earlier load returns if `restores_load`: a
    /// load that has ended is not restored.
    pub(crate) fn take_back_wishes(
        &mut self,
        id: OrderId,
        model: ModelId,
        previous: Previous,
        restores_load: bool,
        actions: &mut Actions,
    ) {
        let ordered = self.models.get_mut(&model).expect("known");
        let own = Some(id);
        let had_wish = ordered.wished_by == own;
        if had_wish {
            let returns = |wish: &LoadWish| wish.replicas == 0 || restores_load;
            ordered.wish = previous.wish.filter(returns);
            ordered.wished_by = None;
        }
        let before = ordered.over.clone();
        let (over, set_by) = (&mut ordered.over, &mut ordered.set_by);
        if set_by.priority == own {
            over.priority = previous.over.priority;
            set_by.priority = previous.set_by.priority;
        }
        if set_by.keep_hot == own {
            over.keep_hot = previous.over.keep_hot;
            set_by.keep_hot = previous.set_by.keep_hot;
        }
        if set_by.expires == own {
            over.expires = previous.over.expires;
            set_by.expires = previous.set_by.expires;
        }
        let changed = *over != before;
        if had_wish {
            self.models.set_restoring(model, false);
            self.keep_load(model, actions);
        }
        if changed {
            self.keep_override(model, actions);
        }
        self.reindex(model);
    }

    /// Writes the present state to the store again for an order that is refused after its wish was written, before it begins.
    pub(crate) fn take_back_unbegun(&mut self, id: OrderId, actions: &mut Actions) {
        match self.orders[&id].wish.clone() {
            Some(Wish::Override { model, .. }) => self.keep_override(model, actions),
            Some(Wish::Load { model, .. }) => self.keep_load(model, actions),
            Some(Wish::LoadAndOverride { model, .. }) => {
                self.keep_override(model, actions);
                self.keep_load(model, actions);
            }
            Some(Wish::ForgetLoads { .. }) => {
                let wished = self.models.iter().filter(|(_, model)| model.wish.is_some());
                let wished: Vec<ModelId> = wished.map(|(&id, _)| id).collect();
                for model in wished {
                    self.keep_load(model, actions);
                }
            }
            _ => {}
        }
    }

    /// Drops the wish to load the model or to keep it away.
    pub(crate) fn forget_wish(&mut self, model: ModelId, actions: &mut Actions) {
        let wished = self.models.get_mut(&model).expect("a wish's model stays");
        wished.wished_by = None;
        let had_one = wished.wish.take().is_some();
        self.models.set_restoring(model, false);
        if had_one {
            self.keep_load(model, actions);
        }
    }
}
