//! Lets the shadow policies serve what the pool serves. Both serve each use of a model after a pause. A shadow that does not hold
//! the model loads it, evicts what is in the way by its own rule, and pays the load time.

use alloc::vec::Vec;

use crate::facts::shadow_sample::Sample;
use crate::facts::shadows::Shadow;
use crate::facts::state::Pool;
use crate::types::demand;
use crate::types::ids::{Bytes, DeviceId, ModelId, Span};
use crate::types::policy::Part;
use crate::types::requirements::Requirements;
use crate::types::shadow_costs::ShadowCosts;

/// The order in which models leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Own,
    LeastRecent,
}

/// A possible place on one device: the victims and their cost.
struct Room {
    cost: u64,
    left_over: Bytes,
    device: DeviceId,
    victims: Vec<ModelId>,
}

impl Pool {
    /// A model is used again after a pause. With least recent use configured there is nothing to compare.
    pub(crate) fn shadows_serve(&mut self, id: ModelId) {
        if !self.limits.policy.has(Part::Shadows) {
            return;
        }
        if !self.shadows.is_current {
            let devices = self.devices.iter();
            let devices = devices.map(|(&id, device)| (id, device.node, device.capacity()));
            self.shadows.resample(Sample::new(devices));
        }
        if !self.shadows.sample.has_model(id) {
            return;
        }
        let (own, simple) = (&self.shadows.own, &self.shadows.simple);
        if own.holds(id) && simple.holds(id) {
            return;
        }
        let requirements = Requirements::new(self, id, self.now);
        let reload = self.models[&id].reload();
        let mut paid = [Span::ZERO; 2];
        for (nth, rule) in [Rule::Own, Rule::LeastRecent].into_iter().enumerate() {
            let shadow = match rule {
                Rule::Own => &self.shadows.own,
                Rule::LeastRecent => &self.shadows.simple,
            };
            if shadow.holds(id) {
                continue;
            }
            paid[nth] = reload;
            let Some((devices, victims)) = self.shadow_room(shadow, &requirements, rule) else {
                continue;
            };
            let shadow = match rule {
                Rule::Own => &mut self.shadows.own,
                Rule::LeastRecent => &mut self.shadows.simple,
            };
            for victim in victims {
                shadow.evict(victim);
            }
            shadow.load(id, devices, requirements.bytes, reload);
        }
        let swap = self.shadows.own.reload.max(self.shadows.simple.reload);
        let now = self.now;
        let shadows = &mut self.shadows;
        let simple_led = shadows.lead.simple_since().is_some();
        let lag_max = ShadowCosts::lag_max(swap);
        let changed = shadows.lead.paid(paid[0], paid[1], lag_max, now);
        shadows.costs.paid(paid, simple_led, changed, swap);
    }

    /// The place where the shadow would load the model: the devices on which that costs least by its rule.
    fn shadow_room(
        &self,
        shadow: &Shadow,
        requirements: &Requirements,
        rule: Rule,
    ) -> Option<(Vec<DeviceId>, Vec<ModelId>)> {
        let played = self.shadows.sample.devices();
        let rooms = played.filter_map(|device| {
            let needs = requirements.needs_on(self, device).ok()?;
            self.shadow_room_on(shadow, device, needs, requirements, rule)
        });
        let mut rooms: Vec<Room> = rooms.collect();
        let count = requirements.devices as usize;
        if rooms.len() < count {
            return None;
        }
        rooms.sort_by_key(|room| (room.cost, room.left_over, room.device));
        rooms.truncate(count);
        let mut victims: Vec<ModelId> = Vec::new();
        let mut devices = Vec::new();
        for room in rooms {
            devices.push(room.device);
            victims.extend(room.victims);
        }
        Some((devices, victims))
    }

    fn shadow_room_on(
        &self,
        shadow: &Shadow,
        device: DeviceId,
        needs: Bytes,
        requirements: &Requirements,
        rule: Rule,
    ) -> Option<Room> {
        let capacity = self.devices[&device].capacity();
        let on = shadow.on(device);
        let mut free = capacity.saturating_sub(on.map_or(Bytes::ZERO, |held| held.used));
        let mut victims: Vec<(u64, u64, ModelId)> = Vec::new();
        if free < needs {
            let models = on.into_iter().flat_map(|held| held.models.iter().copied());
            let stays =
                |id: &ModelId| self.is_protected(*id) || self.priority(*id) > requirements.priority;
            let leaves = models.filter(|id| !stays(id));
            let mut order: Vec<(u64, u64, ModelId)> = leaves
                .map(|id| {
                    let (value, loss) = self.shadow_value(shadow, id, rule);
                    (value, loss, id)
                })
                .collect();
            order.sort();
            for candidate in order {
                if free >= needs {
                    break;
                }
                free = free + shadow.bytes_of(candidate.2);
                victims.push(candidate);
            }
            if free < needs {
                return None;
            }
            // Keeps victims that are not needed after all, the most valuable first.
            for nth in (0..victims.len()).rev() {
                let bytes = shadow.bytes_of(victims[nth].2);
                if free.saturating_sub(bytes) >= needs {
                    free = free.saturating_sub(bytes);
                    victims.remove(nth);
                }
            }
        }
        Some(Room {
            cost: victims
                .iter()
                .fold(0, |sum, victim| sum.saturating_add(victim.1)),
            left_over: free.saturating_sub(needs),
            device,
            victims: victims.into_iter().map(|victim| victim.2).collect(),
        })
    }

    /// The sort key of the rule for a model that could leave, and the cost of losing it.
    fn shadow_value(&self, shadow: &Shadow, id: ModelId, rule: Rule) -> (u64, u64) {
        let Some(model) = self.models.get(&id) else {
            return (0, 0);
        };
        let mut replicas = model.replicas.iter();
        let busy = replicas.any(|id| self.replicas[id].in_flight > 0) || !model.queue.is_empty();
        let idle = match (busy, model.last_used) {
            (true, _) => Span::ZERO,
            (false, Some(last)) => self.now.since(last),
            (false, None) => self.now.since(model.since),
        };
        match rule {
            Rule::LeastRecent => {
                let loss = demand::recency(idle);
                (loss, loss)
            }
            Rule::Own => {
                let loss = model.demand.loss(self.now, idle, model.reload());
                (demand::loss_per_gib(loss, shadow.bytes_of(id)), loss)
            }
        }
    }
}
