//! The devices of a replay: the pool's devices as the service would detect them, or a reported assumption.

use std::path::Path;

use super::{Rig, errors, text};

#[test]
fn the_simulated_devices_are_those_the_service_would_find() {
    let rig = Rig::new();
    let models = "catalog: {models_dir: models, model_reference: reference.json}\n";
    rig.file("reference.json", "{}");
    std::fs::create_dir(rig.folder.path().join("models")).expect("created");
    let host = rig.file(
        "host.yaml",
        &format!("{models}inventory: {{provider: host, host_memory: 64GiB}}\n"),
    );
    let none = rig.file(
        "none.yaml",
        &format!("{models}inventory: {{provider: nvml}}\n"),
    );
    let load = "zipf:requests=100,days=1,models=4";
    let with = |pool: &Path, more: &[&str]| {
        let output = rig.simulate(load, &[&["--pool", text(pool)][..], more].concat());
        assert!(output.status.success(), "{}", errors(&output));
        let table = String::from_utf8_lossy(&output.stdout).into_owned();
        (table, errors(&output))
    };
    let (table, notices) = with(&host, &[]);
    assert!(table.contains("on 1 device with 64.0 GiB"), "{table}");
    assert!(!notices.contains("assuming"), "{notices}");
    let found = "using the devices of this machine: host of 64.0 GiB";
    assert!(notices.contains(found), "{notices}");
    let (table, _) = with(&host, &["--gpus", "+2"]);
    assert!(table.contains("on 3 devices with 192.0 GiB"), "{table}");
    // Assumed devices are reported as such, also with --gpus.
    for more in [&["--gpus", "2"][..], &[]] {
        let (_, notices) = with(&none, more);
        assert!(
            notices.contains("the devices are not known: cannot load NVML")
                && notices.contains("assuming "),
            "{notices}"
        );
    }
    let (_, notices) = with(&none, &["--gpus", "4x80GiB"]);
    assert!(!notices.contains("assuming"), "{notices}");
    let unknown = rig.complaint(load, &["--pool", text(&none), "--gpus", "+2"]);
    assert!(unknown.contains("such as --gpus 3x80GiB"), "{unknown}");
    let unknown = rig.complaint(load, &["--pool", text(&none), "--gpus", "+0"]);
    assert!(
        unknown.contains("which are not known: cannot load NVML"),
        "{unknown}"
    );
    let without = rig.complaint(load, &["--gpus", "+1"]);
    assert!(
        without.contains("not known: --pool is not set") && without.contains("2x80GiB"),
        "{without}"
    );
}
