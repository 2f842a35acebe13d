//! The chart (deploy/helm/model-pool): Helm's own library lints and renders it, and its objects are validated with the published
//! schemas of Kubernetes. `bash .ci/helm` installs both; without them these tests report that they were skipped.

mod story;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use support::external_programs::skipped;
use support::kubernetes::{Kubernetes, NAMESPACE};
use support::service::wait_for;

/// The chart rendered with some values, or the error.
struct Rendered(Value);

impl Rendered {
    /// `None` without Helm. `server` is the API server for `lookup`.
    fn with(values: &Value, server: Option<&str>) -> Option<Rendered> {
        let request = json!({"values": values, "namespace": NAMESPACE, "server": server});
        Rendered::new(&request)
    }

    fn new(request: &Value) -> Option<Rendered> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let python = root.join("target/helm/bin/python");
        if !python.exists() {
            skipped(
                "helm",
                "there is no Helm. Run `bash .ci/helm`, and then `cargo test --test outside helm::`",
            );
            return None;
        }
        let mut child = Command::new(python)
            .arg(root.join("tests/outside/helm/chart.py"))
            .arg(root.join("deploy/helm/model-pool"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(request.to_string().as_bytes()).unwrap();
        drop(input);
        let output = child.wait_with_output().unwrap();
        let response = serde_json::from_slice(&output.stdout);
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        Some(Rendered(
            response.unwrap_or_else(|error| panic!("{error}: {log}")),
        ))
    }

    /// Renders values that must be valid.
    fn good(values: &Value) -> Option<Rendered> {
        let rendered = Rendered::with(values, None)?;
        assert_eq!(rendered.0["error"], Value::Null);
        assert_eq!(rendered.0["lint"], json!([]), "{values}");
        assert_eq!(rendered.0["wrong"], json!([]), "{values}");
        Some(rendered)
    }

    fn of_kind(&self, kind: &str) -> Vec<&Value> {
        let all = self.0["objects"].as_array().unwrap().iter();
        all.filter(|object| object["kind"] == kind).collect()
    }

    fn one(&self, kind: &str) -> &Value {
        let all = self.of_kind(kind);
        assert_eq!(all.len(), 1, "{kind}");
        all[0]
    }
}

fn nodes() -> Value {
    json!({"joinToken": {"existingSecret": "join"}, "shapes": [
        {"name": "a100x1", "gpus": 1, "memory": "80GiB", "count": 2, "costPerHour": 1.6,
         "nodeSelector": {"nvidia.com/gpu.product": "A100"}, "labels": {"kueue.x-k8s.io/queue-name": "lab"},
         "resources": {"requests": {"cpu": "8"}, "limits": {"memory": "64Gi"}}},
        {"name": "H100_x8", "gpus": 8, "memory": "80GiB", "count": 1}]})
}

/// Values that enable everything in the chart.
fn everything() -> Value {
    let mut nodes = nodes();
    for (key, value) in [
        ("image", json!({"repository": "vllm-pool", "tag": "1"})),
        ("runtimeClassName", json!("nvidia")),
        ("priorityClassName", json!("low")),
        ("annotations", json!({"a": "b"})),
        ("podLabels", json!({"team": "nlp"})),
        ("podAnnotations", json!({"c": "d"})),
        ("tolerations", json!([{"key": "gpu", "operator": "Exists"}])),
        (
            "extraEnv",
            json!([{"name": "HF_HUB_OFFLINE", "value": "1"}]),
        ),
        ("extraEnvFrom", json!([{"secretRef": {"name": "hub"}}])),
        ("extraVolumes", json!([{"name": "scratch", "emptyDir": {}}])),
        (
            "extraVolumeMounts",
            json!([{"name": "scratch", "mountPath": "/scratch"}]),
        ),
    ] {
        nodes[key] = value;
    }
    json!({
        "nodes": nodes,
        "imagePullSecrets": [{"name": "registry"}],
        "config": {"pool": {"keep_hot": "5m"}, "cluster": {"patience": "1m"}},
        "models": {"a.yaml": "engine_config: {model_id: a, type: VLLMEngine, hf_model_id: org/a}\n"},
        "modelReference": {"org/a": {"gpus_per_replica": 1}},
        "controller": {"adminKey": {"existingSecret": "admin"}, "tls": {"existingSecret": "tls"},
            "persistence": {"storageClass": "fast"}, "nodeSelector": {"zone": "a"}},
        "weights": {"existingClaim": "weights"},
        "ingress": {"enabled": true, "className": "nginx", "hosts": ["pool.example.org"],
            "tls": [{"secretName": "pool-tls", "hosts": ["pool.example.org"]}]},
        "networkPolicy": {"clients": [{"namespaceSelector": {"matchLabels": {"pool": "user"}}}]},
        "serviceMonitor": {"enabled": true, "existingSecret": "metrics"},
    })
}

#[test]
fn the_chart_passes_lint_and_renders_valid_kubernetes_objects() {
    for values in [json!({}), json!({"nodes": nodes()}), everything()] {
        let Some(rendered) = Rendered::good(&values) else {
            return;
        };
        assert!(
            rendered.0["notes"]
                .as_str()
                .unwrap()
                .contains("The pool starts")
        );
    }
    // The validation detects errors.
    let values = json!({"controller": {"affinity": {"nonsense": true}}});
    let wrong = Rendered::with(&values, None).unwrap().0["wrong"].to_string();
    assert!(
        wrong.contains("StatefulSet pool-model-pool in 1.33"),
        "{wrong}"
    );
}

#[test]
fn the_controller_may_only_scale_its_own_deployments_and_list_pods() {
    let Some(rendered) = Rendered::good(&json!({"nodes": nodes()})) else {
        return;
    };
    let own = [
        "pool-model-pool-a100x1-1",
        "pool-model-pool-a100x1-2",
        "pool-model-pool-h100-x8-1",
    ];
    assert_eq!(
        rendered.one("Role")["rules"],
        json!([
            {"apiGroups": ["apps"], "resources": ["deployments/scale"], "resourceNames": own, "verbs": ["get", "update"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
        ])
    );
    assert!(rendered.of_kind("ClusterRole").is_empty());
    let names: Vec<&Value> = rendered
        .of_kind("Deployment")
        .iter()
        .map(|object| &object["metadata"]["name"])
        .collect();
    assert_eq!(names, own);
    let configured = &rendered.0["configuration"]["model-pool.yaml"]["cluster"];
    assert_eq!(
        configured["kubernetes"]["deployments"],
        json!({"a100x1": own[..2], "H100_x8": own[2..]})
    );
    // Without nodes it has no permissions and no token.
    let alone = Rendered::good(&json!({})).unwrap();
    assert!(alone.of_kind("Role").is_empty());
    let pod = &alone.one("StatefulSet")["spec"]["template"]["spec"];
    assert_eq!(pod["automountServiceAccountToken"], false);
}

#[test]
fn pods_are_unprivileged_and_nodes_have_no_cluster_token() {
    let Some(rendered) = Rendered::good(&everything()) else {
        return;
    };
    let mut pods = rendered.of_kind("Deployment");
    assert_eq!(pods.len(), 3);
    for template in &pods {
        let pod = &template["spec"]["template"]["spec"];
        assert_eq!(pod["automountServiceAccountToken"], false);
        assert_eq!(template["spec"]["replicas"], 0, "the pool requests them");
    }
    pods.extend(rendered.of_kind("StatefulSet"));
    for template in &pods {
        let pod = &template["spec"]["template"]["spec"];
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(
            pod["securityContext"]["seccompProfile"]["type"],
            "RuntimeDefault"
        );
        // The longest drain is 10 minutes.
        assert!(pod["terminationGracePeriodSeconds"].as_u64() >= Some(660));
        for container in pod["containers"].as_array().unwrap() {
            let expected = json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"]}});
            assert_eq!(container["securityContext"], expected);
            for variable in container["env"].as_array().unwrap() {
                let name = variable["name"].as_str().unwrap();
                assert!(!name.contains("TOKEN"), "{name}");
            }
        }
    }
    let node = &rendered.of_kind("Deployment")[0]["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        node["resources"]["limits"],
        json!({"memory": "64Gi", "nvidia.com/gpu": 1})
    );
    let queue =
        &rendered.of_kind("Deployment")[0]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"];
    assert_eq!(queue, "lab", "Kueue reads it there");
    let probes = &rendered.one("StatefulSet")["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(probes["livenessProbe"]["httpGet"]["path"], "/llm/health");
    assert_eq!(probes["readinessProbe"]["httpGet"]["path"], "/llm/ready");
    assert_eq!(probes["readinessProbe"]["httpGet"]["scheme"], "HTTPS");
    let policies = rendered.of_kind("NetworkPolicy");
    let to_nodes = &policies[1]["spec"]["ingress"];
    assert_eq!(to_nodes.as_array().unwrap().len(), 1);
    let from = &to_nodes[0]["from"][0]["podSelector"]["matchLabels"];
    assert_eq!(from["app.kubernetes.io/component"], "controller");
    assert_eq!(
        policies[0]["spec"]["ingress"][0]["from"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn an_upgrade_keeps_the_replica_counts_set_by_the_controller() {
    let kubernetes = Kubernetes::start("pool-model-pool", 8);
    for name in ["pool-model-pool-a100x1-1", "pool-model-pool-a100x1-2"] {
        kubernetes.deploy(name, 1);
    }
    kubernetes.scale("pool-model-pool-a100x1-2", 1);
    let server = kubernetes.url();
    let Some(rendered) = Rendered::with(&json!({"nodes": nodes()}), Some(&server)) else {
        return;
    };
    assert_eq!(rendered.0["error"], Value::Null);
    let all = rendered.of_kind("Deployment");
    let numbers: Vec<&Value> = all
        .iter()
        .map(|deployment| &deployment["spec"]["replicas"])
        .collect();
    // The third one is new.
    assert_eq!(numbers, [&json!(0), &json!(1), &json!(0)]);
}

#[test]
fn wrong_values_are_refused_with_their_name() {
    let join = json!({"existingSecret": "join"});
    let shape = |name: &str, count: u32| json!({"name": name, "gpus": 1, "memory": "80GiB", "count": count});
    for (values, expected) in [
        (json!({"nods": {}}), "nods"),
        (
            json!({"nodes": {"joinToken": join, "shapes": [shape("a", 0)]}}),
            "/nodes/shapes/0/count",
        ),
        (
            json!({"nodes": {"joinToken": join, "shapes": [shape("a b", 1)]}}),
            "/nodes/shapes/0/name",
        ),
        (
            json!({"nodes": {"joinToken": join, "shapes": [shape("a", 1), shape("a", 2)]}}),
            "the name a twice",
        ),
        (
            json!({"nodes": {"shapes": [shape("a", 1)]}}),
            "nodes.joinToken.existingSecret is needed",
        ),
        (
            json!({"controller": {"tls": {"fingerprint": "sha256:12"}}}),
            "/controller/tls/fingerprint",
        ),
        (json!({"models": {"a.yml": ""}}), "a.yml"),
        (
            json!({"config": {"cluster": {"name": "other"}}}),
            "config.cluster.name is what the chart writes",
        ),
        (
            json!({"ingress": {"enabled": true}}),
            "ingress.hosts is empty",
        ),
        (
            json!({"fullnameOverride": "the-pool-of-a-lab-with-a-long-n", "nodes": {"joinToken": join, "shapes": [shape("a100-with-80-gigabytes", 1)]}}),
            "46 are allowed",
        ),
    ] {
        let Some(rendered) = Rendered::with(&values, None) else {
            return;
        };
        let error = rendered.0["error"].as_str().unwrap_or_default();
        assert!(error.contains(expected), "{values}: {error}");
    }
}

#[test]
fn the_api_server_double_responds_in_the_published_format() {
    let kubernetes = Kubernetes::start("lab", 1);
    kubernetes.deploy("one", 1);
    kubernetes.deploy("two", 1);
    let base = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments/one");
    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=model-pool/pool=lab");
    let mut objects = vec![kubernetes.get(&format!("{base}/scale"))];
    for name in ["one", "two"] {
        kubernetes.scale(name, 1);
    }
    objects.push(kubernetes.get(&format!("{base}/scale")));
    // One pod has its machine, and one waits.
    objects.push(kubernetes.get(&pods));
    kubernetes.runs(|_| {
        let mut program = Command::new("sh");
        program.args(["-c", "exit 3"]).spawn().unwrap()
    });
    let is_looped = || {
        kubernetes
            .get(&pods)
            .to_string()
            .contains("CrashLoopBackOff")
    };
    wait_for("the program to end", is_looped);
    objects.push(kubernetes.get(&pods));
    kubernetes.runs(|_| Command::new("sleep").arg("600").spawn().unwrap());
    let first = kubernetes.pods("one").remove(0);
    kubernetes.evict(&first);
    objects.push(kubernetes.get(&pods));
    let items = objects.iter().filter_map(|list| list["items"].as_array());
    assert_eq!(items.map(Vec::len).collect::<Vec<_>>(), [2, 2, 2]);
    let Some(rendered) = Rendered::new(&json!({"objects": objects})) else {
        return;
    };
    assert_eq!(rendered.0["wrong"], json!([]));
}
