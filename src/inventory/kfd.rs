//! The compute nodes of AMD's kernel driver: `/sys/class/kfd/kfd/topology` has the GPUs in the order in which HIP and ROCr count
//! them, and `/sys/class/kfd/kfd/proc` the memory of each process on each of them (`kfd_topology.c` and `kfd_process.c` of the
//! kernel). All accounts may read them; a node that a device cgroup forbids has properties that cannot be read.

use std::collections::BTreeMap;

use super::sysfs::{FileError, Root, field};
use pool::Bytes;

const NODES: &str = "/sys/class/kfd/kfd/topology/nodes";
const PROCESSES: &str = "/sys/class/kfd/kfd/proc";

/// A GPU or a partition of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KfdNode {
    /// The name of its files about processes.
    pub gpu_id: u64,
    /// The PCI address of its card, such as `0000:c1:00.0`.
    pub pci: String,
    /// Its number on the card.
    pub part: u32,
    /// The instruction set, such as `gfx942`.
    pub isa: String,
    /// The number of its file `/dev/dri/renderD…`.
    pub render_minor: Option<u64>,
    /// The memory of the node's banks.
    pub memory: Bytes,
}

/// The GPUs in HIP's order, and the nodes that may not be read.
pub(super) fn nodes(root: &Root) -> (Vec<KfdNode>, Vec<FileError>) {
    let mut names: Vec<u32> = (root.names(NODES).iter())
        .filter_map(|name| name.parse().ok())
        .collect();
    names.sort_unstable();
    let (mut nodes, mut errors) = (Vec::new(), Vec::new());
    for name in names {
        match node(root, name) {
            Ok(node) => nodes.extend(node),
            Err(error) => errors.push(error),
        }
    }
    (nodes, errors)
}

/// `None` for a processor.
fn node(root: &Root, name: u32) -> Result<Option<KfdNode>, FileError> {
    let folder = format!("{NODES}/{name}");
    let text = root.text(format!("{folder}/properties"))?;
    let property = |name: &str| field(&text, name).and_then(|value| value.parse::<u64>().ok());
    if property("simd_count").unwrap_or(0) == 0 {
        return Ok(None);
    }
    let gpu_id = root.number(format!("{folder}/gpu_id"))?;
    let (domain, location) = (
        property("domain").unwrap_or(0),
        property("location_id").unwrap_or(0),
    );
    // Bits 8 to 15 are the bus and 3 to 7 the device. The driver writes the number of a partition into bits 28 to 31.
    let (bus, device, function) = (location >> 8 & 0xff, location >> 3 & 0x1f, location & 7);
    let version = property("gfx_target_version").unwrap_or(0);
    let (major, minor, step) = (version / 10_000, version / 100 % 100, version % 100);
    let banks = root.names(format!("{folder}/mem_banks")).into_iter();
    let memory = banks.filter_map(|bank| {
        let text = root
            .text(format!("{folder}/mem_banks/{bank}/properties"))
            .ok()?;
        // 1 and 2: memory of the device, visible to the processor or not.
        let is_own = matches!(field(&text, "heap_type"), Some("1" | "2"));
        let bytes = field(&text, "size_in_bytes")?.parse().ok()?;
        is_own.then_some(Bytes(bytes))
    });
    Ok(Some(KfdNode {
        gpu_id,
        pci: format!("{domain:04x}:{bus:02x}:{device:02x}.{function}"),
        part: u32::try_from(location >> 28 & 0xf).unwrap_or(0),
        isa: format!("gfx{major}{minor:x}{step:x}"),
        render_minor: property("drm_render_minor").filter(|minor| *minor > 0),
        memory: memory.sum(),
    }))
}

/// The bytes of each process on each GPU, by `gpu_id`.
#[derive(Clone, Debug, Default)]
pub(super) struct KfdProcesses {
    held: BTreeMap<u64, BTreeMap<u32, Bytes>>,
    /// False if the driver lists none, or lists the ids of another namespace, as in a container.
    pub complete: bool,
}

impl KfdProcesses {
    pub fn read(root: &Root) -> KfdProcesses {
        let mut found = KfdProcesses {
            complete: root.path(PROCESSES).is_dir(),
            ..KfdProcesses::default()
        };
        for name in root.names(PROCESSES) {
            let Ok(pid) = name.parse::<u32>() else {
                continue;
            };
            // An id of another namespace may belong to an engine of the pool in a container; an entry may also outlive its process.
            if !std::path::Path::new(&format!("/proc/{pid}")).exists() {
                found.complete = false;
                continue;
            }
            let folder = format!("{PROCESSES}/{pid}");
            for file in root.names(&folder) {
                let gpu_id = file.strip_prefix("vram_").and_then(|id| id.parse().ok());
                let bytes = gpu_id.map(|_| root.number(format!("{folder}/{file}")));
                if let (Some(gpu_id), Some(Ok(bytes))) = (gpu_id, bytes) {
                    let held = found.held.entry(gpu_id).or_default();
                    held.insert(pid, Bytes(bytes));
                }
            }
        }
        found
    }

    /// The processes on a GPU that hold memory there.
    pub fn on(&self, gpu_id: u64) -> BTreeMap<u32, Bytes> {
        let held = self.held.get(&gpu_id).cloned().unwrap_or_default();
        held.into_iter()
            .filter(|(_, bytes)| *bytes > Bytes::ZERO)
            .collect()
    }
}
