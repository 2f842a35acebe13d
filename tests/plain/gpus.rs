//! The inventory on machines with linked, lost, failing, slow or shared GPUs, through the real NVML wrapper.
//! One file because every test builds a machine and reads it through the same wrapper.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use model_pool::inventory::{
    DeviceChoice, DeviceError, DeviceEvent, DeviceTrouble, Inventory, InventoryError,
    InventorySettings, Link, Provider, attribute,
};
use model_pool::pool::{Bytes, DeviceId, ReplicaId};

use model_pool::config::{MemoryPart, Size};
use support::child::ChildGuard;
use support::machine::state::{self, Wish};
use support::machine::{GIB, Machine};

const H100: &str = "NVIDIA H100 80GB HBM3";
const PATIENCE: Duration = Duration::from_secs(30);

fn machine(build: impl FnOnce(Machine) -> Machine) -> (tempfile::TempDir, Machine) {
    let folder = tempfile::tempdir().unwrap();
    let machine = build(Machine::new(folder.path()));
    (folder, machine)
}

fn with(machine: &Machine, choices: Vec<DeviceChoice>) -> InventorySettings {
    InventorySettings {
        provider: Provider::Nvml,
        host_memory: Bytes(64 * Bytes::MIB),
        headroom: MemoryPart::Fixed(Size(Bytes(GIB))),
        devices: Vec::new(),
        choices,
        command: Vec::new(),
        environment: BTreeMap::new(),
        root: "/".into(),
        nvml_library: Some(machine.library()),
    }
}

fn open(machine: &Machine) -> Inventory {
    Inventory::open(&with(machine, Vec::new())).unwrap()
}

fn links(inventory: &Inventory, device: usize) -> Vec<(u32, Link)> {
    let links = inventory.devices()[device].links.iter();
    links.map(|(id, link)| (id.0, *link)).collect()
}

