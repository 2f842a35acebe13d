//! The best link between each pair of GPUs: NVLink, the same PCIe root, or the rest of the machine. Links that NVML does not report
//! count as the worst.

use std::collections::BTreeSet;

use nvml_wrapper::enum_wrappers::device::{P2pCapabilitiesIndex, P2pStatus, TopologyLevel};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::PciInfo;
use nvml_wrapper::{Device, Nvml};

use super::{DeviceInfo, Link};

/// `NVML_NVLINK_MAX_LINKS` of the header.
const LINKS_MAX: u32 = 18;

/// Domain, bus and device on the bus: one address can be written in several ways.
type Address = (u32, u32, u32);

/// A GPU and what NVML reports of its links.
struct LinkedGpu<'a> {
    gpu: Device<'a>,
    address: Option<Address>,
    /// The other ends of its active NVLinks.
    reaches: BTreeSet<Address>,
}

pub(super) fn connect(nvml: &Nvml, devices: &mut [DeviceInfo]) {
    let ends: Vec<Option<LinkedGpu<'_>>> = devices
        .iter()
        .map(|device| find(nvml, device).ok().map(end))
        .collect();
    let all: Vec<Vec<_>> = devices
        .iter()
        .zip(&ends)
        .map(|(device, one)| {
            let others = devices.iter().zip(&ends);
            let others = others.filter(|(other, _)| other.id != device.id);
            let mut links: Vec<_> = others
                .map(|(other, end)| {
                    let again = || find(nvml, other);
                    let link = one.as_ref().zip(end.as_ref());
                    (
                        other.id,
                        link.map_or(Link::Node, |(a, b)| best(a, b, again)),
                    )
                })
                .collect();
            links.sort_by_key(|(id, link)| (*link, *id));
            links
        })
        .collect();
    for (device, links) in devices.iter_mut().zip(all) {
        device.links = links;
    }
}

/// Finds the GPU by UUID where it has one: indices change when a GPU falls off the bus.
pub(super) fn find<'a>(nvml: &'a Nvml, device: &DeviceInfo) -> Result<Device<'a>, NvmlError> {
    match &device.uuid {
        Some(uuid) => nvml.device_by_uuid(uuid.as_str()),
        None => nvml.device_by_index(device.index),
    }
}

fn end(gpu: Device<'_>) -> LinkedGpu<'_> {
    let mut reaches = BTreeSet::new();
    for number in 0..LINKS_MAX {
        let link = gpu.link_wrapper_for(number);
        match link.is_active() {
            Ok(true) => reaches.extend(link.remote_pci_info().ok().map(|pci| address(&pci))),
            Ok(false) => {}
            // There are no more links.
            Err(_) => break,
        }
    }
    let address = gpu.pci_info().ok().map(|pci| address(&pci));
    LinkedGpu {
        gpu,
        address,
        reaches,
    }
}

fn address(pci: &PciInfo) -> Address {
    (pci.domain, pci.bus, pci.device)
}

/// `again` is the other GPU once more, for a call that takes ownership.
fn best<'a>(
    one: &LinkedGpu<'_>,
    other: &LinkedGpu<'_>,
    again: impl FnOnce() -> Result<Device<'a>, NvmlError>,
) -> Link {
    let straight = other
        .address
        .is_some_and(|address| one.reaches.contains(&address));
    // The far end of a link to a switch is the switch; only the driver knows which GPU is behind it.
    let by_nvlink = || {
        let status = one.gpu.p2p_status(&other.gpu, P2pCapabilitiesIndex::NvLink);
        matches!(status, Ok(P2pStatus::Ok))
    };
    if straight || !one.reaches.is_empty() && by_nvlink() {
        return Link::NvLink;
    }
    let ancestor = again().and_then(|other| one.gpu.topology_common_ancestor(other));
    match ancestor {
        Ok(
            TopologyLevel::Internal
            | TopologyLevel::Single
            | TopologyLevel::Multiple
            | TopologyLevel::HostBridge,
        ) => Link::SameRoot,
        Ok(TopologyLevel::Node | TopologyLevel::System) | Err(_) => Link::Node,
    }
}
