//! Finds the replicas that a model should have and lacks, with their rank among the demands of all models. Read-only.

use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::facts::demand_index::PendingReplica;
use crate::facts::models::Model;
use crate::facts::state::Pool;
use crate::plan::load_order::LoadPlace;
use crate::plan::{batches, orders};
use crate::types::ids::{ModelId, OrderId, ReplicaId, Span};
use crate::types::objective::EvictsFrom;
use crate::types::rank::{Class, DemandRank};
use crate::types::reason::LoadReason;
use crate::types::replica::Phase;
use crate::types::requirements::Requirements;

/// Upper bound of the patience, which is half the longest wait of a request.
const PATIENCE_MAX: Span = Span::from_secs(300);

/// The number of a model's waiting requests that determine when its load is worthwhile. The oldest count, because they have waited
/// longest.
pub(crate) const LOOKED_AT_MAX: usize = 256;

impl Pool {
    /// The time from which models of equal priority leave for the model's requests. The objective may use half of the time for
    /// which others may go first; the other half is left for turns and a busy disk. The time the victim takes to stop is subtracted
    /// later and differs per victim. Clients that give up before the load can be ready count too: the load begins while they wait,
    /// or it would never begin.
    fn evicts_from(&self, id: ModelId) -> EvictsFrom {
        let load = self.comes_back_in(id);
        let since = self.waiting(id).map(|waiting| waiting.since);
        let worth = self.limits.objective.worth_from(load, since, self.now);
        if worth <= self.now {
            return EvictsFrom::default();
        }
        let latest = self.waiting(id).map(|waiting| {
            let delay = longest_delay(waiting.gives_up.since(waiting.since), load);
            waiting.since + Span(delay.0 / 2)
        });
        EvictsFrom::new(worth, latest.min().unwrap_or(worth))
    }
}

impl Model {
    /// The time that it may wait for the turns of others.
    pub(crate) fn patience(&self) -> Span {
        patience(self.spec.queue_timeout)
    }
}

fn patience(timeout: Span) -> Span {
    Span(timeout.0 / 2).min(PATIENCE_MAX)
}

/// The time for which other models may be loaded before requests that wait no longer than `timeout`. Their own load must still be
/// in time.
fn longest_delay(timeout: Span, load: Span) -> Span {
    if load < timeout {
        patience(timeout).min(Span(timeout.0 - load.0))
    } else {
        patience(timeout)
    }
}

pub(crate) fn still_blocked(old: &Requirements, new: &Requirements) -> bool {
    old.since <= new.since
        && Requirements {
            since: new.since,
            ..old.clone()
        } == *new
}

pub(crate) fn demands_of(pool: &Pool, id: ModelId) -> Vec<(DemandRank, PendingReplica)> {
    let mut demand_index = Vec::new();
    let mut push = |class: Class, requirements: Requirements, order: Option<OrderId>| {
        demand_index.push(pending_of(pool, class, requirements, order));
    };
    let Some(model) = pool.models.get(&id).filter(|_| !pool.service.is_closing()) else {
        return demand_index;
    };
    // A replica that is falling asleep can be woken soon.
    let falls_asleep = |id: &&ReplicaId| matches!(pool.replicas[*id].phase, Phase::Parking { .. });
    let parking = model.replicas.iter().filter(falls_asleep).count();
    let expected = pool.expected_back(id);
    let coming = pool.live(model) + model.planned.len() + parking + expected;
    if let Some((order, requirements)) = orders::load_to_place(pool, id) {
        push(Class::Order, requirements, Some(order));
    }
    if coming == 0
        && let Some(oldest) = model.queue.oldest()
    {
        let mut requirements = Requirements::new(pool, id, pool.queues[&oldest].since);
        requirements.evicts_from = pool.evicts_from(id);
        requirements.least_served = pool.least_served(id);
        push(Class::Request, requirements, None);
    }
    let cooling = model.cooling_until.is_some_and(|until| until > pool.now);
    let may_start =
        !model.removed && !cooling && !pool.is_quarantined(model) && model.planned.is_empty();
    if !may_start {
        return demand_index;
    }
    if model.is_restoring() {
        let wish = model
            .wish
            .as_ref()
            .expect("a model that is restored has a wish");
        if pool.live(model) + expected < wish.replicas as usize {
            let requirements =
                Requirements::new(pool, id, wish.since).over_devices(pool, wish.devices);
            push(Class::Standing, requirements, None);
        }
    } else if pool.is_protected(id)
        && !model.kept_away()
        && (pool.live(model) + expected == 0 || pool.moves_lacking(id) > 0)
    {
        push(
            Class::Standing,
            Requirements::new(pool, id, model.since),
            None,
        );
        return demand_index;
    }
    let stays = pool.staying(model) + parking;
    if pool.live(model) > 0 && (stays < pool.scaled_to(id) || pool.moves_lacking(id) > 0) {
        let mut requirements = Requirements::new(pool, id, model.since);
        requirements.is_gentle = true;
        push(Class::Growth, requirements, None);
    }
    if coming == 0
        && demand_index.is_empty()
        && let Some(requirements) = pool.batch_requirements(id)
    {
        demand_index.push(pending_of(pool, Class::Batch, requirements, None));
    }
    demand_index
}

fn pending_of(
    pool: &Pool,
    class: Class,
    requirements: Requirements,
    order: Option<OrderId>,
) -> (DemandRank, PendingReplica) {
    let id = requirements.model;
    let place = match class {
        Class::Request => pool.load_place(id, requirements.since),
        Class::Batch => LoadPlace {
            due: batches::due(pool.batches.get(id), pool.now),
            ..LoadPlace::first_come(requirements.since)
        },
        Class::Order | Class::Standing | Class::Growth => LoadPlace::first_come(requirements.since),
    };
    let rank = DemandRank {
        unforced: requirements.forced_by.is_none(),
        priority: Reverse(requirements.priority),
        class,
        may_wait: place.may_wait,
        due: place.due,
        since: place.since,
        model: id,
    };
    let pending = PendingReplica {
        requirements,
        order,
        blocked: None,
    };
    (rank, pending)
}

/// The reason for the demand, for the history.
pub(crate) fn reason(pool: &Pool, rank: &DemandRank, pending: &PendingReplica) -> LoadReason {
    let model = &pool.models[&rank.model];
    let moves =
        matches!(rank.class, Class::Standing | Class::Growth) && pool.moves_lacking(rank.model) > 0;
    if let Some((id, left)) = pool.moves_from(rank.model).filter(|_| moves) {
        let node = pool.node_name(id);
        return if pool.consolidation.empties(id) {
            LoadReason::Consolidates { node }
        } else {
            LoadReason::Moves { node, left }
        };
    }
    match (rank.class, pending.order) {
        (Class::Order, Some(order)) => LoadReason::Order { order },
        (Class::Standing, _) if model.is_restoring() => LoadReason::Wish,
        (Class::Standing, _) => LoadReason::AlwaysHot {
            priority: model.priority(),
        },
        (Class::Batch, _) => {
            let lines = pool.batches.get(rank.model);
            let for_deadline = lines.is_some_and(|lines| lines.evicts_for_deadline(pool.now));
            let lines = lines.map_or(0, |lines| lines.count);
            LoadReason::Batch {
                lines,
                for_deadline,
            }
        }
        (Class::Growth, _) => LoadReason::Growth {
            wanted: u32::try_from(pool.scaled_to(rank.model)).unwrap_or(u32::MAX),
        },
        _ => LoadReason::Requests {
            waiting: u32::try_from(model.queue.len()).unwrap_or(u32::MAX),
        },
    }
}
