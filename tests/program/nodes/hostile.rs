//! Claims of a machine with or without a join token that must not be believed: addresses, secrets, names, devices.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use serde_json::{Value, json};
use support::family::stub;
use support::service::{Pool, wait_for};

use super::{Node, node, pool_with, token, until};

/// The controller's response to this greeting, and the connection.
pub(super) fn greet(pool: &Pool, token: &str, hello: &Value) -> (Value, TcpStream) {
    let mut connection = TcpStream::connect(pool.address()).unwrap();
    connection
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    write!(
        connection,
        "GET /llm/node/connect HTTP/1.1\r\nhost: {}\r\nconnection: upgrade\r\nupgrade: {}\r\nauthorization: Bearer {token}\r\n\r\n",
        pool.address(),
        node_link::UPGRADE,
    )
    .unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        connection.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    send(&mut connection, &json!({"hello": hello}));
    let mut length = [0; 4];
    connection.read_exact(&mut length).unwrap();
    let mut response = vec![0; u32::from_be_bytes(length) as usize];
    connection.read_exact(&mut response).unwrap();
    (serde_json::from_slice(&response).unwrap(), connection)
}

fn send(connection: &mut TcpStream, frame: &Value) {
    let frame = frame.to_string();
    let length = u32::try_from(frame.len()).unwrap().to_be_bytes();
    connection.write_all(&length).unwrap();
    connection.write_all(frame.as_bytes()).unwrap();
}

/// A well-behaved node without devices.
pub(super) fn hello(name: &str) -> Value {
    let relay = json!({"address": "127.0.0.1:1", "secret": "s".repeat(64), "fingerprint": null});
    json!({
        "protocol": node_link::PROTOCOL, "version": "9.9.9", "name": name, "epoch": 1, "place": "x",
        "controller": null, "relay": relay, "provider": "fixed", "devices": [], "demand": null,
    })
}

fn device(name: &str) -> Value {
    json!({
        "name": name, "is_gpu": false, "index": 0, "uuid": null, "total": 1 << 30, "installed": 1 << 30,
        "headroom": 0, "product_name": null, "product": 0, "pci": null, "links": [], "labels": [],
    })
}

#[test]
fn b1_wrong_tokens_do_not_keep_out_a_node_with_a_valid_one() {
    let pool = pool_with(&[stub("a", &[])], "");
    let good = token(&pool, json!({}));
    let wrong = [
        ("Connection", "upgrade"),
        ("Upgrade", node_link::UPGRADE),
        ("Authorization", "Bearer wrong"),
    ];
    let attempt = || {
        let path = "/llm/node/connect";
        let (status, text, head) = pool.request_with("GET", path, "", &wrong);
        assert!(text.contains("does not know the token"), "{text}");
        (status, head)
    };
    for _ in 0..20 {
        assert_eq!(attempt().0, 401);
    }
    let (status, head) = attempt();
    assert_eq!(status, 429);
    assert!(head.contains("retry-after: "), "{head}");
    let stays = Node::start_in(tempfile::tempdir().unwrap(), &pool, "gpu-2", &good);
    until(&pool, "gpu-2", "joined");
    assert_eq!(attempt().0, 429, "all this was within the ten seconds");
    // A node that returns with its credential.
    stays.signal("-STOP");
    until(&pool, "gpu-2", "silent");
    while attempt().0 == 401 {}
    stays.signal("-CONT");
    until(&pool, "gpu-2", "joined");
}

#[test]
fn b3_a_node_cannot_redirect_the_controller_or_inject_lines_into_its_protocol() {
    let pool = pool_with(&[stub("a", &[])], "");
    let good = token(&pool, json!({}));
    let victim = TcpListener::bind("127.0.0.1:0").unwrap();
    victim.set_nonblocking(true).unwrap();
    let local = victim.local_addr().unwrap().to_string();
    let smuggled = format!("{}\r\nPOST /api/jobs/ HTTP/1.1\r\n\r\n", "x".repeat(40));
    for (address, secret, words) in [
        ("10.1.2.3:6379", "s".repeat(64), "node.listen_networks"),
        ("169.254.169.254:80", "s".repeat(64), "node.listen_networks"),
        ("0.0.0.0:80", "s".repeat(64), "node.listen_networks"),
        ("127.0.0.1:0", "s".repeat(64), "node.listen_networks"),
        (&local, smuggled, "letters and digits"),
        (&local, String::new(), "letters and digits"),
    ] {
        let mut said = hello("gpu-9");
        said["relay"]["address"] = json!(address);
        said["relay"]["secret"] = json!(secret);
        let (response, _) = greet(&pool, &good, &said);
        let message = response["refused"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(words), "{address} {secret:?}: {response}");
    }
    assert!(node(&pool, "gpu-9").is_null());
    let refused = victim.accept().map(drop).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::WouldBlock);
    let (response, _) = greet(&pool, &good, &hello("gpu-9"));
    assert!(response["accepted"].is_object(), "{response}");
}

