//! AMD's GPUs that the environment or the system leaves to this process, and the time to read many.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::amd::{FIRST, SECOND, node, open, tree, with};
use super::{GIB, environment};
use model_pool::inventory::{Inventory, InventorySettings, Provider};
use support::device_tree::{AmdCard, Kernel};

#[test]
fn the_environment_limits_the_gpus_of_amd() {
    let (_folder, tree, _) = node();
    let third = "0000:c8:00.0";
    tree.amd(AmdCard::mi300(third, 1));
    let seen = |variables: &[(&str, &str)]| {
        let opened = Inventory::open(&InventorySettings {
            environment: environment(variables),
            ..with(&tree, Provider::Amd)
        });
        let inventory = opened.map_err(|error| error.to_string())?;
        let names = inventory.devices().iter().map(|device| device.name.clone());
        let names: Vec<String> = names.collect();
        Ok::<_, String>((names.join(" "), inventory.left_out()))
    };
    for (variables, expected) in [
        (&[("HIP_VISIBLE_DEVICES", "2,0")][..], "amd2 amd0"),
        (&[("HIP_VISIBLE_DEVICES", "")], "amd0 amd1 amd2"),
        (&[("ROCR_VISIBLE_DEVICES", "1")], "amd1"),
        (
            &[("ROCR_VISIBLE_DEVICES", "GPU-00000000000c8000,0")],
            "amd2 amd0",
        ),
        (
            &[
                ("ROCR_VISIBLE_DEVICES", "1,2"),
                ("HIP_VISIBLE_DEVICES", "1"),
            ],
            "amd2",
        ),
        (&[("CUDA_VISIBLE_DEVICES", "1")], "amd1"),
        (
            &[
                ("ROCR_VISIBLE_DEVICES", "1,2"),
                ("CUDA_VISIBLE_DEVICES", "0"),
            ],
            "amd1",
        ),
        (
            &[
                ("ROCR_VISIBLE_DEVICES", "1,2"),
                ("CUDA_VISIBLE_DEVICES", "1,2"),
            ],
            "amd1 amd2",
        ),
        (&[("HIP_VISIBLE_DEVICES", "GPU-00000000000c6000")], "amd1"),
        (
            &[("HIP_VISIBLE_DEVICES", "0"), ("CUDA_VISIBLE_DEVICES", "1")],
            "amd0",
        ),
        (&[("ZE_AFFINITY_MASK", "0")], "amd0 amd1 amd2"),
    ] {
        let (names, others) = seen(variables).unwrap();
        assert_eq!(names, expected, "{variables:?}");
        assert_eq!(others.is_some(), names.split(' ').count() < 3, "{others:?}");
        if let Some(others) = others {
            assert!(others.contains(variables[0].0), "{others}");
        }
    }
    for (variable, value, words) in [
        ("HIP_VISIBLE_DEVICES", "7", "no such GPU exists"),
        ("ROCR_VISIBLE_DEVICES", "0,0", "names this GPU twice"),
        ("HIP_VISIBLE_DEVICES", "-1", "names no GPU"),
        ("ROCR_VISIBLE_DEVICES", "", "names no GPU"),
    ] {
        let refused = seen(&[(variable, value)]).unwrap_err();
        assert!(
            refused.contains(words) && refused.contains(variable),
            "{refused}"
        );
    }
}

#[test]
fn a_gpu_whose_device_file_cannot_be_opened_is_left_out_by_name() {
    let (_folder, tree, _) = node();
    let files = tree.folder().join("dev/dri");
    for make_unusable in [
        |file: &Path| symlink("renderD128", file).unwrap(),
        |_: &Path| {},
    ] {
        let file = files.join("renderD128");
        let _ = std::fs::remove_file(&file);
        make_unusable(&file);
        let inventory = open(&tree);
        let devices = inventory.devices().iter();
        let seen: Vec<_> = devices
            .map(|info| (info.name.as_str(), info.index, info.pci.as_deref()))
            .collect();
        assert_eq!(
            seen,
            [("amd0", 0, Some(SECOND))],
            "HIP counts only GPUs that it can open"
        );
        let others = inventory.left_out().expect("it is named");
        assert!(
            others.contains("/dev/dri/renderD128 cannot be opened") && others.contains(FIRST),
            "{others}"
        );
    }
}

#[test]
fn sixteen_gpus_with_four_hundred_processes_are_read_in_five_milliseconds_each() {
    let (_folder, tree) = tree();
    let pci: Vec<String> = (1..=16).map(|bus| format!("0000:{bus:02x}:00.0")).collect();
    let nodes: Vec<u64> = pci
        .iter()
        .map(|pci| tree.amd(AmdCard::mi300(pci, 1))[0])
        .collect();
    // The driver lists each process on every GPU. Every tenth process is ours.
    let living: Vec<_> = (0..400)
        .map(|_| std::thread::spawn(std::thread::park))
        .collect();
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    // The kernel shows a thread below `/proc` as it shows a process.
    let ids = tasks.filter_map(|task| task.unwrap().file_name().to_str()?.parse().ok());
    let processes: Vec<u32> = ids.take(400).collect();
    assert_eq!(processes.len(), 400);
    for &pid in &processes {
        let first = pid as usize % nodes.len();
        for node in &nodes {
            tree.kfd_process(pid, *node, GIB);
        }
        for file in 0..4 {
            let text = format!(
                "drm-pdev: {}\ndrm-client-id: {pid}{file}\ndrm-memory-vram: 1 KiB",
                pci[first]
            );
            tree.client(pid, file, &text);
        }
    }
    let inventory = open(&tree);
    let ours: BTreeSet<u32> = processes
        .iter()
        .copied()
        .filter(|pid| pid % 10 == 0)
        .collect();
    let measured = |rounds: u32| {
        let each = (0..rounds).map(|_| {
            let began = SystemTime::now();
            assert_eq!(inventory.measure(&ours).len(), 16);
            began.elapsed().unwrap_or_default()
        });
        each.min().unwrap()
    };
    // The best of thirty: other tests run on the same processors.
    let idle = measured(30);
    // Under load, as many threads as processors compute.
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let load: Vec<Kernel> = (0..threads)
        .map(|_| {
            Kernel::new(|| {
                let began = SystemTime::now();
                while began.elapsed().unwrap_or_default() < Duration::from_millis(9) {}
            })
        })
        .collect();
    let under_load = measured(20);
    drop(load);
    living.iter().for_each(|thread| thread.thread().unpark());
    println!("16 GPUs, 400 processes: {idle:?}, under load {under_load:?}");
    for took in [idle, under_load] {
        assert!(took < Duration::from_millis(80), "{took:?} for 16 GPUs");
    }
}
