//! Room for the first of those who want a replica. Part of `plan::next`; changes nothing.
//!
//! Wants are looked at in the order of their rank: those that are new, and, when room may have grown
//! somewhere, those that were blocked before. A want that asks for at least as much, with no better
//! standing than one that is blocked, is blocked too and is not worked out; so a long queue costs a few
//! plans, not as many as there are models in it.

use super::ask::never_fits;
use super::decision::{Decision, Prospect};
use super::ids::{Bytes, ModelId, Priority, Span, Time};
use super::obstacles;
use super::place;
use super::rank::{Class, DemandRank};
use super::state::Pool;
use super::wants::{self, Want};

pub(super) fn make_room(pool: &Pool) -> Option<Decision> {
    if pool.closing.is_some() {
        return None;
    }
    let agenda = &pool.agenda;
    if agenda.grown.is_empty() && !agenda.grown_everywhere {
        if !pool.wants.fresher && !pool.promises_changed {
            return None;
        }
        let mut fresh = pool.wants.fresh.iter();
        let next = fresh.find(|rank| !behind_others(pool, &pool.wants.by_rank[*rank]))?;
        return Some(decide(pool, next, &pool.wants.by_rank[next]));
    }
    let mut blocked = Blocking::default();
    for (rank, want) in &pool.wants.by_rank {
        match want.blocked {
            _ if behind_others(pool, want) => continue,
            None => return Some(decide(pool, rank, want)),
            Some(known) if known.growths == pool.wants.growths => {}
            // Somebody waits at the other end: what is hopeless now is said at once.
            Some(_) if rank.class == Class::Order => return Some(decide(pool, rank, want)),
            Some(_) if blocked.covers(pool, want) => continue,
            Some(_) if agenda.grown_everywhere => return Some(decide(pool, rank, want)),
            Some(_) if place::fits_on(pool, &want.ask, &agenda.grown) => {
                return Some(decide(pool, rank, want));
            }
            Some(known) => {
                let here = obstacles::retry_on(pool, &want.ask, &agenda.grown);
                return Some(Decision::Block {
                    rank: *rank,
                    retry: known.retry.into_iter().chain(here).min(),
                });
            }
        }
        blocked.add(pool, want);
    }
    None
}

/// A load reads from the disk or link that it would use, and another one as important waits for it
/// already: nothing is evicted for it before its time.
fn behind_others(pool: &Pool, want: &Want) -> bool {
    let Some(loader) = pool.models[&want.ask.model].spec.loader else {
        return false;
    };
    let same = |model: &ModelId| {
        let other = pool.models[model].spec.loader;
        other.is_some_and(|other| other.loader == loader.loader)
    };
    let in_use = pool
        .reading
        .iter()
        .filter(|(_, it, _)| *it == loader.loader)
        .count();
    let nodes = pool.nodes.len().max(1);
    // What can never be had is said at once.
    in_use >= nodes
        && never_fits(pool, &want.ask).is_none()
        && pool
            .planned
            .values()
            .filter(|planned| same(&planned.model))
            .filter(|planned| pool.priority(planned.model) >= want.ask.priority)
            .count()
            >= nodes
}

fn decide(pool: &Pool, rank: &DemandRank, want: &Want) -> Decision {
    let plan = place::place(pool, &want.ask);
    let Some(refusal) = plan.refusal.clone() else {
        return Decision::Promise {
            plan: Box::new(plan),
            why: wants::reason(pool, rank, want),
            order: want.order,
        };
    };
    let waits = match rank.class {
        Class::Order => plan.prospect <= Prospect::Soon,
        Class::Request | Class::Standing => plan.prospect <= Prospect::WhenOthersLeave,
    };
    let model = rank.model;
    if !waits {
        match rank.class {
            Class::Order => {
                let order = want.order.expect("an order's want names it");
                return Decision::Shorten { order, refusal };
            }
            Class::Request => {
                let ticket = pool.models[&model].queue.first().expect("somebody waits");
                return Decision::Refuse { ticket, refusal };
            }
            Class::Standing if pool.models[&model].restoring => {
                return Decision::GiveUpWish { model, refusal };
            }
            Class::Standing => {}
        }
    }
    Decision::Block {
        rank: *rank,
        retry: plan.retry,
    }
}

/// What is known to be blocked, reduced to the least demanding.
#[derive(Default)]
struct Blocking {
    least: Vec<Least>,
}

struct Least {
    forced: bool,
    priority: Priority,
    since: Time,
    /// A longer swap means longer turns of those in the way (P3).
    swap: Span,
    devices: u32,
    bytes: Bytes,
}

impl Least {
    fn of(pool: &Pool, want: &Want) -> Option<Least> {
        let ask = &want.ask;
        let model = &pool.models[&ask.model];
        // What only some devices can serve, or needs more on some, cannot speak for others.
        let plain = model.spec.allowed.is_none() && ask.by_kind.is_empty();
        plain.then_some(Least {
            forced: ask.forced_by.is_some(),
            priority: ask.priority,
            since: ask.since,
            swap: model.reload(),
            devices: ask.devices,
            bytes: ask.bytes,
        })
    }
}

impl Blocking {
    fn add(&mut self, pool: &Pool, want: &Want) {
        // A model does not evict itself, but others might: it speaks for nobody while it is there.
        if !pool.models[&want.ask.model].replicas.is_empty() {
            return;
        }
        self.least.extend(Least::of(pool, want));
    }

    fn covers(&self, pool: &Pool, want: &Want) -> bool {
        let Some(it) = Least::of(pool, want) else {
            return false;
        };
        self.least.iter().any(|least| {
            least.forced >= it.forced
                && least.priority >= it.priority
                && least.since <= it.since
                && least.swap <= it.swap
                && least.devices <= it.devices
                && least.bytes <= it.bytes
        })
    }
}
