//! GPUs in MIG mode: each slice is a device, and the GPU is none.

use super::{FakeNvml, environment, read};
use model_pool::inventory::{DeviceChoice, DeviceError, Inventory, InventorySettings, Provider};
use model_pool::pool::Bytes;

/// An A100 with slices of 20 and 10 GB, and an A100 that is not in MIG mode.
const SLICED: &str = "\
gpu total=42949672960 reserved=0 name=NVIDIA_A100-SXM4-40GB uuid=GPU-aaaaaaaa mig utilisation=9
gpu total=42949672960 reserved=0 name=NVIDIA_A100-SXM4-40GB uuid=GPU-bbbbbbbb
gpu total=21474836480 reserved=1000 mig_of=0 name=NVIDIA_A100-SXM4-40GB_MIG_3g.20gb uuid=MIG-11111111
gpu total=10737418240 reserved=1000 mig_of=0 name=NVIDIA_A100-SXM4-40GB_MIG_2g.10gb uuid=MIG-22222222
process gpu=2 pid=11 bytes=7000
process gpu=2 pid=12 bytes=500
";

fn names(inventory: &Inventory) -> Vec<&str> {
    let devices = inventory.devices().iter();
    devices.map(|device| device.name.as_str()).collect()
}

#[test]
fn each_slice_is_a_device_with_its_own_memory_and_processes() {
    let fake = FakeNvml::new(SLICED);
    let inventory = Inventory::open(&fake.settings(Provider::Auto)).unwrap();
    assert_eq!(names(&inventory), ["gpu0-mig0", "gpu0-mig1", "gpu1"]);
    let first = &inventory.devices()[0];
    assert_eq!(first.uuid.as_deref(), Some("MIG-11111111"));
    let product = first.product_name.as_deref();
    assert_eq!(product, Some("NVIDIA A100-SXM4-40GB MIG 3g.20gb"));
    assert_eq!((first.index, first.total), (0, Bytes(20 << 30)));
    assert!(first.is_slice() && !inventory.devices()[2].is_slice());
    let products: Vec<u32> = inventory
        .devices()
        .iter()
        .map(|info| info.product)
        .collect();
    assert_eq!(
        products,
        [0, 1, 2],
        "slices of different sizes are different products"
    );

    let figures = read(&inventory, &[11]);
    assert_eq!(
        (figures[0].own, figures[0].foreign),
        (Bytes(7000), Bytes(1500))
    );
    assert_eq!(
        (figures[1].used, figures[2].used),
        (Bytes::ZERO, Bytes::ZERO)
    );
}

#[test]
fn a_slice_is_named_by_its_uuid_and_a_gpu_in_mig_mode_is_refused_with_its_slices() {
    let fake = FakeNvml::new(SLICED);
    let open = |variable, value| {
        Inventory::open(&InventorySettings {
            environment: environment(&[(variable, value)]),
            ..fake.settings(Provider::Nvml)
        })
    };
    for (variable, value, expected) in [
        ("CUDA_VISIBLE_DEVICES", "MIG-2", &["gpu0-mig1"][..]),
        (
            "CUDA_VISIBLE_DEVICES",
            "1,MIG-11111111",
            &["gpu1", "gpu0-mig0"],
        ),
        ("NVIDIA_VISIBLE_DEVICES", "0:1", &["gpu0-mig1"]),
        (
            "NVIDIA_VISIBLE_DEVICES",
            "all",
            &["gpu0-mig0", "gpu0-mig1", "gpu1"],
        ),
    ] {
        let inventory = open(variable, value).unwrap();
        assert_eq!(names(&inventory), expected, "{variable}={value}");
    }
    let others = open("CUDA_VISIBLE_DEVICES", "MIG-2").unwrap().left_out();
    let others = others.expect("two are left out");
    assert!(others.contains("the GPUs of index 0:0, 1"), "{others}");
    let refused = open("CUDA_VISIBLE_DEVICES", "0").unwrap_err().to_string();
    assert!(
        refused.contains("in MIG mode; name its slices: MIG-11111111, MIG-22222222"),
        "{refused}"
    );
    let choice = |index: Option<u32>, uuid: Option<&str>| InventorySettings {
        choices: vec![DeviceChoice {
            index,
            uuid: uuid.map(str::to_owned),
            ..DeviceChoice::default()
        }],
        ..fake.settings(Provider::Nvml)
    };
    let refused = Inventory::open(&choice(Some(0), None)).unwrap_err();
    assert!(refused.to_string().contains("name its slices"), "{refused}");
    let chosen = Inventory::open(&choice(None, Some("MIG-11111111"))).unwrap();
    assert_eq!(names(&chosen), ["gpu0-mig0"]);
}

#[test]
fn a_gpu_without_slices_or_partitioned_while_it_is_used_is_never_one_device() {
    let fake = FakeNvml::new("gpu total=80000 mig\ngpu total=80000\n");
    let inventory = Inventory::open(&fake.settings(Provider::Nvml)).unwrap();
    assert_eq!(names(&inventory), ["gpu1"]);
    let others = inventory.left_out().expect("it is named");
    assert!(
        others.contains("GPU 0 is in MIG mode and has no slices"),
        "{others}"
    );

    fake.set("gpu total=80000 mig\ngpu total=80000 mig\n");
    let (_, reading) = inventory.measure(&Default::default()).remove(0);
    let error = reading.unwrap_err();
    assert!(matches!(error, DeviceError::NowInMigMode { .. }), "{error}");

    let fake = FakeNvml::new(SLICED);
    let inventory = Inventory::open(&fake.settings(Provider::Nvml)).unwrap();
    fake.set(&SLICED.replace("uuid=MIG-11111111", "uuid=MIG-33333333"));
    let (_, reading) = inventory.measure(&Default::default()).remove(0);
    let error = reading.unwrap_err();
    assert!(error.is_lost(), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("partitioned again; restart the pool"),
        "{text}"
    );
}
