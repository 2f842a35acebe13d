//! The existing devices that a model may use, by its file.

use std::collections::BTreeSet;

use crate::control::Control;
use crate::view::ModelFacts;
use crate::view::device_facts::facts_of;
use catalog::{DeviceConstraint, DeviceFacts};
use inventory::DeviceInfo;
use pool::{DeviceId, Event, ModelId, NodeId};

impl Control {
    /// The devices that the model's file allows; `None` allows all.
    pub(crate) fn allowed(
        &self,
        name: &str,
        constraint: &DeviceConstraint,
    ) -> Option<BTreeSet<DeviceId>> {
        if constraint.is_empty() {
            return None;
        }
        let infos = || {
            self.devices
                .known
                .values()
                .map(|device| device.info.as_ref())
        };
        let allowed: BTreeSet<DeviceId> = infos()
            .filter(|info| constraint.allows(facts_of(info)))
            .map(|info| info.id)
            .collect();
        // The devices of expected nodes are unknown until the nodes join.
        if self.nodes.expects_any() {
            return Some(allowed);
        }
        let devices: Vec<DeviceFacts<'_>> = infos().map(facts_of).collect();
        for unknown in constraint.unknown(&devices) {
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
                "pool_config.devices allows none of the devices, so the model cannot be loaded; there are {}",
                there.join(", ")
            );
        }
        Some(allowed)
    }

    /// Decides for each model that only some devices may serve which of the node's devices it may use. The pool must know this
    /// before it adopts the node's engines.
    pub(crate) fn allowed_on(&self, node: NodeId) -> Vec<Event> {
        let of: Vec<DeviceId> = self.nodes.devices(node).into_iter().collect();
        let known = of.iter().filter_map(|id| self.devices.known.get(id));
        let infos: Vec<_> = known.map(|device| device.info.as_ref()).collect();
        let restricted = self.models.facts.iter().filter(|(_, facts)| {
            !facts.entry.recipe.is_remote() && !facts.entry.devices.is_empty()
        });
        let event = |(&model, facts): (&ModelId, &ModelFacts)| {
            let allows = |info: &&&DeviceInfo| facts.entry.devices.allows(facts_of(info));
            let allowed = infos.iter().filter(allows).map(|info| info.id).collect();
            let of = of.clone();
            Event::DevicesAllowed { model, of, allowed }
        };
        restricted.map(event).collect()
    }
}
