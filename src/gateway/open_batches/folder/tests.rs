//! Tests of `folder.rs`: files that no record names, and the sizes of results.

use std::fs::File;
use std::time::SystemTime;

use super::*;

#[test]
fn old_files_without_a_record_are_removed_and_all_others_stay() {
    let dir = tempfile::tempdir().expect("a folder");
    let old = SystemTime::now() - UNFINISHED_FOR - Duration::from_secs(60);
    let names = [
        ("file-1.jsonl", true, true),
        ("file-1.index", true, true),
        ("file-2.jsonl", true, false),
        ("file-2.index", true, false),
        ("file-3.jsonl.part", true, false),
        ("file-4.jsonl.part", false, true),
        ("file-5.jsonl", false, true),
        ("batch_1.output.jsonl", true, true),
        ("batch_2.errors.jsonl", true, false),
        ("runner.lock", true, true),
    ];
    for (name, is_old, _) in names {
        let file = File::create(dir.path().join(name)).expect("created");
        if is_old {
            file.set_modified(old).expect("set");
        }
    }
    let known = BTreeSet::from(["file-1".to_owned()]);
    let open = BTreeSet::from(["batch_1".to_owned()]);
    remove_orphans(dir.path(), &known, &open).expect("removed");
    for (name, _, stays) in names {
        assert_eq!(dir.path().join(name).exists(), stays, "{name}");
    }
}

#[test]
fn a_file_that_vanishes_or_cannot_be_removed_does_not_keep_the_others() {
    let dir = tempfile::tempdir().expect("a folder");
    let old = SystemTime::now() - UNFINISHED_FOR - Duration::from_secs(60);
    let path = |name: &str| dir.path().join(name);
    std::fs::create_dir(path("folder.jsonl")).expect("created");
    for name in ["folder.jsonl", "orphan.jsonl"] {
        let file = if name == "folder.jsonl" {
            File::open(path(name)).expect("opened")
        } else {
            File::create(path(name)).expect("created")
        };
        file.set_modified(old).expect("set");
    }
    let names = ["vanished.jsonl", "folder.jsonl", "orphan.jsonl"];
    let none = BTreeSet::new();
    let error = remove_orphans_of(names.iter().map(|name| Ok(path(name))), &none, &none)
        .expect_err("a folder is not a file");
    assert_ne!(error.kind(), io::ErrorKind::NotFound);
    assert!(!path("orphan.jsonl").exists(), "the last one is removed");
    assert!(path("folder.jsonl").exists());
    let vanished = [Ok(path("vanished.jsonl"))];
    remove_orphans_of(vanished.into_iter(), &none, &none).expect("not an error");
}

#[test]
fn the_results_of_a_batch_are_measured_on_disk() {
    let dir = tempfile::tempdir().expect("a folder");
    for (name, bytes) in [
        ("batch_1.output.jsonl", 10),
        ("batch_1.errors.jsonl", 5),
        ("batch_2.errors.jsonl", 7),
        ("file-1.jsonl", 100),
    ] {
        std::fs::write(dir.path().join(name), vec![b' '; bytes]).expect("written");
    }
    let expected = [("batch_1", 15), ("batch_2", 7)].map(|(id, bytes)| (id.to_owned(), bytes));
    assert_eq!(result_sizes(dir.path()), BTreeMap::from(expected));
    assert!(result_sizes(&dir.path().join("none")).is_empty());
}
