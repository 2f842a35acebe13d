//! Tests of `journal.rs`: reading records back, and writing to a full disk.

use super::*;

fn record() -> Record {
    Record {
        version: VERSION,
        replica: 7,
        model: "org/model".to_owned(),
        token: "t".to_owned(),
        tag: "g".to_owned(),
        boot: "b".to_owned(),
        cgroup: None,
        guardian: ProcessId { pid: 1, started: 2 },
        engine: None,
        endpoint: StoredEndpoint::Tcp(([127, 0, 0, 1], 80).into()),
        asleep: false,
        cleanup: Vec::new(),
        ready_path: "/health".to_owned(),
        placement: vec![JournalShare {
            device: "gpu0".to_owned(),
            bytes: 5,
        }],
        arguments: "a".to_owned(),
        served_model_name: None,
        stop_grace_ms: 10_000,
        ready_at_ms: None,
        log_file: None,
        watch: None,
    }
}

#[test]
fn a_record_reads_back_even_with_fields_of_a_later_version() {
    let home = tempfile::tempdir().expect("a folder");
    let journal = Journal::new(home.path().join("engines"));
    assert!(journal.read_all().is_empty(), "no folder, no engines");
    journal.write(&record()).expect("written");
    let path = journal.path_of(ReplicaId(7));
    let mut value: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).expect("a file")).expect("JSON");
    value["mood"] = "good".into();
    std::fs::write(&path, value.to_string()).expect("written");
    std::fs::write(path.with_extension("json.new"), "{\"ver").expect("written");
    std::fs::write(path.with_file_name("r8.json"), "{").expect("written");
    let all = journal.read_all();
    assert_eq!(all.len(), 2);
    assert_eq!(all[0].1.as_ref().expect("a record"), &record());
    assert!(all[1].1.is_err());
    journal.remove(ReplicaId(7));
    assert_eq!(journal.read_all().len(), 1);
}

#[test]
fn a_record_can_be_read_if_another_version_has_written_the_inputs_for_watching_it() {
    let watched = Record {
        watch: Some(RecordedWatch {
            limits: LivenessLimits::default(),
            model_name: "m".to_owned(),
            metrics: None,
            member: None,
        }),
        ..record()
    };
    let mut value = serde_json::to_value(&watched).expect("JSON");
    let read = |value: &serde_json::Value| -> Record {
        serde_json::from_value(value.clone()).expect("a record")
    };
    assert_eq!(read(&value), watched);
    value["watch"]["limits"] = "patient".into();
    assert_eq!(read(&value), record());
}

fn of_replica(replica: u64) -> Record {
    Record {
        replica,
        ..record()
    }
}

fn spare_count(journal: &Journal) -> usize {
    let spares = std::fs::read_dir(journal.spares()).expect("a folder");
    spares
        .flatten()
        .filter(|entry| is_spare(&entry.path()))
        .count()
}

/// Leaves no room for the next record of this replica.
fn fill_disk_for(journal: &Journal, replica: u64) {
    let half = journal
        .path_of(ReplicaId(replica))
        .with_extension("json.new");
    std::os::unix::fs::symlink("/dev/full", half).expect("linked");
}

#[test]
fn concurrent_loads_on_a_full_disk_each_use_a_spare_file() {
    const WRITERS: u64 = 8;
    let home = tempfile::tempdir().expect("a folder");
    let journal = Journal::new(home.path().join("engines"));
    for round in 0..4 {
        journal.prepare();
        let replicas = || (0..WRITERS).map(move |nth| round * WRITERS + nth);
        replicas().for_each(|replica| fill_disk_for(&journal, replica));
        let at_once = std::sync::Barrier::new(WRITERS as usize);
        std::thread::scope(|scope| {
            for replica in replicas() {
                let (journal, at_once) = (journal.clone(), &at_once);
                scope.spawn(move || {
                    at_once.wait();
                    journal.write(&of_replica(replica)).expect("a spare file");
                });
            }
        });
        for replica in replicas() {
            let path = journal.path_of(ReplicaId(replica));
            assert_eq!(read(&path), Ok(of_replica(replica)));
        }
        assert_eq!(spare_count(&journal), (SPARES - 8) as usize);
    }
}

#[test]
fn a_spare_file_that_is_too_short_is_recreated() {
    let home = tempfile::tempdir().expect("a folder");
    let journal = Journal::new(home.path().join("engines"));
    journal.prepare();
    assert_eq!(spare_count(&journal), SPARES as usize, "before any record");
    let spares = std::fs::read_dir(journal.spares()).expect("a folder");
    let paths: Vec<PathBuf> = spares.flatten().map(|entry| entry.path()).collect();
    for cut in &paths[..paths.len() - 1] {
        std::fs::write(cut, "").expect("cut off");
    }
    fill_disk_for(&journal, 8);
    journal.write(&of_replica(8)).expect("the last spare file");
    assert_eq!(read(&journal.path_of(ReplicaId(8))), Ok(of_replica(8)));
    assert_eq!(spare_count(&journal), 0);
    fill_disk_for(&journal, 9);
    let error = journal.write(&of_replica(9)).expect_err("no spare file");
    assert!(is_full(&error), "{error}");
    journal.write(&record()).expect("written");
    assert_eq!(spare_count(&journal), SPARES as usize);
    let [one, other] = [&paths[0], &paths[1]].map(|path| std::fs::read(path).expect("a file"));
    assert_ne!(one, other, "no file system keeps them as one");
}

#[test]
fn a_record_on_a_full_disk_replaces_a_spare_file() {
    let home = tempfile::tempdir().expect("a folder");
    let journal = Journal::new(home.path().join("engines"));
    journal.prepare();
    journal.write(&record()).expect("written");
    let spares = || spare_count(&journal);
    assert_eq!(spares(), SPARES as usize);
    let other = of_replica(8);
    let path = journal.path_of(ReplicaId(8));
    fill_disk_for(&journal, 8);
    journal.write(&other).expect("a spare file");
    assert_eq!(spares(), SPARES as usize - 1);
    assert_eq!(read(&path), Ok(other));
    assert_eq!(
        journal.read_all().len(),
        2,
        "spare files do not count as records"
    );
    journal.write(&record()).expect("written");
    assert_eq!(spares(), SPARES as usize, "replaced while there is room");
    let long = vec![b' '; SPARE_BYTES + 1];
    assert!(journal.use_spare(&path, long).is_err());
    assert_eq!(spares(), SPARES as usize);
    for full in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded] {
        assert!(is_full(&full.into()));
    }
    assert!(!is_full(&io::ErrorKind::NotFound.into()));
}
