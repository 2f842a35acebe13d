//! How orders are accepted, kept and closed: the facts side of `orders`.

use super::action::{Action, Outcome, RecordKind, Wish};
use super::decision::{Plan, Prospect};
use super::event::{CleanupScope, Command, LoadOrder};
use super::ids::{ModelId, OrderId, ReplicaId, Span};
use super::model::{Cordon, LoadWish, Override};
use super::orders::{self, Order};
use super::place;
use super::reason::{Refusal, StopReason};
use super::replica::Phase;
use super::state::Pool;

impl Pool {
    /// An order that cannot be carried out is refused before anything is kept; any other is kept
    /// first and carried out when the store says so (D1).
    pub(super) fn order_asked(&mut self, id: OrderId, command: Command, actions: &mut Vec<Action>) {
        let refusal = self.refuses(id, &command);
        let mut order = Order::new(command.clone(), self.now);
        if let Some((refusal, plan)) = refusal {
            self.orders.insert(id, order);
            self.refuse_order(id, refusal, plan, actions);
            return;
        }
        let wish = match &command {
            Command::Load(load) => {
                order.previous = self.models[&load.model].over.clone();
                Some(self.load_wish(load))
            }
            Command::Unload {
                model,
                replica: None,
                ..
            } => {
                let kept_away = self.hot.contains(model);
                let wish = kept_away.then_some(LoadWish {
                    replicas: 0,
                    devices: None,
                    since: self.now,
                });
                Some(Wish::Load {
                    model: *model,
                    wish,
                })
            }
            Command::Set { model, over } => Some(Wish::Override {
                model: *model,
                over: over.clone(),
            }),
            Command::Cleanup {
                scope: CleanupScope::All,
                begun,
                ..
            } => Some(Wish::ForgetLoads { before: *begun }),
            Command::Reset => Some(Wish::ForgetLoads { before: None }),
            Command::Cordon {
                device,
                reason,
                until,
                ..
            } => Some(Wish::Cordon {
                device: *device,
                cordon: Some(Cordon {
                    reason: reason.clone(),
                    since: self.now,
                    until: *until,
                    failed: false,
                }),
            }),
            Command::Uncordon { device } => Some(Wish::Cordon {
                device: *device,
                cordon: None,
            }),
            Command::Unload { .. }
            | Command::Cleanup { .. }
            | Command::Reopen
            | Command::Shutdown { .. } => None,
        };
        order.wish = wish.clone();
        self.orders.insert(id, order);
        match wish {
            Some(wish) => actions.push(Action::Save { order: id, wish }),
            None => self.order_saved(id, actions),
        }
    }

    fn refuses(&self, id: OrderId, command: &Command) -> Option<(Refusal, Option<Box<Plan>>)> {
        let model = match command {
            Command::Load(LoadOrder { model, .. })
            | Command::Unload { model, .. }
            | Command::Set { model, .. } => *model,
            Command::Cordon { device, .. } | Command::Uncordon { device } => {
                let Some(known) = self.devices.get(device) else {
                    return Some((Refusal::NoSuchDevice { device: *device }, None));
                };
                let serves = known.cordon.is_none() && matches!(command, Command::Uncordon { .. });
                let device = known.name.clone();
                return serves.then_some((Refusal::NotCordoned { device }, None));
            }
            _ => return None,
        };
        let Some(it) = self.models.get(&model).filter(|it| !it.removed) else {
            return Some((Refusal::UnknownModel, None));
        };
        match command {
            Command::Load(_) if self.closing.is_some() => Some((Refusal::ShuttingDown, None)),
            Command::Load(load) => {
                let have = self
                    .nodes
                    .values()
                    .map(|node| node.len() as u32)
                    .max()
                    .unwrap_or(0);
                if let Some(asked) = load.devices.filter(|asked| *asked > have) {
                    return Some((Refusal::TooManyDevices { asked, have }, None));
                }
                let most = it.spec.devices_max;
                if let Some(asked) = load.devices.filter(|asked| *asked > most) {
                    return Some((Refusal::EngineTakesFewer { asked, most }, None));
                }
                if self.live(it) + it.planned.len() > 0 {
                    return None;
                }
                let plan = place::explain(self, &orders::ask_of(self, load, self.now, id));
                let refusal = plan
                    .refusal
                    .clone()
                    .filter(|_| plan.prospect > Prospect::Soon)?;
                Some((refusal, Some(Box::new(plan))))
            }
            Command::Unload {
                replica: Some(replica),
                ..
            } if !it.replicas.contains(replica) => {
                Some((Refusal::NoSuchReplica { replica: *replica }, None))
            }
            Command::Unload { .. }
                if it.replicas.is_empty() && it.planned.is_empty() && it.fetch.is_none() =>
            {
                Some((Refusal::NotLoaded, None))
            }
            _ => None,
        }
    }

