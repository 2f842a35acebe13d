//! Devices with the owners of their memory, and the waiting requests.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

use super::cordons::CordonView;
use super::nodes::name_of;
use super::values::at;
use controller::Snapshot;
use pool::{DeviceId, KeyId, ModelId, ReplicaState};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct DeviceList {
    /// Source of the memory figures: `host`, `nvml`, `amd`, `intel`, `command` or `fixed`.
    #[schema(example = "nvml")]
    pub provider: &'static str,
    pub devices: Vec<DeviceView>,
    /// Host memory of nodes.
    pub hosts: Vec<HostView>,
}

/// Host memory of a node that sleeping engines and parts of loaded models use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct HostView {
    #[schema(example = "gpu-2")]
    pub node: String,
    /// Limit for all sleeping replicas together, in bytes.
    pub capacity_bytes: u64,
    /// Bytes held by sleeping replicas.
    pub held_bytes: u64,
    /// Bytes that loaded models keep on the host in addition to their devices.
    pub parts_bytes: u64,
    /// Available bytes according to the operating system, without those parts.
    pub available_bytes: u64,
    pub sleepers: u32,
}

/// A GPU, or the host's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct DeviceView {
    #[schema(example = "gpu0")]
    pub device: String,
    /// Product name that the device reports.
    #[schema(example = "NVIDIA H100 80GB HBM3")]
    pub name: Option<String>,
    /// Maker of the device: `nvidia`, `amd`, `intel` or `other`; `host` for the memory of the machine.
    #[schema(example = "nvidia")]
    pub accelerator: Option<&'static str>,
    #[schema(example = "gpu-2")]
    pub node: String,
    pub uuid: Option<String>,
    /// The device has no separate memory and shares the machine's.
    pub unified: bool,
    /// NVIDIA's Multi-Process Service runs: an error of one engine on the device ends all engines there.
    pub mps: bool,
    pub total_bytes: u64,
    /// Bytes kept free as a safety margin.
    pub headroom_bytes: u64,
    /// Bytes held by other processes: never free and never evictable (M2).
    pub foreign_bytes: u64,
    /// Measured bytes that replicas hold beyond their reservation.
    pub excess_bytes: u64,
    /// Bytes of ended processes that are not free yet (M4).
    pub settling_bytes: u64,
    /// Bytes reserved for replicas, used or not.
    pub reserved_bytes: u64,
    /// Bytes available for the next load.
    pub free_bytes: u64,
    /// Measured bytes used by all processes.
    pub used_bytes: Option<u64>,
    #[schema(maximum = 100)]
    pub utilisation_percent: Option<u32>,
    pub temperature_celsius: Option<u32>,
    pub owners: Vec<Owner>,
    /// The cordon, if the device takes no new replicas (M7).
    pub cordon: Option<CordonView>,
    /// Time of the measurement.
    pub read_at: Option<String>,
    /// The error if the device cannot be read. The figures are then the last known ones.
    pub stale: Option<String>,
}

/// A replica that holds a part of the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Owner {
    #[schema(example = "r3")]
    pub replica: String,
    pub model: String,
    /// Reserved bytes.
    pub bytes: u64,
    /// Measured bytes of the replica's processes.
    pub measured_bytes: Option<u64>,
    #[schema(example = "ready")]
    pub state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct QueueView {
    /// Waiting requests, in the order in which each model serves them.
    pub waiting: Vec<WaitingView>,
    /// Administrators' unfinished orders.
    pub orders: Vec<OrderView>,
}

/// A request that waits for a seat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct WaitingView {
    #[schema(example = "t17")]
    pub ticket: String,
    pub model: String,
    /// Name of the API key, or `anonymous`.
    #[schema(example = "anonymous")]
    pub key: String,
    /// Path of the key's group from the top. Null without a group.
    #[schema(example = "physics/lab")]
    pub group: Option<String>,
    /// Position in the queue; 1 is next.
    pub position: u32,
    pub waited_ms: u64,
    /// Expected time until the request gets its seat.
    pub expected_ms: u64,
    /// Range of nine in ten waits with this forecast, if later requests or unmeasured loads may change it by more than a fifth.
    #[schema(example = 4000)]
    pub expected_ms_min: Option<u64>,
    #[schema(example = 12000)]
    pub expected_ms_max: Option<u64>,
    /// Current stage of the model.
    #[schema(example = "loading")]
    pub stage: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct OrderView {
    #[schema(example = "o5")]
    pub order: String,
    #[schema(example = "load")]
    pub what: &'static str,
    pub model: Option<String>,
    /// Time since the order was given.
    pub since_ms: u64,
}

