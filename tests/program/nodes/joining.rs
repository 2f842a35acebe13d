//! Joining: tokens, names, protocols and certificates, and the messages that rejected nodes receive.

use std::fs;

use serde_json::json;
use support::family::{chat, stub};
use support::service::wait_for;

use super::hostile::{greet, hello};
use super::{Node, node, pool_with, token, until};

#[test]
fn a_node_that_may_not_join_logs_the_reason_and_advice() {
    let pool = pool_with(&[stub("a", &[])], "");
    let refused = |token: &str, name: &'static str| {
        let mut node = Node::start_in(tempfile::tempdir().unwrap(), &pool, name, token);
        assert_eq!(node.ends(), Some(1));
        node.log()
    };
    let log = refused("mp-wrong", "gpu-2");
    assert!(
        log.contains("does not know the token") && log.contains("nodes token"),
        "{log}"
    );
    assert!(!log.contains("mp-wrong"));
    let good = token(&pool, json!({}));
    let _first = Node::start_in(tempfile::tempdir().unwrap(), &pool, "gpu-2", &good);
    until(&pool, "gpu-2", "joined");
    let log = refused(&good, "gpu-2");
    assert!(
        log.contains("has joined from 127.0.0.1") && log.contains("--name"),
        "{log}"
    );
    let revoked = pool.request(
        "DELETE",
        "/llm/admin/nodes/tokens?id=t1",
        "",
        Some(&pool.admin_key()),
    );
    assert_eq!(revoked.0, 200, "{}", revoked.1);
    let log = refused(&good, "gpu-3");
    assert!(log.contains("revoked"), "{log}");
    assert!(!pool.log().contains(&good), "no token in the log");
}

#[test]
fn a_node_with_another_protocol_version_learns_which_side_to_upgrade() {
    let pool = pool_with(&[stub("a", &[])], "");
    for (protocol, side) in [(0, "upgrade the node"), (99, "upgrade the controller")] {
        let mut said = hello("gpu-9");
        said["protocol"] = json!(protocol);
        let (response, _) = greet(&pool, &token(&pool, json!({})), &said);
        let response = response.to_string();
        assert!(
            response.contains("refused") && response.contains(side) && response.contains("9.9.9"),
            "{response}"
        );
    }
    assert!(node(&pool, "gpu-9").is_null());
}

#[test]
fn an_expired_token_is_refused_with_advice() {
    let pool = pool_with(&[stub("a", &[])], "");
    let short = token(&pool, json!({"expires": "1s"}));
    wait_for("the token to expire", || {
        let path = "/llm/admin/nodes";
        let (_, text, _) = pool.request("GET", path, "", Some(&pool.admin_key()));
        text.contains("\"state\":\"expired\"")
    });
    let mut node = Node::start_in(tempfile::tempdir().unwrap(), &pool, "gpu-2", &short);
    assert_eq!(node.ends(), Some(1));
    let log = node.log();
    assert!(
        log.contains("the token expired") && log.contains("nodes token"),
        "{log}"
    );
}

#[test]
fn over_tls_a_node_joins_only_the_controller_with_the_given_certificate() {
    let mut pool = pool_with(&[stub("a", &[])], "");
    let tokens: Vec<String> = (0..3).map(|_| token(&pool, json!({}))).collect();
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) = (
        folder.path().join("cert.pem"),
        folder.path().join("key.pem"),
    );
    fs::write(&cert, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    pool.set_env(
        "MODEL_POOL__SERVER__TLS",
        &format!("{{cert: {cert:?}, key: {key:?}}}"),
    );
    pool.kill_and_restart();
    let log = pool.log();
    let (_, shown) = log.split_once("--fingerprint` is ").expect("it is shown");
    let right = shown.lines().next().unwrap();
    let wrong = format!("sha256:{}", "00".repeat(32));
    let start = |name: &'static str, token: &str, more: &[&str]| {
        let url = format!("https://{}", pool.address());
        Node::start_at(tempfile::tempdir().unwrap(), &url, name, token, more)
    };
    let without = start("gpu-1", &tokens[0], &[]);
    wait_for("the node to name the option", || {
        without.log().contains("--fingerprint sha256:…")
    });
    let other = start("gpu-2", &tokens[1], &["--fingerprint", &wrong]);
    let distrusts = format!("its certificate has the fingerprint {right}, and {wrong} is expected");
    wait_for("the node to name both fingerprints", || {
        other.log().contains(&distrusts)
    });
    let joins = start("gpu-3", &tokens[2], &["--fingerprint", right]);
    wait_for("the node to join", || {
        joins.log().contains("node gpu-3: joined https://")
    });
    for node in [&without, &other] {
        assert!(!node.log().contains("joined"), "{}", node.log());
    }
}