    fn load_wish(&self, load: &LoadOrder) -> Wish {
        let model = load.model;
        let mut over = self.models[&model].over.clone();
        over.priority = load.priority.or(over.priority);
        over.keep_hot = load.keep_hot.or(over.keep_hot);
        over.expires = load.lease.map(|lease| self.now + lease).or(over.expires);
        let wish = LoadWish {
            replicas: load.replicas,
            devices: load.devices,
            since: self.now,
        };
        if over == self.models[&model].over {
            Wish::Load {
                model,
                wish: Some(wish),
            }
        } else {
            Wish::LoadAndOverride { model, wish, over }
        }
    }

    /// The order's wish is durable: now it counts.
    pub(super) fn order_saved(&mut self, id: OrderId, actions: &mut Vec<Action>) {
        let Some(order) = self.orders.get_mut(&id).filter(|order| !order.saved) else {
            return;
        };
        order.saved = true;
        match self.orders[&id].command.clone() {
            Command::Load(load) => self.load_begins(id, &load, actions),
            Command::Unload {
                model,
                replica,
                now,
            } => {
                let drain = if now {
                    Span::ZERO
                } else {
                    self.limits.unload_drain
                };
                self.supersede_loads(Some(model), id, actions);
                let it = self.models.get_mut(&model).expect("accepted");
                if replica.is_none() {
                    it.restoring = false;
                    let away = LoadWish {
                        replicas: 0,
                        devices: None,
                        since: self.now,
                    };
                    it.wish = self.hot.contains(&model).then_some(away);
                    self.restoring.remove(&model);
                    self.fetch_is_to_end(model, StopReason::Unload { order: id });
                }
                let targets = self.models[&model].replicas.iter().copied();
                let targets = targets
                    .filter(|it| replica.is_none_or(|only| only == *it))
                    .collect();
                self.aim(id, targets, drain);
                self.touch_model(model);
                self.promises_changed = true;
            }
            Command::Cordon { device, now, .. } => self.cordon_begins(id, device, now, actions),
            Command::Uncordon { device } => {
                let it = self.devices.get_mut(&device).expect("accepted");
                it.cordon = None;
                it.lost = false;
                let text = format!("{} serves again (M7)", it.name);
                self.grows_on(device);
                let mut record = self.record(RecordKind::Uncordon, None, text);
                record.order = Some(id);
                actions.push(Action::Record(record));
            }
            Command::Set { model, over } => {
                let text = describe(&over);
                self.models.get_mut(&model).expect("accepted").over = over;
                self.reindex(model);
                let mut record = self.record(RecordKind::Set, Some(model), text);
                record.order = Some(id);
                actions.push(Action::Record(record));
            }
            Command::Cleanup {
                scope,
                drain,
                begun,
            } => self.cleanup_begins(id, scope, drain, begun, actions),
            Command::Reopen => {
                self.night = false;
                self.touch_everything();
                let away: Vec<ModelId> = self
                    .models
                    .iter()
                    .filter(|(_, it)| it.kept_away())
                    .map(|(&model, _)| model)
                    .collect();
                for model in away {
                    self.models.get_mut(&model).expect("listed").wish = None;
                    actions.push(Action::Keep {
                        wish: Wish::Load { model, wish: None },
                    });
                }
                let mut record = self.record(
                    RecordKind::Reopen,
                    None,
                    "always-hot models are protected again (E2)".into(),
                );
                record.order = Some(id);
                actions.push(Action::Record(record));
            }
            Command::Reset => {
                self.touch_everything();
                self.supersede_loads(None, id, actions);
                self.forget_wishes(None);
                for model in self.fetching.clone() {
                    self.fetch_is_to_end(model, StopReason::Reset { order: id });
                }
                for model in self.models.values_mut() {
                    model.forget_failures();
                }
                self.aim(id, self.replicas.keys().copied().collect(), Span::ZERO);
            }
            Command::Shutdown { drain } => {
                self.closing = Some(self.now);
                self.touch_everything();
                self.supersede_loads(None, id, actions);
                self.aim(id, self.replicas.keys().copied().collect(), drain);
            }
        }
    }

