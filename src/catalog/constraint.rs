//! Which devices a model may use, as its file says (`pool_config.devices`). Knows names and labels, not
//! what is free.

use serde::{Deserialize, Serialize};

/// Every list that is given must be met; within a list one entry is enough.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeviceConstraint {
    /// As devices are called here, or their UUIDs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// In the driver's order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub indices: Vec<u32>,
    /// Parts of product names, in capitals or not: `H100`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<String>,
    /// Labels of `inventory.devices`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
}

/// What a device is known by.
#[derive(Clone, Copy, Debug)]
pub struct DeviceFacts<'a> {
    pub name: &'a str,
    pub uuid: Option<&'a str>,
    pub index: u32,
    pub product: Option<&'a str>,
    pub labels: &'a [String],
}

impl DeviceConstraint {
    pub fn is_empty(&self) -> bool {
        *self == DeviceConstraint::default()
    }

    pub fn allows(&self, device: DeviceFacts<'_>) -> bool {
        let product = device.product.unwrap_or_default().to_lowercase();
        let met = |given: bool, any: bool| !given || any;
        let named = |it: &String| it == device.name || Some(it.as_str()) == device.uuid;
        let made = |it: &String| product.contains(&it.to_lowercase());
        met(!self.names.is_empty(), self.names.iter().any(named))
            && met(
                !self.indices.is_empty(),
                self.indices.contains(&device.index),
            )
            && met(!self.kinds.is_empty(), self.kinds.iter().any(made))
            && met(
                !self.labels.is_empty(),
                self.labels.iter().any(|it| device.labels.contains(it)),
            )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: DeviceFacts<'static> = DeviceFacts {
        name: "gpu3",
        uuid: Some("GPU-3"),
        index: 3,
        product: Some("NVIDIA H100 80GB HBM3"),
        labels: &[],
    };

    #[test]
    fn every_list_must_be_met_and_within_it_one_entry_is_enough() {
        let allows = |text: &str| {
            let constraint: DeviceConstraint = serde_json::from_str(text).expect(text);
            constraint.allows(DEVICE)
        };
        assert!(allows("{}"));
        assert!(allows(r#"{"names": ["gpu0", "GPU-3"]}"#));
        assert!(allows(r#"{"kinds": ["h100"], "indices": [2, 3]}"#));
        assert!(!allows(r#"{"kinds": ["h100"], "indices": [2]}"#));
        assert!(!allows(r#"{"labels": ["fast"]}"#));
        let labels = ["fast".to_owned()];
        let labelled = DeviceFacts {
            labels: &labels,
            ..DEVICE
        };
        let constraint = DeviceConstraint {
            labels: labels.to_vec(),
            ..Default::default()
        };
        assert!(constraint.allows(labelled));
    }
}
