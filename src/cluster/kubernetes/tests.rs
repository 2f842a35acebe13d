//! The client of Kubernetes against a double of its API server.

use std::collections::BTreeMap;

use config::ClusterKind;
use support::kubernetes::{Account, Kubernetes as Double, NAMESPACE};

use super::*;
use crate::stand_ins::{id, shape};
use crate::{Finding, LeaseState};

mod sets;
mod states;

const ONE: &str = "pool-one-1";
const TWO: &str = "pool-one-2";

fn section(url: String) -> ClusterSection {
    let mut section = ClusterSection {
        kind: ClusterKind::Kubernetes,
        name: "lab".to_owned(),
        shapes: vec![shape("one", 1, 0)],
        ..ClusterSection::default()
    };
    section.kubernetes.server = Some(url);
    section.kubernetes.namespace = Some(NAMESPACE.to_owned());
    let names = vec![ONE.to_owned(), TWO.to_owned()];
    section.kubernetes.deployments = BTreeMap::from([("one".to_owned(), names)]);
    section
}

/// Two Deployments with one GPU each, on a machine with this many GPUs.
fn double(gpus: u32) -> (Double, Kubernetes) {
    let double = Double::start("lab", gpus);
    double.deploy(ONE, 1);
    double.deploy(TWO, 1);
    let client = Kubernetes::new(&section(double.url()));
    (double, client)
}

async fn request(client: &Kubernetes, demand: u64) -> Result<String, ClusterError> {
    let id = client.request("one", Some(demand), &[]).await?;
    Ok(id.to_string())
}

async fn status(client: &Kubernetes) -> Vec<(String, Option<u64>, String)> {
    let leases = client.status().await.expect("it answers");
    let described = leases.into_iter().map(|lease| {
        let state = match lease.state {
            LeaseState::Pending { reason } => format!("pending: {reason}"),
            LeaseState::Starting { host, reason } => format!("starting on {host}: {reason}"),
            LeaseState::Running { host } => format!("running on {host}"),
            LeaseState::Ended { why } => format!("ended: {why}"),
        };
        (lease.node, lease.demand, state)
    });
    described.collect()
}

#[tokio::test]
async fn each_request_gets_its_own_deployment_until_all_are_used() {
    let (double, client) = double(8);
    assert_eq!(request(&client, 7).await, Ok(ONE.to_owned()));
    assert_eq!(request(&client, 8).await, Ok(TWO.to_owned()));
    assert_eq!((double.replicas(ONE), double.replicas(TWO)), (1, 1));
    let error = request(&client, 9).await.expect_err("none is left");
    assert!(!error.is_unknown(), "{error}");
    assert!(
        error.to_string().contains("all 2 nodes of the shape one"),
        "{error}"
    );
    let demands = client.status().await.expect("it answers");
    let demands: Vec<_> = demands.iter().map(|lease| lease.demand).collect();
    assert_eq!(demands, [Some(7), Some(8)]);
    // Another process knows that the pods belong to the pool, but not to which request.
    let other = Kubernetes::new(&client.section).status().await;
    let demands: Vec<_> = other
        .expect("it answers")
        .iter()
        .map(|lease| lease.demand)
        .collect();
    assert_eq!(demands, [Some(0), Some(0)]);
}

#[tokio::test]
async fn a_conflicting_replica_count_is_read_again_up_to_five_times() {
    let (double, client) = double(8);
    double.behave(|behaviour| behaviour.conflicts = 2);
    assert_eq!(request(&client, 7).await, Ok(ONE.to_owned()));
    let puts = double.calls();
    let puts = puts.iter().filter(|call| call.starts_with("PUT")).count();
    assert_eq!(puts, 3);
    double.behave(|behaviour| behaviour.conflicts = 100);
    let error = request(&client, 8).await.expect_err("forever");
    assert!(error.to_string().contains("was changed 5 times"), "{error}");
    assert_eq!(double.replicas(TWO), 0);
}

#[tokio::test]
async fn a_request_whose_response_was_lost_is_found_by_its_demand() {
    let (double, client) = double(8);
    double.behave(|behaviour| behaviour.loses_response = true);
    let error = request(&client, 7).await.expect_err("no response");
    assert!(error.is_unknown(), "{error}");
    let leases = client.status().await.expect("it answers");
    assert_eq!(leases.len(), 1);
    assert_eq!(leases[0].demand, Some(7));
    // The node is not requested twice.
    assert_eq!(request(&client, 8).await, Ok(TWO.to_owned()));
}

