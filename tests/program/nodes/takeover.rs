//! Another process continues the work of a node, after a kill or by `node --takeover`: its engines stay, and the controller keeps the
//! node.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};
use support::child::ChildGuard;
use support::family::{asks, chat, is_alive, reasons, stub, told};
use support::service::{Pool, wait_for};

use super::{Node, node, one_device, pool_with, spawn, token, until};

mod edges;

impl Node {
    /// Another process of the same node: in the same folder, and with the same command line.
    pub(super) fn spawn_again(&self, pool: &Pool, more: &[&str]) -> Child {
        let url = format!("http://{}", pool.address());
        spawn(self.folder.path(), &url, self.name, more)
    }

    /// Replaces its process by another one, and returns the old process.
    pub(super) fn take_over(&mut self, pool: &Pool) -> ChildGuard {
        let new = ChildGuard(self.spawn_again(pool, &["--takeover"]));
        let old = std::mem::replace(&mut self.child, new);
        wait_for("the new process to join", || {
            self.log().contains("connected again")
        });
        old
    }
}

/// A pool with a node that serves `hot`.
fn serving(models: &[(String, String)]) -> (Pool, Node) {
    let pool = pool_with(models, "");
    let machine = Node::start(&pool, "gpu-2");
    until(&pool, "gpu-2", "joined");
    assert_eq!(asks(&pool, "hot").0, 200);
    (pool, machine)
}

fn ends(mut process: ChildGuard) -> Option<i32> {
    let mut status = None;
    wait_for("the old process to end", || {
        status = process.try_wait().unwrap();
        status.is_some()
    });
    status.and_then(|status| status.code())
}

/// Records that show the loss of a replica or of the node.
fn losses(pool: &Pool) -> Vec<String> {
    let kinds = ["crash", "gone", "load_failed", "node_gone"];
    kinds
        .into_iter()
        .flat_map(|kind| reasons(pool, kind))
        .collect()
}

/// Connects to the node as a process that takes over, and sends this reply to its greeting.
fn as_successor(machine: &Node, reply: &Value) -> BufReader<UnixStream> {
    let path = machine.folder.path().join("data/run/takeover.sock");
    let mut socket = BufReader::new(UnixStream::connect(path).unwrap());
    let mut greeting = String::new();
    socket.read_line(&mut greeting).unwrap();
    let greeting: Value = serde_json::from_str(&greeting).unwrap();
    assert_eq!(greeting["pid"], machine.child.id());
    writeln!(socket.get_mut(), "{reply}").unwrap();
    socket
}

#[test]
fn a_takeover_of_a_node_ends_no_request_and_no_engine() {
    let talk = ["--tokens", "150", "--token-ms", "20"];
    let (pool, mut machine) = serving(&[stub("hot", &[]), stub("talker", &talk)]);
    let stream = pool.stream("/v1/chat/completions", &chat("talker", true));
    wait_for("the first chunk", || stream.text().contains("data: "));
    let engines = machine.engines();
    assert_eq!(engines.len(), 2);
    let before = node(&pool, "gpu-2");
    let (stop, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    let visit = |is_stream: bool| {
        let mut failures = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let body = chat("hot", is_stream);
            let (status, text) = pool.post("/v1/chat/completions", &body);
            if status != 200 || is_stream && !text.contains("[DONE]") {
                failures.push(format!("{status}: {text}"));
            }
            count.fetch_add(1, Ordering::Relaxed);
        }
        failures
    };
    thread::scope(|scope| {
        let visitors = [false, true, false, true].map(|kind| scope.spawn(move || visit(kind)));
        let more = |than: usize| {
            wait_for("more requests", || {
                count.load(Ordering::Relaxed) > than + 20
            });
        };
        // Twice, because a process that took over can itself be replaced.
        for nth in 0..2 {
            more(count.load(Ordering::Relaxed));
            let old = machine.take_over(&pool);
            more(count.load(Ordering::Relaxed));
            if nth == 0 {
                assert!(stream.whole().contains("[DONE]"), "{}", stream.text());
            }
            // Its connection through the old process is not used again.
            assert_eq!(asks(&pool, "talker").0, 200);
            assert_eq!(ends(old), Some(0));
        }
        stop.store(true, Ordering::Relaxed);
        for visitor in visitors {
            let failures = visitor.join().unwrap();
            assert!(failures.is_empty(), "{failures:?}");
        }
    });
    assert_eq!(machine.engines(), engines);
    let after = node(&pool, "gpu-2");
    for field in ["state", "joined_at", "relay", "devices", "replicas"] {
        assert_eq!(after[field], before[field], "{field}");
    }
    assert_eq!(losses(&pool), Vec::<String>::new());
    assert_eq!(reasons(&pool, "node_silent"), Vec::<String>::new());
    assert_eq!(told(&pool, "load", 2).len(), 2, "nothing was loaded again");
    machine.signal("-TERM");
    assert_eq!(machine.ends(), Some(0));
    assert!(!engines.iter().any(|pid| is_alive(*pid)), "it owns them");
    assert!(!machine.folder.path().join("data/identity.json").exists());
}

