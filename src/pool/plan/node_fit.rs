//! Checks if nodes of a size hold a replica, or everything that has to move from a node that ends (N7). Changes nothing.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::facts::state::Pool;
use crate::plan::node_choice::{self, Choice};
use crate::plan::place::place;
use crate::types::ids::{Bytes, ModelId};
use crate::types::node_demand::NodeShape;
use crate::types::requirements::Requirements;

/// For a model that moves because its node ends: the cheapest size that holds everything that has to move from there and has no
/// free place (N7). This requests one node for all of them instead of one after another.
pub(crate) fn successor(pool: &Pool, requirements: &Requirements) -> Choice {
    let all = moves_with(pool, requirements);
    if all.is_empty() {
        return Choice::Nothing;
    }
    node_choice::choose(pool, |shape| {
        hold_together(pool, &all, shape) && holds(pool, requirements, shape)
    })
}

/// Everything that has to move from the model's node and has no free place; empty if the model does not have to move.
pub(crate) fn moves_with(pool: &Pool, requirements: &Requirements) -> Vec<Requirements> {
    let mut all = Vec::new();
    let Some((node, _)) = pool.moves_from(requirements.model) else {
        return all;
    };
    if pool.moves_lacking(requirements.model) == 0 {
        return all;
    }
    let models: BTreeSet<ModelId> = pool
        .replicas_on(node)
        .iter()
        .map(|id| pool.replicas[id].model)
        .collect();
    for model in models {
        let since = pool.models[&model].since;
        let lacking = pool.moves_lacking(model);
        let coming = pool.models[&model].planned.len();
        for _ in coming..lacking {
            let one = Requirements::new(pool, model, since);
            if one.nodes > 1 {
                continue;
            }
            let plan = place(pool, &one);
            if plan.refusal.is_some() || !plan.victims.is_empty() {
                all.push(one);
            }
        }
    }
    all
}

/// Returns true if an empty node of this size holds all of them. Places the largest first, each where it fits best.
pub(crate) fn hold_together<'a>(
    pool: &Pool,
    all: impl IntoIterator<Item = &'a Requirements>,
    shape: &NodeShape,
) -> bool {
    let mut free: Vec<Bytes> = (0..shape.devices).map(|_| shape.bytes_per_device).collect();
    let mut order: Vec<&Requirements> = all.into_iter().collect();
    order.sort_by_key(|requirements| {
        Reverse((
            requirements.devices,
            requirements.bytes_on(shape.kind),
            requirements.model,
        ))
    });
    for requirements in order {
        let bytes = requirements.bytes_on(shape.kind);
        free.sort();
        let first = free.partition_point(|device| *device < bytes);
        let last = first + requirements.devices as usize;
        if last > free.len() || !holds(pool, requirements, shape) {
            return false;
        }
        for device in &mut free[first..last] {
            *device = device.saturating_sub(bytes);
        }
    }
    true
}

/// Returns true if an empty node of this size holds it, or its part on one node.
pub(crate) fn holds(pool: &Pool, requirements: &Requirements, shape: &NodeShape) -> bool {
    let model = &pool.models[&requirements.model];
    // A new node has none of the devices that a model's file names, but may have devices of their maker.
    let is_allowed = match &model.spec.allowed_shapes {
        Some(shapes) => shapes.contains(&shape.shape),
        None => model.spec.allowed.is_none(),
    };
    is_allowed
        && requirements.devices_per_node() <= shape.devices
        && requirements.bytes_on(shape.kind) <= shape.bytes_per_device
}
