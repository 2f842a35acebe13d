//! AMD GPUs from the files of amdgpu and KFD, on a tree of these files.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use super::{GIB, read, settings};
use model_pool::inventory::{
    DeviceError, DeviceKind, Inventory, InventoryError, InventorySettings, Provider,
};
use model_pool::pool::Bytes;
use support::device_tree::{AmdCard, DeviceTree};

pub(super) const FIRST: &str = "0000:c1:00.0";
pub(super) const SECOND: &str = "0000:c6:00.0";

pub(super) fn tree() -> (tempfile::TempDir, DeviceTree) {
    let folder = tempfile::tempdir().unwrap();
    let tree = DeviceTree::new(folder.path());
    tree.memory(64, 40);
    (folder, tree)
}

/// Two MI300X, with the names of their nodes.
pub(super) fn node() -> (tempfile::TempDir, DeviceTree, [u64; 2]) {
    let (folder, tree) = tree();
    let first = tree.amd(AmdCard::mi300(FIRST, 1))[0];
    let second = tree.amd(AmdCard::mi300(SECOND, 1))[0];
    (folder, tree, [first, second])
}

pub(super) fn with(tree: &DeviceTree, provider: Provider) -> InventorySettings {
    InventorySettings {
        root: tree.folder().to_owned(),
        ..settings(provider)
    }
}

pub(super) fn open(tree: &DeviceTree) -> Inventory {
    Inventory::open(&with(tree, Provider::Amd)).unwrap()
}

fn used(card: &str) -> String {
    format!("sys/bus/pci/devices/{card}/mem_info_vram_used")
}

#[test]
fn each_gpu_of_amdgpu_is_a_device_in_hips_order() {
    let (_folder, tree, _) = node();
    for provider in [Provider::Amd, Provider::Auto] {
        let inventory = Inventory::open(&with(&tree, provider)).unwrap();
        assert_eq!(inventory.provider(), Provider::Amd);
        let [first, second] = inventory.devices() else {
            panic!("two devices")
        };
        assert_eq!(
            (first.name.as_str(), second.name.as_str()),
            ("amd0", "amd1")
        );
        assert_eq!((first.kind, first.index), (DeviceKind::Amd, 0));
        assert_eq!(first.total, Bytes(192 * GIB));
        let product = first.product_name.as_deref();
        assert_eq!(product, Some("AMD Instinct MI300X OAM"));
        assert_eq!(first.uuid.as_deref(), Some("GPU-00000000000c1000"));
        assert_eq!(first.pci.as_deref(), Some(FIRST));
        assert!(!first.is_unified && first.partition.is_none());
        assert_eq!(first.product, second.product);
    }
}

