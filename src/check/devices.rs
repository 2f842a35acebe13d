//! The devices for placing models, and a check whether a model fits, using the core's own decision for an empty pool.

use std::collections::BTreeSet;

use crate::devices::unused;
use catalog::{DeviceFacts, DeviceSize, Entry, MemorySplit, PlacedDevice, UnknownDevice};
use config::{ClusterKind, Config, Provider};
use controller::{facts_of, may_use, restriction, size_of};
use inventory::{DeviceInfo, FixedDevice, Inventory, InventorySettings};
use pool::{
    Bytes, DeviceId, Event, HostReading, LoadOrder, ModelId, ModelSpec, Pool, Priority, ReplicaId,
    Time,
};

const MODEL: ModelId = ModelId(0);
/// The key for the memory of a model.
const MEMORY: &str = "pool_config.memory_gib";
const ADVICE: &str = "use a smaller or quantised model, a shorter context, more GPUs (pool_config.gpus_per_replica), or a larger inventory.host_memory";

/// The devices of this machine, or of the configuration.
pub(super) struct Devices {
    infos: Vec<DeviceInfo>,
    /// The devices of one node of each size that the cluster brings.
    of_cluster: Vec<DeviceInfo>,
    /// The machine's memory next to its devices, without other programs.
    host: Option<HostReading>,
    provider: String,
    left_out: Option<String>,
    /// A notice about a probable mistake in the devices.
    pub notice: Option<String>,
}

/// The placement of a replica in an empty pool.
pub(super) struct Placement {
    pub devices: Vec<PlacedDevice>,
    /// The names of the devices, or the size of the node.
    pub place: String,
    pub bytes: Bytes,
}

impl Devices {
    /// Finds devices as `serve` does.
    pub fn open(config: &Config) -> Result<Devices, String> {
        let found = Inventory::open(&crate::devices::settings(config));
        let inventory = found.map_err(|error| error.to_string())?;
        let nodes: BTreeSet<_> = inventory.devices().iter().map(|info| info.node).collect();
        let host = inventory.memory_for_sleepers().map(|machine| {
            let total = machine.total;
            config.parking.host_reading(total, total, nodes.len(), true)
        });
        Ok(Devices {
            host,
            infos: inventory.devices().to_vec(),
            of_cluster: devices_of_cluster(config)?,
            provider: inventory.providers(),
            left_out: inventory.left_out(),
            notice: inventory.notice(),
        })
    }

    /// Formats them as `gpu0 80.0 GiB (NVIDIA H100), gpu1 80.0 GiB; inventory.provider nvml`.
    pub fn describe(&self) -> String {
        let each = self.infos.iter().map(|info| {
            let product = info.product_name.as_ref();
            let product = product.map_or_else(String::new, |product| format!(" ({product})"));
            let unified = if info.is_unified {
                ", shared with the machine"
            } else {
                ""
            };
            format!("{} {}{unified}{product}", info.name, info.total)
        });
        let each: Vec<String> = each.collect();
        let others = self.left_out.as_ref();
        let others = others.map_or_else(String::new, |others| format!("; {others}"));
        let mut text = format!(
            "{}; by inventory.provider {}{others}",
            each.join(", "),
            self.provider
        );
        let mut sizes: Vec<&DeviceInfo> = self.of_cluster.iter().collect();
        sizes.dedup_by_key(|info| info.node);
        for size in sizes {
            let all = self.of_cluster.iter();
            let count = all.filter(|info| info.node == size.node).count();
            text += &format!(
                "; a node of size {}: {count} x {}",
                size.node_name, size.total
            );
        }
        text
    }

    /// The largest device that the model may use, or the largest device if it may use none.
    pub fn largest_for(&self, entry: &Entry) -> Option<DeviceSize> {
        let largest = self.allowed(entry).chain(self.of_cluster_for(entry));
        let largest = largest.max_by_key(|info| info.total);
        let largest = largest.or_else(|| self.infos.iter().max_by_key(|info| info.total));
        largest.map(size_of)
    }

    /// A warning about mapped weights that do not fit into the machine's memory.
    pub fn larger_than_host(&self, split: &MemorySplit) -> Option<String> {
        let most = self.host?.most()?;
        let is_larger = split.mapped > Bytes::ZERO && split.host > most;
        is_larger.then(|| {
            format!(
                "its mapped weights exceed the machine's memory: {} on the host, of which at most {most} stay in memory (M3); llama-server reads the others from the disk whenever it needs them; use a smaller quantisation, or put more of the model on GPUs",
                split.host
            )
        })
    }

    /// Entries in the model's file for devices that do not exist.
    pub fn unknown(&self, entry: &Entry) -> Vec<UnknownDevice> {
        let all = self.infos.iter().chain(self.of_cluster_for(entry));
        let facts: Vec<DeviceFacts<'_>> = all.map(facts_of).collect();
        entry.devices.unknown(&facts)
    }

    /// The placement of the model's first replica; or the key that prevents it, with the reason.
    pub fn place(
        &self,
        entry: &Entry,
        spec: &ModelSpec,
        config: &Config,
    ) -> Result<Placement, (&'static str, String)> {
        let here = self.place_here(entry, spec, config);
        // A new node has none of the devices that a model's file names, but may have devices of their maker.
        let may_use_nodes = entry.devices.is_empty() || entry.devices.only_maker().is_some();
        if here.is_ok() || !may_use_nodes || self.of_cluster.is_empty() {
            return here;
        }
        let of_cluster: Vec<DeviceInfo> = self.of_cluster_for(entry).cloned().collect();
        let spec = ModelSpec {
            allowed: None,
            ..spec.clone()
        };
        let on_node = place_on(&of_cluster, None, &spec, config);
        let on_node = on_node.map(|held| Placement {
            place: format!(
                "a node of size {}, which the cluster brings",
                held.devices[0].node_name
            ),
            ..held.placement()
        });
        on_node.map_err(|_| {
            let (key, why) = here.err().unwrap_or((MEMORY, String::new()));
            (
                key,
                format!("{why}; no node of cluster.shapes holds it either"),
            )
        })
    }

