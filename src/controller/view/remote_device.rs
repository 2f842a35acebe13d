//! The device of remote models: it has no bytes, is on a separate node, and only remote models may use it. The pool then queues,
//! seats, cools down and unloads them by its ordinary rules, and evicts nothing for them. Readers do not see the device.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use catalog::{Catalog, Entry};
use engine::LivenessLimits;
use inventory::DeviceInfo;
use pool::{DeviceId, DeviceReading, Event, KindId, NodeId, PoolView};

/// No inventory assigns this number.
pub(crate) const REMOTE_DEVICE: DeviceId = DeviceId(u32::MAX);
pub(super) const REMOTE_DEVICE_NAME: &str = "elsewhere";

/// A remote server is probed less often than our own engines, and gets more time.
const HEARTBEAT_TIMES: u32 = 6;
const HEARTBEAT_TIMEOUT_TIMES: u32 = 5;

/// The event that creates the device, once the catalogue has a remote model. Repeating it has no effect.
pub(crate) fn place_for(catalog: &Catalog) -> Option<Event> {
    let is_remote = |entry: &Entry| entry.recipe.is_remote();
    catalog
        .entries()
        .values()
        .any(is_remote)
        .then(|| Event::DeviceRead {
            device: REMOTE_DEVICE,
            reading: DeviceReading {
                name: REMOTE_DEVICE_NAME.to_owned(),
                node: NodeId(u32::MAX),
                kind: KindId(u32::MAX),
                ..DeviceReading::default()
            },
        })
}

/// The devices that a remote model may use; `None` if the model's file decides.
pub(crate) fn allowed(entry: &Entry) -> Option<BTreeSet<DeviceId>> {
    entry
        .recipe
        .is_remote()
        .then(|| BTreeSet::from([REMOTE_DEVICE]))
}

/// The names of devices in the history.
pub(crate) fn names_with_it(devices: &[DeviceInfo]) -> BTreeMap<DeviceId, String> {
    let named = devices.iter().map(|info| (info.id, info.name.clone()));
    named
        .chain([(REMOTE_DEVICE, REMOTE_DEVICE_NAME.to_owned())])
        .collect()
}

pub(crate) fn without_place(mut view: PoolView) -> PoolView {
    view.devices.retain(|device| device.device != REMOTE_DEVICE);
    view
}

/// Makes heartbeats rarer: each costs the other side too, and a token may cost money.
pub(crate) fn gentle(limits: LivenessLimits) -> LivenessLimits {
    let most = Duration::from_secs(3600);
    LivenessLimits {
        heartbeat: limits.heartbeat.saturating_mul(HEARTBEAT_TIMES).min(most),
        heartbeat_timeout: limits
            .heartbeat_timeout
            .saturating_mul(HEARTBEAT_TIMEOUT_TIMES)
            .min(most),
        idle_probe: None,
        ..limits
    }
}