#[test]
fn memory_is_divided_by_the_processes_of_kfd_and_of_open_files() {
    let (_folder, tree, [first, second]) = node();
    let own = std::process::id();
    let mut other = Command::new("sleep").arg("600").spawn().unwrap();
    tree.write(&used(FIRST), 9 * GIB);
    tree.kfd_process(own, first, 5 * GIB);
    tree.kfd_process(other.id(), first, 3 * GIB);
    tree.kfd_process(own, second, 0);
    let inventory = open(&tree);
    let figures = read(&inventory, &[own]);
    assert_eq!(figures[0].own, Bytes(5 * GIB));
    assert_eq!(figures[0].foreign, Bytes(4 * GIB), "used minus ours");
    assert_eq!(
        (figures[0].used, figures[1].used),
        (Bytes(9 * GIB), Bytes(0))
    );
    assert_eq!(figures[0].utilisation_percent, Some(7));
    assert_eq!(figures[0].temperature_celsius, Some(41));

    // Vulkan does not go through KFD. Two files of one client count once, and another GPU's not at all.
    let vulkan = |pci: &str, id: u32, kib: u64| {
        format!(
            "drm-driver: amdgpu\ndrm-pdev: {pci}\ndrm-client-id: {id}\ndrm-memory-vram: {kib} KiB\ndrm-memory-gtt: 999 KiB"
        )
    };
    tree.write(&used(SECOND), 2 * GIB);
    for (file, pci, id, kib) in [
        (7, SECOND, 1, 1 << 20),
        (8, SECOND, 1, 1 << 20),
        (9, SECOND, 2, 1 << 10),
        (10, FIRST, 3, 1 << 10),
    ] {
        tree.client(own, file, &vulkan(pci, id, kib));
    }
    let figures = read(&inventory, &[own]);
    assert_eq!(figures[1].own, Bytes(GIB + Bytes::MIB));
    assert_eq!(figures[0].own, Bytes(5 * GIB), "the larger of both figures");
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn ids_of_another_namespace_do_not_make_our_memory_foreign() {
    let (_folder, tree, [first, _]) = node();
    let inventory = open(&tree);
    tree.write(&used(FIRST), GIB);
    assert_eq!(read(&inventory, &[])[0].foreign, Bytes(GIB), "certain");
    // The driver lists an engine in a container by an id that does not exist here.
    tree.kfd_process(u32::MAX >> 1, first, 7 * GIB);
    tree.write(&used(FIRST), 8 * GIB);
    let figures = &read(&inventory, &[std::process::id()])[0];
    assert_eq!((figures.own, figures.foreign), (Bytes(7 * GIB), Bytes(GIB)));
    tree.remove(&format!("sys/class/kfd/kfd/proc/{}", u32::MAX >> 1));
    let figures = &read(&inventory, &[std::process::id()])[0];
    assert_eq!((figures.own, figures.foreign), (Bytes(7 * GIB), Bytes(GIB)));
}

#[test]
fn each_partition_is_a_device() {
    let (_folder, tree) = tree();
    let nodes = tree.amd(AmdCard::mi300(FIRST, 4));
    let own = std::process::id();
    tree.kfd_process(own, nodes[1], 20 * GIB);
    tree.write(&used(FIRST), 24 * GIB);
    let inventory = open(&tree);
    let devices = inventory.devices();
    assert_eq!(devices.len(), 4);
    for (device, part) in devices.iter().zip(0..) {
        assert_eq!((device.index, device.partition), (part, Some(part)));
        assert_eq!(device.total, Bytes(48 * GIB));
        let product = device.product_name.as_deref();
        assert_eq!(product, Some("AMD Instinct MI300X OAM CPX NPS4"));
    }
    let figures = read(&inventory, &[own]);
    assert_eq!(figures[1].own, Bytes(20 * GIB));
    assert_eq!(figures[1].used, Bytes(21 * GIB), "its part of the other 4");
    assert_eq!((figures[0].used, figures[0].own), (Bytes(GIB), Bytes(0)));
}

#[test]
fn an_apu_shares_the_machines_memory_and_is_only_used_on_request() {
    let (_folder, tree) = tree();
    let strix = AmdCard {
        pci: FIRST,
        product: "",
        isa: 110_501,
        vram: GIB / 2,
        gtt: 62 * GIB,
        parts: 1,
        is_apu: true,
    };
    let node = tree.amd(strix)[0];
    let auto = Inventory::open(&with(&tree, Provider::Auto)).unwrap();
    assert_eq!(
        auto.provider(),
        Provider::Host,
        "most machines compute on the processor"
    );

    let inventory = open(&tree);
    let [device] = inventory.devices() else {
        panic!("one device")
    };
    assert!(device.is_unified);
    assert_eq!(
        device.total,
        Bytes(62 * GIB),
        "the least of GTT and the machine"
    );
    assert_eq!(device.product_name.as_deref(), Some("AMD gfx1151 0x74a1"));
    assert_eq!(inventory.memory_for_sleepers(), None);
    let own = std::process::id();
    tree.kfd_process(own, node, 10 * GIB);
    tree.memory(64, 30);
    let figures = &read(&inventory, &[own])[0];
    assert!(figures.own >= Bytes(10 * GIB) && figures.own < Bytes(12 * GIB));
    assert_eq!(figures.used, figures.own + figures.foreign);
    assert_eq!(
        figures.foreign,
        Bytes(32 * GIB).saturating_sub(figures.own),
        "30 of 62 GiB are available"
    );

    // With a large part carved out, that part is the device.
    let (_folder, tree) = self::tree();
    tree.amd(AmdCard {
        vram: 96 * GIB,
        gtt: 16 * GIB,
        ..strix
    });
    let device = &open(&tree).devices()[0].clone();
    assert_eq!((device.is_unified, device.total), (false, Bytes(96 * GIB)));
}

#[test]
fn a_gpu_that_leaves_the_bus_is_lost_and_the_other_is_still_read() {
    let (_folder, tree, _) = node();
    let inventory = open(&tree);
    tree.remove(&format!("sys/bus/pci/devices/{FIRST}"));
    let readings = inventory.measure(&BTreeSet::new());
    let error = readings[0].1.as_ref().unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert!(readings[1].1.is_ok());
}

#[test]
fn missing_empty_huge_and_garbage_files_are_errors_with_the_files_name() {
    let (_folder, tree, _) = node();
    let inventory = open(&tree);
    for text in [
        "",
        "-1",
        "12 MB",
        "0x10",
        &"9".repeat(100),
        &"x".repeat(2 << 20),
    ] {
        tree.write(&used(FIRST), text);
        let readings = inventory.measure(&BTreeSet::new());
        let error = readings[0].1.as_ref().unwrap_err().to_string();
        assert!(error.contains("mem_info_vram_used"), "{error}");
        assert!(error.len() < 400, "{error}");
        assert!(readings[1].1.is_ok());
    }
    tree.write(&used(FIRST), 5);
    assert_eq!(
        inventory.measure(&BTreeSet::new()).len(),
        2,
        "it is read again"
    );
    assert_eq!(read(&inventory, &[])[0].used, Bytes(5));
    // At the start, such a card is left out.
    tree.write(
        &format!("sys/bus/pci/devices/{FIRST}/mem_info_vram_total"),
        "?",
    );
    let names: Vec<String> = open(&tree)
        .devices()
        .iter()
        .map(|info| info.name.clone())
        .collect();
    assert_eq!(names, ["amd1"]);
    tree.write(
        "sys/class/kfd/kfd/topology/nodes/2/properties",
        "\u{0}garbage",
    );
    let refused = Inventory::open(&with(&tree, Provider::Amd)).unwrap_err();
    assert!(
        matches!(refused, InventoryError::NoDevice { .. }),
        "{refused}"
    );
}

#[test]
fn a_file_that_does_not_respond_makes_its_gpu_stale_and_no_other() {
    let (_folder, tree, _) = node();
    let inventory = open(&tree);
    let file = tree.folder().join(used(FIRST));
    std::fs::remove_file(&file).unwrap();
    let made = Command::new("mkfifo").arg(&file).status().unwrap();
    assert!(made.success());
    let deadline = Duration::from_millis(200);
    for _ in 0..2 {
        let readings = inventory.measure_within(&BTreeSet::new(), deadline);
        let error = readings[0].1.as_ref().unwrap_err();
        assert!(matches!(error, DeviceError::Stale { .. }), "{error}");
        assert!(readings[1].1.is_ok());
    }
    // Its one reader ends when there is something to read.
    std::fs::write(&file, "7\n").unwrap();
}

#[test]
fn each_mi300a_is_its_own_part_of_the_machines_memory() {
    let (_folder, tree) = tree();
    tree.memory(512, 400);
    for pci in [FIRST, SECOND] {
        tree.amd(AmdCard {
            vram: 128 * GIB,
            gtt: 256 * GIB,
            ..AmdCard::mi300(pci, 1)
        });
        tree.write(&format!("sys/bus/pci/devices/{pci}/mem_info_vram_total"), 0);
    }
    let inventory = Inventory::open(&with(&tree, Provider::Auto)).unwrap();
    let devices = inventory.devices().iter();
    let seen: Vec<_> = devices
        .map(|info| (info.is_unified, info.total.0 / GIB))
        .collect();
    assert_eq!(seen, [(true, 128), (true, 128)]);
    assert_eq!(inventory.memory_for_sleepers(), None);
}
