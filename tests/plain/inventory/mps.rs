//! NVIDIA's Multi-Process Service, whose clients NVML lists separately.

use super::{FakeNvml, environment, read};
use model_pool::inventory::{Inventory, InventorySettings, Provider};
use model_pool::pool::Bytes;

const GPU: &str = "\
gpu total=80000 reserved=0
process gpu=0 pid=10 bytes=500
process gpu=0 pid=11 bytes=5000 mps
process gpu=0 pid=12 bytes=3000 mps
";

#[test]
fn the_memory_of_each_client_is_its_own_and_that_of_the_server_is_not() {
    let fake = FakeNvml::new(GPU);
    let folder = tempfile::tempdir().unwrap();
    let variable = [(
        "CUDA_MPS_PIPE_DIRECTORY",
        &*folder.path().display().to_string(),
    )];
    let open = || {
        let settings = InventorySettings {
            environment: environment(&variable),
            ..fake.settings(Provider::Nvml)
        };
        Inventory::open(&settings).unwrap()
    };
    let without = open();
    assert_eq!(without.notice(), None);
    assert!(!without.devices()[0].has_mps);

    let daemon = folder.path().join("nvidia-cuda-mps-control.pid");
    std::fs::write(daemon, std::process::id().to_string()).unwrap();
    let inventory = open();
    assert!(inventory.devices()[0].has_mps);
    let notice = inventory.notice().expect("it is named");
    assert!(
        notice.contains("Multi-Process Service (MPS) runs: an error of one engine"),
        "{notice}"
    );
    let used = &read(&inventory, &[11, 12])[0];
    assert_eq!((used.own, used.foreign), (Bytes(8000), Bytes(500)));
    assert_eq!(
        used.processes,
        [(10, Bytes(500)), (11, Bytes(5000)), (12, Bytes(3000))]
    );
}
