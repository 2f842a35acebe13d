//! Tests of `log.rs`.

use super::*;

#[test]
fn the_ring_is_bounded_in_lines_and_in_bytes() {
    let log = ReplicaLog::in_memory();
    for number in 0..LINES_MAX + 10 {
        log.push(LogStream::Stdout, &number.to_string());
    }
    let lines = log.tail(usize::MAX);
    assert_eq!(lines.len(), LINES_MAX);
    assert_eq!(lines[0].sequence, 10);
    let long = "x".repeat(BYTES_MAX / 4);
    for _ in 0..10 {
        log.push(LogStream::Stdout, &long);
    }
    assert_eq!(log.tail(usize::MAX).len(), 4);
}

#[test]
fn a_follower_gets_every_line_exactly_once() {
    let log = ReplicaLog::in_memory();
    log.push(LogStream::Stdout, "one");
    log.push(LogStream::Stdout, "two");
    let (before, mut after) = log.follow(1);
    log.push(LogStream::Stderr, "three");
    assert_eq!(&*before[0].text, "two");
    assert_eq!(&*after.try_recv().unwrap().text, "three");
}

#[test]
fn a_log_allocates_its_follower_buffer_only_while_it_has_followers() {
    let log = ReplicaLog::in_memory();
    log.push(LogStream::Stdout, "one");
    assert!(log.lock().followers.is_none(), "no follower yet");
    let (_, mut first) = log.follow(0);
    let (_, second) = log.follow(0);
    drop(second);
    log.push(LogStream::Stdout, "two");
    assert_eq!(&*first.try_recv().unwrap().text, "two");
    drop(first);
    log.push(LogStream::Stdout, "three");
    assert!(log.lock().followers.is_none(), "the last one has left");
    let (before, mut after) = log.follow(1);
    log.push(LogStream::Stdout, "four");
    assert_eq!(&*before[0].text, "three");
    assert_eq!(&*after.try_recv().unwrap().text, "four");
}

#[test]
fn messages_about_an_engine_that_never_started_are_in_its_log_file() {
    let home = tempfile::tempdir().unwrap();
    let log = ReplicaLog::open(home.path(), "org/../model", ReplicaId(4)).unwrap();
    log.push(LogStream::Stderr, "no such program");
    let text = std::fs::read_to_string(home.path().join("org--..--model-r4.log")).unwrap();
    assert!(text.ends_with(" stderr no such program\n"), "{text}");
    assert_eq!(log.tail(9).len(), 1);
}

#[test]
fn a_full_disk_stops_the_log_file_but_not_the_log_in_memory() {
    let home = tempfile::tempdir().unwrap();
    // Every write to this file fails as if the disk were full.
    std::os::unix::fs::symlink("/dev/full", home.path().join("m-r1.log")).unwrap();
    let log = ReplicaLog::open(home.path(), "m", ReplicaId(1)).unwrap();
    log.push(LogStream::Stderr, "one");
    log.push(LogStream::Stderr, "two");
    let kept: Vec<_> = log.tail(9).into_iter().map(|line| line.text).collect();
    assert_eq!(kept, ["one".into(), "two".into()] as [Arc<str>; 2]);
}

#[test]
fn a_secret_is_in_neither_the_lines_nor_the_file() {
    let home = tempfile::tempdir().unwrap();
    let env = [("HF_TOKEN".to_owned(), "secret-of-mine".to_owned())];
    let log = ReplicaLog::open(home.path(), "m", ReplicaId(1)).unwrap();
    let log = log.masking(Masking::new(&env.into(), &[]));
    log.push(LogStream::Stderr, "login with secret-of-mine failed");
    let file = std::fs::read_to_string(home.path().join("m-r1.log")).unwrap();
    let all = format!("{file}{}", log.tail(1)[0].text);
    assert!(!all.contains("secret-of-mine"), "{all}");
    assert_eq!(all.matches("login with [masked] failed").count(), 2);
}

#[test]
fn log_files_of_all_models_are_bounded_together_and_other_files_stay() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("notes.txt"), "x".repeat(5_000)).unwrap();
    for number in 0..20 {
        let path = home.path().join(format!("m{number}-r{number}.log"));
        std::fs::write(&path, "x".repeat(1_000)).unwrap();
        let at = UNIX_EPOCH + Duration::from_secs(1_000 + number);
        let file = std::fs::File::options().append(true).open(path).unwrap();
        file.set_modified(at).unwrap();
    }
    remove_surplus(home.path(), 3_500);
    let names = std::fs::read_dir(home.path()).unwrap().flatten();
    let mut names: Vec<_> = names
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        ["m17-r17.log", "m18-r18.log", "m19-r19.log", "notes.txt"]
    );
}

#[test]
fn a_frequently_loaded_model_keeps_only_its_newest_log_files() {
    let home = tempfile::tempdir().unwrap();
    let _other = ReplicaLog::open(home.path(), "a-r", ReplicaId(1)).unwrap();
    for replica in 0..30 {
        let log = ReplicaLog::open(home.path(), "a", ReplicaId(replica)).unwrap();
        log.push(LogStream::Stdout, "hello");
    }
    let names = std::fs::read_dir(home.path()).unwrap().count();
    assert_eq!(names, FILES_PER_MODEL_MAX + 1);
    assert!(home.path().join("a-r-r1.log").exists());
    assert!(home.path().join("a-r29.log").exists());
}

#[test]
fn opening_a_log_file_deletes_no_other_until_the_engine_starts() {
    let home = tempfile::tempdir().unwrap();
    let path = |number: usize| home.path().join(format!("m-r{number}.log"));
    for number in 0..=FILES_PER_MODEL_MAX {
        std::fs::write(path(number), "x").unwrap();
        let at = UNIX_EPOCH + Duration::from_secs(1_000 + number as u64);
        let file = std::fs::File::options()
            .append(true)
            .open(path(number))
            .unwrap();
        file.set_modified(at).unwrap();
    }
    let log = ReplicaLog::in_memory();
    log.open_file(home.path(), "m", ReplicaId(90)).unwrap();
    let count = || std::fs::read_dir(home.path()).unwrap().count();
    assert_eq!(count(), FILES_PER_MODEL_MAX + 2);
    log.remove_others(home.path(), "m");
    assert_eq!(count(), FILES_PER_MODEL_MAX);
    assert!(!path(1).exists() && path(2).exists() && path(90).exists());
}
