//! The orders of a storm's administrators, and the failures of its devices.

use alloc::borrow::ToOwned;
use alloc::vec::Vec;

use super::super::random::Random;
use super::{Due, Play};
use pool::{
    Action, Bytes, CleanupScope, Command, Cordon, DeviceId, Event, IdleYields, Limits, Link,
    LoadOrder, ModelId, Objective, OrderId, Override, OverrideChange, Policy, Priority, Span, Time,
};

/// After this many orders the configuration is reloaded with other limits.
const LIMITS_EVERY: u64 = 4;
/// The storm's internal orders are numbered from here.
const OWN_ORDERS: u64 = 10_000;

/// The fault: the order without its lease.
pub(super) fn without_lease(mut event: Event) -> Event {
    if let Event::OrderReceived { command, .. } = &mut event {
        match command {
            Command::Load(load) => load.lease = None,
            Command::Set { change, .. } => change.expires = Some(None),
            _ => {}
        }
    }
    event
}

impl Play {
    pub(super) fn orders(&mut self, at: Time, order: OrderId) {
        if order.0 == u64::MAX {
            let command = Command::Shutdown {
                drain: Span::from_secs(60),
            };
            return self.feed(at, Event::OrderReceived { order, command });
        }
        if order.0 % LIMITS_EVERY == LIMITS_EVERY - 1 {
            self.reads_limits_again(at, order);
        }
        if self.conditions.cordons && self.random.chance(350) {
            return self.cordons(at, order);
        }
        let model = ModelId(self.random.below(self.specs.len() as u64) as u32);
        let some =
            |random: &mut Random, low, high| random.chance(400).then(|| random.between(low, high));
        let command = match self.random.below(10) {
            0..=3 => Command::Load(LoadOrder {
                model,
                replicas: Some(self.random.between(1, 3) as u32),
                devices: some(&mut self.random, 1, 3).map(|count| count as u32),
                priority: some(&mut self.random, 0, 3).map(|priority| Priority(priority as u32)),
                keep_hot: None,
                lease: some(&mut self.random, 60_000, 900_000).map(Span),
                force: self.random.chance(200),
                waits: self.random.chance(700),
            }),
            4 | 5 => Command::Unload {
                model,
                replica: None,
                now: self.random.chance(300),
            },
            6 => {
                let over = Override {
                    priority: some(&mut self.random, 0, 3)
                        .map(|priority| Priority(priority as u32)),
                    keep_hot: None,
                    expires: some(&mut self.random, 60_000, 900_000).map(|span| at + Span(span)),
                };
                let change = OverrideChange::replace_all(over);
                Command::Set { model, change }
            }
            7 => {
                let scope = if self.random.chance(500) {
                    CleanupScope::All
                } else {
                    CleanupScope::Idle
                };
                if scope == CleanupScope::All {
                    self.cleanups.insert(order);
                } else {
                    self.referee.night_falls();
                }
                Command::Cleanup {
                    scope,
                    drain: Span::from_secs(self.random.below(600)),
                    begun: None,
                }
            }
            8 => Command::Reopen,
            _ => Command::Reset,
        };
        self.feed(at, Event::OrderReceived { order, command });
    }

    /// Limits derived only from the order's id.
    fn reads_limits_again(&mut self, at: Time, order: OrderId) {
        let limits = Limits {
            preempt_drain: Span::from_secs(1 + order.0 * 7 % 40),
            keep_asleep: Span::from_secs(60 + order.0 * 631 % 3_600),
            idle_yields: match order.0 % 3 {
                0 => IdleYields::Auto,
                1 => IdleYields::After(Span::from_secs(1 + order.0 * 13 % 120)),
                _ => IdleYields::Never,
            },
            policy: match order.0 % 5 {
                0 => Policy::LRU,
                _ => Policy::ADAPTIVE,
            },
            objective: match order.0 % 7 {
                0 => Objective::RELOAD,
                1 => Objective::BALANCED,
                _ => Objective::WAIT,
            },
            targets: super::conditions::targets(order.0),
            ..Limits::default()
        };
        self.referee.limits_change(&limits);
        self.feed(at, Event::LimitsSet { limits });
    }

    /// A cordon is usually followed by its end; sometimes the end comes without a cordon.
    fn cordons(&mut self, at: Time, order: OrderId) {
        let device = self.any_device();
        if self.random.chance(150) {
            return self.uncordons(at, device);
        }
        let until = self
            .random
            .chance(400)
            .then(|| at + Span(self.random.below(900_000)));
        let command = Command::Cordon {
            device,
            reason: "maintenance".to_owned(),
            until,
            now: self.random.chance(300),
        };
        if self.random.chance(900) {
            let later = Span(self.random.below(1_200_000));
            self.push(at + later, Due::Uncordon(device));
        }
        self.feed(at, Event::OrderReceived { order, command });
        if self.fault == Some(super::Fault::CordonForgotten) {
            self.uncordons_behind_the_referee(device);
        }
    }

