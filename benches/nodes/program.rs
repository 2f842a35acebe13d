//! The measured controller: the real program as a process, with models whose engines are on nodes, its administrator API, and its
//! processor time and memory as the system reports them.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use support::service::Pool;

use super::{DEVICES, Scale, now};

/// The number of replicas of a model. The API accepts up to 64.
const REPLICAS_OF_MODEL: u32 = 50;
/// A device with 76 GiB holds a large and a small replica.
const LARGE_GIB: u32 = 50;
const SMALL_GIB: u32 = 20;

/// A model and its target number of replicas.
pub struct ModelTarget {
    pub name: String,
    pub replicas: u32,
    gib: u32,
}

/// Enough models to keep each node busy, each with at most [`REPLICAS_OF_MODEL`] replicas: a large replica for each device, and
/// small ones in addition.
pub fn wanted(scale: &Scale) -> Vec<ModelTarget> {
    let places = scale.nodes * DEVICES;
    let large = scale.replicas.min(places);
    let small = scale.replicas - large;
    assert!(
        small <= places,
        "{} replicas do not fit: {} nodes hold {}",
        scale.replicas,
        scale.nodes,
        2 * places
    );
    let models = |kind: &'static str, replicas: u32, gib: u32| {
        (0..replicas.div_ceil(REPLICAS_OF_MODEL)).map(move |nth| ModelTarget {
            name: format!("{kind}-{nth:03}"),
            replicas: (replicas - nth * REPLICAS_OF_MODEL).min(REPLICAS_OF_MODEL),
            gib,
        })
    };
    let large = models("large", large, LARGE_GIB);
    large.chain(models("small", small, SMALL_GIB)).collect()
}

pub struct Program {
    pub pool: Pool,
    key: String,
}

impl Program {
    /// Starts a pool with room only on nodes, and with replicas that stay.
    pub fn start(models: &[ModelTarget]) -> Program {
        let files: Vec<(String, String)> = models.iter().map(file).collect();
        let config = "inventory: {provider: fixed, devices: [{name: small, memory: 1MiB}]}\npool: {keep_hot: 12h}\n";
        let pool = Pool::with_devices(&files, config);
        let key = pool.admin_key();
        Program { pool, key }
    }

    fn call(&self, method: &str, path: &str, body: &str) -> Value {
        let (status, text, _) = self.pool.request(method, path, body, Some(&self.key));
        assert!(
            status == 200 || status == 202,
            "{method} {path}: {status} {text}"
        );
        serde_json::from_str(&text).expect("it answers JSON")
    }

    /// A token with which nodes join.
    pub fn token(&self) -> String {
        let response = self.call("POST", "/llm/admin/nodes/tokens", "{}");
        response["token"].as_str().expect("a token").to_owned()
    }

    /// Orders a load as an administrator would. The load continues after this returns.
    pub fn load(&self, model: &ModelTarget) {
        let body = json!({"model": model.name, "replicas": model.replicas, "wait": false});
        self.call("POST", "/llm/admin/load", &body.to_string());
    }

    /// Returns true if all orders are done.
    pub fn is_done(&self) -> bool {
        let response = self.call("GET", "/llm/admin/queue", "");
        response["orders"].as_array().is_some_and(Vec::is_empty)
    }

    /// The number of joined nodes, and of replicas on all nodes, as shown to administrators.
    pub fn shown(&self) -> (usize, usize) {
        let response = self.call("GET", "/llm/admin/nodes", "");
        let nodes = response["nodes"].as_array().into_iter().flatten();
        let nodes: Vec<&Value> = nodes
            .filter(|node| node["is_controller"] == false)
            .collect();
        let joined = nodes
            .iter()
            .filter(|node| node["state"] == "joined")
            .count();
        let replicas = nodes.iter().filter_map(|node| node["replicas"].as_array());
        (joined, replicas.map(Vec::len).sum())
    }

    pub fn state(&self, node: &str) -> String {
        let response = self.call("GET", "/llm/admin/nodes", "");
        let mut nodes = response["nodes"].as_array().into_iter().flatten();
        let found = nodes.find(|shown| shown["node"] == node);
        let state = found.and_then(|node| node["state"].as_str());
        state.unwrap_or("gone").to_owned()
    }

    /// Follows records of a kind in the history, from now on.
    pub fn follow(&self, kind: &str) -> Events {
        let path = format!("/llm/admin/events?follow=true&kind={kind}");
        let (address, key) = (self.pool.address(), &self.key);
        let mut socket = TcpStream::connect(address).expect("the controller listens");
        write!(
            socket,
            "GET {path} HTTP/1.1\r\nhost: {address}\r\naccept: text/event-stream\r\nauthorization: Bearer {key}\r\n\r\n"
        )
        .expect("a request");
        let mut lines = BufReader::new(socket.try_clone().expect("a socket")).lines();
        let status = lines.next().and_then(Result::ok).unwrap_or_default();
        assert!(status.contains(" 200 "), "{path}: {status}");
        let (send, events) = channel();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if line.starts_with("data: ") && send.send(line).is_err() {
                    return;
                }
            }
        });
        Events { events, socket }
    }

    /// The processor time used so far.
    pub fn processor(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pool.pid()));
        let stat = stat.unwrap_or_default();
        let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let fields = after.split_whitespace().skip(11).take(2);
        let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
        // A tick is 10 ms on all common Linux systems.
        Duration::from_millis(ticks * 10)
    }

    /// `VmRSS` or `VmHWM`: the current and the peak memory.
    pub fn memory_bytes(&self, which: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pool.pid()));
        let status = status.unwrap_or_default();
        let mut lines = status.lines();
        let line = lines.find_map(|line| line.strip_prefix(which)?.strip_prefix(':'));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.unwrap_or(0) * 1024
    }
}

fn file(model: &ModelTarget) -> (String, String) {
    let ModelTarget { name, gib, .. } = model;
    let text = format!(
        "engine_config:\n  model_id: {name}\n  type: CommandEngine\n  listen: port\n  command: [played-engine, --port, '{{{{ port }}}}']\npool_config: {{memory_gib: {gib}}}\n"
    );
    (format!("{name}.yaml"), text)
}

/// A stream of events.
pub struct Events {
    events: Receiver<String>,
    socket: TcpStream,
}

impl Events {
    /// Waits for an event that contains `words`; `None` if it does not come in time.
    pub fn wait_for(&self, words: &str, within: Duration) -> Option<()> {
        let until = now() + within;
        loop {
            let left = until.saturating_duration_since(now());
            let event = self.events.recv_timeout(left).ok()?;
            if event.contains(words) {
                return Some(());
            }
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}
