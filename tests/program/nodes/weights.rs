//! Weights on nodes: a node without them downloads them from another node, and from the hub if that node sends none or wrong ones.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::json;
use support::hub::Hub;
use support::service::{Pool, wait_for};
use support::tiny_gguf;

use super::{Node, one_device, pool_with, token, until};

const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/models/tiny-chat");
const MODEL: &str = "models--lab--far";

/// A hub, a controller without room for its model, and a first node that has loaded it.
struct Scene {
    hub: Hub,
    _cache: tempfile::TempDir,
    pool: Pool,
    first: Node,
}

impl Scene {
    fn new() -> Scene {
        let hub = Hub::start();
        hub.add_folder("lab/far", Path::new(TINY));
        let cache = tempfile::tempdir().unwrap();
        let file = "engine_config: {model_id: far, type: CandleEngine, hf_model_id: lab/far, max_total_tokens: 64}\n";
        let pool = pool_with(
            &[("far.yaml".to_owned(), file.to_owned())],
            &sources(cache.path(), &hub),
        );
        let first = start(&pool, &hub, "gpu-1");
        assert_eq!(ask(&pool), 200, "{}", first.log());
        wait_for("the controller to know what the node has", || {
            pool.log().contains("node gpu-1 has the weights of 1 model")
        });
        Scene {
            hub,
            _cache: cache,
            pool,
            first,
        }
    }

    fn drain_first(&self) {
        drain(&self.pool, &self.first);
    }

    /// Number of requests for weights that the hub received.
    fn asked_for_weights(&self) -> usize {
        let asked = self.hub.asked().into_iter();
        asked
            .filter(|request| request.path.ends_with(".safetensors"))
            .count()
    }
}

fn sources(cache: &Path, hub: &Hub) -> String {
    format!(
        "sources: {{cache_dir: {cache:?}, hub: {:?}, keep_free: 1MiB}}\n",
        hub.url()
    )
}

/// A node on the same machine with a separate cache: it must not use the controller's.
fn start(pool: &Pool, hub: &Hub, name: &'static str) -> Node {
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "{}{}node: {{copy_shared: true}}\n",
        one_device("4GiB"),
        sources(&cache_of(folder.path()), hub)
    );
    fs::write(folder.path().join("node.yaml"), config).unwrap();
    let token = token(pool, json!({}));
    let node = Node::start_in(folder, pool, name, &token);
    until(pool, name, "joined");
    node
}

/// Takes a node out of service. Its cache stays.
fn drain(pool: &Pool, node: &Node) {
    let body = json!({"node": node.name, "wait": false}).to_string();
    let key = pool.admin_key();
    let path = "/llm/admin/nodes/drain";
    let drained = pool.request("POST", path, &body, Some(&key));
    assert_eq!(drained.0, 202, "{}", drained.1);
    wait_for("the node to be empty", || node.engines().is_empty());
}

fn cache_of(folder: &Path) -> PathBuf {
    folder.join("cache")
}

fn ask(pool: &Pool) -> u16 {
    ask_model(pool, "far")
}

fn ask_model(pool: &Pool, model: &str) -> u16 {
    let body = json!({"model": model, "max_tokens": 4,
        "messages": [{"role": "user", "content": "Hello"}]});
    pool.post("/v1/chat/completions", &body.to_string()).0
}

/// The file with the weights in the cache of a node: the largest.
fn weights_of(node: &Node) -> PathBuf {
    let blobs = cache_of(node.folder.path()).join(MODEL).join("blobs");
    let files = fs::read_dir(blobs).unwrap().flatten();
    let largest = files.max_by_key(|entry| entry.metadata().unwrap().len());
    largest.expect("a file").path()
}

fn are_right(node: &Node) -> bool {
    let expected = fs::read(Path::new(TINY).join("model.safetensors")).unwrap();
    fs::read(weights_of(node)).unwrap() == expected
}

#[test]
fn a_node_gets_weights_from_another_node_without_any_hub_request() {
    let scene = Scene::new();
    let second = start(&scene.pool, &scene.hub, "gpu-2");
    scene.drain_first();
    let (files, listed) = (scene.hub.asked().len(), scene.hub.listed());
    assert_eq!(ask(&scene.pool), 200, "{}", second.log());
    let log = second.log();
    assert!(log.contains("of weights from node gpu-1"), "{log}");
    assert_eq!(scene.hub.asked().len(), files, "{log}");
    assert_eq!(scene.hub.listed(), listed, "{log}");
    assert!(are_right(&second));
    assert_eq!(second.engines().len(), 1);
}

