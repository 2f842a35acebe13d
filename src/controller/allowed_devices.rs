//! The existing devices that a model may use, by its file.

use std::collections::BTreeSet;

use super::control::Control;
use super::device_facts::facts_of;
use catalog::{DeviceConstraint, DeviceFacts};
use pool::DeviceId;

impl Control {
    /// The devices that the model's file allows; `None` allows all.
    pub(super) fn allowed(
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
}
