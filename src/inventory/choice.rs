//! Matches the configured devices with the devices of a driver, and applies their configured memory and names. A mismatch is an
//! error at the start; a GPU is never silently left out.

use std::collections::BTreeMap;
use std::fmt;

use super::visible::slices_of;
use super::{DeviceInfo, InventoryError};
use pool::{Bytes, DeviceId};

/// One device as configured under a provider that finds them. It is found by its `uuid`, else by its `index`, else by its `name` (`gpu0`); the
/// other values must match the GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceChoice {
    /// The device's new name, if it is found by index or UUID.
    pub name: Option<String>,
    pub index: Option<u32>,
    pub uuid: Option<String>,
    /// Limit of the pool's memory on the GPU; less than the GPU has.
    pub memory: Option<Bytes>,
    pub labels: Vec<String>,
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let index = self.index.map(|index| format!("index {index}"));
        let uuid = self.uuid.as_ref().map(|uuid| format!("uuid {uuid}"));
        let name = self.name.as_ref().map(|name| format!("name {name}"));
        let words: Vec<String> = [uuid, index, name].into_iter().flatten().collect();
        if words.is_empty() {
            f.write_str("no GPU (it has no name, index or uuid)")
        } else {
            f.write_str(&words.join(" and "))
        }
    }
}

/// The configured GPUs, renumbered in the order of the configuration; all GPUs if none is configured.
pub(super) fn choose(
    found: Vec<DeviceInfo>,
    choices: &[DeviceChoice],
) -> Result<Vec<DeviceInfo>, InventoryError> {
    if choices.is_empty() {
        return Ok(found);
    }
    let mut chosen: Vec<DeviceInfo> = Vec::with_capacity(choices.len());
    let mut named = BTreeMap::new();
    for (index, choice) in choices.iter().enumerate() {
        let no_such = |problem: String| InventoryError::NoSuchGpu {
            index,
            wanted: choice.to_string(),
            problem,
            known: list(&found),
        };
        let named_twice = |earlier| InventoryError::NamedTwice {
            index,
            earlier,
            wanted: choice.to_string(),
        };
        let mut device = find(&found, choice).map_err(no_such)?.clone();
        if let Some(earlier) = named.insert((device.index, device.partition), index) {
            return Err(named_twice(earlier));
        }
        if choice.index.is_some() || choice.uuid.is_some() {
            device.name = choice.name.clone().unwrap_or(device.name);
        }
        if let Some(earlier) = chosen.iter().position(|other| other.name == device.name) {
            return Err(named_twice(earlier));
        }
        if let Some(memory) = choice.memory {
            if memory > device.installed {
                return Err(InventoryError::MoreThanThere {
                    index,
                    wanted: choice.to_string(),
                    memory,
                    installed: device.installed,
                });
            }
            device.total = memory;
        }
        device.labels.clone_from(&choice.labels);
        device.id = DeviceId(u32::try_from(chosen.len()).unwrap_or(u32::MAX));
        chosen.push(device);
    }
    Ok(chosen)
}

fn find<'a>(found: &'a [DeviceInfo], choice: &DeviceChoice) -> Result<&'a DeviceInfo, String> {
    let by_uuid = |uuid: &String| found.iter().find(|gpu| gpu.uuid.as_ref() == Some(uuid));
    let by_index = |index: u32| found.iter().find(|gpu| gpu.index == index);
    match (&choice.uuid, choice.index, &choice.name) {
        (Some(uuid), index, _) => {
            let gpu = by_uuid(uuid).ok_or("there is no GPU of this uuid")?;
            match index {
                Some(index) if index != gpu.index => {
                    Err("the GPU of this uuid has another index".to_owned())
                }
                _ => Ok(gpu),
            }
        }
        (None, Some(index), _) => match by_index(index) {
            None => Err("there is no GPU of this index".to_owned()),
            Some(gpu) if gpu.is_slice() => Err(slices_of(found, |other| other.index == index)),
            Some(gpu) => Ok(gpu),
        },
        (None, None, Some(name)) => found
            .iter()
            .find(|gpu| &gpu.name == name)
            .ok_or_else(|| "there is no GPU of this name".to_owned()),
        (None, None, None) => Err("that chooses nothing".to_owned()),
    }
}

pub(super) fn list(found: &[DeviceInfo]) -> String {
    let each = found.iter().map(|gpu| {
        let uuid = gpu.uuid.as_deref().unwrap_or("no uuid");
        format!("{} (index {}, {uuid})", gpu.name, gpu.index)
    });
    each.collect::<Vec<_>>().join(", ")
}
