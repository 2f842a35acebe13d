//! Nodes from Kubernetes (S2): the API server and the parts behind it are a double, and its pods are real `model-pool node`
//! processes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};
use support::family::{asks, chat};
use support::kubernetes::{Kubernetes, NAMESPACE};
use support::service::{Pool, wait_for};

use super::{NO_ROOM, node, one_device, requested_node, token};

const ONE: &str = "pool-one-1";
const TWO: &str = "pool-one-2";

/// `idle` is the time that a node without a model is kept.
fn cluster_section(kubernetes: &Kubernetes, idle: &str) -> String {
    format!(
        "cluster:
  kind: kubernetes
  name: lab
  scale_down_after: {idle}
  shapes: [{{name: one, gpus: 1, memory: 4GiB, cost_per_hour: 2}}]
  kubernetes: {{server: \"{}\", namespace: {NAMESPACE}, deployments: {{one: [{ONE}, {TWO}]}}}}
",
        kubernetes.url()
    )
}

/// Two Deployments, and one machine with this many GPUs.
fn kubernetes(gpus: u32) -> Kubernetes {
    let kubernetes = Kubernetes::start("lab", gpus);
    kubernetes.deploy(ONE, 1);
    kubernetes.deploy(TWO, 1);
    kubernetes
}

/// A model that uses most of a node.
fn model(name: &str, flags: &[&str]) -> (String, String) {
    let engine = support::stub::stub_engine().display().to_string();
    let flags: String = flags.iter().map(|flag| format!(", {flag:?}")).collect();
    let file = format!(
        "engine_config:\n  model_id: {name}\n  type: CommandEngine\n  command: [{engine:?}, --port, \"{{{{ port }}}}\", --model, {name}{flags}]\n  ready_path: /health\npool_config: {{memory_gib: 3}}\n"
    );
    (format!("{name}.yaml"), file)
}

fn pool(kubernetes: &Kubernetes, models: &[(String, String)], idle: &str) -> Pool {
    let config = format!("{NO_ROOM}{}", cluster_section(kubernetes, idle));
    Pool::with_devices(models, &config)
}

/// Runs pods as in the chart: all start the same way, and know only their names. Ends with the test.
fn pods_run_nodes(kubernetes: &Kubernetes, pool: &Pool) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, token(pool, json!({}))).unwrap();
    fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    fs::write(folder.path().join("node.yaml"), one_device("4GiB")).unwrap();
    let (place, url) = (
        folder.path().to_owned(),
        format!("http://{}", pool.address()),
    );
    kubernetes.runs(move |pod| {
        let log = fs::File::create(place.join(format!("{pod}.log"))).unwrap();
        Command::new(env!("CARGO_BIN_EXE_model-pool"))
            .args(["node", "--demand=0", "--controller", &url, "--name", pod])
            .arg("--token-file")
            .arg(place.join("token"))
            .arg("--config")
            .arg(place.join("node.yaml"))
            .arg("--data")
            .arg(place.join(pod))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap()
    });
    folder
}

fn reason_has(pool: &Pool, part: &str) -> bool {
    let requested = requested_node(pool);
    requested["reason"]
        .as_str()
        .is_some_and(|reason| reason.contains(part))
}

fn unload(pool: &Pool, model: &str) {
    let body = json!({"model": model}).to_string();
    let response = pool.request("POST", "/llm/admin/unload", &body, Some(&pool.admin_key()));
    assert_eq!(response.0, 200, "{}", response.1);
}

