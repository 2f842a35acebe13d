//! Computes what a model needs to be placed: its layouts, and the bytes of a replica on a device. Read-only.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::facts::device::Device;
use crate::facts::models::Model;
use crate::facts::state::Pool;
use crate::plan::{gang, host_room};
use crate::types::ids::{Bytes, DeviceId, KindId, ModelId, Time};
use crate::types::model::Layout;
use crate::types::objective::EvictsFrom;
use crate::types::obstacle::Unfit;
use crate::types::reason::Refusal;
use crate::types::requirements::Requirements;
use crate::types::share::Share;

impl Requirements {
    /// One more replica of the model, on the fewest devices that an empty pool could provide (M5).
    pub(crate) fn new(pool: &Pool, model: ModelId, since: Time) -> Requirements {
        let known = &pool.models[&model];
        let mut first = None;
        for layout in known.layouts() {
            let requirements = Requirements::over(pool, known, model, layout, since);
            if never_fits(pool, &requirements).is_none() {
                return requirements;
            }
            first.get_or_insert(requirements);
        }
        first.expect("a model has a layout")
    }

    fn over(
        pool: &Pool,
        known: &Model,
        model: ModelId,
        layout: Layout,
        since: Time,
    ) -> Requirements {
        let by_kind = known
            .learned
            .range((layout.devices, KindId(0))..=(layout.devices, KindId(u32::MAX)))
            .map(|(&(_, kind), &bytes)| (kind, bytes))
            .collect();
        Requirements {
            model,
            priority: pool.priority(model),
            devices: layout.devices.max(1),
            nodes: gang::nodes_for(pool, known, layout.devices.max(1)),
            bytes: layout.bytes_per_device,
            by_kind,
            forced_by: None,
            is_gentle: false,
            batch: None,
            past_idle: false,
            crowd: known.queue.len().max(1).ilog2(),
            least_served: None,
            evicts_from: EvictsFrom::default(),
            since,
        }
    }

    /// The same for another number of devices: the catalogue's figure, or the same weights divided among them.
    pub(crate) fn over_devices(self, pool: &Pool, devices: Option<u32>) -> Requirements {
        let Some(devices) = devices.filter(|devices| *devices >= 1 && *devices != self.devices)
        else {
            return self;
        };
        let model = &pool.models[&self.model];
        let figured = model.layouts().find(|layout| layout.devices == devices);
        let layout = figured.unwrap_or_else(|| {
            let all = u128::from(self.bytes.0) * u128::from(self.devices);
            let bytes_per_device = Bytes(all.div_ceil(u128::from(devices)) as u64);
            Layout {
                devices,
                bytes_per_device,
            }
        });
        Requirements {
            priority: self.priority,
            forced_by: self.forced_by,
            is_gentle: self.is_gentle,
            batch: self.batch,
            ..Requirements::over(pool, model, self.model, layout, self.since)
        }
    }

    pub(crate) fn bytes_on(&self, kind: KindId) -> Bytes {
        self.by_kind
            .iter()
            .find(|(of, _)| *of == kind)
            .map_or(self.bytes, |(_, bytes)| *bytes)
    }

    pub(crate) fn share(&self, pool: &Pool, device: DeviceId) -> Share {
        Share {
            device,
            bytes: self.bytes_on(pool.devices[&device].kind),
        }
    }

    /// The bytes the replica needs on the device, or the reason why the device can never hold a part of it.
    pub(crate) fn needs_on(&self, pool: &Pool, id: DeviceId) -> Result<Bytes, Unfit> {
        self.needs_of(pool, &pool.models[&self.model], id, &pool.devices[&id])
    }

    /// The same for a model and a device that the caller has already looked up.
    pub(crate) fn needs_of(
        &self,
        pool: &Pool,
        model: &Model,
        id: DeviceId,
        device: &Device,
    ) -> Result<Bytes, Unfit> {
        let bytes = self.fits_empty(model, id, device)?;
        if let Some(old) = gang::old_node(pool, self, device.node) {
            return Err(Unfit::OldNode(old));
        }
        if let Some(cordon) = device.closed() {
            return Err(Unfit::Cordoned {
                reason: cordon.reason.clone(),
            });
        }
        match device.away.and_then(|_| pool.node_away(id)) {
            Some(away) => Err(Unfit::NodeAway(away)),
            None => Ok(bytes),
        }
    }

    fn fits_empty(&self, model: &Model, id: DeviceId, device: &Device) -> Result<Bytes, Unfit> {
        let allowed = model.spec.allowed.as_ref();
        if allowed.is_some_and(|allowed| !allowed.contains(&id)) {
            return Err(Unfit::NotAllowed);
        }
        let (needs, capacity) = (self.bytes_on(device.kind), device.capacity());
        if needs > capacity {
            return Err(Unfit::TooSmall { needs, capacity });
        }
        Ok(needs)
    }
}

