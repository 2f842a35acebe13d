//! The section `cluster`: wrong values name file, line and key, and its former name is still read.

use super::{assert_has, load, refusal};
use model_pool::config::{ClusterKind, Length};
use support::table::rows;

const GOOD: &str = "cluster:
  kind: slurm
  controller: https://pool.example.org:8443
  token_file: /shared/token
  shapes: [{name: a100x4, gpus: 4, memory: 80GiB, time_limit: 8h}]
";

#[test]
fn a_cluster_reports_at_start_which_of_its_keys_have_no_effect() {
    let config = load(GOOD).unwrap();
    assert_eq!(config.cluster.kind, ClusterKind::Slurm);
    assert_eq!(config.notices(), Vec::<String>::new());
    let none = load("cluster: {join_within: 5m}\n").unwrap();
    assert_has(
        &none.notices().join("\n"),
        &["cluster.join_within has no effect while cluster.kind is none"],
    );
    let other = load(&format!("{GOOD}  command: {{timeout: 9s}}\n")).unwrap();
    assert_has(
        &other.notices().join("\n"),
        &["cluster.command has no effect"],
    );
}

#[test]
fn the_former_section_name_autoscaler_is_accepted_with_correct_lines() {
    let config = load("autoscaler:\n  patience: 1m\n").unwrap();
    assert_eq!(config.cluster.patience, Length::from_secs(60));
    assert_has(
        &refusal("log: {level: info}\nautoscaler:\n  patience: 0s\n"),
        &["pool.yaml: line 3: cluster.patience is 0s"],
    );
}

#[test]
fn a_cluster_without_the_settings_nodes_need_is_refused() {
    for kind in ["slurm", "pbs", "ray", "command"] {
        let text = refusal(&format!("cluster:\n  kind: {kind}\n"));
        assert_has(
            &text,
            &[
                "cluster.controller is not set",
                "cluster.token_file is not set",
                "cluster.shapes is empty",
            ],
        );
    }
    assert_has(
        &refusal(&GOOD.replace("slurm", "ray")),
        &["cluster.ray.address is not set", "http://ray-head:8265"],
    );
    let text = refusal(&GOOD.replace("slurm", "command"));
    assert_has(
        &text,
        &[
            "cluster.command.scale_up is empty",
            "cluster.command.status is empty",
        ],
    );
}

