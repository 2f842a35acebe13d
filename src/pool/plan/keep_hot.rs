//! Computes how long an idle model stays loaded: the catalogue's time, an administrator's override, or a time adapted to the gaps
//! between the model's requests (L2).

use crate::facts::models::Model;
use crate::facts::state::Pool;
use crate::types::ids::{Bytes, DeviceId, ModelId, ReplicaId, Span, Time};
use crate::types::model::{KeepHotBounds, KeepHotScope, UNTIL_NEEDED};
use crate::types::replica::{Phase, Replica};

impl Pool {
    /// The time that the model stays loaded after its last request (L2).
    pub fn keep_hot(&self, id: ModelId) -> Span {
        let Some(model) = self.models.get(&id) else {
            return Span::ZERO;
        };
        match (model.over.keep_hot, model.spec.adaptive_keep_hot) {
            (Some(length), _) => length,
            (None, None) => model.spec.keep_hot,
            (None, Some(bounds)) => self.adaptive(id, bounds),
        }
    }

    pub(crate) fn adaptive(&self, id: ModelId, bounds: KeepHotBounds) -> Span {
        let model = &self.models[&id];
        let devices = u64::from(model.spec.devices_per_replica.max(1));
        let bytes = Bytes(model.spec.bytes_per_device.0.saturating_mul(devices));
        let reload = model.reload();
        self.market.keep_hot(&model.demand, reload, bytes, bounds)
    }
}

/// The time at which keep-hot unloads the replica (L2). `None` while it is busy, waited for, leased or always-hot, and while an
/// administrator's load of its model or a load restored after a restart is unfinished, because unloading would only cause another
/// load. The same holds while the model has batch work, whose lines the gates do not count (B6).
pub(crate) fn keep_hot_ends(pool: &Pool, id: ReplicaId) -> Option<Time> {
    let replica = &pool.replicas[&id];
    let idle_since = replica.idle_since()?;
    let model = &pool.models[&replica.model];
    // If the requests called for several replicas, none is unloaded while another is in use (S1).
    let idle_since = if pool.scaled_to(replica.model) > 1 {
        pool.all_idle_since(replica.model)?
    } else {
        idle_since
    };
    let leased = model.lease_left(pool.wall()).is_some();
    let is_unfinished = pool.unfinished_load(replica.model).is_some()
        || is_restored(pool, model)
        || pool.batches.has(replica.model);
    if pool.is_protected(replica.model) || !model.queue.is_empty() || leased || is_unfinished {
        return None;
    }
    let length = pool.keep_hot(replica.model);
    let own = replica.keep_alive.ends(idle_since, length);
    let batches_ended = pool.batches.ended_at(replica.model);
    let own = own.max(batches_ended.map_or(Time(0), |ended| ended + length));
    let ends = if is_kept_by_devices(replica, model, idle_since) {
        own.max(devices_idle_since(pool, replica)? + length)
    } else {
        own
    };
    (ends < Time(0) + UNTIL_NEEDED).then_some(ends)
}

/// The end of the last request on the replica's devices, if keep-hot counts from there.
pub(crate) fn counts_from_devices(pool: &Pool, id: ReplicaId) -> Option<Time> {
    let replica = &pool.replicas[&id];
    let model = &pool.models[&replica.model];
    is_kept_by_devices(replica, model, replica.idle_since()?)
        .then(|| devices_idle_since(pool, replica))?
}

/// Returns true if the scope is `device` and neither an administrator nor a request has set a time, which would apply exactly.
fn is_kept_by_devices(replica: &Replica, model: &Model, idle_since: Time) -> bool {
    let has_own_time = model.over.keep_hot.is_some() || replica.keep_alive.names_time(idle_since);
    model.spec.keep_hot_scope == KeepHotScope::Device && !has_own_time
}

/// The end of the last request on any of the replica's devices; `None` while a device is in use.
fn devices_idle_since(pool: &Pool, replica: &Replica) -> Option<Time> {
    let mut last = Time(0);
    for share in &replica.shares {
        last = last.max(device_idle_since(pool, share.device)?);
    }
    Some(last)
}

/// The end of the last request on the device; `None` while it is in use. Planned and running loads count as use, and replicas that
/// have left count with their last request.
fn device_idle_since(pool: &Pool, id: DeviceId) -> Option<Time> {
    let device = &pool.devices[&id];
    let mut last = device.used;
    for holder in &device.holders {
        if pool.planned.contains_key(holder) {
            return None;
        }
        let replica = &pool.replicas[holder];
        if replica.in_flight > 0 || matches!(replica.phase, Phase::Launching { .. }) {
            return None;
        }
        last = last.max(replica.used_until());
    }
    Some(last)
}

/// Returns true while a wish from before a restart still calls for more replicas of the model and one is planned or loading.
fn is_restored(pool: &Pool, model: &Model) -> bool {
    let loads = |id: &ReplicaId| matches!(pool.replicas[id].phase, Phase::Launching { .. });
    model.is_restoring() && (!model.planned.is_empty() || model.replicas.iter().any(loads))
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::{
        Action, Answer, DeviceId, DeviceReading, Event, Limits, LoadWish, Loader, LoaderId,
        ModelSpec, Override,
    };

    const LOAD: Span = Span::from_secs(30);

    fn launched(response: Answer) -> Vec<ReplicaId> {
        let launched = response
            .actions
            .into_iter()
            .filter_map(|action| match action {
                Action::Launch { replica, .. } => Some(replica),
                _ => None,
            });
        launched.collect()
    }

    #[test]
    fn a_load_order_from_before_a_restart_is_carried_out_once_despite_a_short_keep_hot() {
        let mut pool = Pool::new(Limits::default(), false, ReplicaId(1));
        let (device, model) = (DeviceId(0), ModelId(0));
        let reading = DeviceReading {
            name: "gpu0".into(),
            total: Bytes(1_000),
            ..DeviceReading::default()
        };
        // Only one load at a time reads from the disk, and the first replica would leave before the third is launched.
        let spec = ModelSpec {
            name: "a".into(),
            bytes_per_device: Bytes(1),
            keep_hot: Span::from_secs(20),
            loader: Some(Loader {
                loader: LoaderId(0),
                takes: LOAD,
            }),
            ..ModelSpec::default()
        };
        let load = Some(LoadWish {
            replicas: 3,
            devices: None,
            since: Time(0),
        });
        let over = Override::default();
        let events = [
            Event::DeviceRead { device, reading },
            Event::ModelSet { model, spec },
            Event::WishesRestored { model, over, load },
        ];
        let mut loads = launched(pool.step_all(Time(1), events));
        let mut now = Time(1);
        for nth in 0..10 {
            let Some(&replica) = loads.get(nth) else {
                break;
            };
            now = now + LOAD;
            loads.extend(launched(pool.step(now, Event::ReplicaReady { replica })));
        }
        assert_eq!(loads.len(), 3, "{loads:?}");
    }
}