#[test]
fn b3_a_remote_listener_is_accepted_only_in_a_configured_network() {
    let pool = pool_with(
        &[stub("a", &[])],
        "node: {listen_networks: [10.1.2.0/24]}\n",
    );
    let good = token(&pool, json!({}));
    for (address, is_accepted) in [("10.1.2.3:7000", true), ("10.1.3.3:7000", false)] {
        let mut said = hello("gpu-9");
        said["relay"]["address"] = json!(address);
        let (response, _) = greet(&pool, &good, &said);
        assert_eq!(response["accepted"].is_object(), is_accepted, "{response}");
    }
}

#[test]
fn b3_no_node_may_use_the_name_of_the_controllers_machine() {
    let pool = pool_with(&[stub("a", &[])], "");
    let (_, list) = pool.admin("GET", "/llm/admin/nodes", &Value::Null);
    let own = list["nodes"][0].clone();
    assert_eq!(own["is_controller"], true, "{list}");
    let name = own["node"].as_str().unwrap().to_owned();
    let good = token(&pool, json!({}));
    for name in [name.clone(), name.to_uppercase()] {
        let (response, _) = greet(&pool, &good, &hello(&name));
        let message = response["refused"]["message"].as_str().unwrap_or_default();
        assert!(
            message.contains("the controller's own machine"),
            "{response}"
        );
        assert!(message.contains("--name"), "{response}");
    }
}

#[test]
fn b3_a_node_that_returns_with_other_devices_leaves_no_records_of_the_old_ones() {
    let pool = pool_with(&[stub("a", &[])], "");
    let good = token(&pool, json!({}));
    let devices = |turn: usize| -> Vec<Value> {
        let names = (0..256).map(|nth| format!("{}{turn}-{nth}", "d".repeat(150)));
        names.map(|name| device(&name)).collect()
    };
    let listed = || {
        let (_, list) = pool.admin("GET", "/llm/admin/devices", &Value::Null);
        list["devices"].as_array().unwrap().len()
    };
    let before = listed();
    let mut said = hello("gpu-9");
    said["devices"] = json!(devices(0));
    let (response, mut first) = greet(&pool, &good, &said);
    assert!(response["accepted"].is_object(), "{response}");
    send(&mut first, &json!({"running": []}));
    wait_for("the devices to be listed", || listed() == before + 256);
    for turn in 1..5 {
        // The same process as before, which cannot have other devices.
        said["devices"] = json!(devices(turn));
        let (response, _) = greet(&pool, &good, &said);
        let message = response["refused"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("restart the node"), "{response}");
        assert_eq!(listed(), before + 256);
    }
    for turn in 1..5 {
        // A new process in its place, whose devices replace the former ones.
        said["devices"] = json!(devices(turn));
        said["epoch"] = json!(turn + 1);
        let (response, mut connection) = greet(&pool, &good, &said);
        assert!(response["accepted"].is_object(), "{response}");
        send(&mut connection, &json!({"running": []}));
        assert!(listed() <= before + 256, "the former ones are gone");
    }
}

#[test]
fn a_node_folder_that_others_can_write_is_refused_with_advice() {
    let pool = pool_with(&[stub("a", &[])], "");
    let good = token(&pool, json!({}));
    for mode in [0o777, 0o1777] {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        fs::set_permissions(&data, PermissionsExt::from_mode(mode)).unwrap();
        let mut refused = Node::start_in(folder, &pool, "gpu-2", &good);
        assert_eq!(refused.ends(), Some(1));
        let log = refused.log();
        assert!(log.contains("can be written by other accounts"), "{log}");
        assert!(log.contains("chmod go-w"), "{log}");
        let data = refused.folder.path().join("data");
        assert_eq!(fs::read_dir(data).unwrap().count(), 0, "nothing is in it");
    }
    let node = Node::start_in(tempfile::tempdir().unwrap(), &pool, "gpu-2", &good);
    until(&pool, "gpu-2", "joined");
    for folder in ["data", "data/run"] {
        let made = fs::metadata(node.folder.path().join(folder)).unwrap();
        assert_eq!(made.permissions().mode() & 0o777, 0o700, "{folder}");
    }
}