impl HostView {
    fn new(host: &pool::HostView, snapshot: &Snapshot) -> HostView {
        HostView {
            node: name_of(host.node, snapshot),
            capacity_bytes: host.capacity.0,
            held_bytes: host.held.0,
            parts_bytes: host.parts.0,
            available_bytes: host.available.0,
            sleepers: host.sleepers,
        }
    }
}

impl DeviceList {
    pub fn from_snapshot(snapshot: &Snapshot) -> DeviceList {
        let mut owners = owners(snapshot);
        let devices = snapshot.pool.devices.iter().map(|device| {
            let owners = owners.remove(&device.device).unwrap_or_default();
            DeviceView::new(device, owners, snapshot)
        });
        let hosts = snapshot.pool.hosts.iter();
        DeviceList {
            provider: snapshot.provider.name(),
            devices: devices.collect(),
            hosts: hosts.map(|host| HostView::new(host, snapshot)).collect(),
        }
    }
}

/// Owners of each device's memory, computed for all devices in one pass: there may be thousands of devices and replicas.
fn owners(snapshot: &Snapshot) -> BTreeMap<DeviceId, Vec<Owner>> {
    let mut all: BTreeMap<DeviceId, Vec<Owner>> = BTreeMap::new();
    for model in &snapshot.pool.models {
        // A planned load holds nothing yet.
        let is_there = |replica: &&pool::ReplicaView| replica.state != ReplicaState::Planned;
        for replica in model.replicas.iter().filter(is_there) {
            let mut held: BTreeMap<DeviceId, u64> = BTreeMap::new();
            for share in &replica.shares {
                *held.entry(share.device).or_default() += share.bytes.0;
            }
            for (device, bytes) in held.into_iter().filter(|(_, bytes)| *bytes > 0) {
                let known = snapshot.devices.get(&device);
                let measured = known.and_then(|known| known.own.get(&replica.replica));
                all.entry(device).or_default().push(Owner {
                    replica: replica.replica.to_string(),
                    model: model.name.clone(),
                    bytes,
                    measured_bytes: measured.map(|bytes| bytes.0),
                    state: replica.state.name(),
                });
            }
        }
    }
    all
}

impl DeviceView {
    fn new(device: &pool::DeviceView, owners: Vec<Owner>, snapshot: &Snapshot) -> DeviceView {
        let known = snapshot.devices.get(&device.device);
        let info = known.map(|known| &known.info);
        let used = known.and_then(|known| known.used.as_ref());
        DeviceView {
            device: snapshot.device_name(device.device),
            name: info.and_then(|info| info.product_name.clone()),
            accelerator: info.map(|info| info.kind.name()),
            node: match info {
                Some(info) => info.node_name.clone(),
                None => name_of(device.node, snapshot),
            },
            uuid: info.and_then(|info| info.uuid.clone()),
            unified: info.is_some_and(|info| info.is_unified),
            mps: info.is_some_and(|info| info.has_mps),
            total_bytes: device.total.0,
            headroom_bytes: device.headroom.0,
            foreign_bytes: device.foreign.0,
            excess_bytes: device.excess.0,
            settling_bytes: device.settling.0,
            reserved_bytes: device.reserved.0,
            free_bytes: device.free.0,
            used_bytes: used.map(|used| used.used.0),
            utilisation_percent: used.and_then(|used| used.utilisation_percent),
            temperature_celsius: used.and_then(|used| used.temperature_celsius),
            owners,
            cordon: device.cordon.as_ref().map(CordonView::new),
            read_at: known.and_then(|known| known.read_at).map(at),
            stale: known
                .and_then(|known| known.stale.as_ref())
                .map(|stale| stale.why.clone()),
        }
    }
}

impl WaitingView {
    fn from_snapshot(
        snapshot: &Snapshot,
        request: &pool::WaitingView,
        key_name: &dyn Fn(KeyId) -> String,
        group: Option<String>,
    ) -> WaitingView {
        WaitingView {
            ticket: request.ticket.to_string(),
            model: model_name(snapshot, request.model),
            key: match request.key {
                KeyId(0) => "anonymous".to_owned(),
                key => key_name(key),
            },
            group,
            position: request.position,
            waited_ms: snapshot.pool.now.since(request.since).0,
            expected_ms: request.expected.0,
            expected_ms_min: request.range.map(|range| range.least.0),
            expected_ms_max: request.range.map(|range| range.most.0),
            stage: stage(snapshot, request.model),
        }
    }

