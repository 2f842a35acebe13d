//! The devices that a model may use according to its file (`pool_config.devices`), by name and label. Free memory plays no role
//! here.

use config::DeviceKind;
use serde::{Deserialize, Serialize};

/// Device constraints. Every given list must be met; within a list one matching entry is enough.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeviceConstraint {
    /// Device names as the pool assigns them, or UUIDs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Indices in the driver's order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub indices: Vec<u32>,
    /// Words of product names, ignoring case: `H100`, `A100 40GB`. Ray's `A10` also matches an A10G.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<String>,
    /// Labels from `inventory.devices`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The maker, from `pool_config.accelerator`.
    #[serde(skip)]
    pub accelerator: Option<DeviceKind>,
}

/// The names and numbers that identify a device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceFacts<'a> {
    pub name: &'a str,
    pub kind: DeviceKind,
    pub uuid: Option<&'a str>,
    pub index: u32,
    pub product: Option<&'a str>,
    pub labels: &'a [String],
}

impl DeviceConstraint {
    pub fn is_empty(&self) -> bool {
        *self == DeviceConstraint::default()
    }

    /// The maker, if the file states it and no other property of the devices.
    pub fn only_maker(&self) -> Option<DeviceKind> {
        let lists = DeviceConstraint {
            accelerator: None,
            ..self.clone()
        };
        self.accelerator.filter(|_| lists.is_empty())
    }

    pub fn allows(&self, device: DeviceFacts<'_>) -> bool {
        let product = device.product.unwrap_or_default().to_lowercase();
        let met = |is_set: bool, any: bool| !is_set || any;
        let named = |name: &String| name == device.name || Some(name.as_str()) == device.uuid;
        let made = |kind: &String| is_of_kind(&product, kind);
        let is_made_by = |maker: DeviceKind| maker == device.kind;
        self.accelerator.is_none_or(is_made_by)
            && met(!self.names.is_empty(), self.names.iter().any(named))
            && met(
                !self.indices.is_empty(),
                self.indices.contains(&device.index),
            )
            && met(!self.kinds.is_empty(), self.kinds.iter().any(made))
            && met(
                !self.labels.is_empty(),
                self.labels
                    .iter()
                    .any(|label| device.labels.contains(label)),
            )
    }
}

/// A list entry that matches no device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownDevice {
    /// The key in the model file.
    pub key: String,
    /// A message that lists the devices the pool has.
    pub problem: String,
}

impl std::fmt::Display for UnknownDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.key, self.problem)
    }
}

impl DeviceConstraint {
    /// Returns the entries that match none of these devices.
    pub fn unknown(&self, devices: &[DeviceFacts<'_>]) -> Vec<UnknownDevice> {
        let mut unknown = Vec::new();
        let all: Vec<String> = devices.iter().map(|device| shown(*device)).collect();
        let all = all.join(", ");
        if let Some(maker) = self.accelerator
            && !devices.iter().any(|device| device.kind == maker)
        {
            unknown.push(UnknownDevice {
                key: "pool_config.accelerator".to_owned(),
                problem: format!("no device is of the kind {}; there are {all}", maker.name()),
            });
        }
        let mut add = |list: &str, nth: usize, problem: String| {
            unknown.push(UnknownDevice {
                key: format!("pool_config.devices.{list}[{nth}]"),
                problem,
            });
        };
        for (nth, name) in self.names.iter().enumerate() {
            let is = |device: &DeviceFacts<'_>| device.name == name || device.uuid == Some(name);
            if !devices.iter().any(is) {
                let near = reading::nearest(name, devices.iter().map(|device| device.name));
                let near =
                    near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                let name = name.escape_debug();
                add(
                    "names",
                    nth,
                    format!("no device is called `{name}`{near}; there are {all}"),
                );
            }
        }
        for (nth, index) in self.indices.iter().enumerate() {
            if !devices.iter().any(|device| device.index == *index) {
                let indices: Vec<String> = devices
                    .iter()
                    .map(|device| device.index.to_string())
                    .collect();
                let problem = format!(
                    "no device has the index {index}; there are {}",
                    indices.join(", ")
                );
                add("indices", nth, problem);
            }
        }
        for (nth, kind) in self.kinds.iter().enumerate() {
            let is = |device: &DeviceFacts<'_>| {
                is_of_kind(&device.product.unwrap_or_default().to_lowercase(), kind)
            };
            if !devices.iter().any(is) {
                let kind = kind.escape_debug();
                let why = "a kind consists of words of a product name";
                add(
                    "kinds",
                    nth,
                    format!("no device is of the kind `{kind}`; {why}, and there are {all}"),
                );
            }
        }
        for (nth, label) in self.labels.iter().enumerate() {
            if !devices.iter().any(|device| device.labels.contains(label)) {
                let known = devices
                    .iter()
                    .flat_map(|device| device.labels)
                    .map(String::as_str);
                let known: std::collections::BTreeSet<&str> = known.collect();
                let known: Vec<&str> = known.into_iter().collect();
                let labels = if known.is_empty() {
                    "none has a label".to_owned()
                } else {
                    format!("there are {}", known.join(", "))
                };
                let label = label.escape_debug();
                add(
                    "labels",
                    nth,
                    format!(
                        "no device has the label `{label}`; inventory.devices sets labels, and {labels}"
                    ),
                );
            }
        }
        unknown
    }
}