/// Polls until the condition holds.
fn wait_for<T>(what: &str, mut so: impl FnMut() -> Option<T>) -> T {
    let began = std::time::SystemTime::now();
    loop {
        if let Some(found) = so() {
            return found;
        }
        assert!(began.elapsed().unwrap() < PATIENCE, "waited for {what}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// A process that runs until dropped.
struct TestProcess(ChildGuard);

impl TestProcess {
    fn new() -> TestProcess {
        let cat = Command::new("cat").stdin(Stdio::piped()).spawn();
        TestProcess(ChildGuard(cat.unwrap()))
    }

    fn takes(&self, machine: &Machine, gpu: usize, bytes: u64, words: &str) {
        let wish = Wish {
            gpu,
            pid: self.0.id(),
            bytes,
            words,
        };
        let taken = state::allocate(&machine.state_file(), &wish).unwrap();
        taken.expect("there is enough");
    }
}

#[test]
fn gpus_of_one_product_share_a_kind_and_report_their_best_links() {
    let (_folder, machine) = machine(|machine| {
        let machine = machine.gpus(4, H100, 80 * GIB);
        machine.gpus(2, "NVIDIA L4", 24 * GIB).nvlink_pairs()
    });
    let inventory = open(&machine);
    let kinds = inventory.devices().iter().map(|device| device.product);
    assert_eq!(kinds.collect::<Vec<_>>(), [0, 0, 0, 0, 1, 1]);
    let first = &inventory.devices()[0];
    assert_eq!(first.product_name.as_deref(), Some(H100));
    assert_eq!(first.pci.as_deref(), Some("00000000:10:00.0"));
    let (near, far) = (Link::SameRoot, Link::Node);
    assert_eq!(
        links(&inventory, 2),
        [(3, Link::NvLink), (0, near), (1, near), (4, far), (5, far)]
    );
}

#[test]
fn gpus_behind_nvswitch_and_within_islands_are_linked_by_nvlink() {
    let (_folder, switched) = machine(|machine| machine.gpus(8, H100, 80 * GIB).nvswitch());
    let inventory = open(&switched);
    for device in 0..8 {
        let all = links(&inventory, device);
        assert_eq!(all.len(), 7);
        assert!(all.iter().all(|(_, link)| *link == Link::NvLink), "{all:?}");
    }
    let (_folder, islands) = machine(|machine| {
        let machine = machine.gpus(8, "NVIDIA V100", 32 * GIB);
        machine.nvlink_island(&[0, 2, 4, 6])
    });
    let inventory = open(&islands);
    let by_nvlink = links(&inventory, 4).into_iter();
    let by_nvlink = by_nvlink.filter(|(_, link)| *link == Link::NvLink);
    assert_eq!(by_nvlink.map(|(id, _)| id).collect::<Vec<_>>(), [0, 2, 6]);
    islands.edit(|state| {
        let links = state.0.iter_mut().filter(|line| line.is("nvlink"));
        links.for_each(|line| line.0.push("down".into()));
    });
    let down = links(&open(&islands), 4);
    assert!(
        down.iter().all(|(_, link)| *link > Link::NvLink),
        "{down:?}"
    );
}

#[test]
fn a_lost_gpu_is_reported_by_its_reading_and_recovers() {
    let (_folder, machine) = machine(|machine| machine.gpus(2, H100, 80 * GIB));
    let inventory = open(&machine);
    machine.lose(1);
    let readings = inventory.measure(&BTreeSet::new());
    assert!(readings[0].1.is_ok());
    let (id, Err(error)) = &readings[1] else {
        panic!("{readings:?}")
    };
    assert_eq!(*id, DeviceId(1));
    assert!(matches!(error, DeviceError::Lost { .. }), "{error}");
    assert!(
        error.to_string().contains("gpu1 fell off the bus"),
        "{error}"
    );
    machine.find_again(1);
    assert!(inventory.measure(&BTreeSet::new())[1].1.is_ok());
    machine.fail("nvmlDeviceGetMemoryInfo_v2", Some(0), 16);
    let readings = inventory.measure(&BTreeSet::new());
    assert!(matches!(
        readings[0].1,
        Err(DeviceError::ResetRequired { .. })
    ));
    assert!(readings[1].1.is_ok());
}

#[test]
fn a_hanging_gpu_is_stale_is_queried_once_and_leaves_the_others_readable() {
    let (_folder, machine) = machine(|machine| machine.gpus(3, H100, 80 * GIB));
    let inventory = open(&machine);
    machine.hang("nvmlDeviceGetMemoryInfo_v2", Some(1), 600_000);
    let soon = Duration::from_millis(1500);
    let first = inventory.measure_within(&BTreeSet::new(), soon);
    assert!(first[0].1.is_ok() && first[2].1.is_ok(), "{first:?}");
    assert!(matches!(first[1].1, Err(DeviceError::Stale { .. })));
    let again = inventory.measure_within(&BTreeSet::new(), PATIENCE);
    assert!(again[0].1.is_ok() && again[2].1.is_ok(), "{again:?}");
    let Err(DeviceError::Stale { since, .. }) = &again[1].1 else {
        panic!("{again:?}")
    };
    assert!(*since >= soon && *since < PATIENCE, "{since:?}");
    machine.mend();
    wait_for("the GPU to answer again", || {
        let readings = inventory.measure(&BTreeSet::new());
        readings[1].1.is_ok().then_some(())
    });
}

#[test]
fn an_nvml_that_hangs_at_the_start_is_refused_even_if_the_host_is_allowed() {
    let (_folder, machine) = machine(|machine| machine.gpus(1, H100, 80 * GIB));
    machine.hang("nvmlDeviceGetCount_v2", None, 600_000);
    let settings = InventorySettings {
        provider: Provider::Auto,
        ..with(&machine, Vec::new())
    };
    let refused = Inventory::open_within(&settings, Duration::from_millis(200)).unwrap_err();
    assert!(matches!(refused, InventoryError::Hangs { .. }), "{refused}");
    assert!(refused.to_string().contains("nvidia-smi"), "{refused}");
    machine.mend();
}

#[test]
fn gpus_are_matched_by_uuid_after_the_driver_was_reloaded() {
    let (_folder, machine) = machine(|machine| machine.gpus(2, H100, 80 * GIB));
    for gpu in 0..2 {
        machine.gpu(gpu, |line| line.put("uuid", format!("GPU-{gpu}")));
    }
    let inventory = open(&machine);
    machine.foreign(1, 4242, 7 * GIB);
    machine.stop_driver();
    for _ in 0..2 {
        for (_, reading) in inventory.measure(&BTreeSet::new()) {
            let error = reading.unwrap_err();
            assert!(matches!(error, DeviceError::DriverAway { .. }), "{error}");
        }
    }
    // The GPUs are enumerated in the other order.
    machine.edit(|state| {
        let gpus: Vec<usize> = (0..state.0.len())
            .filter(|line| state.0[*line].is("gpu"))
            .collect();
        state.0.swap(gpus[0], gpus[1]);
        let process = state.0.iter_mut().find(|line| line.is("process"));
        process.unwrap().put("gpu", 0);
    });
    machine.start_driver();
    let used = wait_for("the driver to be back", || {
        let readings = inventory.measure(&BTreeSet::new()).into_iter();
        let used = readings.map(|(id, reading)| Some((id.0, reading.ok()?.used.0)));
        used.collect::<Option<Vec<_>>>()
    });
    assert_eq!(used, [(0, 0), (1, 7 * GIB)]);
}

#[test]
fn contradicting_readings_never_exceed_the_total_memory() {
    let (_folder, machine) = machine(|machine| machine.gpus(1, H100, 80 * GIB));
    let inventory = open(&machine);
    machine.gpu(0, |line| {
        line.put("used", 90 * GIB);
        line.put("reserved", 20 * GIB);
    });
    machine.foreign(0, 4242, 500 * GIB);
    let readings = inventory.measure(&BTreeSet::new());
    let device = readings[0].1.as_ref().unwrap();
    assert_eq!(
        (
            device.total.0,
            device.used.0,
            device.own.0,
            device.foreign.0
        ),
        (80 * GIB, 80 * GIB, 0, 80 * GIB)
    );
    let readings = inventory.measure(&BTreeSet::from([4242]));
    let device = readings[0].1.as_ref().unwrap();
    assert_eq!((device.own.0, device.foreign.0), (80 * GIB, 0));
}

#[test]
fn gpu_errors_are_reported_with_their_device_and_meaning() {
    let (_folder, machine) = machine(|machine| machine.gpus(3, H100, 80 * GIB));
    // The third GPU reports no events.
    machine.gpu(2, |line| line.0.push("noevents".into()));
    machine.xid(0, 95);
    let inventory = open(&machine);
    let (outbox, inbox) = mpsc::channel::<DeviceEvent>();
    let watch = inventory.events(move |event| outbox.send(event).unwrap_or_default());
    let watch = watch.expect("GPUs report");
    // Some events may precede the start of the watch, so they are repeated until one arrives.
    let mut repeated: Vec<DeviceEvent> = Vec::new();
    let mut found = |wanted: DeviceEvent, act: &dyn Fn()| {
        wait_for("the event", || {
            act();
            let found = inbox.recv_timeout(Duration::from_millis(200)).ok()?;
            // Events of earlier repetitions may come late.
            assert!(found == wanted || repeated.contains(&found), "{found:?}");
            (found == wanted).then_some(())
        });
        // Discards events of earlier repetitions.
        while inbox.recv_timeout(Duration::from_millis(300)).is_ok() {}
        repeated.push(wanted);
    };
    let event = |device, what| DeviceEvent {
        device: DeviceId(device),
        what,
    };
    let xid = |code| DeviceTrouble::Xid { code };
    found(event(1, xid(79)), &|| machine.xid(1, 79));
    found(event(0, xid(31)), &|| machine.xid(0, 31));
    found(event(0, DeviceTrouble::DoubleBitEcc), &|| {
        machine.double_bit(0)
    });
    found(event(1, DeviceTrouble::Lost), &|| machine.lose(1));
    assert!(xid(79).is_unusable() && !xid(31).is_unusable());
    drop(watch);
    // The threads end with the watch, and drop the channel.
    let ended = wait_for("the threads to end", || match inbox.try_recv() {
        Err(mpsc::TryRecvError::Disconnected) => Some(true),
        Ok(_) | Err(mpsc::TryRecvError::Empty) => None,
    });
    assert!(ended);
}

#[test]
fn events_resume_after_the_driver_was_reloaded() {
    let (_folder, machine) = machine(|machine| machine.gpus(2, H100, 80 * GIB));
    let inventory = open(&machine);
    let (outbox, inbox) = mpsc::channel::<DeviceEvent>();
    let _watch = inventory.events(move |event| outbox.send(event).unwrap_or_default());
    machine.stop_driver();
    wait_for("the driver to be away", || {
        let readings = inventory.measure(&BTreeSet::new());
        readings
            .iter()
            .all(|(_, reading)| reading.is_err())
            .then_some(())
    });
    machine.start_driver();
    let found = wait_for("an event", || {
        machine.xid(1, 48);
        inbox.recv_timeout(Duration::from_millis(200)).ok()
    });
    assert_eq!(found.device, DeviceId(1));
    assert!(inventory.measure(&BTreeSet::new())[0].1.is_ok());
}

#[test]
fn memory_is_attributed_to_replicas_orphans_and_others() {
    let (_folder, machine) = machine(|machine| machine.gpus(1, H100, 80 * GIB));
    let (leader, child, orphan) = (TestProcess::new(), TestProcess::new(), TestProcess::new());
    leader.takes(&machine, 0, 10 * GIB, "");
    child.takes(&machine, 0, 5 * GIB, "");
    orphan.takes(&machine, 0, 3 * GIB, "");
    machine.foreign(0, 4242, 20 * GIB);
    machine.gpu(0, |line| line.put("reserved", GIB));
    let inventory = open(&machine);
    let owners = BTreeMap::from([(leader.0.id(), ReplicaId(7)), (child.0.id(), ReplicaId(7))]);
    let orphans = BTreeSet::from([orphan.0.id()]);
    for ours in [
        owners.keys().copied().collect::<BTreeSet<u32>>(),
        owners.keys().copied().chain(orphans.clone()).collect(),
    ] {
        let readings = inventory.measure(&ours);
        let found = attribute(readings[0].1.as_ref().unwrap(), &owners, &orphans);
        assert_eq!(
            found.by_replica,
            BTreeMap::from([(ReplicaId(7), Bytes(15 * GIB))])
        );
        assert_eq!(found.orphaned, Bytes(3 * GIB));
        assert_eq!(found.foreign, Bytes(21 * GIB));
        assert_eq!(found.unattributed, Bytes::ZERO);
    }
}

#[test]
fn own_memory_on_no_process_list_stays_unattributed() {
    let (_folder, machine) = machine(|machine| machine.gpus(1, H100, 80 * GIB));
    machine.foreign(0, 4242, 20 * GIB);
    machine.gpu(0, |line| line.0.push("nolists".into()));
    let inventory = open(&machine);
    inventory.measure(&BTreeSet::new());
    let engine = TestProcess::new();
    engine.takes(&machine, 0, 30 * GIB, "");
    let readings = inventory.measure(&BTreeSet::from([engine.0.id()]));
    let owners = BTreeMap::from([(engine.0.id(), ReplicaId(1))]);
    let found = attribute(readings[0].1.as_ref().unwrap(), &owners, &BTreeSet::new());
    assert_eq!(
        (found.foreign, found.unattributed),
        (Bytes(20 * GIB), Bytes(30 * GIB))
    );
}

#[test]
fn memory_of_a_killed_process_may_be_freed_late_or_never() {
    let (_folder, machine) = machine(|machine| machine.gpus(3, H100, 80 * GIB));
    let inventory = open(&machine);
    let engine = TestProcess::new();
    engine.takes(&machine, 0, 10 * GIB, "release=1500");
    engine.takes(&machine, 1, 20 * GIB, "leak");
    engine.takes(&machine, 2, 30 * GIB, "");
    let used = || -> Vec<u64> {
        let readings = inventory.measure(&BTreeSet::new()).into_iter();
        readings
            .map(|(_, reading)| reading.unwrap().used.0 / GIB)
            .collect()
    };
    assert_eq!(used(), [10, 20, 30]);
    drop(engine);
    assert_eq!(used(), [10, 20, 0]);
    let on_a_list = inventory.measure(&BTreeSet::new());
    assert!(on_a_list[1].1.as_ref().unwrap().processes.is_empty());
    wait_for("the late memory", || (used()[0] == 0).then_some(()));
    assert_eq!(used(), [0, 20, 0]);
}

#[test]
fn chosen_gpus_have_their_names_limits_and_labels() {
    let (_folder, machine) = machine(|machine| machine.gpus(4, H100, 80 * GIB).nvlink_pairs());
    let choices = vec![
        DeviceChoice {
            index: Some(3),
            name: Some("big".into()),
            memory: Some(Bytes(40 * GIB)),
            labels: vec!["quiet".into()],
            ..DeviceChoice::default()
        },
        DeviceChoice {
            uuid: Some("GPU-00000000-0000-0000-0000-000000000002".into()),
            ..DeviceChoice::default()
        },
        DeviceChoice {
            name: Some("gpu0".into()),
            ..DeviceChoice::default()
        },
    ];
    let inventory = Inventory::open(&with(&machine, choices)).unwrap();
    let devices = inventory.devices().iter();
    let seen: Vec<_> = devices
        .map(|device| {
            (
                device.id.0,
                device.name.as_str(),
                device.index,
                device.total.0 / GIB,
            )
        })
        .collect();
    assert_eq!(
        seen,
        [(0, "big", 3, 40), (1, "gpu2", 2, 80), (2, "gpu0", 0, 80)]
    );
    assert_eq!(inventory.devices()[0].labels, ["quiet"]);
    assert_eq!(links(&inventory, 0)[0], (1, Link::NvLink));
    let foreign = |bytes| {
        machine.foreign(3, 4242, bytes);
        let readings = inventory.measure(&BTreeSet::new());
        readings[0].1.as_ref().unwrap().foreign.0 / GIB
    };
    assert_eq!(foreign(30 * GIB), 0, "there is room next to the limit");
    assert_eq!(foreign(60 * GIB), 20);
}

#[test]
fn choices_that_contradict_the_machine_are_refused_with_the_available_devices() {
    let (_folder, machine) = machine(|machine| machine.gpus(2, H100, 80 * GIB));
    let refused = |choices: Vec<DeviceChoice>| {
        let refused = Inventory::open(&with(&machine, choices));
        refused.unwrap_err().to_string()
    };
    let index = |index| DeviceChoice {
        index: Some(index),
        ..DeviceChoice::default()
    };
    let words = refused(vec![index(0), index(5)]);
    assert!(
        words.contains("inventory.devices[1]") && words.contains("index 5"),
        "{words}"
    );
    assert!(words.contains("gpu1 (index 1, GPU-0000"), "{words}");
    let uuid = DeviceChoice {
        uuid: Some("GPU-nobody".into()),
        ..index(0)
    };
    assert!(refused(vec![uuid]).contains("there is no GPU of this uuid"));
    let both = DeviceChoice {
        uuid: Some("GPU-00000000-0000-0000-0000-000000000001".into()),
        ..index(0)
    };
    assert!(refused(vec![both]).contains("has another index"));
    let name = DeviceChoice {
        name: Some("gpu7".into()),
        ..DeviceChoice::default()
    };
    assert!(refused(vec![name]).contains("no GPU of this name"));
    assert!(refused(vec![DeviceChoice::default()]).contains("chooses nothing"));
    let words = refused(vec![index(1), index(1)]);
    assert!(
        words.contains("inventory.devices[0] names already"),
        "{words}"
    );
    let more = DeviceChoice {
        memory: Some(Bytes(81 * GIB)),
        ..index(0)
    };
    let words = refused(vec![more]);
    assert!(
        words.contains("81.0 GiB") && words.contains("80.0 GiB"),
        "{words}"
    );
}