/// A line of the section | parts of the message
const LINES: &str = r#"
    name: my lab | cluster.name is `my lab` | such as lab
    controller: pool.example.org | cluster.controller is not a URL | https://pool
    controller: [https://a, pool.example.org] | cluster.controller is not a URL | https://pool
    controller: https://me:secret@a | user or a password | cluster.token_file
    fingerprint: sha256:12 | cluster.fingerprint is not a fingerprint | 64
    token_file: token | cluster.token_file is `token` | absolute path
    program: '' | cluster.program is empty | model-pool
    node_data: data | cluster.node_data is `data` | %j
    node_options: ["a\\nb"] | cluster.node_options[0] | one line
    scale_down_after: 0s | cluster.scale_down_after is 0s | allowed
    slurm: {partition: "gpu --uid=0"} | cluster.slurm.partition is `gpu --uid=0` | without spaces
    slurm: {account: -x} | cluster.slurm.account is `-x` | leading `-`
    slurm: {exclude: ['a b']} | cluster.slurm.exclude[0] | without spaces
    slurm: {options: [mem]} | cluster.slurm.options[0] is `mem` | --mem=200G
    slurm: {log_dir: logs} | cluster.slurm.log_dir is `logs` | absolute path
    slurm: {bin_dir: bin} | cluster.slurm.bin_dir is `bin` | /opt/slurm/bin
    slurm: {grace: 2h} | cluster.slurm.grace is 2h | 1s to 1h
    slurm: {timeout: 1ms} | cluster.slurm.timeout is 1ms | 1s to 10m
    ray: {address: ray-head} | cluster.ray.address is not a URL | http://ray-head:8265
    ray: {address: 'http://me:secret@a'} | cluster.ray.address contains | cluster.ray.token_file
    ray: {resources: {GPU: 1}} | cluster.ray.resources has `GPU` | the shape's `gpus`
    ray: {resources: {a: 1.5}} | cluster.ray.resources has `a: 1.5` | whole number
    ray: {labels: {'a b': c}} | cluster.ray.labels has `a b: c` | pool: big
    ray: {env: {RAY_ADDRESS: secret}} | cluster.ray.env has `RAY_ADDRESS` | HF_HOME
    ray: {cpus: 2000} | cluster.ray.cpus is 2000 | 0 to 1024
    ray: {grace: 2h} | cluster.ray.grace is 2h | 1s to 1h
    ray: {timeout: 1ms} | cluster.ray.timeout is 1ms | 1s to 10m
    command: {timeout: 1h} | cluster.command.timeout is 1h | 1s to 10m
"#;

#[test]
fn every_invalid_cluster_value_is_refused_with_line_key_and_correction() {
    for row in rows(LINES) {
        let line = row[0];
        let (key, _) = line.split_once(':').unwrap();
        let others = GOOD
            .lines()
            .filter(|line| !line.trim_start().starts_with(&format!("{key}:")));
        let mut text: Vec<&str> = others.collect();
        let own = format!("  {line}");
        text.push(&own);
        let refused = refusal(&text.join("\n"));
        let place = format!("pool.yaml: line {}: ", text.len());
        assert_has(&refused, &row[1..]);
        assert_has(&refused, &[&place]);
        assert!(!refused.contains("secret"), "{refused}");
    }
}

#[test]
fn a_shape_accepts_only_the_keys_of_its_cluster_kind() {
    let ray = GOOD.replace("slurm", "ray").replace(
        "time_limit: 8h}",
        "time_limit: 8h, labels: {pool: big}, resources: {\"accelerator_type:H100\": 0.001}}",
    ) + "  ray: {address: \"http://ray-head:8265\"}\n";
    let config = load(&ray).unwrap();
    assert_eq!(config.cluster.kind, ClusterKind::Ray);
    assert_eq!(config.cluster.shapes[0].labels["pool"], "big");
    assert_eq!(config.notices(), Vec::<String>::new());
    assert_has(
        &refusal(&ray.replace("labels: {pool: big}", "partition: gpu")),
        &["shapes[0].partition is only for cluster.kind slurm"],
    );
    assert_has(
        &refusal(&ray.replace("kind: ray", "kind: slurm")),
        &[
            "shapes[0].labels is only for cluster.kind ray",
            "shapes[0].resources is only for cluster.kind ray",
        ],
    );
    assert_has(
        &refusal(
            &ray.replace("gpus: 4", "gpus: 0")
                .replace("  ray: {", "  ray: {cpus: 0, "),
        ),
        &["shapes[0].gpus is 0, and cluster.ray.cpus is 0"],
    );
    let slurm = load(&(GOOD.to_owned() + "  ray: {cpus: 2}\n")).unwrap();
    assert_has(
        &slurm.notices().join("\n"),
        &["cluster.ray has no effect while cluster.kind is slurm"],
    );
}

/// A shape | parts of the message
const SHAPES: &str = r"
    {name: 'a b', gpus: 4, memory: 80GiB, time_limit: 8h} | shapes[0].name is `a b` | such as a100x4
    {name: a, gpus: 65, memory: 80GiB, time_limit: 8h} | shapes[0].gpus is 65 | 0 to 64
    {name: a, gpus: 4, memory: 1KiB, time_limit: 8h} | shapes[0].memory is 1KiB | 1MiB
    {name: a, gpus: 4, memory: 80GiB, time_limit: 5s} | shapes[0].time_limit is 5s | 1m to
    {name: a, gpus: 4, memory: 80GiB, time_limit: 8h, cost_per_hour: -1} | shapes[0].cost_per_hour is -1 | allowed: 0
    {name: a, gpus: 4, memory: 80GiB, time_limit: 8h, gres: 'gpu:4 x'} | shapes[0].gres is `gpu:4 x` | without spaces
    {name: a, gpus: 4, memory: 80GiB, time_limit: 8h}, {name: a, gpus: 1, memory: 80GiB, time_limit: 8h} | shapes[1].name `a` is given twice | unique name
";

#[test]
fn every_wrong_shape_names_its_key() {
    for row in rows(SHAPES) {
        let text = GOOD.replace(
            "{name: a100x4, gpus: 4, memory: 80GiB, time_limit: 8h}",
            row[0],
        );
        assert_has(&refusal(&text), &row[1..]);
        assert_has(&refusal(&text), &["pool.yaml: line 5: "]);
    }
}

const PODS: &str = "cluster:
  kind: kubernetes
  name: lab
  shapes: [{name: one, gpus: 1, memory: 80GiB}]
  kubernetes: {deployments: {one: [lab-one-1, lab-one-2]}}
";

#[test]
fn a_pod_shape_needs_deployments_and_repeats_no_field_of_their_template() {
    let config = load(PODS).unwrap();
    assert_eq!(config.cluster.kind, ClusterKind::Kubernetes);
    assert_eq!(config.notices(), Vec::<String>::new());
    let more = load(&format!(
        "{PODS}  token_file: /t\n  slurm: {{partition: gpu}}\n"
    ));
    assert_has(
        &more.unwrap().notices().join("\n"),
        &[
            "cluster.token_file has no effect while cluster.kind is kubernetes",
            "cluster.slurm has no effect while cluster.kind is kubernetes",
        ],
    );
    // Other kinds need a limit.
    let text = refusal(&GOOD.replace(", time_limit: 8h", ""));
    assert_has(&text, &["shapes[0].time_limit is missing", "such as 8h"]);
}

/// The section `kubernetes` | parts of the message
const PODS_SECTIONS: &str = r"
    kubernetes: {} | cluster.kubernetes.deployments has none | one: [model-pool-one-1
    kubernetes: {deployments: {one: [a], two: [b]}} | names the shape `two` | cluster.shapes does not have
    kubernetes: {deployments: {one: [a]}, sets: {two: [{kind: stateful_set, name: b, nodes: 2}]}} | cluster.kubernetes.sets names the shape `two` | cluster.shapes does not have
    kubernetes: {deployments: {one: [a]}, sets: {one: [{kind: stateful_set, name: a, nodes: 2}]}} | cluster.kubernetes.sets has `a` | once in deployments and sets
    kubernetes: {deployments: {one: [a]}, sets: {one: [{kind: leader_worker_set, name: b, nodes: 1}]}} | cluster.kubernetes.sets has 1 nodes in `b` | allowed: 2 to 64
    kubernetes: {deployments: {one: [a, a]}} | has `a` twice | one node of one shape
    kubernetes: {deployments: {one: [Lab_1]}} | has `Lab_1` | lower-case letters
    kubernetes: {deployments: {one: [a-name-that-is-much-too-long-for-the-pods-of-it]}} | allowed: 1 to 46 | model-pool-a100x1-1
    kubernetes: {deployments: {one: [a]}, server: 'http://10.0.0.1:6443'} | cluster.kubernetes.server begins with http:// | plain text
    kubernetes: {deployments: {one: [a]}, server: 'https://me:secret@10.0.0.1'} | user or a password | token_file
    kubernetes: {deployments: {one: [a]}, namespace: My_Space} | cluster.kubernetes.namespace is `My_Space` | such as llm
    kubernetes: {deployments: {one: [a]}, timeout: 1h} | cluster.kubernetes.timeout is 1h | 1s to 2m
";

#[test]
fn every_invalid_kubernetes_value_is_refused_with_line_key_and_correction() {
    let section = "kubernetes: {deployments: {one: [lab-one-1, lab-one-2]}}";
    for row in rows(PODS_SECTIONS) {
        let refused = refusal(&PODS.replace(section, row[0]));
        assert_has(&refused, &row[1..]);
        assert_has(&refused, &["pool.yaml: line 5: "]);
        assert!(!refused.contains("secret"), "{refused}");
    }
    let shape = "{name: one, gpus: 1, memory: 80GiB}";
    for (wrong, parts) in [
        (
            "{name: one, gpus: 1, memory: 80GiB, time_limit: 8h}",
            ["shapes[0].time_limit is set", "remove it"],
        ),
        (
            "{name: one, gpus: 1, memory: 80GiB, gres: 'gpu:1'}",
            ["shapes[0].gres is only for cluster.kind slurm", "remove it"],
        ),
    ] {
        assert_has(&refusal(&PODS.replace(shape, wrong)), &parts);
    }
    let text = refusal(&PODS.replace("name: lab\n", "name: lab-\n"));
    assert_has(&text, &["cluster.name is `lab-`", "value of a label"]);
}

/// The value of `batch.nodes` | parts of the message
const BATCH_NODES: &str = r#"
    {max: 0} | batch.nodes.max is 0 | batch.nodes: null
    {max: 2000} | batch.nodes.max is 2000 | 1 to 1024
    {max: -1} | batch.nodes.max | a non-negative whole number
    {gpu_hours_per_day: 0} | batch.nodes.gpu_hours_per_day is 0 | more than 0
    {cost_per_day: -5} | batch.nodes.cost_per_day is -5 | null for no limit
    {cost_per_day: 5} | batch.nodes.cost_per_day limits | the shape a100x4 has no cost_per_hour
    {hours: 8} | unknown key `hours`
"#;

#[test]
fn b8_wrong_limits_of_nodes_for_batches_are_refused_with_line_and_key() {
    for row in rows(BATCH_NODES) {
        let text = format!("{GOOD}batch:\n  nodes: {}\n", row[0]);
        let refused = refusal(&text);
        assert_has(&refused, &row[1..]);
        let place = format!("pool.yaml: line {}", text.lines().count());
        assert_has(&refused, &[&place]);
    }
    let given = load(&format!("{GOOD}batch: {{nodes: {{}}}}\n")).unwrap();
    assert_eq!(
        given.limits().batch_nodes.map(|nodes| nodes.nodes_max),
        Some(1)
    );
}

#[test]
fn b8_nodes_for_batches_need_a_cluster_that_records_their_use() {
    let wanted = "batch:\n  nodes: {max: 2}\n";
    assert_has(
        &refusal(wanted),
        &[
            "pool.yaml: line 2: batch.nodes needs a cluster",
            "cluster.kind is none",
        ],
    );
    let kubernetes = "cluster:
  kind: kubernetes
  kubernetes: {deployments: {a100x4: [pool-1]}}
  shapes: [{name: a100x4, gpus: 4, memory: 80GiB}]
";
    assert_has(
        &refusal(&format!("{kubernetes}{wanted}")),
        &["batch.nodes is not possible with cluster.kind kubernetes"],
    );
}
