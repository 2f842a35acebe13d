//! Two controllers on one real PostgreSQL (D4): the second stands by and forwards requests, and takes over when the first is
//! killed, freezes or loses its database. The first gives no orders once the second leads.

mod dead_path;
mod freeze;
mod rays;
mod scene;
mod starting;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;
use support::family::{asks, chat, kill, stub};
use support::postgres::{Server, name_of};
use support::service::{Pool, wait_for};

use scene::{Node, SocketProxy, generation, health, leads, post_unread, serves_as_leader, two};

const CLIENTS: usize = 8;
const TAKEOVER_MAX: Duration = Duration::from_secs(10);

#[test]
fn d4_a_standby_forwards_a_stream_and_takes_over_immediately_after_a_stop() {
    let Some(server) = Server::start() else {
        return;
    };
    let url = server.database();
    let talk = ["--tokens", "40", "--token-ms", "20"];
    let (mut first, second) = two(&[stub("a", &talk)], &url, &url);
    let node = Node::start(&first, &second);
    assert_eq!(node.joined(&second), 0, "it knows the leader");
    assert_eq!(
        health(&second)["leader"],
        format!("http://{}", first.address())
    );

    let stream = second.stream("/v1/chat/completions", &chat("a", true));
    wait_for("the first chunk through the second one", || {
        stream.text().contains("data: ")
    });
    let early = stream.text();
    assert!(!early.contains("[DONE]"), "pieces come as they are made");
    assert!(stream.whole().contains("[DONE]"), "{}", stream.text());
    assert_eq!(node.engines().len(), 1);
    let metric = |pool: &support::service::Pool| pool.request("GET", "/metrics", "", None).1;
    assert!(metric(&first).contains("\nmodel_pool_leader 1\n"));
    assert!(metric(&second).contains("\nmodel_pool_leader 0\n"));

    // The standby controller forwards orders to the leader.
    let key = first.admin_key();
    let body = r#"{"priority":1}"#;
    let path = "/llm/admin/models?model=a";
    let (status, text, _) = second.request("PATCH", path, body, Some(&key));
    assert_eq!(status, 200, "{text}");

    let stopped = SystemTime::now();
    first.terminate();
    assert!(first.wait(Duration::from_secs(30)), "it drains and ends");
    let ended = SystemTime::now();
    wait_for("the second one to lead", || serves_as_leader(&second));
    println!(
        "a leader that was stopped ended after {:.1?}; the other one led {:.1?} later",
        ended.duration_since(stopped).unwrap_or_default(),
        ended.elapsed().unwrap_or_default()
    );
    assert_eq!(asks(&second, "a").0, 200);
    let (_, shown, _) = second.request("GET", path, "", Some(&key));
    assert!(shown.contains(r#""priority":1"#), "{shown}");
}

/// Result of a request, by the client's clock.
struct RequestResult {
    began: SystemTime,
    status: u16,
    text: String,
}

#[test]
fn d4_a_leader_killed_under_load_is_replaced_within_ten_seconds_and_loses_only_its_streams() {
    let Some(server) = Server::start() else {
        return;
    };
    let url = server.database();
    let talk = ["--tokens", "10", "--token-ms", "20"];
    let (mut first, second) = two(&[stub("a", &talk)], &url, &url);
    let node = Node::start(&first, &second);
    assert_eq!(asks(&second, "a").0, 200);
    let engines = node.engines();
    let before = generation(&server, &url);

    let is_over = AtomicBool::new(false);
    let (killed, dead, responded, asked) = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    let mut asked = Vec::new();
                    while !is_over.load(Ordering::Relaxed) {
                        let began = SystemTime::now();
                        // A refused connection would panic here.
                        let (status, text) = asks(&second, "a");
                        asked.push(RequestResult {
                            began,
                            status,
                            text,
                        });
                        if status == 503 {
                            thread::park_timeout(Duration::from_millis(100));
                        }
                    }
                    asked
                })
            })
            .collect();
        thread::park_timeout(Duration::from_secs(2));
        let killed = SystemTime::now();
        first.kill();
        let dead = SystemTime::now();
        let ready = || second.request("GET", "/llm/ready", "", None).0 == 200;
        let taken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_for("the second one to lead", || serves_as_leader(&second));
            wait_for("it to be ready", ready);
            while asks(&second, "a").0 != 200 {
                thread::park_timeout(Duration::from_millis(10));
            }
        }));
        let responded = SystemTime::now();
        thread::park_timeout(Duration::from_secs(2));
        is_over.store(true, Ordering::Relaxed);
        let asked = clients.into_iter().map(|client| client.join().unwrap());
        let asked: Vec<Vec<RequestResult>> = asked.collect();
        if let Err(panic) = taken {
            std::panic::resume_unwind(panic);
        }
        (killed, dead, responded, asked)
    });

    let took = responded.duration_since(killed).unwrap();
    let is_lost = |request: &&RequestResult| !matches!(request.status, 200 | 503);
    let all = || asked.iter().flatten();
    println!(
        "the leader was killed under {CLIENTS} clients: the first answer of the other one came {took:.1?} later; \
         {} requests, {} were told to come back, {} lost",
        all().count(),
        all().filter(|request| request.status == 503).count(),
        all().filter(is_lost).count()
    );
    assert!(took <= TAKEOVER_MAX, "{took:.1?}");
    // A request can be sent to the dead leader until the standby has read the end of the connection.
    let seen = dead + Duration::from_secs(1);
    for client in &asked {
        let lost: Vec<&RequestResult> = client.iter().filter(is_lost).collect();
        let described = || lost.iter().map(|request| &request.text).collect::<Vec<_>>();
        assert!(lost.len() <= 1, "{:?}", described());
        for request in &lost {
            assert_eq!(request.status, 502, "{:?}", described());
            assert!(request.text.contains("leader_lost"), "{}", request.text);
            assert!(request.began <= seen, "{}", request.text);
        }
    }
    assert_eq!(node.engines(), engines, "the engine was adopted (D2)");
    assert!(generation(&server, &url) > before);
    assert_eq!(node.generation(), generation(&server, &url));

    // The killed controller returns as the standby.
    first.restart();
    assert_eq!(health(&first)["role"], "standby");
    assert_eq!(asks(&first, "a").0, 200);
}

