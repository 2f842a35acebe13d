//! Nodes that start together: the pods of a LeaderWorkerSet or StatefulSet.

use config::{PodSet, PodSetKind};

use super::*;
use crate::LeaseSet;

const LEADER: &str = "pool-lws";
const STATEFUL: &str = "pool-stateful";

/// One Deployment, a LeaderWorkerSet of three pods and a StatefulSet of two, on a machine with this many GPUs.
fn with_sets(gpus: u32) -> (Double, Kubernetes) {
    let double = Double::start("lab", gpus);
    double.deploy(ONE, 1);
    double.leader_worker_set(LEADER, 1, 3);
    double.stateful_set(STATEFUL, 1);
    let set = |kind, name: &str, nodes| PodSet {
        kind,
        name: name.to_owned(),
        nodes,
    };
    let mut section = section(double.url());
    let sets = vec![
        set(PodSetKind::LeaderWorkerSet, LEADER, 3),
        set(PodSetKind::StatefulSet, STATEFUL, 2),
    ];
    section.kubernetes.sets = BTreeMap::from([("one".to_owned(), sets)]);
    let client = Kubernetes::new(&section);
    (double, client)
}

#[tokio::test]
async fn m8_a_set_is_one_object_with_a_pod_for_each_node() {
    for (name, demands, replicas, pods) in [
        (
            LEADER,
            vec![70, 71, 72],
            1,
            vec!["pool-lws-0", "pool-lws-0-1", "pool-lws-0-2"],
        ),
        (
            STATEFUL,
            vec![70, 71],
            2,
            vec!["pool-stateful-0", "pool-stateful-1"],
        ),
    ] {
        let (double, client) = with_sets(8);
        let taken = client.request_set("one", &demands, &[]).await;
        let taken = taken.expect("a set of this size").expect("scaled");
        assert_eq!(taken, id(name));
        assert_eq!(double.replicas(name), replicas);
        let leases = client.status().await.expect("it answers");
        let nodes: Vec<&str> = leases.iter().map(|lease| lease.node.as_str()).collect();
        assert_eq!(nodes, pods);
        for (lease, demand) in leases.iter().zip(&demands) {
            let nodes = demands.len() as u32;
            assert_eq!(lease.set, Some(LeaseSet { first: 70, nodes }));
            assert_eq!(lease.demand, Some(*demand));
            assert!(matches!(lease.state, LeaseState::Starting { .. }));
        }
        // It has its pods, and no other set has this size.
        assert!(client.request_set("one", &demands, &[]).await.is_none());
        client
            .release(&id(name), Release::Drain)
            .await
            .expect("given back");
        assert_eq!(double.replicas(name), 0);
        assert_eq!(client.status().await.expect("it answers"), []);
    }
}

#[tokio::test]
async fn m8_the_nodes_of_a_set_wait_for_their_machines_one_by_one() {
    let (_double, client) = with_sets(1);
    let taken = client.request_set("one", &[70, 71], &[]).await;
    taken.expect("a set of this size").expect("scaled");
    let all = status(&client).await;
    assert!(all[0].2.starts_with("starting on"), "{all:?}");
    assert!(
        all[1].2.starts_with("pending: machines have too little"),
        "{all:?}"
    );
    // Another process tells the sets apart by their own numbers.
    let other = Kubernetes::new(&client.section).status().await;
    for lease in other.expect("it answers") {
        assert_eq!(
            (lease.demand, lease.set.expect("a set").first),
            (Some(0), 4)
        );
    }
}

#[tokio::test]
async fn m8_without_a_set_of_the_size_or_its_api_deployments_serve_the_requests() {
    let (double, client) = with_sets(8);
    assert!(
        client
            .request_set("one", &[1, 2, 3, 4], &[])
            .await
            .is_none()
    );
    assert_eq!(double.all_replicas(), 0);
    let mut section = client.section.clone();
    let sets = section.kubernetes.sets.get_mut("one").expect("there");
    sets[0].name = "pool-missing".to_owned();
    let client = Kubernetes::new(&section);
    assert!(client.request_set("one", &[1, 2, 3], &[]).await.is_none());
    let findings = client.inspect().await;
    let is_missing = |finding: &Finding| {
        matches!(finding, Finding::Problem(text)
            if text.contains("the namespace lab has no LeaderWorkerSet pool-missing; create it, install its API"))
    };
    assert!(findings.iter().any(is_missing), "{findings:?}");
}

#[tokio::test]
async fn a_forbidden_set_is_refused_with_the_missing_rule() {
    let (double, client) = with_sets(8);
    let forbidden = "update leaderworkersets/scale".to_owned();
    double.behave(|behaviour| behaviour.forbidden = [forbidden].into());
    let refused = client.request_set("one", &[70, 71, 72], &[]).await;
    let error = refused.expect("a set").expect_err("forbidden").to_string();
    let rule = "{apiGroups: [leaderworkerset.x-k8s.io], resources: [leaderworkersets/scale], resourceNames: [pool-lws], verbs: [get, update]}";
    assert!(error.contains(rule), "{error}");
}