#[test]
fn a_node_with_one_quantization_is_not_queried_for_another() {
    let hub = Hub::start();
    hub.add(
        "lab/many",
        &[
            ("tiny-Q4_K_M.gguf", tiny_gguf::bytes_for_chat(1)),
            ("tiny-Q8_0.gguf", tiny_gguf::bytes_for_chat(2)),
        ],
    );
    let cache = tempfile::tempdir().unwrap();
    let files = [("four", "Q4_K_M"), ("eight", "Q8_0")].map(|(model, quantization)| {
        let text = format!(
            "engine_config: {{model_id: {model}, type: CandleEngine, hf_model_id: \"lab/many:{quantization}\", max_total_tokens: 64}}\n"
        );
        (format!("{model}.yaml"), text)
    });
    let pool = pool_with(&files, &sources(cache.path(), &hub));
    let first = start(&pool, &hub, "gpu-1");
    assert_eq!(ask_model(&pool, "four"), 200, "{}", first.log());
    wait_for("the controller to know what the node has", || {
        pool.log().contains("node gpu-1 has the weights of 1 model")
    });
    let second = start(&pool, &hub, "gpu-2");
    drain(&pool, &first);
    assert_eq!(ask_model(&pool, "eight"), 200, "{}", second.log());
    let log = second.log();
    assert!(
        log.contains("of weights from the hub's lab/many") && !log.contains("node gpu-1"),
        "{log}"
    );
    assert_eq!(ask_model(&pool, "four"), 200, "{}", second.log());
    let log = second.log();
    assert!(log.contains("of weights from node gpu-1"), "{log}");
}

#[test]
fn a_damaged_copy_from_another_node_is_refused_and_the_file_is_fetched_from_the_hub() {
    let scene = Scene::new();
    let second = start(&scene.pool, &scene.hub, "gpu-2");
    scene.drain_first();
    let wrong = fs::OpenOptions::new()
        .write(true)
        .open(weights_of(&scene.first))
        .unwrap();
    wrong.write_all_at(b"damaged", 100_000).unwrap();
    let before = scene.asked_for_weights();
    assert_eq!(ask(&scene.pool), 200, "{}", second.log());
    let log = second.log();
    assert!(
        log.contains("node gpu-1 does not send the weights"),
        "{log}"
    );
    assert!(log.contains("is damaged"), "{log}");
    assert_eq!(scene.asked_for_weights(), before + 1, "{log}");
    assert!(are_right(&second));
}

#[test]
fn an_unresponsive_node_is_abandoned_for_the_hub() {
    let scene = Scene::new();
    let second = start(&scene.pool, &scene.hub, "gpu-2");
    scene.drain_first();
    let before = scene.asked_for_weights();
    scene.first.signal("-STOP");
    assert_eq!(ask(&scene.pool), 200, "{}", second.log());
    let log = second.log();
    assert!(log.contains("it has not answered for"), "{log}");
    assert_eq!(scene.asked_for_weights(), before + 1, "{log}");
    assert!(are_right(&second));
}

#[test]
fn a_client_without_a_token_gets_nothing_from_a_nodes_cache() {
    let scene = Scene::new();
    let log = scene.first.log();
    let (_, rest) = log
        .split_once("engines are reached at ")
        .expect("it is logged");
    let address = rest.split_whitespace().next().unwrap();
    let blob = weights_of(&scene.first);
    let blob = blob.file_name().unwrap().to_str().unwrap();
    let join_token = token(&scene.pool, json!({}));
    let get = |authorization: &str| {
        let mut socket = TcpStream::connect(address).unwrap();
        let request = format!(
            "GET /weights/{MODEL}/{blob} HTTP/1.1\r\nHost: node\r\n{authorization}Connection: close\r\n\r\n"
        );
        socket.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        socket.read_to_string(&mut response).unwrap();
        response
    };
    for authorization in [
        String::new(),
        "Authorization: Bearer 9999999999999.0.00\r\n".to_owned(),
        format!("Authorization: Bearer {join_token}\r\n"),
    ] {
        let response = get(&authorization);
        assert!(response.starts_with("HTTP/1.1 401 "), "{response}");
    }
}
