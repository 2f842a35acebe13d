//! A leader that freezes while its sessions stay open (D4), like the process of a paused virtual machine: the server ends the
//! session with the lock, the other controller leads, and the frozen one gives no orders after it wakes.

use std::io::Read;
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;
use support::external_programs::skipped;
use support::family::{asks, chat, kill, shown, stub};
use support::postgres::Server;
use support::service::{Pool, wait_for};

use super::TAKEOVER_MAX;
use super::scene::{Node, generation, health, post_unread, serves_as_leader, two};

/// The server ends the session with the lock after 5 s of silence; the rest is as after any loss of it.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(20);

/// `idle_session_timeout` came with PostgreSQL 14.
fn ends_idle_sessions(server: &Server) -> bool {
    let version = server.ask("postgres", "SHOW server_version_num").unwrap();
    version.parse::<u32>().unwrap() >= 140_000
}

/// Number of a model's replicas that the leading controller knows.
fn replicas(pool: &Pool, model: &str) -> usize {
    let shown = shown(pool, model);
    shown["replicas"].as_array().map_or(0, Vec::len)
}

fn sorted(mut processes: Vec<u32>) -> Vec<u32> {
    processes.sort_unstable();
    processes
}

#[test]
fn d4_a_frozen_leader_is_replaced_and_gives_no_orders_after_it_wakes_up() {
    let Some(server) = Server::start() else {
        return;
    };
    if !ends_idle_sessions(&server) {
        return skipped("postgres", "the test needs PostgreSQL 14 or later");
    }
    let url = server.database();
    let long = stub("long", &["--tokens", "400", "--token-ms", "20"]);
    let models = [stub("a", &[]), long, stub("late", &[])];
    let (mut first, second) = two(&models, &url, &url);
    let node = Node::start(&first, &second);
    assert_eq!(asks(&second, "a").0, 200);
    let stream = second.stream("/v1/chat/completions", &chat("long", true));
    wait_for("the stream to begin", || stream.text().contains("data: "));
    let engines = sorted(node.engines());
    assert_eq!(engines.len(), 2);
    let before = generation(&server, &url);

    // Its connections and sessions stay open.
    kill(first.pid(), Signal::SIGSTOP);
    let frozen = SystemTime::now();
    // The first request it reads after waking would load a model on the node.
    let mut unread = post_unread(&first, &chat("late", false));
    // Requests are forwarded to the frozen controller until another one leads; its responses are then no longer awaited.
    let (status, text) = asks(&second, "a");
    assert_eq!(status, 502, "{text}");
    assert!(text.contains("leader_lost"), "{text}");
    let text = stream.whole();
    assert!(text.contains("leader_lost"), "{text}");
    wait_for("the second one to lead", || serves_as_leader(&second));
    wait_for("it to answer", || asks(&second, "a").0 == 200);
    let took = frozen.elapsed().unwrap();
    println!("a leader was frozen: the first answer of the other one came {took:.1?} later");
    assert!(took <= FOLLOWED_WITHIN, "{took:.1?}");
    assert_eq!(node.joined(&second), 1);
    assert_eq!(sorted(node.engines()), engines, "they were adopted (D2)");
    assert!(generation(&server, &url) > before);

    kill(first.pid(), Signal::SIGCONT);
    assert!(first.wait(TAKEOVER_MAX), "it exits on its own");
    assert!(
        first
            .log()
            .contains("this controller is no longer the leader"),
        "{}",
        first.log()
    );
    let mut response = Vec::new();
    let _ = unread.read_to_end(&mut response);
    let response = String::from_utf8_lossy(&response);
    assert!(!response.contains("200 OK"), "{response}");
    assert_eq!(node.joined(&first), 1, "the node did not go back");
    assert_eq!(node.generation(), generation(&server, &url));
    assert_eq!(sorted(node.engines()), engines);
    let log = node.log();
    assert!(!log.contains("starting late"), "{log}");

    // The second controller orders it, and no model has two engines.
    assert_eq!(asks(&second, "late").0, 200);
    assert_eq!(node.engines().len(), models.len());
    let log = node.log();
    for model in ["a", "long", "late"] {
        assert_eq!(replicas(&second, model), 1, "{model}");
        let started = log.matches(&format!("starting {model} (")).count();
        assert_eq!(started, 1, "{log}");
    }

    // Restarted, as by its service manager, it stands by.
    first.restart();
    assert_eq!(health(&first)["role"], "standby");
    assert_eq!(asks(&first, "a").0, 200);
}
