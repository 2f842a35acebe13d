//! Which models should have a replica and have none, or too few: what the index holds, brought up to date.

use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::facts::demand_index::PendingReplica;
use crate::facts::state::Pool;
use crate::plan::asking::never_fits;
use crate::plan::orders;
use crate::types::ask::Ask;
use crate::types::ids::OrderId;
use crate::types::ids::ReplicaId;
use crate::types::ids::{ModelId, Span, Time};
use crate::types::rank::{Class, DemandRank};
use crate::types::reason::LoadReason;
use crate::types::replica::Phase;

/// Half the time a request waits at most, but no more than this.
const PATIENCE_MAX: Span = Span::from_secs(300);

impl Pool {
    /// Brings the index up to the facts, for the models that were touched.
    pub(crate) fn refresh_wants(&mut self) {
        while let Some(id) = self.wants.stale.pop_first() {
            let mut new = wants_of(self, id);
            self.hold_back(id, &mut new);
            let old = self.wants.of_model.remove(&id).unwrap_or_default();
            let mut known: Vec<(Class, PendingReplica)> = old
                .iter()
                .filter_map(|rank| Some((rank.class, self.wants.remove(rank)?)))
                .collect();
            let mut ranks = Vec::with_capacity(new.len());
            for (rank, mut want) in new {
                if rank.in_time && rank.class == Class::Request {
                    self.look_again(rank.since + self.patience(id), id);
                }
                // The same thing wanted, at most a little later: it is as blocked as it was.
                let same = |(class, it): &(Class, PendingReplica)| {
                    *class == rank.class && still_blocked(&it.ask, &want.ask)
                };
                if let Some(nth) = known.iter().position(same) {
                    want.blocked = known.swap_remove(nth).1.blocked;
                }
                self.wants.insert(rank, want);
                ranks.push(rank);
            }
            let gone = known.iter().filter_map(|(_, want)| want.blocked?.retry);
            self.wants.orphaned_retries.extend(gone);
            if !ranks.is_empty() {
                self.wants.of_model.insert(id, ranks);
            }
        }
    }

    /// What has to be fetched is not placed before it is here. What would not even fit into an empty pool
    /// is not fetched.
    fn hold_back(&mut self, id: ModelId, new: &mut Vec<(DemandRank, PendingReplica)>) {
        self.wants.to_fetch.remove(&id);
        if !self.models.get(&id).is_some_and(|it| it.spec.absent) {
            return;
        }
        let fits = |want: &PendingReplica| never_fits(self, &want.ask).is_none();
        let why = new.iter().find(|(_, want)| fits(want));
        let why = why.map(|(rank, want)| reason(self, rank, want));
        new.retain(|(_, want)| !fits(want));
        self.wants.to_fetch.extend(why.map(|why| (id, why)));
    }

    /// Whether those who wait for the model have waited less than is bearable, and if so how many
    /// requests its load serves for its time. Taking most requests per second of loading first, with
    /// a bound on how long one may be passed over, shortens the mean wait and the longest ones.
    fn pull(&self, id: ModelId, since: Time) -> (bool, u64) {
        let model = &self.models[&id];
        if since + self.patience(id) <= self.now {
            return (false, 0);
        }
        let waiting = model.queue.len() as u64;
        (true, waiting * 1_000_000 / self.comes_back_in(id).0.max(1))
    }

    /// How long a model may be passed over by others that more requests wait for.
    fn patience(&self, id: ModelId) -> Span {
        let half = Span(self.models[&id].spec.queue_timeout.0 / 2);
        half.min(PATIENCE_MAX)
    }

    /// Wants whose time has come are looked at again.
    pub(crate) fn retry_wants(&mut self) {
        while let Some(&(at, rank)) = self.wants.retries.first() {
            if at > self.now {
                break;
            }
            self.wants.retries.pop_first();
            if let Some(want) = self.wants.by_rank.get_mut(&rank) {
                want.blocked = None;
                self.wants.fresh.insert(rank);
                self.wants.fresher = true;
            }
        }
        let due = self
            .wants
            .orphaned_retries
            .first()
            .is_some_and(|at| *at <= self.now);
        if due {
            let now = self.now;
            self.wants.orphaned_retries.retain(|at| *at > now);
            self.grows_everywhere();
        }
    }
}

fn still_blocked(old: &Ask, new: &Ask) -> bool {
    old.since <= new.since
        && Ask {
            since: new.since,
            ..old.clone()
        } == *new
}

fn wants_of(pool: &Pool, id: ModelId) -> Vec<(DemandRank, PendingReplica)> {
    let mut wants = Vec::new();
    let mut push = |class: Class, ask: Ask, order: Option<OrderId>| {
        let (in_time, pull) = match class {
            Class::Request => pool.pull(id, ask.since),
            Class::Order | Class::Standing | Class::Growth => (false, 0),
        };
        let rank = DemandRank {
            unforced: ask.forced_by.is_none(),
            priority: Reverse(ask.priority),
            class,
            in_time,
            pull: Reverse(pull),
            since: ask.since,
            model: id,
        };
        let blocked = None;
        wants.push((
            rank,
            PendingReplica {
                ask,
                order,
                blocked,
            },
        ));
    };
    let Some(model) = pool.models.get(&id).filter(|_| pool.closing.is_none()) else {
        return wants;
    };
    // Who falls asleep can be woken in a moment.
    let falls_asleep = |it: &&ReplicaId| matches!(pool.replicas[*it].phase, Phase::Parking { .. });
    let parking = model.replicas.iter().filter(falls_asleep).count();
    let coming = pool.live(model) + model.planned.len() + parking;
    if let Some((order, ask)) = orders::load_to_place(pool, id) {
        push(Class::Order, ask, Some(order));
    }
    if coming == 0
        && let Some(oldest) = model.queue.oldest()
    {
        let ask = Ask::of(pool, id, pool.tickets[&oldest].since);
        push(Class::Request, ask, None);
    }
    let cooling = model.cooling_until.is_some_and(|until| until > pool.now);
    let may_start =
        !model.removed && !cooling && !pool.is_quarantined(model) && model.planned.is_empty();
    if !may_start {
        return wants;
    }
    if model.restoring {
        let wish = model
            .wish
            .as_ref()
            .expect("a model that is restored has a wish");
        if pool.live(model) < wish.replicas as usize {
            let ask = Ask::of(pool, id, wish.since).over_devices(pool, wish.devices);
            push(Class::Standing, ask, None);
        }
    } else if pool.is_protected(id) && pool.live(model) == 0 && !model.kept_away() {
        push(Class::Standing, Ask::of(pool, id, model.since), None);
    }
    if pool.live(model) > 0 && coming < pool.scaled_to(id) {
        let mut ask = Ask::of(pool, id, model.since);
        ask.is_gentle = true;
        push(Class::Growth, ask, None);
    }
    wants
}

/// Why the want exists, for the history.
pub(crate) fn reason(pool: &Pool, rank: &DemandRank, want: &PendingReplica) -> LoadReason {
    let model = &pool.models[&rank.model];
    match (rank.class, want.order) {
        (Class::Order, Some(order)) => LoadReason::Order { order },
        (Class::Standing, _) if model.restoring => LoadReason::Wish,
        (Class::Standing, _) => LoadReason::AlwaysHot {
            priority: model.priority(),
        },
        (Class::Growth, _) => LoadReason::Growth {
            wanted: u32::try_from(pool.scaled_to(rank.model)).unwrap_or(u32::MAX),
        },
        _ => LoadReason::Requests {
            waiting: u32::try_from(model.queue.len()).unwrap_or(u32::MAX),
        },
    }
}
