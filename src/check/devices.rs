//! The devices for placing models, and a check whether a model fits, using the core's own decision for an empty pool.

use std::collections::BTreeSet;

use crate::devices::unused;
use catalog::{DeviceFacts, Entry, PlacedDevice, UnknownDevice};
use config::Config;
use controller::facts_of;
use inventory::{DeviceInfo, DeviceKind, Inventory};
use pool::{
    Bytes, DeviceId, Event, LoadOrder, ModelId, ModelSpec, Pool, Priority, ReplicaId, Time,
};

const MODEL: ModelId = ModelId(0);
/// The key for the memory of a model.
const MEMORY: &str = "pool_config.memory_gib";
const ADVICE: &str = "use a smaller or quantised model, a shorter context, more GPUs (pool_config.gpus_per_replica), or a larger inventory.host_memory";

/// The devices of this machine, or of the configuration.
pub(super) struct Devices {
    infos: Vec<DeviceInfo>,
    provider: &'static str,
    /// A notice about a probable mistake in the devices.
    pub notice: Option<String>,
}

/// The placement of a replica in an empty pool.
pub(super) struct Placement {
    pub devices: Vec<PlacedDevice>,
    pub names: Vec<String>,
    pub bytes: Bytes,
}

impl Devices {
    /// Finds devices as `serve` does.
    pub fn open(config: &Config) -> Result<Devices, String> {
        let found = Inventory::open(&crate::devices::settings(config));
        let inventory = found.map_err(|error| error.to_string())?;
        Ok(Devices {
            infos: inventory.devices().to_vec(),
            provider: inventory.provider().name(),
            notice: inventory.notice(),
        })
    }

    /// Formats them as `gpu0 80.0 GiB (NVIDIA H100), gpu1 80.0 GiB; inventory.provider nvml`.
    pub fn describe(&self) -> String {
        let each = self.infos.iter().map(|info| {
            let product = info.product_name.as_ref();
            let product = product.map_or_else(String::new, |product| format!(" ({product})"));
            format!("{} {}{product}", info.name, info.total)
        });
        let each: Vec<String> = each.collect();
        format!(
            "{}; by inventory.provider {}",
            each.join(", "),
            self.provider
        )
    }

    /// The memory of the largest device that the model may use, or of the largest device if it may use none.
    pub fn largest_for(&self, entry: &Entry) -> Option<Bytes> {
        let largest = self.allowed(entry).map(|info| info.total).max();
        largest.or_else(|| self.infos.iter().map(|info| info.total).max())
    }

    /// Entries in the model's file for devices that do not exist.
    pub fn unknown(&self, entry: &Entry) -> Vec<UnknownDevice> {
        let facts: Vec<DeviceFacts<'_>> = self.infos.iter().map(facts_of).collect();
        entry.devices.unknown(&facts)
    }

    /// The placement of the model's first replica; or the key that prevents it, with the reason.
    pub fn place(
        &self,
        entry: &Entry,
        spec: &ModelSpec,
        config: &Config,
    ) -> Result<Placement, (&'static str, String)> {
        let allowed: BTreeSet<DeviceId> = self.allowed(entry).map(|info| info.id).collect();
        if allowed.is_empty() {
            let names: Vec<&str> = self.infos.iter().map(|info| info.name.as_str()).collect();
            let problem = format!(
                "pool_config.devices matches none of the devices ({}); correct it",
                names.join(", ")
            );
            return Err(("pool_config.devices", problem));
        }
        // Place it alone, without loading it automatically.
        let spec = ModelSpec {
            allowed: Some(allowed).filter(|_| !entry.devices.is_empty()),
            priority: Priority::default(),
            absent: false,
            ..spec.clone()
        };
        let mut pool = Pool::new(config.limits(), true, ReplicaId(1));
        let devices = self.infos.iter().map(|info| Event::DeviceRead {
            device: info.id,
            reading: unused(info),
        });
        let model = Event::ModelSet { model: MODEL, spec };
        let _ = pool.step_all(Time(0), devices.chain([model]));
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
        let fault = |why: String| (MEMORY, why);
        let plan = plan.ok_or_else(|| fault("the pool does not take the model".to_owned()))?;
        if let Some(refusal) = plan.refusal {
            return Err(fault(format!("it {refusal}; {ADVICE}")));
        }
        let held = |id: &DeviceId| self.infos.iter().find(|info| info.id == *id);
        let held: Vec<&DeviceInfo> = (plan.placement.iter())
            .filter_map(|share| held(&share.device))
            .collect();
        Ok(Placement {
            devices: held.iter().map(|info| placed(info)).collect(),
            names: held.iter().map(|info| info.name.clone()).collect(),
            bytes: plan.bytes,
        })
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

    fn allowed<'a>(&'a self, entry: &'a Entry) -> impl Iterator<Item = &'a DeviceInfo> {
        let infos = self.infos.iter();
        infos.filter(|info| entry.devices.is_empty() || entry.devices.allows(facts_of(info)))
    }
}

fn placed(info: &DeviceInfo) -> PlacedDevice {
    PlacedDevice {
        index: info.index,
        uuid: info.uuid.clone(),
        is_gpu: info.kind == DeviceKind::Nvidia,
        total: info.total,
    }
}
