//! A GPU that shares the machine's memory counts that memory once.

use super::{FakeNvml, GIB, read};
use model_pool::inventory::{DeviceKind, Inventory, Provider};
use model_pool::pool::Bytes;

#[test]
fn a_gpu_with_unified_memory_shares_that_of_the_machine() {
    let fake = FakeNvml::new(
        "driver version=580.95 generation=1
gpu total=128849018880 reserved=0 name=NVIDIA_GB10 uuid=GPU-11111111-2222 pci=0000000F:01:00.0 minor=0
call name=nvmlDeviceGetMemoryInfo_v2 code=3
call name=nvmlDeviceGetMemoryInfo code=3
",
    );
    let machine = model_pool::inventory::machine_memory().expect("a machine");
    for provider in [Provider::Auto, Provider::Nvml] {
        let inventory = Inventory::open(&fake.settings(provider)).unwrap();
        let [device] = inventory.devices() else {
            panic!("one device")
        };
        assert!(device.is_unified && device.kind == DeviceKind::Nvidia);
        assert_eq!(
            (device.total, device.installed),
            (machine.total, machine.total)
        );
        assert!(device.headroom.0 >= machine.total.0 / 16, "for the system");
        assert_eq!(inventory.memory_for_sleepers(), None, "not counted twice");
        let empty = &read(&inventory, &[])[0];
        assert_eq!(empty.own, Bytes::ZERO);
        assert!(empty.foreign > Bytes::ZERO && empty.foreign < machine.total);
        assert_eq!(empty.used, empty.foreign);
        // This process as an engine that NVML does not list.
        let used = &read(&inventory, &[std::process::id()])[0];
        assert!(used.own + used.foreign <= used.total, "{used:?}");
    }
    // An engine with 1 GiB on the GPU, and its own memory as a program.
    let pid = std::process::id();
    let inventory = Inventory::open(&fake.settings(Provider::Nvml)).unwrap();
    fake.machine
        .edit(|state| state.push(&format!("process gpu=0 pid={pid} bytes={GIB}")));
    let used = &read(&inventory, &[pid])[0];
    let held = used.processes.iter().find(|(id, _)| *id == pid);
    let held = held.expect("listed").1;
    assert!(held > Bytes(GIB) && held < Bytes(4 * GIB), "{held}");
}
