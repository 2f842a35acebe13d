//! Finds what the load of a requested model is waiting for. Read-only.

use crate::facts::state::Pool;
use crate::plan::claim::Claim;
use crate::plan::{node_demand, obstacles};
use crate::types::ids::{ModelId, Time};
use crate::types::replica::Phase;
use crate::types::requirements::Requirements;
use crate::types::stall::StallReason;

pub(crate) fn find(pool: &Pool, id: ModelId, since: Time) -> StallReason {
    let model = &pool.models[&id];
    if model.fetch.is_some() {
        return StallReason::Fetching;
    }
    let (mut ready, mut in_flight, mut loading) = (0, 0, None);
    for replica in &model.replicas {
        let found = &pool.replicas[replica];
        match found.phase {
            Phase::Ready { .. } => {
                ready += 1;
                in_flight += found.in_flight;
            }
            Phase::Launching { since, .. } => {
                let known: &mut Option<(Time, _)> = &mut loading;
                if known.is_none_or(|(first, _)| since < first) {
                    *known = Some((since, pool.loads_in(*replica)));
                }
            }
            _ => {}
        }
    }
    if ready > 0 {
        return StallReason::Full {
            replicas: ready,
            in_flight,
        };
    }
    if let Some((since, expected)) = loading {
        return StallReason::Loading {
            since: pool.now.since(since),
            expected,
        };
    }
    if let Some(load) = model.planned.first() {
        let victims = pool.planned[load].victims.len();
        return StallReason::Leaving {
            victims: u32::try_from(victims).unwrap_or(u32::MAX),
        };
    }
    let requirements = Requirements::new(pool, id, since);
    let awaited = node_demand::awaited(pool, &requirements);
    let missing = awaited
        .iter()
        .min_by_key(|pending| pending.joined.is_some());
    if let Some(pending) = missing {
        return StallReason::Node {
            size: pending.shape_name.clone(),
            since: pool.now.since(pending.since),
            reason: pending.reason.clone(),
        };
    }
    let obstacles = obstacles::find(pool, &Claim::new(pool, &requirements), &[]);
    if obstacles.is_empty() {
        StallReason::Queued
    } else {
        StallReason::NoRoom { obstacles }
    }
}