    pub(super) fn uncordons(&mut self, at: Time, device: DeviceId) {
        self.own_orders += 1;
        let order = OrderId(OWN_ORDERS + self.own_orders);
        let command = Command::Uncordon { device };
        self.feed(at, Event::OrderReceived { order, command });
    }

    /// The fault: the pool is informed that the cordon has ended as soon as it was ordered.
    fn uncordons_behind_the_referee(&mut self, device: DeviceId) {
        let mut pending = self.world.unsaved.clone().unwrap_or_default();
        let now = self.world.now;
        let order = OrderId(u64::MAX - 1);
        let command = Command::Uncordon { device };
        let received = Event::OrderReceived { order, command };
        let mut next = Some(received);
        // Orders are stored one after the other; each stored order starts the next.
        while let Some(event) = next {
            let response = self.world.pool.step(now, event);
            pending.extend(response.actions.iter().filter_map(|action| match action {
                Action::Save { order, .. } => Some(*order),
                _ => None,
            }));
            next = pending.pop().map(|order| Event::Saved { order });
        }
    }

    pub(super) fn any_device(&mut self) -> DeviceId {
        let nth = self.random.below(self.hardware.len() as u64) as usize;
        *self.hardware.keys().nth(nth).expect("below their number")
    }

    /// Some devices are cordoned before the start, and links may be read again at any time.
    pub(super) fn starts_out(&mut self, links: Vec<(DeviceId, DeviceId, Link)>) {
        self.feed(Time(0), Event::LinksRead { links });
        if self.conditions.cordons && self.random.chance(200) {
            let device = self.any_device();
            let cordon = Cordon {
                reason: "kept from before".to_owned(),
                since: Time(0),
                until: None,
                failed: self.random.chance(300),
            };
            self.feed(Time(0), Event::CordonRestored { device, cordon });
            let later = Time(self.random.below(1_200_000));
            self.push(later, Due::Uncordon(device));
        }
    }

    pub(super) fn fails(&mut self, at: Time, device: DeviceId, lost: bool) {
        let trouble = "Xid 79: the GPU has fallen off the bus".to_owned();
        self.feed(
            at,
            Event::DeviceFailed {
                device,
                trouble,
                lost,
            },
        );
        // A lost device stays lost; a failed device may be lost later.
        if !lost && self.random.chance(300) {
            let later = Span(self.random.below(60_000));
            self.push(at + later, Due::Trouble(device, true));
        }
        let later = Span(self.random.between(60_000, 1_800_000));
        self.push(at + later, Due::Uncordon(device));
    }

    pub(super) fn foreign(&mut self, at: Time, device: DeviceId, bytes: Bytes) {
        let hardware = self.hardware.get_mut(&device).expect("a device of ours");
        hardware.constant.foreign = bytes;
        if !hardware.measured {
            self.reads(at, device);
        }
    }

    /// Informs the referee of a cleanup, which takes effect once the store has it.
    pub(super) fn saved(&mut self, at: Time, order: OrderId) {
        let failed = self.random.chance(30);
        let cleanup = self.cleanups.remove(&order);
        if cleanup {
            self.referee.night_falls();
        }
        if let Some(unsaved) = &mut self.world.unsaved {
            unsaved.retain(|saved| *saved != order);
        }
        let event = if failed {
            Event::SaveFailed {
                order,
                message: "disk full".to_owned(),
            }
        } else {
            Event::Saved { order }
        };
        self.feed(at, event);
    }

    /// The fault: an unrelated replica is evicted along with the victims.
    pub(super) fn with_a_bystander(&mut self, actions: Vec<Action>) -> Vec<Action> {
        let evicts = |action: &Action| matches!(action, Action::Record(record) if record.kind == pool::RecordKind::Evict);
        let Some(nth) = actions.iter().position(evicts) else {
            return actions;
        };
        let Action::Record(record) = &actions[nth] else {
            return actions;
        };
        let (mut forged, victim) = (record.clone(), record.replica);
        let Some(bystander) = self.referee.bystander(victim) else {
            return actions;
        };
        forged.replica = Some(bystander);
        let mut with = actions.clone();
        with.insert(nth + 1, Action::Record(forged));
        with
    }
}