    pub(super) fn refuse_order(
        &mut self,
        id: OrderId,
        refusal: Refusal,
        plan: Option<Box<Plan>>,
        actions: &mut Vec<Action>,
    ) {
        let Some(order) = self.orders.remove(&id) else {
            return;
        };
        if let Command::Load(LoadOrder { model, .. }) = order.command
            && self.models.contains_key(&model)
        {
            self.record_refusal(model, Some((id, plan.as_deref())), &refusal, actions);
            if order.saved {
                let it = self.models.get_mut(&model).expect("known");
                it.wish = None;
                it.restoring = false;
                it.over = order.previous.clone();
                self.restoring.remove(&model);
                self.reindex(model);
                self.order_ended(model);
                actions.push(Action::Keep {
                    wish: Wish::Load { model, wish: None },
                });
                actions.push(Action::Keep {
                    wish: Wish::Override {
                        model,
                        over: order.previous,
                    },
                });
            }
        }
        actions.push(Action::Settle {
            order: id,
            outcome: Outcome::Refused { refusal, plan },
        });
    }

    /// A load that an administrator wished for ends when its last replica leaves for any reason but
    /// the end of the service, which brings it back.
    pub(super) fn forget_wish_if_gone(
        &mut self,
        id: ModelId,
        phase: &Phase,
        actions: &mut Vec<Action>,
    ) {
        let shutdown = matches!(
            phase,
            Phase::Stopping {
                reason: StopReason::Shutdown,
                ..
            }
        );
        let awake = |it: &ReplicaId| !self.asleep.contains(it);
        let none_awake = !self.models[&id].replicas.iter().any(awake);
        let model = self.models.get_mut(&id).expect("a replica's model stays");
        let wished = model.wish.as_ref().is_some_and(|wish| wish.replicas > 0);
        let displaced = matches!(
            phase,
            Phase::Stopping {
                reason: StopReason::Cordoned { .. }
                    | StopReason::DeviceFailed { .. }
                    | StopReason::Changed,
                ..
            }
        );
        if wished && displaced {
            // Its device is not there for it any more, or its engine is started in another way; its wish
            // is as it was (D1, M7).
            model.restoring = true;
            self.restoring.insert(id);
            self.touch_model(id);
            return;
        }
        let in_order = self
            .orders
            .values()
            .any(|order| order.load().is_some_and(|load| load.model == id));
        if wished && !shutdown && self.closing.is_none() && !in_order && none_awake {
            model.wish = None;
            model.restoring = false;
            self.restoring.remove(&id);
            actions.push(Action::Keep {
                wish: Wish::Load {
                    model: id,
                    wish: None,
                },
            });
        }
    }
}

fn describe(over: &Override) -> String {
    let mut parts = Vec::new();
    if let Some(priority) = over.priority {
        parts.push(format!("priority {priority}"));
    }
    if let Some(keep_hot) = over.keep_hot {
        parts.push(format!("keep-hot {keep_hot}"));
    }
    if over.expires.is_some() {
        parts.push("for a time (lease)".to_owned());
    }
    if parts.is_empty() {
        "back to the catalogue's values".to_owned()
    } else {
        parts.join(", ")
    }
}
