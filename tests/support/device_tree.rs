//! The kernel's files about AMD and Intel GPUs and about the machine's memory, below a folder: the documented files of `/sys` and
//! `/proc`, written by tests. A thread stands for the kernel: it forgets ended processes, and adds up what is in use.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const NODES: &str = "sys/class/kfd/kfd/topology/nodes";
const PROCESSES: &str = "sys/class/kfd/kfd/proc";

/// The folder, which stays as long as the test's.
#[derive(Clone, Debug)]
pub struct DeviceTree {
    folder: PathBuf,
}

/// A card of AMD as its files describe it.
#[derive(Clone, Copy, Debug)]
pub struct AmdCard<'a> {
    pub pci: &'a str,
    pub product: &'a str,
    /// As the property `gfx_target_version`: 90402 is gfx942.
    pub isa: u32,
    pub vram: u64,
    pub gtt: u64,
    /// The number of partitions.
    pub parts: u32,
    /// It is the GPU of a processor.
    pub is_apu: bool,
}

impl AmdCard<'_> {
    /// An MI300X, or its partitions.
    pub fn mi300(pci: &str, parts: u32) -> AmdCard<'_> {
        AmdCard {
            pci,
            product: "AMD Instinct MI300X OAM",
            isa: 90_402,
            vram: 192 << 30,
            gtt: 512 << 30,
            parts,
            is_apu: false,
        }
    }
}

impl DeviceTree {
    /// A machine without GPUs, in a subfolder of `dir`.
    pub fn new(dir: &Path) -> DeviceTree {
        let folder = dir.join("root");
        fs::create_dir_all(folder.join("proc")).unwrap();
        DeviceTree { folder }
    }

    /// The value for `MODEL_POOL_DEVICE_ROOT`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Replaces a file atomically.
    pub fn write(&self, path: &str, text: impl std::fmt::Display) {
        let path = self.folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let next = path.with_extension("next");
        fs::write(&next, format!("{text}\n")).unwrap();
        fs::rename(next, path).unwrap();
    }

    pub fn remove(&self, path: &str) {
        let path = self.folder.join(path);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }

    pub fn number(&self, path: &str) -> Option<u64> {
        let text = fs::read_to_string(self.folder.join(path)).ok()?;
        text.trim().parse().ok()
    }

    /// The machine's memory in GiB.
    pub fn memory(&self, total: u64, available: u64) {
        let (total, available) = (total << 20, available << 20);
        self.write(
            "proc/meminfo",
            format_args!("MemTotal: {total} kB\nMemFree: 1 kB\nMemAvailable: {available} kB"),
        );
    }

    /// Adds a card after those before it. Returns the names of its nodes in `vram_…` files.
    pub fn amd(&self, card: AmdCard<'_>) -> Vec<u64> {
        let folder = format!("sys/bus/pci/devices/{}", card.pci);
        self.write(&format!("{folder}/vendor"), "0x1002");
        self.write(&format!("{folder}/device"), "0x74a1");
        self.write(&format!("{folder}/product_name"), card.product);
        self.write(&format!("{folder}/mem_info_vram_total"), card.vram);
        self.write(&format!("{folder}/mem_info_vram_used"), 0);
        self.write(&format!("{folder}/mem_info_gtt_total"), card.gtt);
        self.write(&format!("{folder}/gpu_busy_percent"), 7);
        self.write(&format!("{folder}/hwmon/hwmon3/temp1_input"), 41_500);
        if card.is_apu {
            self.write(&format!("{folder}/hwmon/hwmon3/in1_label"), "vddnb");
        }
        let (before, parts) = (self.nodes(), u64::from(card.parts));
        let last = card.pci.replace([':', '.'], "");
        self.write(&format!("{folder}/unique_id"), format_args!("{last:0>16}"));
        if card.parts > 1 {
            self.write(&format!("{folder}/current_compute_partition"), "CPX");
            self.write(&format!("{folder}/current_memory_partition"), "NPS4");
        }
        if before == 0 {
            self.write(
                &format!("{NODES}/0/properties"),
                "cpu_cores_count 64\nsimd_count 0",
            );
            self.write(&format!("{NODES}/0/gpu_id"), 0);
            fs::create_dir_all(self.folder.join(PROCESSES)).unwrap();
        }
        let mut fields = card.pci.split([':', '.']);
        let mut hex = || u64::from_str_radix(fields.next().unwrap(), 16).unwrap();
        let (domain, bus, device, function) = (hex(), hex(), hex(), hex());
        let new = (0..parts).map(|part| {
            let node = before.max(1) + part;
            let gpu_id = 40_000 + node;
            let location = part << 28 | bus << 8 | device << 3 | function;
            self.write(
                &format!("{NODES}/{node}/properties"),
                format_args!(
                    "cpu_cores_count 0\nsimd_count 1216\ndomain {domain}\nlocation_id {location}\ngfx_target_version {}\nvendor_id 4098\ndrm_render_minor {}",
                    card.isa,
                    127 + node
                ),
            );
            self.write(&format!("{NODES}/{node}/gpu_id"), gpu_id);
            self.write(&format!("dev/dri/renderD{}", 127 + node), "");
            self.write(
                &format!("{NODES}/{node}/mem_banks/0/properties"),
                format_args!("heap_type 1\nsize_in_bytes {}", card.vram / parts),
            );
            gpu_id
        });
        new.collect()
    }

