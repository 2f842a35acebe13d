//! The existing devices that a model may use, by its file.

use std::collections::BTreeSet;

use crate::control::devices::Devices;
use crate::control::models::Models;
use crate::control::nodes::Nodes;
use crate::view::ModelFacts;
use crate::view::device_facts::{facts_of, may_use, restriction};
use catalog::{DeviceFacts, Entry};
use inventory::DeviceInfo;
use pool::{DeviceId, Event, ModelId, NodeId};

/// The devices that the model may use; `None` allows all.
pub(super) fn allowed(
    entry: &Entry,
    devices: &Devices,
    nodes: &Nodes,
) -> Option<BTreeSet<DeviceId>> {
    let (name, constraint) = (&entry.name, &entry.devices);
    let infos = || {
        let known = devices.iter();
        known.map(|device| device.info.as_ref())
    };
    if constraint.is_empty() && infos().all(|info| may_use(entry, info)) {
        return None;
    }
    let allowed: BTreeSet<DeviceId> = infos()
        .filter(|info| may_use(entry, info))
        .map(|info| info.id)
        .collect();
    // The devices of expected nodes are unknown until the nodes join.
    if nodes.expects_any() {
        return Some(allowed);
    }
    let facts: Vec<DeviceFacts<'_>> = infos().map(facts_of).collect();
    for unknown in constraint.unknown(&facts) {
        tracing::warn!(model = name, "{unknown}");
    }
    if allowed.is_empty() {
        let there: Vec<String> = infos()
            .map(|info| match &info.product_name {
                Some(product) => format!("{} ({product})", info.name),
                None => info.name.clone(),
            })
            .collect();
        tracing::error!(
            model = name,
            "{} allows none of the devices, so the model cannot be loaded; there are {}",
            restriction(entry),
            there.join(", ")
        );
    }
    Some(allowed)
}

/// Decides for each model that only some devices may serve which of the node's devices it may use. The pool must know this
/// before it adopts the node's engines.
pub(crate) fn allowed_on(
    node: NodeId,
    devices: &Devices,
    nodes: &Nodes,
    models: &Models,
) -> Vec<Event> {
    let of: Vec<DeviceId> = nodes.devices(node).into_iter().collect();
    let known = of.iter().filter_map(|&id| devices.get(id));
    let infos: Vec<_> = known.map(|device| device.info.as_ref()).collect();
    let restricted = models.facts().iter().filter(|(_, facts)| {
        let entry = &facts.entry;
        let is_restricted =
            !entry.devices.is_empty() || !infos.iter().all(|info| may_use(entry, info));
        !entry.recipe.is_remote() && is_restricted
    });
    let event = |(&model, facts): (&ModelId, &ModelFacts)| {
        let allows = |info: &&&DeviceInfo| may_use(&facts.entry, info);
        let allowed = infos.iter().filter(allows).map(|info| info.id).collect();
        let of = of.clone();
        Event::DevicesAllowed { model, of, allowed }
    };
    restricted.map(event).collect()
}