#[tokio::test]
async fn a_release_ends_the_chosen_node_and_not_a_pending_one() {
    let (double, client) = double(1);
    for demand in [7, 8] {
        request(&client, demand).await.expect("a lease");
    }
    let before = status(&client).await;
    assert!(
        before[0].2.starts_with("starting on gpu-machine-1"),
        "{before:?}"
    );
    assert_eq!(
        before[1].2,
        "pending: machines have too little free; it starts when enough becomes free, or the cluster grows (0/1 nodes are available: 1 Insufficient nvidia.com/gpu)"
    );
    let waits = double.pods(TWO);
    client
        .release(&id(ONE), Release::Drain)
        .await
        .expect("given back");
    assert_eq!(double.pods(ONE), Vec::<String>::new());
    assert_eq!(double.pods(TWO), waits, "it has the machine now");
    let after = status(&client).await;
    assert_eq!(after.len(), 1);
    assert_eq!((&after[0].0, after[0].1), (&waits[0], Some(8)));
    assert!(after[0].2.starts_with("starting on"), "{after:?}");
    // A second release does no harm, and a foreign Deployment is not touched.
    client
        .release(&id(ONE), Release::Drain)
        .await
        .expect("it has ended");
    let wrong = client.release(&id("another"), Release::Now).await;
    assert!(matches!(wrong, Err(ClusterError::WrongId { .. })));
}

#[tokio::test]
async fn an_evicted_pod_is_replaced_by_another_of_the_same_lease() {
    let (double, client) = double(2);
    request(&client, 7).await.expect("a lease");
    let first = status(&client).await;
    assert!(first[0].2.starts_with("starting on"), "{first:?}");
    double.evict(&first[0].0);
    let second = status(&client).await;
    assert_eq!(second.len(), 1, "{second:?}");
    assert_ne!(second[0].0, first[0].0);
    assert!(crate::is_node_of(ONE, &second[0].0));
    client
        .release(&id(ONE), Release::Drain)
        .await
        .expect("given back");
    assert_eq!(status(&client).await, []);
}

#[tokio::test]
async fn an_unreachable_api_server_leaves_the_state_of_its_pods_unknown() {
    let (double, client) = double(8);
    double.behave(|behaviour| behaviour.is_away = true);
    let error = client.status().await.expect_err("away");
    assert!(error.is_unknown(), "{error}");
    assert!(
        error.to_string().contains("currently unable to handle"),
        "{error}"
    );
    assert!(request(&client, 7).await.expect_err("away").is_unknown());
    let nowhere = Kubernetes::new(&section("http://127.0.0.1:1".to_owned()));
    let error = nowhere.status().await.expect_err("no server");
    assert!(error.is_unknown(), "{error}");
    assert!(error.to_string().contains("onnection refused"), "{error}");
}

#[tokio::test]
async fn a_forbidden_call_is_refused_with_the_missing_rule() {
    let (double, client) = double(8);
    for (rule, expected) in [
        (
            "list pods",
            "needs the rule {apiGroups: [\"\"], resources: [pods], verbs: [list]}",
        ),
        (
            "get deployments/scale",
            "needs the rule {apiGroups: [apps], resources: [deployments/scale], resourceNames: [pool-one-1], verbs: [get, update]}",
        ),
        (
            "update deployments/scale",
            "needs the rule {apiGroups: [apps], resources: [deployments/scale], resourceNames: [pool-one-1], verbs: [get, update]}",
        ),
    ] {
        double.behave(|behaviour| behaviour.forbidden = [rule.to_owned()].into());
        let error = request(&client, 7).await.expect_err(rule);
        assert!(!error.is_unknown(), "{error}");
        let text = error.to_string();
        assert!(
            text.contains(expected) && text.contains("Role of the namespace lab"),
            "{text}"
        );
    }
    assert_eq!(double.replicas(ONE), 0);
}

#[tokio::test]
async fn the_token_is_read_for_each_call_and_never_shown() {
    let (double, _) = double(8);
    let folder = tempfile::tempdir().expect("a folder");
    let account = Account::in_folder(folder.path(), "secret-1\n");
    let mut section = section(double.url());
    section.kubernetes.token_file = Some(account.token.clone());
    let client = Kubernetes::new(&section);
    double.behave(|behaviour| behaviour.tokens = vec!["secret-1".to_owned()]);
    client.status().await.expect("accepted");
    double.behave(|behaviour| behaviour.tokens = vec!["secret-2".to_owned()]);
    let error = client.status().await.expect_err("an old token").to_string();
    assert!(
        error.contains("does not accept the token in") && error.contains("401"),
        "{error}"
    );
    assert!(!error.contains("secret-1"), "{error}");
    Account::in_folder(folder.path(), "secret-2\n");
    client.status().await.expect("it is read again");
    std::fs::remove_file(&account.token).expect("removed");
    let error = client.status().await.expect_err("no token").to_string();
    assert!(
        error.contains("cannot be read") && error.contains("cluster.kubernetes.token_file"),
        "{error}"
    );
}

