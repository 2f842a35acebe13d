//! The memory of processes on GPUs with a DRM driver, from `/proc/PID/fdinfo`. The format is that of "DRM client usage stats" in the
//! kernel's documentation (`Documentation/gpu/drm-usage-stats.rst`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::sysfs::Root;
use pool::Bytes;

/// The names of a region's memory, by preference: resident, resident under its older name, allocated.
const KEYS: [&str; 3] = ["drm-resident-", "drm-memory-", "drm-total-"];

/// An open file of a GPU. Files that were duplicated or inherited are one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Client {
    pub pid: u32,
    /// The PCI address of the GPU, such as `0000:03:00.0`.
    pub pci: String,
    /// Bytes by region, such as `vram`, `gtt`, `vram0` or `local0`.
    pub regions: BTreeMap<String, Bytes>,
}

/// The clients of these processes.
#[derive(Clone, Debug, Default)]
pub(super) struct Clients {
    pub all: Vec<Client>,
    /// Processes whose files may not be read, for example processes of other accounts.
    pub unreadable: BTreeSet<u32>,
}

impl Clients {
    pub fn of_processes(root: &Root, pids: impl IntoIterator<Item = u32>) -> Clients {
        let mut clients = Clients::default();
        let mut seen = BTreeSet::new();
        for pid in pids {
            let folder = root.path(format!("/proc/{pid}/fd"));
            let files = match fs::read_dir(folder) {
                Ok(files) => files,
                Err(error) => {
                    if error.kind() != std::io::ErrorKind::NotFound {
                        clients.unreadable.insert(pid);
                    }
                    continue;
                }
            };
            for file in files.flatten() {
                let target = fs::read_link(file.path());
                if !target.is_ok_and(|target| target.starts_with("/dev/dri")) {
                    continue;
                }
                let name = file.file_name();
                let info = Path::new("/proc").join(pid.to_string()).join("fdinfo");
                let Ok(text) = root.text(info.join(name)) else {
                    continue;
                };
                if let Some((id, pci, regions)) = parsed(&text)
                    && seen.insert((pci.clone(), id))
                {
                    clients.all.push(Client { pid, pci, regions });
                }
            }
        }
        clients
    }

    /// The bytes of each process in these regions of one GPU.
    pub fn held(&self, pci: &str, is_counted: impl Fn(&str) -> bool) -> BTreeMap<u32, Bytes> {
        let mut held = BTreeMap::new();
        for client in self.all.iter().filter(|client| client.pci == pci) {
            let regions = client.regions.iter();
            let bytes = regions
                .filter(|(name, _)| is_counted(name))
                .map(|(_, bytes)| *bytes)
                .sum::<Bytes>();
            let sum = held.entry(client.pid).or_insert(Bytes::ZERO);
            *sum = *sum + bytes;
        }
        held
    }
}

/// The client's number, its GPU and its memory. `None` for files without them.
fn parsed(text: &str) -> Option<(u64, String, BTreeMap<String, Bytes>)> {
    let (mut id, mut pci) = (None, None);
    let mut regions: BTreeMap<String, (usize, Bytes)> = BTreeMap::new();
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        let (key, value) = (key.trim(), value.trim());
        match key {
            "drm-client-id" => id = value.parse().ok(),
            "drm-pdev" => pci = Some(value.to_owned()),
            _ => {}
        }
        let region = KEYS.iter().enumerate();
        let region = region.filter_map(|(rank, prefix)| Some((rank, key.strip_prefix(prefix)?)));
        for (rank, name) in region {
            if let Some(bytes) = size(value) {
                let known = regions.entry(name.to_owned()).or_insert((rank, bytes));
                if rank < known.0 {
                    *known = (rank, bytes);
                }
            }
        }
    }
    let regions = regions.into_iter().map(|(name, (_, bytes))| (name, bytes));
    Some((id?, pci?, regions.collect()))
}

/// `12`, `12 KiB` or `12 MiB`.
fn size(text: &str) -> Option<Bytes> {
    let mut words = text.split_ascii_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    let unit = match words.next() {
        None => 1,
        Some("KiB") => 1 << 10,
        Some("MiB") => 1 << 20,
        Some("GiB") => 1 << 30,
        Some(_) => return None,
    };
    Some(Bytes(number.saturating_mul(unit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_forms_of_each_driver_are_read() {
        for (text, region, bytes) in [
            (
                "drm-memory-vram:\t2048 KiB\ndrm-memory-gtt: \t4 KiB\n",
                "vram",
                2 << 20,
            ),
            (
                "drm-total-vram:\t9 MiB\ndrm-resident-vram:\t3 MiB\ndrm-memory-vram:\t4 MiB\n",
                "vram",
                3 << 20,
            ),
            ("drm-total-vram0:\t64 MiB\n", "vram0", 64 << 20),
            ("drm-resident-local0:\t77\n", "local0", 77),
        ] {
            let text = format!(
                "pos:\t0\ndrm-driver:\tx\ndrm-pdev:\t0000:03:00.0\ndrm-client-id:\t7\n{text}"
            );
            let (id, pci, regions) = parsed(&text).expect("a client");
            assert_eq!((id, pci.as_str()), (7, "0000:03:00.0"));
            assert_eq!(regions[region], Bytes(bytes), "{text}");
        }
    }

    #[test]
    fn garbage_and_files_without_a_client_are_nothing() {
        for text in [
            "",
            "drm-client-id: x",
            "drm-client-id: 7\ndrm-memory-vram: 1",
            "::::\n\u{0}",
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
        let text =
            "drm-pdev: a\ndrm-client-id: 1\ndrm-memory-vram: 5 parsecs\ndrm-memory-gtt: -3 KiB\n";
        let (_, _, regions) = parsed(text).expect("a client");
        assert!(regions.is_empty(), "{regions:?}");
        assert_eq!(size("18446744073709551615 MiB"), Some(Bytes(u64::MAX)));
    }
}