#[test]
fn d4_a_leader_without_its_database_ends_and_the_other_one_leads() {
    let Some(server) = Server::start() else {
        return;
    };
    let url = server.database();
    let way = SocketProxy::to(&server);
    let (mut first, second) = two(&[stub("a", &[])], &way.url(name_of(&url)), &url);
    let node = Node::start(&first, &second);
    assert_eq!(asks(&first, "a").0, 200);
    let engines = node.engines();
    let cut = SystemTime::now();
    way.cut();
    assert!(first.wait(TAKEOVER_MAX), "it exits on its own");
    let ended = cut.elapsed().unwrap();
    assert!(
        first
            .log()
            .contains("this controller is no longer the leader"),
        "{}",
        first.log()
    );
    wait_for("the second one to lead", || serves_as_leader(&second));
    assert_eq!(asks(&second, "a").0, 200);
    let took = cut.elapsed().unwrap();
    println!(
        "a leader without its database ended after {ended:.1?}; the other one answered after {took:.1?}"
    );
    assert!(took <= TAKEOVER_MAX + Duration::from_secs(2), "{took:.1?}");
    assert_eq!(node.engines(), engines, "the engine was adopted (D2)");
    assert_eq!(node.generation(), generation(&server, &url));
}

#[test]
fn d4_a_leader_suspended_during_a_takeover_gives_no_node_an_order() {
    let Some(server) = Server::start() else {
        return;
    };
    let url = server.database();
    let way = SocketProxy::to(&server);
    let models = [stub("a", &[]), stub("late", &[])];
    let (mut first, second) = two(&models, &way.url(name_of(&url)), &url);
    let node = Node::start(&first, &second);
    assert_eq!(asks(&first, "a").0, 200);
    let engines = node.engines();

    // Its session is gone without its knowledge, because it is frozen.
    kill(first.pid(), Signal::SIGSTOP);
    way.cut();
    // The first request it reads after it continues would load a model on the node.
    let _unread = post_unread(&first, &chat("late", false));
    wait_for("the second one to lead", || serves_as_leader(&second));
    wait_for("the node to join it", || node.joined(&second) == 1);
    kill(first.pid(), Signal::SIGCONT);

    assert!(first.wait(TAKEOVER_MAX), "it exits on its own");
    assert!(
        first
            .log()
            .contains("this controller is no longer the leader"),
        "{}",
        first.log()
    );
    let log = node.log();
    assert!(!log.contains("starting late"), "{log}");
    assert_eq!(node.joined(&first), 1, "it did not go back");
    assert_eq!(node.engines(), engines);
    assert_eq!(node.generation(), generation(&server, &url));
    assert_eq!(asks(&second, "a").0, 200);
    assert_eq!(asks(&second, "late").0, 200, "the second one orders it");
}

#[test]
fn d4_a_leader_keeps_leading_across_a_short_loss_of_its_sessions() {
    let Some(server) = Server::start() else {
        return;
    };
    let url = server.database();
    let way = SocketProxy::to(&server);
    let (first, second) = two(&[stub("a", &[])], &way.url(name_of(&url)), &url);
    let node = Node::start(&first, &second);
    assert_eq!(asks(&first, "a").0, 200);
    let (engines, before) = (node.engines(), generation(&server, &url));
    // Another process has the lock when the leader is back.
    let locks = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid \
        WHERE l.locktype = 'advisory' AND a.application_name LIKE";
    let has_lock = |pool: &Pool| {
        let sql = format!("{locks} 'model-pool % process {}'", pool.pid());
        server
            .ask(name_of(&url), &sql)
            .is_ok_and(|count| count != "0")
    };
    way.cut();
    wait_for("the other one to have the lock", || has_lock(&second));
    way.mend();
    wait_for("the leader to have it back", || {
        has_lock(&first) && !has_lock(&second)
    });
    wait_for("the leader to know", || {
        first.log().contains("is held again")
    });
    assert_eq!(asks(&first, "a").0, 200);
    assert_eq!(asks(&second, "a").0, 200, "it passes requests on");
    assert_eq!(generation(&server, &url), before);
    assert_eq!(node.engines(), engines);

    // A restart of the server, whichever process is quicker.
    server.restart();
    wait_for("the leader to have the lock", || {
        has_lock(&first) && !has_lock(&second)
    });
    let refused = (0..50).filter(|_| asks(&first, "a").0 != 200).count();
    assert_eq!(refused, 0);
    assert_eq!(generation(&server, &url), before);
    assert!(!leads(&second));
    assert_eq!(node.engines(), engines);

    // The claim is over: the other one follows as fast as ever.
    kill(first.pid(), Signal::SIGKILL);
    wait_for("the second one to lead", || serves_as_leader(&second));
    assert!(generation(&server, &url) > before);
}