    fn nodes(&self) -> u64 {
        let entries = fs::read_dir(self.folder.join(NODES));
        entries.map_or(0, |entries| entries.count() as u64)
    }

    /// Sets the memory that KFD reports for a process on a node.
    pub fn kfd_process(&self, pid: u32, gpu_id: u64, bytes: u64) {
        self.write(&format!("{PROCESSES}/{pid}/vram_{gpu_id}"), bytes);
    }

    /// Adds an open file of a GPU to a process, with these lines of `fdinfo`.
    pub fn client(&self, pid: u32, file: u32, lines: &str) {
        let folder = self.folder.join(format!("proc/{pid}/fd"));
        fs::create_dir_all(&folder).unwrap();
        symlink("/dev/dri/renderD128", folder.join(file.to_string())).unwrap();
        self.write(&format!("proc/{pid}/fdinfo/{file}"), lines);
    }

    /// Adds a card of Intel with the xe driver and these tiles; none for a GPU of the processor.
    pub fn intel(&self, pci: &str, tiles: &[u64]) {
        let folder = format!("sys/bus/pci/devices/{pci}");
        self.write(&format!("{folder}/vendor"), "0x8086");
        self.write(&format!("{folder}/device"), "0xe20b");
        self.write(&format!("{folder}/class"), "0x030000");
        for (nth, bytes) in tiles.iter().enumerate() {
            self.write(
                &format!("{folder}/tile{nth}/physical_vram_size_bytes"),
                bytes,
            );
        }
    }

    /// Forgets ended processes, and writes what the others hold as used memory of their cards.
    pub fn settle(&self) {
        let Ok(entries) = fs::read_dir(self.folder.join(PROCESSES)) else {
            return;
        };
        let mut held: Vec<(u64, u64)> = Vec::new();
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_alive = name
                .parse()
                .is_ok_and(|pid| crate::machine::state::birth(pid).is_some());
            if !is_alive {
                let _ = fs::remove_dir_all(entry.path());
                continue;
            }
            for file in fs::read_dir(entry.path()).into_iter().flatten().flatten() {
                let name = file.file_name().to_string_lossy().into_owned();
                let node = name
                    .strip_prefix("vram_")
                    .and_then(|id| id.parse::<u64>().ok());
                let bytes = fs::read_to_string(file.path()).ok();
                let bytes = bytes.and_then(|text| text.trim().parse().ok());
                held.extend(node.zip(bytes));
            }
        }
        for (pci, nodes) in self.cards() {
            let used = held.iter().filter(|(node, _)| nodes.contains(node));
            let used: u64 = used.map(|(_, bytes)| bytes).sum();
            let file = format!("sys/bus/pci/devices/{pci}/mem_info_vram_used");
            if self.number(&file) != Some(used) {
                self.write(&file, used);
            }
        }
    }

    /// The cards with the names of their nodes.
    fn cards(&self) -> Vec<(String, Vec<u64>)> {
        let mut cards: Vec<(String, Vec<u64>)> = Vec::new();
        for node in 1..self.nodes() {
            let properties = format!("{NODES}/{node}/properties");
            let text = fs::read_to_string(self.folder.join(properties)).unwrap_or_default();
            let location = text
                .lines()
                .find_map(|line| line.strip_prefix("location_id "));
            let location: u64 = location.and_then(|text| text.parse().ok()).unwrap_or(0);
            let (bus, device) = (location >> 8 & 0xff, location >> 3 & 0x1f);
            let pci = format!("0000:{bus:02x}:{device:02x}.{}", location & 7);
            let gpu_id = self.number(&format!("{NODES}/{node}/gpu_id")).unwrap_or(0);
            match cards.iter_mut().find(|(known, _)| *known == pci) {
                Some((_, nodes)) => nodes.push(gpu_id),
                None => cards.push((pci, vec![gpu_id])),
            }
        }
        cards
    }
}

/// A thread that repeats the work of a kernel until it is dropped.
#[derive(Debug)]
pub struct Kernel {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Kernel {
    pub fn new(work: impl Fn() + Send + 'static) -> Kernel {
        let stop = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Acquire) {
                work();
                std::thread::park_timeout(Duration::from_millis(10));
            }
        });
        Kernel {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