#[test]
fn a_killed_node_that_is_started_again_has_its_engines_and_needs_no_token() {
    let (pool, mut machine) = serving(&[stub("hot", &[])]);
    let engines = machine.engines();
    machine.signal("-KILL");
    assert_eq!(machine.ends(), None);
    until(&pool, "gpu-2", "silent");
    fs::write(machine.folder.path().join("token"), "mp-none").unwrap();
    machine.child = ChildGuard(machine.spawn_again(&pool, &[]));
    until(&pool, "gpu-2", "joined");
    assert_eq!(asks(&pool, "hot").0, 200);
    assert_eq!(machine.engines(), engines, "the same process");
    let log = machine.log();
    assert!(log.contains("adopted hot (r"), "{log}");
    assert_eq!(losses(&pool), Vec::<String>::new());
}

#[test]
fn another_process_of_a_node_keeps_the_certificate_of_its_listener() {
    let pool = pool_with(&[stub("hot", &[])], "");
    let url = format!("http://{}", pool.address());
    let good = token(&pool, json!({}));
    let listen = ["--listen", "0.0.0.0:0"];
    let folder = tempfile::tempdir().unwrap();
    let mut machine = Node::start_at(folder, &url, "gpu-2", &good, &listen);
    until(&pool, "gpu-2", "joined");
    assert_eq!(asks(&pool, "hot").0, 200);
    let (before, engines) = (node(&pool, "gpu-2"), machine.engines());
    assert_eq!(before["is_encrypted"], true);
    for more in [&["--takeover"][..], &[]] {
        if more.is_empty() {
            machine.signal("-KILL");
            assert_eq!(machine.ends(), None);
            until(&pool, "gpu-2", "silent");
        }
        let new = ChildGuard(machine.spawn_again(&pool, &[&listen, more].concat()));
        let old = std::mem::replace(&mut machine.child, new);
        wait_for("the new process to join", || {
            machine.log().contains("connected again")
        });
        until(&pool, "gpu-2", "joined");
        assert_eq!(asks(&pool, "hot").0, 200);
        ends(old);
        assert_eq!(machine.engines(), engines);
        assert_eq!(node(&pool, "gpu-2")["relay"], before["relay"]);
    }
}

#[test]
fn a_takeover_without_a_running_node_starts_normally_and_adopts() {
    let (pool, mut machine) = serving(&[stub("hot", &[])]);
    let engines = machine.engines();
    machine.signal("-KILL");
    assert_eq!(machine.ends(), None);
    until(&pool, "gpu-2", "silent");
    machine.child = ChildGuard(machine.spawn_again(&pool, &["--takeover"]));
    until(&pool, "gpu-2", "joined");
    assert!(machine.log().contains("no node to take over from"));
    assert_eq!(asks(&pool, "hot").0, 200);
    assert_eq!(machine.engines(), engines);
}

#[test]
fn engines_of_a_killed_node_end_if_another_node_starts_in_its_folder() {
    let (pool, mut machine) = serving(&[stub("hot", &[])]);
    let engines = machine.engines();
    machine.signal("-KILL");
    assert_eq!(machine.ends(), None);
    fs::write(machine.folder.path().join("token"), token(&pool, json!({}))).unwrap();
    machine.name = "gpu-3";
    machine.child = ChildGuard(machine.spawn_again(&pool, &[]));
    until(&pool, "gpu-3", "joined");
    assert!(!engines.iter().any(|pid| is_alive(*pid)));
    let log = machine.log();
    assert!(
        log.contains("it is called gpu-2, and this one gpu-3"),
        "{log}"
    );
}

