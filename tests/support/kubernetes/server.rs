//! The API server: routes, resource versions, and errors in the form of `Status`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::{Value, json};

use super::cluster::{Cluster, settle};
use super::{Manners, NAMESPACE};
use crate::http_server;

const ACCOUNT: &str = "system:serviceaccount:lab:pool";

#[derive(Clone)]
struct Shared {
    cluster: Arc<Mutex<Cluster>>,
    manners: Arc<Mutex<Manners>>,
}

pub fn start(cluster: Arc<Mutex<Cluster>>, manners: Arc<Mutex<Manners>>) -> SocketAddr {
    let shared = Shared { cluster, manners };
    let deployments = "/apis/apps/v1/namespaces/{namespace}/deployments/{name}";
    let routes = Router::new()
        .route("/version", get(version))
        .route("/apis/apps/v1", get(resources))
        .route(deployments, get(read_deployment))
        .route(
            "/apis/{group}/v1/namespaces/{namespace}/{resource}/{name}/scale",
            get(read_scale).put(write_scale),
        )
        .route("/api/v1/namespaces/{namespace}/pods", get(list_pods))
        .with_state(shared);
    http_server::serve(routes)
}

fn status(code: StatusCode, reason: &str, message: &str) -> Response {
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16()});
    (
        code,
        [(header::CONTENT_TYPE, "application/json")],
        body.to_string(),
    )
        .into_response()
}

fn found(body: &Value) -> Response {
    (
        [(header::CONTENT_TYPE, "application/json")],
        body.to_string(),
    )
        .into_response()
}

/// Records the call. Returns a response if the call ends here.
fn enter(
    shared: &Shared,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    rule: &str,
) -> Option<Response> {
    let call = format!("{method} {uri}");
    shared.cluster.lock().unwrap().calls.push(call);
    let manners = shared.manners.lock().unwrap().clone();
    if manners.is_away {
        let message = "the server is currently unable to handle the request";
        return Some(status(
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceUnavailable",
            message,
        ));
    }
    let token = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let token = token
        .and_then(|value| value.strip_prefix("Bearer "))
        .unwrap_or_default();
    if !manners.tokens.is_empty() && !manners.tokens.iter().any(|known| known == token) {
        return Some(status(
            StatusCode::UNAUTHORIZED,
            "Unauthorized",
            "Unauthorized",
        ));
    }
    if manners.forbidden.contains(rule) {
        let (verb, resource) = rule.split_once(' ').unwrap_or((rule, ""));
        let name = uri.path().split('/').rev().nth(1).unwrap_or_default();
        let group = if resource == "pods" { "" } else { "apps" };
        let message = format!(
            "{resource} \"{name}\" is forbidden: User \"{ACCOUNT}\" cannot {verb} resource \"{resource}\" in API group \"{group}\" in the namespace \"{NAMESPACE}\""
        );
        return Some(status(StatusCode::FORBIDDEN, "Forbidden", &message));
    }
    None
}

async fn version(
    State(shared): State<Shared>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let refused = enter(&shared, &method, &uri, &headers, "get version");
    refused.unwrap_or_else(|| found(&json!({"major": "1", "minor": "33", "gitVersion": "v1.33.2"})))
}

/// The object, group and resource of a path.
type ScalePath = Path<(String, String, String, String)>;

/// The API group of a resource.
fn group_of(resource: &str) -> &'static str {
    match resource {
        "leaderworkersets" => "leaderworkerset.x-k8s.io",
        _ => "apps",
    }
}

/// Like the real server, omits a number of 0.
fn scale_of(cluster: &Cluster, resource: &str, name: &str) -> Option<Value> {
    let deployment = cluster.deployments.get(name);
    let deployment = deployment.filter(|deployment| deployment.resource == resource)?;
    let spec = match deployment.replicas {
        0 => json!({}),
        replicas => json!({"replicas": replicas}),
    };
    Some(json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": format!("uid-of-{name}"),
            "resourceVersion": deployment.version.to_string(), "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": spec,
        "status": {"replicas": deployment.replicas, "selector": format!("model-pool/deployment={name}")},
    }))
}

/// The resources of the API group, for Helm, which looks up live objects.
async fn resources() -> Response {
    let verbs = json!(["get", "list", "update"]);
    found(
        &json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "apps/v1", "resources": [
        {"name": "deployments", "singularName": "deployment", "namespaced": true, "kind": "Deployment", "verbs": verbs},
        {"name": "deployments/scale", "singularName": "", "namespaced": true, "group": "autoscaling", "version": "v1",
            "kind": "Scale", "verbs": verbs}]}),
    )
}

