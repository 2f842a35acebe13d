//! The inventory of this machine's memory, of configured devices, and of NVML with a library that reads its GPUs from a file.
//! One file because every test opens an inventory and reads it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use model_pool::config::{MemoryPart, Size};
use model_pool::inventory::{
    DeviceKind, DeviceUse, EnergyFigure, FixedDevice, Inventory, InventoryError, InventorySettings,
    Provider,
};
use model_pool::pool::{Bytes, DeviceId, NodeId};
use support::machine::{Machine, state};

mod amd;
mod amd_lent;
mod bad_input;
mod command_devices;
mod intel;
mod lent_gpus;
mod mig;
mod mps;
mod unified_memory;

const GIB: u64 = Bytes::GIB;

fn settings(provider: Provider) -> InventorySettings {
    InventorySettings {
        provider,
        host_memory: Bytes(64 * Bytes::MIB),
        headroom: MemoryPart::Share(500),
        devices: Vec::new(),
        choices: Vec::new(),
        command: Vec::new(),
        environment: BTreeMap::new(),
        nvml_library: Some(PathBuf::from("/nowhere/libnvidia-ml.so")),
        root: PathBuf::from("/"),
    }
}

fn environment(variables: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    variables.iter().map(owned).collect()
}

/// NVML with GPUs that a test defines.
struct FakeNvml {
    machine: Machine,
    _folder: tempfile::TempDir,
}

impl FakeNvml {
    fn new(state: &str) -> FakeNvml {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine::new(folder.path());
        machine.set(state);
        FakeNvml {
            machine,
            _folder: folder,
        }
    }

    fn set(&self, state: &str) {
        self.machine.set(state);
    }

    fn settings(&self, provider: Provider) -> InventorySettings {
        InventorySettings {
            nvml_library: Some(self.machine.library()),
            ..settings(provider)
        }
    }
}

/// Waits until none of these processes lives.
fn gone(pids: impl Iterator<Item = u64>) {
    for pid in pids {
        let began = std::time::SystemTime::now();
        while state::birth(pid).is_some() {
            assert!(
                began.elapsed().unwrap_or_default().as_secs() < 30,
                "process {pid} lives"
            );
            std::thread::park_timeout(std::time::Duration::from_millis(10));
        }
    }
}

fn read(inventory: &Inventory, ours: &[u32]) -> Vec<DeviceUse> {
    inventory
        .read(&ours.iter().copied().collect::<BTreeSet<u32>>())
        .unwrap()
}

#[test]
fn without_a_driver_auto_uses_the_host_with_its_budget() {
    let inventory = Inventory::open(&settings(Provider::Auto)).unwrap();
    assert_eq!(inventory.provider(), Provider::Host);
    let [device] = inventory.devices() else {
        panic!("one device")
    };
    assert_eq!(
        (device.name.as_str(), device.kind, device.total),
        ("host", DeviceKind::Host, Bytes(64 << 20))
    );
    assert_eq!(device.headroom, Bytes((64 << 20) * 5 / 100));
    assert!(!device.node_name.is_empty());
}

#[test]
fn without_a_driver_nvml_is_refused_with_the_librarys_message() {
    let refused = Inventory::open(&settings(Provider::Nvml)).unwrap_err();
    assert!(
        matches!(refused, InventoryError::NoLibrary { .. }),
        "{refused:?}"
    );
    let words = refused.to_string();
    assert!(
        words.contains("/nowhere/libnvidia-ml.so") && words.contains("cannot open shared object"),
        "{words}"
    );
    assert!(words.contains("inventory.provider"), "{words}");
}

#[test]
fn auto_finds_devices_on_any_machine() {
    let inventory = Inventory::open(&InventorySettings {
        nvml_library: None,
        ..settings(Provider::Auto)
    })
    .unwrap();
    let read = read(&inventory, &[]);
    assert_eq!(read.len(), inventory.devices().len());
    for device in read {
        assert!(
            device.total > Bytes::ZERO && device.foreign <= device.total,
            "{device:?}"
        );
    }
}