fn logs(folder: &Path) -> String {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let logs = entries.filter(|entry| {
        entry
            .path()
            .extension()
            .is_some_and(|extension| extension == "log")
    });
    logs.map(|entry| fs::read_to_string(entry.path()).unwrap_or_default())
        .collect()
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the times of the steps are printed"
)]
fn s2_pods_come_with_demand_and_the_right_one_goes() {
    let kubernetes = kubernetes(0);
    let pool = pool(&kubernetes, &[model("a", &[]), model("b", &[])], "1s");
    let folder = pods_run_nodes(&kubernetes, &pool);
    let began = Instant::now();
    let step = |what: &str| eprintln!("{:6.2} s  {what}", began.elapsed().as_secs_f64());
    assert_eq!(kubernetes.all_replicas(), 0);
    thread::scope(|scope| {
        let response = scope.spawn(|| pool.post("/v1/chat/completions", &chat("a", false)));
        wait_for("the scheduler's reason to be shown", || {
            reason_has(
                &pool,
                "0/1 nodes are available: 1 Insufficient nvidia.com/gpu",
            )
        });
        step("a pod waits for a GPU");
        assert_eq!(requested_node(&pool)["model"], "a");
        kubernetes.set_gpus(2);
        let (status, text) = response.join().unwrap();
        assert_eq!(status, 200, "{text}; {}", logs(folder.path()));
    });
    step("there is a GPU, and a has answered");
    assert_eq!(requested_node(&pool), Value::Null);
    assert_eq!((kubernetes.replicas(ONE), kubernetes.replicas(TWO)), (1, 0));
    let first = kubernetes.pods(ONE).remove(0);
    assert_eq!(node(&pool, &first)["state"], "joined");

    assert_eq!(asks(&pool, "b").0, 200);
    step("b has answered on a second node");
    assert_eq!((kubernetes.replicas(ONE), kubernetes.replicas(TWO)), (1, 1));
    let second = kubernetes.pods(TWO);

    unload(&pool, "a");
    wait_for("the idle pod to be gone", || {
        kubernetes.pods(ONE).is_empty()
    });
    step("a was unloaded, and its pod is gone");
    assert_eq!((kubernetes.replicas(ONE), kubernetes.replicas(TWO)), (0, 1));
    assert_eq!(kubernetes.pods(TWO), second, "the other one stays");
    wait_for("the pool to know", || node(&pool, &first) == Value::Null);
    assert_eq!(asks(&pool, "b").0, 200);
    assert_eq!(kubernetes.replicas(ONE), 0, "b is where it was");

    unload(&pool, "b");
    wait_for("no pod to be left", || kubernetes.pods(TWO).is_empty());
    assert_eq!(kubernetes.all_replicas(), 0);
    step("no pod is left");
}

#[test]
fn n5_an_evicted_pod_finishes_its_streams_and_its_replacement_serves() {
    let kubernetes = kubernetes(2);
    let talk = ["--tokens", "60", "--token-ms", "20"];
    let pool = pool(&kubernetes, &[model("a", &talk)], "10m");
    let folder = pods_run_nodes(&kubernetes, &pool);
    let stream = pool.stream("/v1/chat/completions", &chat("a", true));
    wait_for("the first chunk", || stream.text().contains("data: "));
    let first = kubernetes.pods(ONE).remove(0);
    kubernetes.evict(&first);
    let whole = stream.whole();
    assert!(
        whole.contains("[DONE]") && !whole.contains("\"error\""),
        "{whole}"
    );
    let (status, text) = asks(&pool, "a");
    assert_eq!(status, 200, "{text}; {}", logs(folder.path()));
    wait_for("the first pod to be gone", || {
        kubernetes.pods(ONE).len() == 1
    });
    assert_ne!(kubernetes.pods(ONE), [first]);
    assert_eq!(kubernetes.replicas(TWO), 0, "no other one was requested");
}

#[test]
fn s2_a_pod_whose_node_cannot_start_is_released_with_the_end_of_its_log() {
    let kubernetes = kubernetes(1);
    kubernetes.runs(|_| {
        let mut program = Command::new("sh");
        program.args(["-c", "exit 3"]).spawn().unwrap()
    });
    let pool = pool(&kubernetes, &[model("a", &[])], "10m\n  join_within: 6s");
    let (status, text) = pool.post("/v1/chat/completions", &chat("a", false));
    assert_eq!(status, 503, "{text}");
    wait_for("the pod to be given back", || {
        kubernetes.all_replicas() == 0
    });
    wait_for("the history to have its last words", || {
        let path = "/llm/admin/events?limit=200";
        let (_, events, _) = pool.request("GET", path, "", Some(&pool.admin_key()));
        events.contains("most recently with status 3: the end of its log")
    });
}