#[test]
fn a_node_that_reconnects_to_its_controller_stays() {
    let talk = stub("a", &["--tokens", "300", "--token-ms", "20"]);
    let mut pool = pool_with(&[talk], "node: {orphan_after: 3s}\n");
    // Nodes know the controller by its address.
    let address = pool.address().to_owned();
    pool.set_env("MODEL_POOL__SERVER__LISTEN", &address);
    let mut other = Node::start(&pool, "gpu-2");
    until(&pool, "gpu-2", "joined");
    pool.kill_and_restart();
    wait_for("the node to join again", || {
        other.log().matches("joined http").count() == 2
    });
    // The stream lasts twice the time that a node stays without a controller.
    let stream = pool.stream("/v1/chat/completions", &chat("a", true));
    assert!(stream.whole().contains("[DONE]"), "{}", other.log());
    assert!(other.child.try_wait().unwrap().is_none(), "{}", other.log());
    assert!(
        !other.log().contains("there has been no controller"),
        "{}",
        other.log()
    );
}

/// Internal numbers of nodes begin at 65536.
#[test]
fn a_node_is_shown_under_its_name_on_every_route_and_in_the_log() {
    let pool = pool_with(&[stub("a", &[])], "");
    let mut machine = Node::start(&pool, "gpu-2");
    until(&pool, "gpu-2", "joined");
    assert_eq!(pool.post("/v1/chat/completions", &chat("a", false)).0, 200);
    let key = pool.admin_key();
    let get = |path: &str| pool.request("GET", path, "", Some(&key)).1;
    let plan = pool
        .request("POST", "/llm/admin/plan", r#"{"model": "a"}"#, Some(&key))
        .1;
    let drained = pool.request(
        "POST",
        "/llm/admin/nodes/drain",
        r#"{"node": "gpu-2"}"#,
        Some(&key),
    );
    assert_eq!(drained.0, 200, "{}", drained.1);
    let shown = [
        "/llm/admin/nodes",
        "/llm/admin/devices",
        "/llm/admin/models",
        "/llm/admin/queue",
        "/llm/admin/events?limit=500",
        "/llm/admin/report?from=2020-01-01T00:00:00Z",
        "/llm/hot-models",
        "/metrics",
    ];
    let mut texts: Vec<(&str, String)> = shown.map(|path| (path, get(path))).into();
    texts.push(("plan", plan));
    texts.push(("drain", drained.1));
    machine.signal("-TERM");
    machine.ends();
    wait_for("the node to be gone", || node(&pool, "gpu-2").is_null());
    texts.push(("events at the end", get("/llm/admin/events?limit=500")));
    texts.push(("log", pool.log()));
    for (place, text) in &texts {
        let words = text.split(|char: char| !char.is_ascii_alphanumeric());
        let is_number = |word: &&str| {
            let digits = word.strip_prefix('n').unwrap_or_default();
            digits.parse::<u32>().is_ok_and(|number| number >= 65_536)
        };
        let numbers: Vec<&str> = words.filter(is_number).collect();
        assert!(numbers.is_empty(), "{place} shows {numbers:?}: {text}");
    }
    let (_, devices) = &texts[1];
    assert!(devices.contains(r#""node":"gpu-2""#), "{devices}");
}
