//! Intel GPUs from the files of xe and i915, on a tree of these files.

use std::process::Command;

use super::{GIB, environment, read, settings};
use model_pool::inventory::{DeviceKind, Inventory, InventoryError, InventorySettings, Provider};
use model_pool::pool::Bytes;
use support::device_tree::DeviceTree;

const PROCESSOR: &str = "0000:00:02.0";
const ARC: &str = "0000:03:00.0";
const MAX: &str = "0000:8a:00.0";

/// A GPU of the processor, a card with 12 GiB, and one with two tiles of 64 GiB.
fn machine() -> (tempfile::TempDir, DeviceTree) {
    let folder = tempfile::tempdir().unwrap();
    let tree = DeviceTree::new(folder.path());
    tree.intel(PROCESSOR, &[]);
    tree.intel(ARC, &[12 * GIB]);
    tree.intel(MAX, &[64 * GIB, 64 * GIB]);
    (folder, tree)
}

fn with(tree: &DeviceTree, provider: Provider) -> InventorySettings {
    InventorySettings {
        root: tree.folder().to_owned(),
        ..settings(provider)
    }
}

#[test]
fn each_tile_with_memory_is_a_device_in_the_order_of_level_zero() {
    let (_folder, tree) = machine();
    for provider in [Provider::Intel, Provider::Auto] {
        let inventory = Inventory::open(&with(&tree, provider)).unwrap();
        assert_eq!(inventory.provider(), Provider::Intel);
        let devices = inventory.devices().iter();
        let seen: Vec<_> = devices
            .map(|device| (device.name.as_str(), device.partition, device.total.0 / GIB))
            .collect();
        assert_eq!(
            seen,
            [
                ("intel0", None, 12),
                ("intel1", Some(0), 64),
                ("intel2", Some(1), 64)
            ]
        );
        assert!(
            inventory
                .devices()
                .iter()
                .all(|info| info.kind == DeviceKind::Intel)
        );
    }
}

#[test]
fn memory_is_that_of_the_processes_by_region() {
    let (_folder, tree) = machine();
    let own = std::process::id();
    let mut other = Command::new("sleep").arg("600").spawn().unwrap();
    let client = |pci: &str, id: u32, lines: &str| {
        format!("drm-driver: xe\ndrm-pdev: {pci}\ndrm-client-id: {id}\n{lines}")
    };
    let both = "drm-total-vram0: 9 MiB\ndrm-resident-vram0: 5 MiB\ndrm-resident-vram1: 3 MiB\ndrm-resident-system: 99 MiB";
    tree.client(own, 3, &client(MAX, 1, both));
    tree.client(own, 4, &client(MAX, 1, both));
    tree.client(other.id(), 3, &client(MAX, 2, "drm-resident-vram0: 2 MiB"));
    let inventory = Inventory::open(&with(&tree, Provider::Intel)).unwrap();
    let figures = read(&inventory, &[own]);
    let mib = |figures: &model_pool::inventory::DeviceUse| {
        (figures.own.0 / Bytes::MIB, figures.foreign.0 / Bytes::MIB)
    };
    assert_eq!((mib(&figures[1]), mib(&figures[2])), ((5, 2), (3, 0)));
    assert_eq!(mib(&figures[0]), (0, 0));
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn i915_with_intels_own_files_reports_what_is_free() {
    let folder = tempfile::tempdir().unwrap();
    let tree = DeviceTree::new(folder.path());
    tree.intel(ARC, &[]);
    let card = format!("sys/bus/pci/devices/{ARC}/drm/card0");
    tree.write(&format!("{card}/lmem_total_bytes"), 16 * GIB);
    tree.write(&format!("{card}/lmem_avail_bytes"), 11 * GIB);
    let own = std::process::id();
    let text = format!("drm-pdev: {ARC}\ndrm-client-id: 1\ndrm-total-local0: 3072 MiB");
    tree.client(own, 3, &text);
    let inventory = Inventory::open(&with(&tree, Provider::Intel)).unwrap();
    let figures = &read(&inventory, &[own])[0];
    assert_eq!(
        (figures.own, figures.foreign),
        (Bytes(3 * GIB), Bytes(2 * GIB))
    );
}

#[test]
fn the_mask_limits_them_and_a_processors_gpu_alone_is_none() {
    let (_folder, tree) = machine();
    let seen = |mask: &str| {
        let opened = Inventory::open(&InventorySettings {
            environment: environment(&[("ZE_AFFINITY_MASK", mask)]),
            ..with(&tree, Provider::Intel)
        });
        let inventory = opened.map_err(|error| error.to_string())?;
        let names = inventory.devices().iter().map(|device| device.name.clone());
        Ok::<_, String>(names.collect::<Vec<_>>().join(" "))
    };
    assert_eq!(seen("2,0").unwrap(), "intel2 intel0");
    for mask in ["", "default"] {
        assert_eq!(seen(mask).unwrap(), "intel0 intel1 intel2", "{mask}");
    }
    let refused = seen("3").unwrap_err();
    assert!(refused.contains("no such GPU exists"), "{refused}");
    let refused = seen("1.1").unwrap_err();
    assert!(
        refused.contains("ZE_FLAT_DEVICE_HIERARCHY=FLAT"),
        "{refused}"
    );
    for (name, value, words) in [
        ("ZE_FLAT_DEVICE_HIERARCHY", "COMPOSITE", "it counts cards"),
        (
            "ZE_ENABLE_PCI_ID_DEVICE_ORDER",
            "1",
            "it counts GPUs of the processor among the others",
        ),
    ] {
        let settings = |mask: &[(&str, &str)]| InventorySettings {
            environment: environment(&[&[(name, value)], mask].concat()),
            ..with(&tree, Provider::Intel)
        };
        let refused = Inventory::open(&settings(&[("ZE_AFFINITY_MASK", "0")])).unwrap_err();
        assert!(refused.to_string().contains(words), "{refused}");
        let all = Inventory::open(&settings(&[])).unwrap();
        assert_eq!(all.devices().len(), 3, "without a mask nothing is counted");
    }

    let folder = tempfile::tempdir().unwrap();
    let tree = DeviceTree::new(folder.path());
    tree.intel(PROCESSOR, &[]);
    let refused = Inventory::open(&with(&tree, Provider::Intel)).unwrap_err();
    assert!(
        matches!(refused, InventoryError::NoDevice { .. }),
        "{refused}"
    );
    let auto = Inventory::open(&with(&tree, Provider::Auto)).unwrap();
    assert_eq!(auto.provider(), Provider::Host);
}