#[tokio::test]
async fn the_api_server_must_present_a_certificate_of_the_clusters_authority() {
    let (double, _) = double(8);
    let folder = tempfile::tempdir().expect("a folder");
    let account = Account::in_folder(folder.path(), "t");
    let port = support::servers::tls_before(&double.address(), &account.ca);
    let mut section = section(format!("https://localhost:{port}"));
    section.kubernetes.token_file = Some(account.token);
    section.kubernetes.ca_file = Some(account.ca.clone());
    let client = Kubernetes::new(&section);
    client.status().await.expect("the authority has signed it");
    // The cluster's certificate authority changes: the client reads it again.
    let other = folder.path().join("other.crt");
    support::servers::tls_before(&double.address(), &other);
    std::fs::copy(&other, &account.ca).expect("copied");
    let error = client.status().await.expect_err("another authority");
    assert!(error.is_unknown(), "{error}");
    assert!(error.to_string().contains("certificate"), "{error}");
    std::fs::write(&account.ca, "no certificate").expect("written");
    let error = client.status().await.expect_err("no authority");
    assert!(
        error.to_string().contains("cluster.kubernetes.ca_file"),
        "{error}"
    );
}

#[tokio::test]
async fn all_pages_of_pods_are_read() {
    let (double, client) = double(8);
    for demand in [7, 8] {
        request(&client, demand).await.expect("a lease");
    }
    double.behave(|behaviour| behaviour.page = Some(1));
    assert_eq!(status(&client).await.len(), 2);
    let calls = double.calls();
    assert!(
        calls.iter().any(|call| call.contains("continue=1")),
        "{calls:?}"
    );
}

#[tokio::test]
async fn an_inspection_names_each_missing_thing_and_changes_nothing() {
    let (double, client) = double(8);
    let texts = |findings: Vec<Finding>| {
        let text = |finding| match finding {
            Finding::Good(text) => format!("ok: {text}"),
            Finding::Note(text) => format!("note: {text}"),
            Finding::Problem(text) => format!("error: {text}"),
        };
        findings.into_iter().map(text).collect::<Vec<_>>()
    };
    let all = texts(client.inspect().await);
    assert!(
        all.iter().all(|text| !text.starts_with("error")),
        "{all:#?}"
    );
    assert!(
        all[0].contains("Kubernetes v1.33.2; namespace lab"),
        "{all:#?}"
    );
    assert!(
        all[2].contains("shape one: 2 Deployments, whose number of pods may be read and set"),
        "{all:#?}"
    );
    assert_eq!(double.all_replicas(), 0);

    double.behave(|behaviour| behaviour.forbidden = ["update deployments/scale".to_owned()].into());
    double.scale(TWO, 2);
    let mut section = client.section.clone();
    let names = section.kubernetes.deployments.get_mut("one");
    names.expect("there").push("pool-one-3".to_owned());
    let problems = texts(Kubernetes::new(&section).inspect().await);
    for expected in [
        "resourceNames: [pool-one-1], verbs: [get, update]",
        "the Deployment pool-one-2 has 2 pods",
    ] {
        let has_it = |text: &String| text.starts_with("error") && text.contains(expected);
        assert!(problems.iter().any(has_it), "{expected}: {problems:#?}");
    }
    double.behave(|behaviour| behaviour.forbidden.clear());
    double.scale(TWO, 1);
    let problems = texts(Kubernetes::new(&section).inspect().await);
    let missing = |text: &String| text.contains("the namespace lab has no Deployment pool-one-3");
    assert!(problems.iter().any(missing), "{problems:#?}");
    section.kubernetes.deployments = BTreeMap::from([("one".to_owned(), vec![ONE.to_owned()])]);
    let problems = texts(Kubernetes::new(&section).inspect().await);
    let strange = |text: &String| text.contains("never given back: pool-one-2-");
    assert!(problems.iter().any(strange), "{problems:#?}");
}