    fn place_here(
        &self,
        entry: &Entry,
        spec: &ModelSpec,
        config: &Config,
    ) -> Result<Placement, (&'static str, String)> {
        let allowed: BTreeSet<DeviceId> = self.allowed(entry).map(|info| info.id).collect();
        if allowed.is_empty() {
            let names: Vec<&str> = self.infos.iter().map(|info| info.name.as_str()).collect();
            let problem = format!(
                "{} matches none of the devices ({}); correct it",
                restriction(entry),
                names.join(", ")
            );
            return Err(("pool_config.devices", problem));
        }
        let spec = ModelSpec {
            allowed: Some(allowed).filter(|allowed| allowed.len() < self.infos.len()),
            ..spec.clone()
        };
        let held = place_on(&self.infos, self.host, &spec, config);
        held.map(|held| held.placement())
            .map_err(|why| (MEMORY, why))
    }

    /// Up to `count` devices for displaying the command line of a model that does not fit. Falls back to other devices if the model
    /// may use none.
    pub fn example(&self, entry: &Entry, count: u32) -> Vec<PlacedDevice> {
        let count = count as usize;
        let some: Vec<PlacedDevice> = self.allowed(entry).take(count).map(placed).collect();
        if some.is_empty() {
            self.infos.iter().take(count).map(placed).collect()
        } else {
            some
        }
    }

    /// The devices of new nodes that the model may use: all, or only devices of the maker in its file.
    fn of_cluster_for<'a>(&'a self, entry: &'a Entry) -> impl Iterator<Item = &'a DeviceInfo> {
        let maker = entry.devices.only_maker();
        let is_restricted = !entry.devices.is_empty();
        let devices = self.of_cluster.iter();
        devices.filter(move |info| !is_restricted || Some(info.kind) == maker)
    }

    fn allowed<'a>(&'a self, entry: &'a Entry) -> impl Iterator<Item = &'a DeviceInfo> {
        let infos = self.infos.iter();
        infos.filter(|info| may_use(entry, info))
    }
}

/// The devices of a placement, and the bytes on each.
struct HeldDevices<'a> {
    devices: Vec<&'a DeviceInfo>,
    bytes: Bytes,
}

impl HeldDevices<'_> {
    fn placement(&self) -> Placement {
        let names: Vec<&str> = self.devices.iter().map(|info| info.name.as_str()).collect();
        Placement {
            devices: self.devices.iter().map(|info| placed(info)).collect(),
            place: names.join(", "),
            bytes: self.bytes,
        }
    }
}

/// Places one replica on these devices and in this host memory, alone in the pool and without loading it automatically.
fn place_on<'a>(
    infos: &'a [DeviceInfo],
    host: Option<HostReading>,
    spec: &ModelSpec,
    config: &Config,
) -> Result<HeldDevices<'a>, String> {
    let spec = ModelSpec {
        priority: Priority::default(),
        absent: false,
        ..spec.clone()
    };
    let mut pool = Pool::new(config.limits(), true, ReplicaId(1));
    let devices = infos.iter().map(|info| Event::DeviceRead {
        device: info.id,
        reading: unused(info),
    });
    let nodes: BTreeSet<_> = infos.iter().map(|info| info.node).collect();
    let hosts = nodes.into_iter().filter_map(|node| {
        let reading = host?;
        Some(Event::HostRead { node, reading })
    });
    let model = Event::ModelSet { model: MODEL, spec };
    let _ = pool.step_all(Time(0), devices.chain(hosts).chain([model]));
    let load = LoadOrder {
        model: MODEL,
        replicas: Some(1),
        devices: None,
        priority: None,
        keep_hot: None,
        lease: None,
        force: false,
        waits: true,
    };
    let plan = pool.preview(Time(0), &load);
    let plan = plan.ok_or_else(|| "the pool does not take the model".to_owned())?;
    if let Some(refusal) = plan.refusal {
        return Err(format!("it {refusal}; {ADVICE}"));
    }
    let held = |id: &DeviceId| infos.iter().find(|info| info.id == *id);
    Ok(HeldDevices {
        devices: (plan.placement.iter())
            .filter_map(|share| held(&share.device))
            .collect(),
        bytes: plan.bytes,
    })
}

/// The devices of one node of each size, with the configured memory.
fn devices_of_cluster(config: &Config) -> Result<Vec<DeviceInfo>, String> {
    let mut devices = Vec::new();
    if config.cluster.kind != ClusterKind::None {
        for shape in &config.cluster.shapes {
            devices.extend((0..shape.gpus).map(|gpu| FixedDevice {
                name: format!("{}/gpu{gpu}", shape.name),
                memory: shape.memory.0,
                node: shape.name.clone(),
                product: None,
                kind: shape.maker(),
                labels: Vec::new(),
            }));
        }
    }
    if devices.is_empty() {
        return Ok(Vec::new());
    }
    let settings = InventorySettings {
        provider: Provider::Fixed,
        devices,
        choices: Vec::new(),
        environment: Default::default(),
        ..crate::devices::settings(config)
    };
    let inventory = Inventory::open(&settings).map_err(|error| error.to_string())?;
    Ok(inventory.devices().to_vec())
}

fn placed(info: &DeviceInfo) -> PlacedDevice {
    PlacedDevice {
        index: info.index,
        uuid: info.uuid.clone(),
        is_gpu: info.kind.is_gpu(),
        total: info.total,
    }
}