/// `model-pool` with this configuration and these arguments.
fn program(folder: &Path, config: &str, arguments: &[&str]) -> Output {
    let file = folder.join("pool.yaml");
    fs::write(&file, config).unwrap();
    Command::new(env!("CARGO_BIN_EXE_model-pool"))
        .args(arguments)
        .arg("--config")
        .arg(&file)
        .current_dir(folder)
        .output()
        .unwrap()
}

#[test]
fn nodes_are_requested_by_hand_and_a_check_reports_missing_parts() {
    let kubernetes = kubernetes(0);
    let folder = tempfile::tempdir().unwrap();
    let config = cluster_section(&kubernetes, "10m");
    let run = |arguments: &[&str]| {
        let output = program(folder.path(), &config, arguments);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let text = format!("{}{}", text(&output.stdout), text(&output.stderr));
        (output.status.code(), text)
    };
    let (code, text) = run(&["check", "--kubernetes"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("ok: shape one: 2 Deployments"), "{text}");

    let (code, text) = run(&["cluster", "request", "one"]);
    assert_eq!((code, text.lines().next()), (Some(0), Some(ONE)), "{text}");
    let (_, text) = run(&["cluster", "status"]);
    assert!(
        text.contains("pending: machines have too little free"),
        "{text}"
    );
    kubernetes.set_gpus(1);
    let (_, text) = run(&["cluster", "status"]);
    assert!(
        text.contains("starting on gpu-machine-1: its image is pulled"),
        "{text}"
    );
    for (arguments, expected) in [
        (
            &["cluster", "release", ONE, "--now"][..],
            "--now has no effect",
        ),
        (
            &["cluster", "request", "one", "--exclude", "m1"],
            "--exclude has no effect",
        ),
        (&["cluster", "script", "one"], "has no script"),
        (
            &["cluster", "release", "pool-two-1"],
            "is not the id of a lease",
        ),
    ] {
        let (code, text) = run(arguments);
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains(expected), "{text}");
    }
    let (code, text) = run(&["cluster", "release", ONE]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(kubernetes.all_replicas(), 0);

    kubernetes.behave(|manners| manners.forbidden = ["list pods".to_owned()].into());
    let (code, text) = run(&["check", "--kubernetes"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("resources: [pods], verbs: [list]"), "{text}");
    let other = program(folder.path(), "{}\n", &["check", "--kubernetes"]);
    assert_eq!(other.status.code(), Some(1));
}

#[test]
fn nodes_can_join_with_a_token_file_while_it_exists() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("join-token");
    let secret = "0123456789abcdef".repeat(4);
    fs::write(&file, &secret).unwrap();
    let more = format!("node: {{join_token_file: {}}}\n", file.display());
    let pool = super::pool_with(&[model("a", &[])], &more);
    let url = format!("http://{}", pool.address());
    let new = || tempfile::tempdir().unwrap();
    let _first = super::Node::start_at(new(), &url, "first", &secret, &[]);
    super::until(&pool, "first", "joined");
    assert_eq!(asks(&pool, "a").0, 200);
    fs::write(&file, "fedcba9876543210".repeat(4)).unwrap();
    let mut second = super::Node::start_at(new(), &url, "second", &secret, &[]);
    assert_eq!(second.ends(), Some(1));
    let log = second.log();
    assert!(log.contains("does not know the token"), "{log}");
    assert!(!pool.log().contains(&secret) && !log.contains(&secret));
}

#[test]
fn the_first_admin_key_may_be_read_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("admin-key");
    let secret = "0123456789abcdef".repeat(4);
    fs::write(&file, format!("{secret}\n")).unwrap();
    let config = format!(
        "{NO_ROOM}auth: {{first_admin_key_file: {}}}\n",
        file.display()
    );
    let pool = Pool::with_devices(&[model("a", &[])], &config);
    let (status, text, _) = pool.request("GET", "/llm/admin/nodes", "", Some(&secret));
    assert_eq!(status, 200, "{text}");
    assert!(!pool.log().contains(&secret));
}
