//! `CUDA_VISIBLE_DEVICES` limits the GPUs of every command, as it limits the programs of CUDA.

use super::{FakeNvml, environment};
use model_pool::inventory::{DeviceChoice, Inventory, InventorySettings, Provider};

const SHARED_MACHINE: &str = "\
driver version=580.95 generation=1
gpu total=85899345920 reserved=0 name=NVIDIA_H100 uuid=GPU-aaaaaaaa-2222 pci=00000000:1B:00.0 minor=0
gpu total=85899345920 reserved=0 name=NVIDIA_H100 uuid=GPU-bbbbbbbb-2222 pci=00000000:1C:00.0 minor=1
gpu total=25769803776 reserved=0 name=NVIDIA_RTX_4090 uuid=GPU-cccccccc-2222 pci=00000000:1D:00.0 minor=2
";

/// The names of the devices in use under this value of `CUDA_VISIBLE_DEVICES`.
fn seen(value: &str, provider: Provider) -> Result<Vec<String>, String> {
    let fake = FakeNvml::new(SHARED_MACHINE);
    let opened = Inventory::open(&InventorySettings {
        environment: environment(&[("CUDA_VISIBLE_DEVICES", value)]),
        ..fake.settings(provider)
    });
    let inventory = opened.map_err(|error| error.to_string())?;
    let names = inventory.devices().iter().map(|device| device.name.clone());
    Ok(names.collect())
}

#[test]
fn only_the_gpus_that_the_environment_names_are_used() {
    for provider in [Provider::Auto, Provider::Nvml] {
        for (value, names) in [
            ("1", &["gpu1"] as &[&str]),
            ("2, 0", &["gpu2", "gpu0"]),
            ("GPU-bbbbbbbb-2222", &["gpu1"]),
            ("GPU-c", &["gpu2"]),
            ("0,-1,2", &["gpu0"]),
        ] {
            assert_eq!(seen(value, provider).unwrap(), names, "{value}");
        }
        for (value, words) in [
            ("7", "no such GPU exists"),
            ("GPU-", "more than one GPU"),
            ("1,1", "names this GPU twice"),
            ("MIG-4ac0-17", "no such GPU exists"),
        ] {
            let refused = seen(value, provider).unwrap_err();
            let names = format!("CUDA_VISIBLE_DEVICES is `{value}`");
            assert!(
                refused.contains(&names) && refused.contains(words),
                "{refused}"
            );
        }
    }
    for value in ["", "-1", "NoDevFiles"] {
        assert_eq!(seen(value, Provider::Auto).unwrap(), ["host"], "{value}");
        let refused = seen(value, Provider::Nvml).unwrap_err();
        assert!(refused.contains("names no GPU"), "{refused}");
    }
    assert_eq!(seen("1", Provider::Host).unwrap(), ["host"]);
}

#[test]
fn configured_gpus_override_the_environment_with_a_notice() {
    let fake = FakeNvml::new(SHARED_MACHINE);
    let choice = |index| DeviceChoice {
        index: Some(index),
        ..DeviceChoice::default()
    };
    let inventory = Inventory::open(&InventorySettings {
        choices: vec![choice(0), choice(1)],
        environment: environment(&[("CUDA_VISIBLE_DEVICES", "1")]),
        ..fake.settings(Provider::Nvml)
    })
    .unwrap();
    assert_eq!(inventory.devices().len(), 2);
    let notice = inventory.notice().expect("a notice");
    assert!(notice.contains("the GPUs of index 0"), "{notice}");
}

#[test]
fn a_container_runtimes_variable_limits_what_the_runtime_has_not_limited() {
    let fake = FakeNvml::new(SHARED_MACHINE);
    let open = |variables: &[(&str, &str)]| {
        let opened = Inventory::open(&InventorySettings {
            environment: environment(variables),
            ..fake.settings(Provider::Nvml)
        });
        let inventory = opened.map_err(|error| error.to_string())?;
        let names = inventory.devices().iter().map(|device| device.name.clone());
        Ok::<_, String>(names.collect::<Vec<_>>().join(" "))
    };
    let all = "gpu0 gpu1 gpu2";
    for (value, names) in [
        ("all", all),
        ("void", all),
        ("", all),
        // The indices of a host, in a container that shows exactly these three.
        ("5,6,7", all),
        ("2", "gpu2"),
        ("GPU-bbbbbbbb-2222,0", "gpu1 gpu0"),
    ] {
        let variable = ("NVIDIA_VISIBLE_DEVICES", value);
        assert_eq!(open(&[variable]).unwrap(), names, "{value}");
        let first = ("CUDA_VISIBLE_DEVICES", "1");
        assert_eq!(open(&[first, variable]).unwrap(), "gpu1", "{value}");
    }
    let refused = open(&[("NVIDIA_VISIBLE_DEVICES", "none")]).unwrap_err();
    assert!(refused.contains("names no GPU"), "{refused}");
    let refused = open(&[("NVIDIA_VISIBLE_DEVICES", "7")]).unwrap_err();
    assert!(
        refused.contains("NVIDIA_VISIBLE_DEVICES is `7`"),
        "{refused}"
    );
}

#[test]
fn a_gpu_whose_device_file_cannot_be_opened_is_left_out_by_name() {
    let fake = FakeNvml::new(SHARED_MACHINE);
    let root = tempfile::tempdir().unwrap();
    let files = root.path().join("dev");
    std::fs::create_dir(&files).unwrap();
    std::fs::write(files.join("nvidia0"), "").unwrap();
    std::os::unix::fs::symlink("nvidia1", files.join("nvidia1")).unwrap();
    let inventory = Inventory::open(&InventorySettings {
        root: root.path().to_owned(),
        ..fake.settings(Provider::Auto)
    })
    .unwrap();
    let devices = inventory.devices().iter();
    let names: Vec<&str> = devices.map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["gpu0", "gpu2"]);
    let others = inventory.left_out().expect("it is named");
    assert!(
        others.contains("/dev/nvidia1 cannot be opened") && others.contains("GPU 1"),
        "{others}"
    );
}

#[test]
fn indices_that_cuda_may_count_otherwise_get_a_notice() {
    let fake = FakeNvml::new(SHARED_MACHINE);
    let notice = |variables: &[(&str, &str)]| {
        let settings = InventorySettings {
            environment: environment(variables),
            ..fake.settings(Provider::Nvml)
        };
        Inventory::open(&settings).unwrap().notice()
    };
    let index = ("CUDA_VISIBLE_DEVICES", "2");
    let found = notice(&[index]).expect("the GPUs differ");
    assert!(found.contains("CUDA_DEVICE_ORDER=PCI_BUS_ID"), "{found}");
    assert_eq!(notice(&[index, ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")]), None);
    assert_eq!(notice(&[("CUDA_VISIBLE_DEVICES", "GPU-c")]), None);
}