    /// The requests of one key, with key ids instead of names.
    pub fn of_key(snapshot: &Snapshot, key: KeyId) -> Vec<WaitingView> {
        let own = snapshot
            .pool
            .waiting
            .iter()
            .filter(|request| request.key == key);
        own.map(|request| {
            WaitingView::from_snapshot(snapshot, request, &|key| key.to_string(), None)
        })
        .collect()
    }
}

impl QueueView {
    pub fn empty() -> QueueView {
        QueueView {
            waiting: Vec::new(),
            orders: Vec::new(),
        }
    }

    /// `key_name` returns the name of a key; it is called only with existing keys. `group_of` returns the path of its group.
    pub fn from_snapshot(
        snapshot: &Snapshot,
        key_name: &dyn Fn(KeyId) -> String,
        group_of: &dyn Fn(KeyId) -> Option<String>,
    ) -> QueueView {
        let pool = &snapshot.pool;
        let waiting = pool.waiting.iter();
        let waiting = waiting.map(|request| {
            WaitingView::from_snapshot(snapshot, request, key_name, group_of(request.key))
        });
        let orders = pool.orders.iter().map(|order| OrderView {
            order: order.order.to_string(),
            what: order.what,
            model: order.model.map(|model| model_name(snapshot, model)),
            since_ms: pool.now.since(order.since).0,
        });
        QueueView {
            waiting: waiting.collect(),
            orders: orders.collect(),
        }
    }
}

fn model_name(snapshot: &Snapshot, model: ModelId) -> String {
    let view = snapshot.pool.models.iter().find(|view| view.model == model);
    view.map_or_else(|| model.to_string(), |view| view.name.clone())
}

/// The stage reported by the model's engine, or else the model's state.
fn stage(snapshot: &Snapshot, model: ModelId) -> String {
    let processes = snapshot
        .processes
        .values()
        .filter(|process| process.model == model);
    let stage = processes
        .filter_map(|process| Some(process.stage.as_ref()?.stage.to_string()))
        .next();
    let view = snapshot.pool.models.iter().find(|view| view.model == model);
    stage.unwrap_or_else(|| view.map_or("waiting", |view| view.state.name()).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dto::snapshots::{GIB, of_pool, pool};
    use crate::dto::{HotModels, find};

    #[test]
    fn the_owners_of_a_device_are_listed_with_its_memory() {
        let mut pool = pool(&[("a", 0, 10), ("b", 1, 5)]);
        let replica = pool.load("a").to_string();
        let devices = serde_json::to_value(DeviceList::from_snapshot(&of_pool(&pool))).unwrap();
        let expected = serde_json::json!({
            "provider": "nvml", "devices": [{
                "device": "gpu0", "name": "Test GPU", "accelerator": "nvidia", "node": "here", "uuid": null, "unified": false, "mps": false, "total_bytes": 24 * GIB,
                "headroom_bytes": 0, "foreign_bytes": 0, "excess_bytes": 0, "settling_bytes": 0,
                "reserved_bytes": 10 * GIB, "free_bytes": 14 * GIB,
                "used_bytes": null, "utilisation_percent": null, "temperature_celsius": null,
                "owners": [{"replica": replica, "model": "a", "bytes": 10 * GIB, "measured_bytes": null, "state": "ready"}],
                "cordon": null, "read_at": super::at(pool.now), "stale": null,
            }],
            "hosts": [],
        });
        assert_eq!(devices, expected);
    }

    #[test]
    fn a_model_is_shown_with_its_replicas_and_matches_the_list_of_hot_models() {
        let mut pool = pool(&[("b", 0, 5), ("a", 1, 10)]);
        pool.load("a");
        let snapshot = std::sync::Arc::new(of_pool(&pool));
        let view = find(&snapshot, "a").unwrap();
        assert_eq!(
            (
                view.state,
                view.priority,
                view.wished_replicas,
                view.requests_total
            ),
            ("ready", 1, 1, 1)
        );
        assert_eq!((view.engine, view.source.as_str()), ("unknown", "removed"));
        assert_eq!(view.replicas[0].devices[0].device, "gpu0");
        assert!(view.replicas[0].ready_at.is_some() && view.replicas[0].expires_at.is_some());
        assert!(find(&snapshot, "c").is_none());
        let hot = HotModels::from_snapshot(&snapshot, |_, _| true);
        assert_eq!(hot.hot_models[0].model_name, "a");
        assert_eq!(
            (hot.hot_models[0].num_replicas, hot.cold_models),
            (1, vec!["b".to_owned()])
        );
    }
}
