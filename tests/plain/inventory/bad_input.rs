//! Drivers and configurations that misbehave: devices that disappear during a reading or are listed twice, limits below what is
//! loaded, and folders that are too large or slow. `amd.rs`, `mig.rs` and `command_devices.rs` have the faults of single sources.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use super::{FakeNvml, GIB, settings};
use model_pool::inventory::{
    DeviceChoice, DeviceError, Inventory, InventoryError, InventorySettings, Provider,
};
use model_pool::pool::Bytes;
use support::device_tree::{AmdCard, DeviceTree, Kernel};

const FIRST: &str = "0000:c1:00.0";

#[test]
fn a_gpu_that_disappears_during_its_reading_is_lost_and_the_other_is_read() {
    let fake = FakeNvml::new("gpu total=80000 uuid=GPU-a\ngpu total=80000 uuid=GPU-b\n");
    let inventory = Inventory::open(&fake.settings(Provider::Nvml)).unwrap();
    // The driver finds the GPU, and loses it before the next call.
    fake.machine.fail("nvmlDeviceGetMemoryInfo_v2", Some(0), 15);
    fake.machine.fail("nvmlDeviceGetMemoryInfo", Some(0), 15);
    let readings = inventory.measure(&BTreeSet::new());
    let error = readings[0].1.as_ref().unwrap_err();
    assert!(matches!(error, DeviceError::Lost { .. }), "{error}");
    assert!(readings[1].1.is_ok(), "{readings:?}");
    fake.machine.mend();
    let readings = inventory.measure(&BTreeSet::new());
    assert!(readings.iter().all(|(_, reading)| reading.is_ok()));
}

#[test]
fn files_that_come_and_go_during_readings_are_lost_or_read_and_never_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let tree = DeviceTree::new(folder.path());
    tree.memory(64, 40);
    tree.amd(AmdCard::mi300(FIRST, 1));
    let settings = InventorySettings {
        root: tree.folder().to_owned(),
        ..settings(Provider::Amd)
    };
    let inventory = Inventory::open(&settings).unwrap();
    let card = tree.folder().join(format!("sys/bus/pci/devices/{FIRST}"));
    let hidden = tree.folder().join("hidden");
    let _driver = Kernel::new(move || {
        let _ = std::fs::rename(&card, &hidden);
        let _ = std::fs::rename(&hidden, &card);
    });
    for _ in 0..200 {
        let (_, reading) = inventory.measure(&BTreeSet::new()).remove(0);
        match reading {
            Ok(used) => assert_eq!((used.total, used.used), (Bytes(192 * GIB), Bytes(0))),
            Err(error) => assert!(error.is_lost(), "{error}"),
        }
    }
}

#[test]
fn a_device_that_is_listed_twice_is_refused() {
    let fake = FakeNvml::new("gpu total=80000 uuid=GPU-a\ngpu total=80000 uuid=GPU-b\n");
    let by_index = |index| DeviceChoice {
        index: Some(index),
        ..DeviceChoice::default()
    };
    let by_uuid = |uuid: &str| DeviceChoice {
        uuid: Some(uuid.to_owned()),
        ..DeviceChoice::default()
    };
    let named = |name: &str, choice: DeviceChoice| DeviceChoice {
        name: Some(name.to_owned()),
        ..choice
    };
    for choices in [
        vec![by_index(0), by_index(0)],
        vec![by_index(1), by_uuid("GPU-b")],
        vec![named("one", by_index(0)), named("one", by_index(1))],
    ] {
        let refused = Inventory::open(&InventorySettings {
            choices,
            ..fake.settings(Provider::Nvml)
        });
        let error = refused.unwrap_err();
        assert!(
            matches!(error, InventoryError::NamedTwice { .. }),
            "{error}"
        );
    }
}

#[test]
fn a_limit_below_what_is_loaded_leaves_nothing_free_and_nothing_negative() {
    let fake = FakeNvml::new("gpu total=80000 uuid=GPU-a\nprocess gpu=0 pid=11 bytes=50000\n");
    let limited = InventorySettings {
        choices: vec![DeviceChoice {
            index: Some(0),
            memory: Some(Bytes(20000)),
            ..DeviceChoice::default()
        }],
        ..fake.settings(Provider::Nvml)
    };
    let inventory = Inventory::open(&limited).unwrap();
    let of = |ours: &[u32]| {
        let ours: BTreeSet<u32> = ours.iter().copied().collect();
        let used = inventory.read(&ours).unwrap().remove(0);
        (used.total, used.own, used.foreign)
    };
    // An engine that was loaded before the limit holds more than the device now has.
    assert_eq!(of(&[11]), (Bytes(20000), Bytes(50000), Bytes(0)));
    // Other programs use the part outside of the pool's first.
    assert_eq!(of(&[]), (Bytes(20000), Bytes(0), Bytes(0)));
    fake.set("gpu total=80000 uuid=GPU-a\nprocess gpu=0 pid=11 bytes=75000\n");
    assert_eq!(of(&[]), (Bytes(20000), Bytes(0), Bytes(15000)));
}

#[test]
fn a_folder_with_too_many_processes_is_read_in_bounded_time() {
    let folder = tempfile::tempdir().unwrap();
    let tree = DeviceTree::new(folder.path());
    tree.memory(64, 40);
    tree.amd(AmdCard::mi300(FIRST, 1));
    let processes = tree.folder().join("sys/class/kfd/kfd/proc");
    for pid in 0..20_000_u32 {
        std::fs::create_dir(processes.join(format!("{}", 5_000_000 + pid))).unwrap();
    }
    let settings = InventorySettings {
        root: tree.folder().to_owned(),
        ..settings(Provider::Amd)
    };
    let inventory = Inventory::open(&settings).unwrap();
    let began = SystemTime::now();
    let readings = inventory.measure(&BTreeSet::new());
    assert!(readings[0].1.is_ok(), "{readings:?}");
    assert!(began.elapsed().unwrap_or_default() < Duration::from_secs(5));
}