async fn read_deployment(
    State(shared): State<Shared>,
    Path((namespace, name)): Path<(String, String)>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    if let Some(refused) = enter(&shared, &method, &uri, &headers, "get deployments") {
        return refused;
    }
    let cluster = shared.cluster.lock().unwrap();
    let deployment = cluster.deployments.get(&name);
    let Some(deployment) = deployment.filter(|_| namespace == NAMESPACE) else {
        return not_found("deployments", &name);
    };
    found(&json!({"kind": "Deployment", "apiVersion": "apps/v1",
        "metadata": {"name": name, "namespace": NAMESPACE, "resourceVersion": deployment.version.to_string()},
        "spec": {"replicas": deployment.replicas}}))
}

fn not_found(resource: &str, name: &str) -> Response {
    let message = format!("{resource} \"{name}\" not found");
    status(StatusCode::NOT_FOUND, "NotFound", &message)
}

async fn read_scale(
    State(shared): State<Shared>,
    Path((group, namespace, resource, name)): ScalePath,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let rule = format!("get {resource}/scale");
    if let Some(refused) = enter(&shared, &method, &uri, &headers, &rule) {
        return refused;
    }
    let cluster = shared.cluster.lock().unwrap();
    let is_here = namespace == NAMESPACE && group == group_of(&resource);
    let scale = scale_of(&cluster, &resource, &name).filter(|_| is_here);
    scale.map_or_else(|| not_found(&resource, &name), |scale| found(&scale))
}

async fn write_scale(
    State(shared): State<Shared>,
    Path((group, namespace, resource, name)): ScalePath,
    Query(query): Query<BTreeMap<String, String>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let rule = format!("update {resource}/scale");
    if let Some(refused) = enter(&shared, &method, &uri, &headers, &rule) {
        return refused;
    }
    let Ok(sent) = serde_json::from_slice::<Value>(&body) else {
        return status(
            StatusCode::BAD_REQUEST,
            "BadRequest",
            "the body is not JSON",
        );
    };
    let is_scale = sent["kind"] == "Scale" && sent["apiVersion"] == "autoscaling/v1";
    if !is_scale || sent["metadata"]["name"] != *name {
        let message = "the object provided is unrecognized or has another name than the request";
        return status(StatusCode::BAD_REQUEST, "BadRequest", message);
    }
    let conflicts = {
        let mut manners = shared.manners.lock().unwrap();
        let conflicts = manners.conflicts > 0;
        manners.conflicts = manners.conflicts.saturating_sub(1);
        conflicts
    };
    let response = {
        let mut cluster = shared.cluster.lock().unwrap();
        let is_here = namespace == NAMESPACE && group == group_of(&resource);
        if !is_here || scale_of(&cluster, &resource, &name).is_none() {
            return not_found(&resource, &name);
        }
        if conflicts {
            let version = cluster.next_version();
            cluster.deployments.get_mut(&name).expect("there").version = version;
        }
        let version = cluster.deployments[&name].version.to_string();
        let of = sent["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default();
        if !of.is_empty() && of != version {
            let message = format!(
                "Operation cannot be fulfilled on deployments.apps \"{name}\": the object has been modified; please apply your changes to the latest version and try again"
            );
            return status(StatusCode::CONFLICT, "Conflict", &message);
        }
        let replicas = sent["spec"]["replicas"].as_u64().unwrap_or(0);
        if query.get("dryRun").map(String::as_str) != Some("All") {
            cluster.set_replicas(&name, u32::try_from(replicas).expect("a small number"));
        }
        scale_of(&cluster, &resource, &name).expect("there")
    };
    settle(&shared.cluster);
    if std::mem::take(&mut shared.manners.lock().unwrap().loses_response) {
        let message = "Timeout: request did not complete within requested timeout";
        return status(StatusCode::GATEWAY_TIMEOUT, "Timeout", message);
    }
    found(&response)
}

async fn list_pods(
    State(shared): State<Shared>,
    Path(namespace): Path<String>,
    Query(query): Query<BTreeMap<String, String>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    if let Some(refused) = enter(&shared, &method, &uri, &headers, "list pods") {
        return refused;
    }
    let text = |key: &str| query.get(key).cloned().unwrap_or_default();
    let selector = text("labelSelector");
    let Some((key, value)) = selector.split_once('=') else {
        return status(
            StatusCode::BAD_REQUEST,
            "BadRequest",
            "unable to parse the selector",
        );
    };
    let cluster = shared.cluster.lock().unwrap();
    let labelled = cluster.pods.values().map(|pod| &pod.object);
    let labelled = labelled.filter(|object| {
        object["metadata"]["namespace"] == *namespace && object["metadata"]["labels"][key] == *value
    });
    let all: Vec<Value> = labelled.cloned().collect();
    let page = shared.manners.lock().unwrap().page;
    let page = page.unwrap_or_else(|| text("limit").parse().unwrap_or(usize::MAX));
    let from: usize = text("continue").parse().unwrap_or(0);
    let items: Vec<&Value> = all.iter().skip(from).take(page).collect();
    let mut metadata = json!({"resourceVersion": "4711"});
    if from + items.len() < all.len() {
        metadata["continue"] = json!((from + items.len()).to_string());
    }
    found(&json!({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items}))
}