#[test]
fn the_host_counts_own_processes_and_ignores_ended_ones() {
    let mut ended = Command::new("true").spawn().unwrap();
    let gone = ended.id();
    ended.wait().unwrap();
    let inventory = Inventory::open(&settings(Provider::Host)).unwrap();
    // A shell of known size: the test program itself grows with its other tests.
    let held = 4_u64 << 20;
    let mut shell = Command::new("sh")
        .args([
            "-c",
            &format!("held=$(head -c {held} /dev/zero | tr '\\0' a); echo ready; read -r end"),
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(shell.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let pid = shell.id();
    let [host] = &read(&inventory, &[pid, gone])[..] else {
        panic!("one device")
    };
    drop(shell.stdin.take());
    shell.wait().unwrap();
    assert_eq!(
        host.processes
            .iter()
            .map(|(pid, _)| *pid)
            .collect::<Vec<_>>(),
        [pid]
    );
    // Only its private pages, without its program's file.
    assert!(
        host.own >= Bytes(held) && host.own < Bytes(64 << 20),
        "the shell holds {}, and {} were read",
        Bytes(held),
        host.own
    );
    assert_eq!(
        (host.foreign, host.used),
        (Bytes::ZERO, host.own),
        "the machine has 64 MiB to spare"
    );
    assert_eq!(read(&inventory, &[])[0].own, Bytes::ZERO);
}

#[test]
fn the_part_of_a_budget_that_is_not_available_counts_as_foreign() {
    let budget = Bytes(1 << 50);
    let inventory = Inventory::open(&InventorySettings {
        host_memory: budget,
        ..settings(Provider::Host)
    })
    .unwrap();
    let host = &read(&inventory, &[])[0];
    let available = std::fs::read_to_string("/proc/meminfo").unwrap();
    let available: u64 = available
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap();
    let expected = budget.saturating_sub(Bytes(available << 10)).0;
    assert!(
        host.foreign.0.abs_diff(expected) < GIB,
        "{} is foreign, about {} expected",
        host.foreign,
        Bytes(expected)
    );
}

#[test]
fn configured_devices_are_used_unchecked() {
    let device = |name: &str, gib: u64, node: &str| FixedDevice {
        product: None,
        kind: DeviceKind::Nvidia,
        name: name.into(),
        memory: Bytes(gib * GIB),
        node: node.into(),
        labels: Vec::new(),
    };
    let written = InventorySettings {
        headroom: MemoryPart::Fixed(Size(Bytes(GIB))),
        devices: vec![
            device("left", 24, "a"),
            device("right", 48, "b"),
            device("third", 24, "a"),
        ],
        ..settings(Provider::Fixed)
    };
    let inventory = Inventory::open(&written).unwrap();
    let seen: Vec<_> = inventory
        .devices()
        .iter()
        .map(|device| {
            (
                device.id,
                device.name.as_str(),
                device.node,
                device.node_name.as_str(),
                device.total.0 / GIB,
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            (DeviceId(0), "left", NodeId(0), "a", 24),
            (DeviceId(1), "right", NodeId(1), "b", 48),
            (DeviceId(2), "third", NodeId(0), "a", 24)
        ]
    );
    assert!(
        inventory
            .devices()
            .iter()
            .all(|device| device.headroom == Bytes(GIB))
    );
    assert!(
        read(&inventory, &[1])
            .iter()
            .all(|device| device.used == Bytes::ZERO && device.foreign == Bytes::ZERO)
    );

    let refused = |devices| {
        Inventory::open(&InventorySettings {
            devices,
            ..written.clone()
        })
        .unwrap_err()
        .to_string()
    };
    assert!(refused(vec![]).contains("inventory.devices is empty"));
    let twice = refused(vec![device("a", 9, "n"), device("a", 9, "n")]);
    assert!(
        twice.contains("inventory.devices[1] (\"a\"): another device has the same name"),
        "{twice}"
    );
    assert!(refused(vec![device("a", 0, "n")]).contains("its memory is 0"));
    assert!(refused(vec![device(" ", 1, "n")]).contains("has no name"));
}

#[test]
fn a_headroom_that_leaves_nothing_is_refused_with_both_numbers() {
    let refused = Inventory::open(&InventorySettings {
        headroom: MemoryPart::Fixed(Size(Bytes(2 * GIB))),
        ..settings(Provider::Host)
    });
    let words = refused.unwrap_err().to_string();
    assert!(
        words.contains("host") && words.contains("64.0 MiB"),
        "{words}"
    );
    let full = InventorySettings {
        headroom: MemoryPart::Share(10_000),
        ..settings(Provider::Host)
    };
    assert!(matches!(
        Inventory::open(&full),
        Err(InventoryError::MemoryPart { .. })
    ));
    let none = InventorySettings {
        host_memory: Bytes::ZERO,
        ..settings(Provider::Host)
    };
    assert!(matches!(
        Inventory::open(&none),
        Err(InventoryError::NoHostMemory)
    ));
}

#[test]
fn gpu_readings_separate_own_and_foreign_memory() {
    let fake = FakeNvml::new(
        "gpu total=80000 reserved=100 used=9000 utilisation=7 temperature=41 energy=5 power=300
         gpu total=40000 used=0 power=300
         process gpu=0 pid=11 bytes=5000
         process gpu=0 pid=12 bytes=3000
         process gpu=0 pid=12 bytes=3000 graphics",
    );
    let inventory = Inventory::open(&fake.settings(Provider::Auto)).unwrap();
    assert_eq!(inventory.provider(), Provider::Nvml);
    let first = &inventory.devices()[0];
    assert_eq!(
        (first.name.as_str(), first.kind, first.index),
        ("gpu0", DeviceKind::Nvidia, 0)
    );
    assert_eq!(first.product_name.as_deref(), Some("Imaginary GPU"));
    assert_eq!(
        first.uuid.as_deref(),
        Some("GPU-00000000-0000-0000-0000-000000000000")
    );
    assert_eq!((first.total, first.headroom), (Bytes(80_000), Bytes(4_000)));

    let read = read(&inventory, &[11]);
    assert_eq!(
        read[0],
        DeviceUse {
            id: DeviceId(0),
            total: Bytes(80_000),
            used: Bytes(9_000),
            own: Bytes(5_000),
            foreign: Bytes(4_100),
            processes: vec![(11, Bytes(5_000)), (12, Bytes(3_000))],
            utilisation_percent: Some(7),
            temperature_celsius: Some(41),
            energy: Some(EnergyFigure::Counter(5_000)),
        }
    );
    assert_eq!(
        (
            read[1].used,
            read[1].utilisation_percent,
            read[1].temperature_celsius,
            read[1].energy
        ),
        (Bytes::ZERO, None, None, Some(EnergyFigure::Power(300_000)))
    );
}

#[test]
fn when_nvml_hides_process_memory_growth_since_the_last_reliable_reading_counts_as_own() {
    let fake = FakeNvml::new("gpu total=80000 used=2000");
    let inventory = Inventory::open(&fake.settings(Provider::Nvml)).unwrap();
    let own_and_foreign = |ours: &[u32]| {
        let device = &read(&inventory, ours)[0];
        (device.own.0, device.foreign.0)
    };
    assert_eq!(
        own_and_foreign(&[11]),
        (0, 2000),
        "nothing is sure yet, so all of it is foreign"
    );
    assert_eq!(own_and_foreign(&[]), (0, 2000), "sure: we have no process");
    fake.set("gpu total=80000 used=7000");
    assert_eq!(
        own_and_foreign(&[11]),
        (5000, 2000),
        "the list is empty, as in a container"
    );
    fake.set("gpu total=80000 used=7000\nprocess gpu=0 pid=11");
    assert_eq!(
        own_and_foreign(&[11]),
        (5000, 2000),
        "our process is listed without bytes"
    );
    fake.set("gpu total=80000 used=9000\nprocess gpu=0 pid=11\nprocess gpu=0 pid=12 bytes=3500");
    assert_eq!(
        own_and_foreign(&[11]),
        (5500, 3500),
        "others hold at least what is reported for them"
    );
    fake.set("gpu total=80000 used=7000 nolists");
    assert_eq!(
        own_and_foreign(&[11]),
        (5000, 2000),
        "the lists are refused"
    );
    fake.set("gpu total=80000 used=9000\nprocess gpu=0 pid=11 bytes=5000");
    assert_eq!(own_and_foreign(&[11]), (5000, 4000), "sure again");
    fake.set("gpu total=80000 used=9500 nolists");
    assert_eq!(own_and_foreign(&[11]), (5500, 4000));
}

#[test]
fn a_gpu_that_is_lost_is_unknown_and_the_others_are_still_read() {
    let fake = FakeNvml::new("gpu total=80000 used=5\ngpu total=80000 used=6");
    let inventory = Inventory::open(&fake.settings(Provider::Nvml)).unwrap();
    fake.set("gpu total=80000 used=5 lost\ngpu total=80000 used=6");
    assert_eq!(
        read(&inventory, &[])
            .iter()
            .map(|device| device.id)
            .collect::<Vec<_>>(),
        [DeviceId(1)]
    );
    fake.set("gpu total=80000 lost\ngpu total=80000 lost");
    let refused = inventory.read(&BTreeSet::new()).unwrap_err().to_string();
    assert!(refused.contains("gpu1 fell off the bus"), "{refused}");
    fake.set("gpu total=80000 used=5\ngpu total=80000 used=6");
    assert_eq!(read(&inventory, &[]).len(), 2, "both came back");

    fake.set("gpu total=80000 lost");
    let refused = Inventory::open(&fake.settings(Provider::Nvml)).unwrap_err();
    assert!(
        matches!(
            refused,
            InventoryError::NoGpu {
                last_error: Some(_)
            }
        ),
        "{refused}"
    );
    assert_eq!(
        Inventory::open(&fake.settings(Provider::Auto))
            .unwrap()
            .provider(),
        Provider::Host
    );
}

#[test]
fn a_driver_without_gpus_means_the_host_for_auto_and_an_error_for_nvml() {
    let fake = FakeNvml::new("");
    assert_eq!(
        Inventory::open(&fake.settings(Provider::Auto))
            .unwrap()
            .provider(),
        Provider::Host
    );
    let refused = Inventory::open(&fake.settings(Provider::Nvml)).unwrap_err();
    assert!(
        matches!(refused, InventoryError::NoGpu { last_error: None }),
        "{refused}"
    );
}
