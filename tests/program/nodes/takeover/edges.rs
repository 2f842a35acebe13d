//! Failures and changes around another process of a node: lost reports, a node that was given up, another pool, signals, and engines
//! that hang.

use std::fs;
use std::io::{BufRead, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use support::child::ChildGuard;
use support::family::{asks, chat, is_alive, kill, stub};
use support::service::{Pool, journal_in, wait_for};

use super::super::{Node, node, pool_with, spawn, token, until};
use super::{as_successor, losses, serving};

impl Node {
    fn is_killed(&mut self) {
        self.signal("-KILL");
        assert_eq!(self.ends(), None);
    }

    fn identity_file(&self) -> PathBuf {
        self.folder.path().join("data/identity.json")
    }

    fn identity(&self) -> Value {
        let text = fs::read(self.identity_file()).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    fn starts_again(&mut self, pool: &Pool, token: &str) {
        fs::write(self.folder.path().join("token"), token).unwrap();
        self.child = ChildGuard(self.spawn_again(pool, &[]));
    }

    fn logs(&self, text: &str) {
        wait_for(&format!("the node to log {text:?}"), || {
            self.log().contains(text)
        });
    }
}

/// A path from a node to its pool that can lose the data of the node.
struct LossyPath {
    url: String,
    loses: Arc<AtomicBool>,
}

impl LossyPath {
    fn new(pool: &Pool) -> LossyPath {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let path = LossyPath {
            url: format!("http://{}", listener.local_addr().unwrap()),
            loses: Arc::default(),
        };
        let (to, loses) = (pool.address().to_owned(), Arc::clone(&path.loses));
        thread::spawn(move || {
            for node in listener.incoming().flatten() {
                let Ok(pool) = TcpStream::connect(&to) else {
                    continue;
                };
                let back = (pool.try_clone().unwrap(), node.try_clone().unwrap());
                let loses = Arc::clone(&loses);
                thread::spawn(move || pass(node, pool, &loses));
                thread::spawn(move || pass(back.0, back.1, &AtomicBool::new(false)));
            }
        });
        path
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, loses: &AtomicBool) {
    let mut piece = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut piece) {
        if !loses.load(Ordering::Relaxed) && to.write_all(&piece[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[test]
fn a_ready_report_that_is_lost_with_its_process_is_replaced_by_the_list_of_engines() {
    let pool = pool_with(&[stub("slow", &["--ready-after-ms", "3000"])], "");
    let path = LossyPath::new(&pool);
    let (folder, good) = (tempfile::tempdir().unwrap(), token(&pool, json!({})));
    let mut machine = Node::start_at(folder, &path.url, "gpu-2", &good, &[]);
    until(&pool, "gpu-2", "joined");
    let stream = pool.stream("/v1/chat/completions", &chat("slow", true));
    wait_for("the engine to start", || machine.engines().len() == 1);
    path.loses.store(true, Ordering::Relaxed);
    machine.logs("is ready after");
    let engines = machine.engines();
    machine.is_killed();
    path.loses.store(false, Ordering::Relaxed);
    let again = spawn(machine.folder.path(), &path.url, machine.name, &[]);
    machine.child = ChildGuard(again);
    assert!(stream.whole().contains("[DONE]"), "{}", stream.text());
    assert_eq!(asks(&pool, "slow").0, 200);
    assert_eq!(machine.engines(), engines, "the same process");
    assert_eq!(losses(&pool), Vec::<String>::new());
}

#[test]
fn a_node_without_engines_that_was_given_up_joins_as_a_new_one_or_ends() {
    let pool = pool_with(&[stub("hot", &[])], "");
    let mut machine = Node::start(&pool, "gpu-2");
    machine.logs("joined http");
    wait_for("the record", || machine.identity()["epoch"].is_u64());
    let given_up = machine.identity();
    machine.is_killed();
    // A new node in the same folder replaces the earlier one.
    fs::remove_file(machine.identity_file()).unwrap();
    machine.starts_again(&pool, &token(&pool, json!({})));
    machine.logs("joined http");
    machine.is_killed();
    let restore = |machine: &Node| {
        fs::write(machine.identity_file(), given_up.to_string()).unwrap();
    };
    restore(&machine);
    machine.starts_again(&pool, "mp-none");
    assert_eq!(machine.ends(), Some(1), "{}", machine.log());
    assert!(machine.log().contains("does not know the token"));
    restore(&machine);
    machine.starts_again(&pool, &token(&pool, json!({})));
    machine.logs("joined http");
    until(&pool, "gpu-2", "joined");
    assert_eq!(asks(&pool, "hot").0, 200);
    wait_for("another epoch", || {
        let epoch = machine.identity()["epoch"].clone();
        epoch.is_u64() && epoch != given_up["epoch"]
    });
}

#[test]
fn a_start_that_fails_before_it_adopts_engines_leaves_them_to_the_next() {
    let (pool, mut machine) = serving(&[stub("hot", &[])]);
    let engines = machine.engines();
    machine.is_killed();
    let socket = machine.folder.path().join("data/run/takeover.sock");
    fs::remove_file(&socket).unwrap();
    fs::create_dir(&socket).unwrap();
    machine.child = ChildGuard(machine.spawn_again(&pool, &[]));
    assert_eq!(machine.ends(), Some(1));
    let log = machine.log();
    assert!(
        log.contains("cannot open the socket for takeovers"),
        "{log}"
    );
    assert!(engines.iter().all(|pid| is_alive(*pid)));
    fs::remove_dir(&socket).unwrap();
    machine.child = ChildGuard(machine.spawn_again(&pool, &[]));
    machine.logs("connected again");
    assert_eq!(asks(&pool, "hot").0, 200);
    assert_eq!(machine.engines(), engines);
    assert_eq!(losses(&pool), Vec::<String>::new());
}

#[test]
fn a_signal_during_a_takeover_that_fails_ends_the_node() {
    let (pool, mut machine) = serving(&[stub("hot", &[])]);
    let engines = machine.engines();
    let reply = json!({"version": 1, "role": "node", "pid": 1, "received": true});
    let mut socket = as_successor(&machine, &reply);
    let mut freed = String::new();
    socket.read_line(&mut freed).unwrap();
    assert!(freed.contains(r#""free":true"#), "{freed}");
    machine.signal("-TERM");
    drop(socket);
    assert_eq!(machine.ends(), Some(0), "{}", machine.log());
    assert!(machine.log().contains("this node continues"));
    assert!(!engines.iter().any(|pid| is_alive(*pid)));
    wait_for("the node to be gone", || node(&pool, "gpu-2").is_null());
}

#[test]
fn the_time_without_a_controller_continues_in_the_next_process() {
    let (mut pool, mut machine) = serving(&[stub("hot", &[])]);
    let engines = machine.engines();
    assert!(machine.identity()["alone_since_ms"].is_null());
    pool.kill();
    wait_for("the time of the loss", || {
        machine.identity()["alone_since_ms"].is_u64()
    });
    let mut identity = machine.identity();
    for _ in 0..2 {
        machine.is_killed();
        machine.child = ChildGuard(machine.spawn_again(&pool, &[]));
        machine.logs("trying again");
        assert_eq!(machine.identity(), identity);
    }
    machine.is_killed();
    let hour = 3_600_000;
    let since = identity["alone_since_ms"].as_u64().unwrap();
    identity["alone_since_ms"] = (since - hour).into();
    fs::write(machine.identity_file(), identity.to_string()).unwrap();
    assert!(engines.iter().all(|pid| is_alive(*pid)));
    machine.child = ChildGuard(machine.spawn_again(&pool, &[]));
    assert_eq!(machine.ends(), Some(0), "{}", machine.log());
    machine.logs("there has been no controller for");
    assert!(!engines.iter().any(|pid| is_alive(*pid)));
}

#[test]
fn a_node_that_is_started_again_for_another_pool_ends_the_engines_of_the_first() {
    let (_pool, mut machine) = serving(&[stub("hot", &[])]);
    let engines = machine.engines();
    machine.is_killed();
    let other = pool_with(&[stub("hot", &[])], "");
    machine.starts_again(&other, &token(&other, json!({})));
    until(&other, "gpu-2", "joined");
    let log = machine.log();
    assert!(log.contains("its --controller is http"), "{log}");
    assert!(!engines.iter().any(|pid| is_alive(*pid)));
    assert_eq!(asks(&other, "hot").0, 200);
}

#[test]
fn an_engine_that_hangs_does_not_delay_the_others_at_a_takeover() {
    let (pool, mut machine) = serving(&[stub("hot", &[]), stub("hung", &[])]);
    assert_eq!(asks(&pool, "hung").0, 200);
    let records = journal_in(&machine.folder.path().join("data"));
    let hung = records.iter().find(|record| record["model"] == "hung");
    let guardian = hung.unwrap()["guardian"]["pid"].as_u64().unwrap();
    kill(u32::try_from(guardian).unwrap(), Signal::SIGSTOP);
    let new = ChildGuard(machine.spawn_again(&pool, &["--takeover"]));
    let _old = std::mem::replace(&mut machine.child, new);
    machine.logs("adopted hot");
    assert_eq!(asks(&pool, "hot").0, 200);
    // Examining the engine takes up to 25 s.
    machine.logs("did not answer");
    machine.logs("connected again");
    let log = machine.log();
    let at = |text: &str| {
        log.find(text)
            .unwrap_or_else(|| panic!("no {text:?} in {log}"))
    };
    assert!(at("adopted hot") < at("did not answer"), "{log}");
    assert_eq!(asks(&pool, "hung").0, 200, "it is loaded again");
}
