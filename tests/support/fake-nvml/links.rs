//! Connections between GPUs: PCI addresses, common ancestors, and NVLink to another GPU or a switch.

use std::ffi::{c_char, c_int, c_uint};

use crate::state::{Line, State};
use crate::{Device, INVALID_ARGUMENT, NOT_SUPPORTED, give, gpu};

#[repr(C)]
pub struct Pci {
    legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    id: c_uint,
    subsystem: c_uint,
    bus_id: [c_char; 32],
}

fn pci_of(address: &str) -> Pci {
    let number = |text: Option<&str>| c_uint::from_str_radix(text.unwrap_or("0"), 16).unwrap_or(0);
    let mut parts = address.split([':', '.']);
    let (domain, bus, device) = (
        number(parts.next()),
        number(parts.next()),
        number(parts.next()),
    );
    let legacy = format!("{domain:04X}:{bus:02X}:{device:02X}.0");
    Pci {
        legacy: letters(&legacy),
        domain,
        bus,
        device,
        id: 0x2330_10DE,
        subsystem: 0,
        bus_id: letters(address),
    }
}

fn letters<const ROOM: usize>(text: &str) -> [c_char; ROOM] {
    let mut room = [0; ROOM];
    for (to, byte) in room.iter_mut().take(ROOM - 1).zip(text.bytes()) {
        *to = byte as c_char;
    }
    room
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Remote {
    Gpu(usize),
    Switch,
}

/// The links of a GPU by number; true if the link is up.
fn links(state: &State, index: usize) -> Vec<(Remote, bool)> {
    let mut links = Vec::new();
    for line in state.all("nvlink") {
        let end = |name| line.figure(name).map(|end| end as usize);
        let remote = match (end("a"), end("b")) {
            (Some(a), Some(b)) if a == index => Remote::Gpu(b),
            (Some(a), Some(b)) if b == index => Remote::Gpu(a),
            (Some(a), None) if a == index && line.says("switch") => Remote::Switch,
            _ => continue,
        };
        let count = line.figure("links").unwrap_or(1) as usize;
        links.extend(vec![(remote, !line.says("down")); count]);
    }
    links
}

fn link(name: &str, device: Device, number: c_uint) -> Result<(State, Remote, bool), c_int> {
    let (index, state, _) = gpu(name, device)?;
    let all = links(&state, index);
    if all.is_empty() {
        return Err(NOT_SUPPORTED);
    }
    let (remote, up) = *all.get(number as usize).ok_or(INVALID_ARGUMENT)?;
    Ok((state, remote, up))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetPciInfo_v3(device: Device, to: *mut Pci) -> c_int {
    let pci = gpu("nvmlDeviceGetPciInfo_v3", device);
    give(to, pci.map(|(index, state, _)| pci_of(&state.pci(index))))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetNvLinkState(
    device: Device,
    number: c_uint,
    to: *mut c_uint,
) -> c_int {
    let link = link("nvmlDeviceGetNvLinkState", device, number);
    give(to, link.map(|(_, _, up)| c_uint::from(up)))
}

/// A switch has an address that differs from every GPU's.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetNvLinkRemotePciInfo_v2(
    device: Device,
    number: c_uint,
    to: *mut Pci,
) -> c_int {
    let link = link("nvmlDeviceGetNvLinkRemotePciInfo_v2", device, number);
    give(
        to,
        link.map(|(state, remote, _)| match remote {
            Remote::Gpu(index) => pci_of(&state.pci(index)),
            Remote::Switch => pci_of("00000005:00:00.0"),
        }),
    )
}

/// `NVML_P2P_CAPS_INDEX_NVLINK`.
const BY_NVLINK: c_uint = 2;
/// `NVML_P2P_STATUS_OK`, `NVML_P2P_STATUS_NOT_SUPPORTED`.
const WORKS: c_uint = 0;
const DOES_NOT: c_uint = 5;

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetP2PStatus(
    one: Device,
    other: Device,
    what: c_uint,
    to: *mut c_uint,
) -> c_int {
    let name = "nvmlDeviceGetP2PStatus";
    let status = gpu(name, one).and_then(|(a, state, first)| {
        let (b, _, second) = gpu(name, other)?;
        let up = |index: usize, remote| links(&state, index).contains(&(remote, true));
        let linked = up(a, Remote::Gpu(b)) || up(a, Remote::Switch) && up(b, Remote::Switch);
        let works = if what == BY_NVLINK {
            linked
        } else {
            linked || place(&first, "root") == place(&second, "root")
        };
        Ok(if works { WORKS } else { DOES_NOT })
    });
    give(to, status)
}

fn place(line: &Line, name: &str) -> u64 {
    line.figure(name).unwrap_or(0)
}

/// Compares `board`, `switch`, `root` and `node` of both lines; `NVML_TOPOLOGY_*`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetTopologyCommonAncestor(
    one: Device,
    other: Device,
    to: *mut c_uint,
) -> c_int {
    let name = "nvmlDeviceGetTopologyCommonAncestor";
    let level = gpu(name, one).and_then(|(_, _, first)| {
        let (_, _, second) = gpu(name, other)?;
        let both = |name| first.figure(name).is_some() && first.figure(name) == second.figure(name);
        Ok(if both("board") {
            0
        } else if both("switch") {
            10
        } else if place(&first, "root") == place(&second, "root") {
            30
        } else if place(&first, "node") == place(&second, "node") {
            40
        } else {
            50
        })
    });
    give(to, level)
}