impl Model {
    /// The possible numbers of devices, preferred ones first.
    pub(crate) fn layouts(&self) -> impl Iterator<Item = Layout> + '_ {
        let first = Layout {
            devices: self.spec.devices_per_replica.max(1),
            bytes_per_device: self.spec.bytes_per_device,
        };
        core::iter::once(first).chain(self.spec.wider.iter().copied())
    }
}

/// Refuses a load that does not fit even when the pool is empty and nothing is cordoned (M6). Devices of a silent node count (N2).
pub(crate) fn never_fits(pool: &Pool, requirements: &Requirements) -> Option<Refusal> {
    if pool.unknown_node_may_return() {
        return None;
    }
    if pool.devices.is_empty() && pool.nodes_may_join() {
        let last = pool.nodes.last_gone().cloned();
        return Some(Refusal::NoDevices { last });
    }
    let model = &pool.models[&requirements.model];
    let fits = |id: &DeviceId| {
        requirements
            .fits_empty(model, *id, &pool.devices[id])
            .is_ok()
    };
    let enough = requirements.devices_per_node() as usize;
    let mut most = 0;
    let mut host = None;
    if requirements.nodes > 1 {
        for nodes in gang::alike(pool, requirements.nodes).values() {
            let hold = |node: &&BTreeSet<DeviceId>| {
                node.iter().filter(|id| fits(id)).take(enough).count() >= enough
            };
            let holding = nodes.iter().copied().filter(hold).count();
            if holding >= requirements.nodes as usize {
                return None;
            }
            most = most.max(holding * enough);
        }
    } else {
        for node in pool.nodes.device_sets() {
            let fitting = node.iter().filter(|id| fits(id)).take(enough).count();
            if fitting >= enough {
                match host_room::never(pool, model, node) {
                    None => return None,
                    Some(most) => host = host.max(Some(most)),
                }
            }
            most = most.max(fitting);
        }
    }
    let allowed = model.spec.allowed.as_ref();
    let usable: Vec<Bytes> = pool
        .devices
        .iter()
        .filter(|(id, _)| allowed.is_none_or(|allowed| allowed.contains(id)))
        .map(|(_, device)| device.capacity())
        .collect();
    Some(Refusal::NeverFits {
        // Uses the kind of device that needs least.
        needs: allowed_kinds(pool, allowed)
            .map(|kind| requirements.bytes_on(kind))
            .min()
            .unwrap_or(requirements.bytes),
        devices: requirements.devices,
        nodes: requirements.nodes,
        largest: usable.iter().copied().max().unwrap_or_default(),
        devices_that_fit: u32::try_from(most).unwrap_or(u32::MAX),
        devices_allowed: u32::try_from(usable.len()).unwrap_or(u32::MAX),
        allowed_by: model.spec.allowed_by.clone(),
        host: host.map(|most| (model.spec.host_unmapped(), most)),
        apart: gang::apart(pool, requirements),
    })
}

/// The number of replicas that the serving devices could hold if they were empty, counted up to `most`.
pub(crate) fn fit_when_empty(pool: &Pool, requirements: &Requirements, most: u32) -> u32 {
    let enough = requirements.devices_per_node();
    let on_node = |node: &BTreeSet<DeviceId>| {
        let parts: Vec<u64> = node
            .iter()
            .filter_map(|id| {
                let bytes = requirements.needs_on(pool, *id).ok()?;
                let capacity = pool.devices[id].capacity();
                Some(capacity.0.checked_div(bytes.0).unwrap_or(u64::MAX))
            })
            .collect();
        // The parts of a replica are on different devices, so a device holds at most one part of each replica.
        let holds = |count: &u32| {
            let each = u64::from(*count);
            let parts: u64 = parts.iter().map(|part| (*part).min(each)).sum();
            parts >= each * u64::from(enough)
        };
        (1..=most).take_while(holds).count()
    };
    let all: usize = if requirements.nodes > 1 {
        let nodes = requirements.nodes as usize;
        let alike = gang::alike(pool, requirements.nodes);
        let of_kind = |alike: &Vec<&BTreeSet<DeviceId>>| {
            let parts: Vec<usize> = alike.iter().copied().map(on_node).collect();
            // The members of a replica are on different nodes, so a node holds at most one member of each replica.
            let holds = |count: &usize| {
                let members: usize = parts.iter().map(|part| (*part).min(*count)).sum();
                members >= count * nodes
            };
            (1..=most as usize).take_while(holds).count()
        };
        alike.values().map(of_kind).sum()
    } else {
        pool.nodes.device_sets().map(on_node).sum()
    };
    u32::try_from(all).unwrap_or(most).min(most)
}

fn allowed_kinds<'a>(
    pool: &'a Pool,
    allowed: Option<&'a BTreeSet<DeviceId>>,
) -> impl Iterator<Item = KindId> + 'a {
    let devices = pool.devices.iter();
    devices
        .filter(move |(id, _)| allowed.is_none_or(|allowed| allowed.contains(id)))
        .map(|(_, device)| device.kind)
}