#[test]
fn a_takeover_that_could_not_continue_the_node_is_refused_before_it_begins() {
    let (pool, machine) = serving(&[stub("hot", &[])]);
    let engines = machine.engines();
    let config = machine.folder.path().join("node.yaml");
    for (devices, more, why) in [
        (
            one_device("4GiB"),
            ["--takeover", "--listen=127.0.0.1:1"],
            "it listens on 127.0.0.1:",
        ),
        (
            one_device("4GiB").replace("gpu0", "gpu7"),
            ["--takeover", "--listen=127.0.0.1:0"],
            "its devices are gpu0, and this one has gpu7",
        ),
        (
            one_device("4GiB"),
            ["--takeover", "--controller=http://127.0.0.1:1"],
            "its --controller is http://127.0.0.1:",
        ),
    ] {
        fs::write(&config, devices).unwrap();
        let refused = ChildGuard(machine.spawn_again(&pool, &more));
        assert_eq!(ends(refused), Some(1));
        let log = machine.log();
        assert!(log.contains(why) && log.contains("it continues"), "{log}");
    }
    let again = ChildGuard(machine.spawn_again(&pool, &[]));
    assert_eq!(ends(again), Some(1));
    assert!(machine.log().contains("--takeover"), "{}", machine.log());
    assert_eq!(asks(&pool, "hot").0, 200);
    assert_eq!(machine.engines(), engines);
    assert_eq!(losses(&pool), Vec::<String>::new());
}

#[test]
fn a_successor_of_another_version_is_refused_and_the_node_continues() {
    let (pool, mut machine) = serving(&[stub("hot", &[])]);
    let engines = machine.engines();
    as_successor(
        &machine,
        &json!({"version": 99, "role": "node", "pid": 1, "received": true}),
    );
    wait_for("the refusal", || {
        machine.log().contains("speaks version 99 of the exchange")
    });
    assert_eq!(asks(&pool, "hot").0, 200);
    assert_eq!(machine.engines(), engines);
    let old = machine.take_over(&pool);
    assert_eq!(asks(&pool, "hot").0, 200);
    assert_eq!(ends(old), Some(0));
    assert_eq!(machine.engines(), engines);
    assert_eq!(losses(&pool), Vec::<String>::new());
}

#[test]
fn a_node_continues_if_the_process_that_takes_over_dies_before_it_serves() {
    let talk = ["--tokens", "200", "--token-ms", "20"];
    let (pool, mut machine) = serving(&[stub("hot", &[]), stub("talker", &talk)]);
    let stream = pool.stream("/v1/chat/completions", &chat("talker", true));
    wait_for("the first chunk", || stream.text().contains("data: "));
    let engines = machine.engines();
    let reply = json!({"version": 1, "role": "node", "pid": 1, "received": true});
    let mut socket = as_successor(&machine, &reply);
    let mut freed = String::new();
    socket.read_line(&mut freed).unwrap();
    assert!(freed.contains(r#""free":true"#), "{freed}");
    drop(socket);
    wait_for("the node to continue", || {
        let log = machine.log();
        log.contains("this node continues") && log.contains("connected again")
    });
    assert_eq!(asks(&pool, "hot").0, 200);
    assert!(stream.whole().contains("[DONE]"), "{}", stream.text());
    assert_eq!(machine.engines(), engines);
    assert!(machine.child.try_wait().unwrap().is_none());
    let old = machine.take_over(&pool);
    for model in ["hot", "talker"] {
        assert_eq!(asks(&pool, model).0, 200);
    }
    assert_eq!(ends(old), Some(0));
    assert_eq!(machine.engines(), engines);
    assert_eq!(losses(&pool), Vec::<String>::new());
}

#[test]
fn of_two_simultaneous_takeovers_one_process_serves_in_the_end() {
    let (pool, mut machine) = serving(&[stub("hot", &[])]);
    let engines = machine.engines();
    let spawn = || ChildGuard(machine.spawn_again(&pool, &["--takeover"]));
    let mut new = [spawn(), spawn()];
    wait_for("two of three processes to end", || {
        assert_eq!(asks(&pool, "hot").0, 200);
        let children = new.iter_mut().chain([&mut machine.child]);
        let alive = children.filter_map(|child| child.try_wait().unwrap().is_none().then_some(()));
        alive.count() == 1
    });
    until(&pool, "gpu-2", "joined");
    assert_eq!(asks(&pool, "hot").0, 200);
    assert_eq!(machine.engines(), engines);
    assert_eq!(losses(&pool), Vec::<String>::new());
}