/// Formats a device as `gpu0 (NVIDIA H100 80GB HBM3)`, or with its kind if its product is unknown.
fn shown(device: DeviceFacts<'_>) -> String {
    let product = device.product.unwrap_or(device.kind.name());
    format!("{} ({product})", device.name)
}

impl DeviceConstraint {
    /// The keys of the model file that restrict the devices, as `pool_config.devices and pool_config.accelerator amd`.
    pub fn keys(&self) -> String {
        let lists = DeviceConstraint {
            accelerator: None,
            ..self.clone()
        };
        let lists = (!lists.is_empty()).then(|| "pool_config.devices".to_owned());
        let maker = self.accelerator;
        let maker = maker.map(|maker| format!("pool_config.accelerator {}", maker.name()));
        let keys: Vec<String> = lists.into_iter().chain(maker).collect();
        keys.join(" and ")
    }
}

/// Returns true if the product has every word of `kind` as a word: `A10` does not match `NVIDIA A100-SXM4-40GB`.
fn is_of_kind(product: &str, kind: &str) -> bool {
    let words = |text: &str| -> Vec<String> {
        let parts = text.split(|letter: char| !letter.is_alphanumeric());
        parts
            .filter(|part| !part.is_empty())
            .map(str::to_lowercase)
            .collect()
    };
    let made = words(product);
    let is_word = |wanted: &String| {
        let is_memory = wanted.ends_with('g') && wanted[..wanted.len() - 1].parse::<u32>().is_ok();
        made.iter().any(|word| {
            word == wanted
                || (is_memory && word.strip_suffix('b') == Some(wanted))
                || (wanted == "a10" && word == "a10g")
        })
    };
    words(kind).iter().all(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: DeviceFacts<'static> = DeviceFacts {
        name: "gpu3",
        kind: DeviceKind::Nvidia,
        uuid: Some("GPU-3"),
        index: 3,
        product: Some("NVIDIA H100 80GB HBM3"),
        labels: &[],
    };

    #[test]
    fn a_device_kind_matches_complete_words_of_the_product_name() {
        let a100 = "NVIDIA A100-SXM4-40GB";
        for (product, kind, fits) in [
            (a100, "A100", true),
            (a100, "a100 40g", true),
            (a100, "A100-40GB", true),
            (a100, "A100-80G", false),
            (a100, "A10", false),
            ("NVIDIA A10G", "A10", true),
            ("NVIDIA L40S", "L4", false),
            ("NVIDIA GeForce RTX 4090", "rtx 4090", true),
        ] {
            assert_eq!(is_of_kind(product, kind), fits, "{kind} of {product}");
        }
    }

    #[test]
    fn entries_that_match_no_device_are_reported_with_the_existing_devices() {
        let unknown = |text: &str| {
            let constraint: DeviceConstraint = serde_json::from_str(text).expect(text);
            let unknown = constraint.unknown(&[DEVICE]);
            let texts: Vec<String> = unknown.iter().map(ToString::to_string).collect();
            texts.join("; ")
        };
        assert_eq!(
            unknown(r#"{"names": ["gpu3", "GPU-3"], "kinds": ["h100"], "indices": [3]}"#),
            ""
        );
        for (text, parts) in [
            (
                r#"{"names": ["gpu3", "gpu9"]}"#,
                ["devices.names[1]", "did you mean `gpu3`?"],
            ),
            (
                r#"{"names": ["tpu"]}"#,
                ["called `tpu`", "gpu3 (NVIDIA H100 80GB HBM3)"],
            ),
            (r#"{"indices": [7]}"#, ["devices.indices[0]", "there are 3"]),
            (r#"{"kinds": ["A100"]}"#, ["kind `A100`", "NVIDIA H100"]),
            (
                r#"{"labels": ["fast"]}"#,
                ["label `fast`", "none has a label"],
            ),
        ] {
            let message = unknown(text);
            assert!(
                parts.iter().all(|part| message.contains(part)),
                "{text}: {message}"
            );
        }
    }

    #[test]
    fn every_list_must_match_with_at_least_one_entry() {
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

    #[test]
    fn an_accelerator_is_the_maker_of_the_device() {
        let of = |maker| DeviceConstraint {
            accelerator: Some(maker),
            indices: vec![3],
            ..Default::default()
        };
        assert!(of(DeviceKind::Nvidia).allows(DEVICE));
        let amd = of(DeviceKind::Amd);
        assert!(!amd.allows(DEVICE));
        let unknown = amd.unknown(&[DEVICE])[0].to_string();
        assert_eq!(
            unknown,
            "pool_config.accelerator: no device is of the kind amd; there are gpu3 (NVIDIA H100 80GB HBM3)"
        );
        assert_eq!(
            amd.keys(),
            "pool_config.devices and pool_config.accelerator amd"
        );
    }
}
