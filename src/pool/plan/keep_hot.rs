//! How long an idle model stays loaded: the catalogue's time, an administrator's, or one that is chosen from the
//! model's gaps (L2).

use crate::facts::state::Pool;
use crate::types::ids::Bytes;
use crate::types::ids::{ModelId, ReplicaId, Span, Time};
use crate::types::model::KeepHotBounds;
use crate::types::order::Order;

impl Pool {
    /// How long the model stays after its last request (L2).
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

    fn adaptive(&self, id: ModelId, bounds: KeepHotBounds) -> Span {
        let model = &self.models[&id];
        let devices = u64::from(model.spec.devices_per_replica.max(1));
        let bytes = Bytes(model.spec.bytes_per_device.0.saturating_mul(devices));
        let reload = model.reload();
        self.market.keep_hot(&model.demand, reload, bytes, bounds)
    }

    /// A request for the model has come after `gap` without use.
    pub(crate) fn gap_ended(&mut self, id: ModelId, gap: Span) {
        let model = &self.models[&id];
        if let Some(bounds) = model.spec.adaptive_keep_hot {
            let (chosen, reload) = (self.adaptive(id, bounds), model.reload());
            self.market.observe(gap, chosen, reload);
        }
    }
}

/// When keep-hot would unload it (L2); `None` while it is busy, waited for, leased or always-hot, and while an
/// administrator's load of its model is not finished: that would only load another one.
pub(crate) fn keep_hot_ends(pool: &Pool, id: ReplicaId) -> Option<Time> {
    let replica = &pool.replicas[&id];
    let idle_since = replica.idle_since()?;
    let model = &pool.models[&replica.model];
    // Of several replicas that the requests called for, none is unloaded while another is in use (S1).
    let idle_since = match pool.scaled_to(replica.model) > 1 {
        true => pool.all_idle_since(replica.model)?,
        false => idle_since,
    };
    let leased = model.over.expires.is_some_and(|expires| expires > pool.now);
    let loads = |order: &Order| order.load().is_some_and(|load| load.model == replica.model);
    let is_being_loaded = pool.orders.values().any(loads);
    if pool.is_protected(replica.model) || !model.queue.is_empty() || leased || is_being_loaded {
        return None;
    }
    Some(
        replica
            .keep_alive
            .ends(idle_since, pool.keep_hot(replica.model)),
    )
}
