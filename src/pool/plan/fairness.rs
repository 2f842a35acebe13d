//! Fairness between keys across models of equal priority (P9): a key that was served clearly less does not wait for the complete turn,
//! or the earlier requests, of keys that were served more. Within a model the queue is fair. Read-only.

use crate::facts::models::Model;
use crate::facts::state::Pool;
use crate::plan::claim::Claim;
use crate::types::ids::{KeyId, ModelId, ReplicaId};
use crate::types::key_seats::LeastServed;

/// A key comes before every key that leads it by this many levels: a minute of a seat. Below, turns and arrival decide. A lead of a
/// few seconds, or an order of loads by service, made the waits of small labs longer.
const LEAD: u64 = 15;
/// The number of a model's keys that are compared.
const KEYS_MAX: usize = 256;

impl Pool {
    /// The service of a key, in steps of about four seat-seconds. Only differences have a meaning.
    pub fn key_level(&self, key: KeyId) -> u64 {
        self.key_service.level(key)
    }

    /// The key with a request for the model that has been served least.
    pub(crate) fn least_served(&self, model: ModelId) -> Option<LeastServed> {
        let keys = self.models[&model].queue.keys().take(KEYS_MAX);
        let served = keys.map(|(key, _)| LeastServed {
            level: self.key_service.level(key),
            key,
        });
        served.min()
    }
}

/// Returns true if requests wait for the replica and all keys with a seat there have been served clearly more than the key of the claim.
/// The replica then keeps its place for the time of a few swaps only. Without waiting requests it is likely to become idle on its own.
pub(crate) fn outranks_users(pool: &Pool, claim: &Claim, id: ReplicaId, model: &Model) -> bool {
    let mut users = pool.key_service.users(id).peekable();
    let is_crowded = !model.queue.is_empty() && users.peek().is_some();
    is_crowded && users.all(|key| outranks(pool, claim, key))
}

/// Returns true if a request for the model that came before the claim keeps its replica. It does not if its key has been served
/// clearly more than the key of the claim.
pub(crate) fn is_wanted_first(pool: &Pool, claim: &Claim, model: &Model) -> bool {
    let since = claim.requirements.since;
    let earlier = |ticket| pool.queues[&ticket].since < since;
    if !model.queue.oldest().is_some_and(earlier) {
        return false;
    }
    let mut keys = model.queue.keys().take(KEYS_MAX);
    let keeps = |(key, oldest)| earlier(oldest) && !outranks(pool, claim, key);
    keys.any(keeps)
}

/// Returns true if the key of the claim has been served clearly less than this one.
fn outranks(pool: &Pool, claim: &Claim, other: KeyId) -> bool {
    let own = claim.requirements.least_served;
    own.is_some_and(|own| own.level + LEAD <= pool.key_service.level(other))
}
