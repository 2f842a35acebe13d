//! Tests of fetching artifacts from a registry on the loopback interface.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::{Progress, Settings, Sources};
use catalog::{GgufFiles, Origin};

mod tokens;

/// A registry that demands a token, records the heads of its requests, and cuts the first response with a long blob.
#[derive(Default)]
struct TestRegistry {
    /// Bodies by path.
    bodies: BTreeMap<String, Vec<u8>>,
    heads: Mutex<Vec<String>>,
    is_cut: std::sync::atomic::AtomicBool,
    needs_token: bool,
    /// The headers of a 401 in place of its usual challenge; `PORT` stands for the port.
    challenges: Option<&'static str>,
    /// Refuses the token of the first request for a blob.
    expires_once: std::sync::atomic::AtomicBool,
    /// Responses of the token server, the last one first: a status and headers. A 200 issues a token, as do all later responses.
    token_refusals: Mutex<Vec<(&'static str, &'static str)>>,
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&sha2::Sha256::digest(bytes)))
}

fn layer(title: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": "application/vnd.cncf.model.weight.v1.raw", "size": bytes.len(),
        "digest": digest(bytes), "annotations": {"org.cncf.model.filepath": title}})
}

impl TestRegistry {
    fn with_files(files: &[(&str, &[u8])]) -> TestRegistry {
        let layers: Vec<Value> = files
            .iter()
            .map(|(name, bytes)| layer(name, bytes))
            .collect();
        let manifest = json!({"schemaVersion": 2, "layers": layers})
            .to_string()
            .into_bytes();
        let blob = |bytes: &[u8]| (format!("/v2/lab/m/blobs/{}", digest(bytes)), bytes.to_vec());
        let mut bodies: BTreeMap<String, Vec<u8>> =
            files.iter().map(|(_, bytes)| blob(bytes)).collect();
        bodies.insert(
            format!("/v2/lab/m/manifests/{}", digest(&manifest)),
            manifest.clone(),
        );
        bodies.insert("/v2/lab/m/manifests/1".to_owned(), manifest);
        TestRegistry {
            bodies,
            ..TestRegistry::default()
        }
    }

    /// Serves until the runtime ends. Returns the port.
    #[expect(
        clippy::disallowed_methods,
        reason = "ends with the runtime of its test"
    )]
    async fn serve(self: &Arc<TestRegistry>) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let registry = Arc::clone(self);
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match socket.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_) => break,
                    }
                }
                let head = String::from_utf8_lossy(&head).to_lowercase();
                let response = registry.response(&head, port);
                registry.heads.lock().expect("no panic").push(head);
                let _ = socket.write_all(&response).await;
                let _ = socket.shutdown().await;
            }
        });
        port
    }

    fn response(&self, head: &str, port: u16) -> Vec<u8> {
        let with = |status: &str, headers: &str, body: &[u8], length: usize| {
            let head = format!(
                "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n"
            );
            [head.as_bytes(), body].concat()
        };
        let whole =
            |status: &str, headers: &str, body: &[u8]| with(status, headers, body, body.len());
        let path = head.split(' ').nth(1).unwrap_or_default();
        if path.starts_with("/token") {
            let refusal = self.token_refusals.lock().expect("no panic").pop();
            if let Some((status, headers)) = refusal.filter(|(status, _)| *status != "200 OK") {
                return whole(status, headers, b"");
            }
            return whole("200 OK", "", br#"{"token":"issued"}"#);
        }
        let is_expired = path.contains("/blobs/")
            && self
                .expires_once
                .swap(false, std::sync::atomic::Ordering::Relaxed);
        let is_allowed = !is_expired && head.contains("authorization: bearer issued")
            || head.contains("authorization: basic")
                && self.challenges.is_some_and(|all| !all.contains("/token"));
        if let Some(challenges) = self.challenges.filter(|_| !is_allowed) {
            let demand = challenges.replace("PORT", &port.to_string());
            return whole("401 Unauthorized", &demand, b"");
        }
        if self.needs_token && !is_allowed {
            let demand = format!(
                "www-authenticate: Bearer realm=\"http://127.0.0.1:{port}/token\",service=\"r\",scope=\"repository:lab/m:pull\"\r\n"
            );
            return whole("401 Unauthorized", &demand, b"");
        }
        let Some(body) = self.bodies.get(path) else {
            return whole("404 Not Found", "", b"");
        };
        let from = head.split("range: bytes=").nth(1);
        let from: Option<usize> = from.and_then(|from| from.split('-').next()?.parse().ok());
        if let Some(from) = from {
            return whole("206 Partial Content", "", &body[from..]);
        }
        let is_long = path.contains("/blobs/") && body.len() > 1000;
        if is_long && !self.is_cut.swap(true, std::sync::atomic::Ordering::Relaxed) {
            return with("200 OK", "", &body[..body.len() / 2], body.len());
        }
        whole("200 OK", "", body)
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().expect("no panic").clone()
    }
}

fn wanted(folder: &Path, port: u16, version: OciVersion, env: &[(&str, &str)]) -> Fetch {
    let env = env.iter().map(|(name, value)| {
        let value = serde_json::from_value(json!(value)).expect("a secret");
        ((*name).to_owned(), value)
    });
    Fetch {
        origin: Origin::Oci(OciReference {
            registry: format!("127.0.0.1:{port}"),
            repository: "lab/m".to_owned(),
            version,
        }),
        id: "lab/m".to_owned(),
        cache: folder.join("cache"),
        notes: folder.join("notes"),
        extra_files: Vec::new(),
        extra_by: None,
        pickles: false,
        consolidated: false,
        gguf: GgufFiles::None,
        env: env.collect(),
    }
}

fn tag() -> OciVersion {
    OciVersion::Tag("1".to_owned())
}

async fn fetch(wanted: &Fetch) -> Result<(), SourceError> {
    let sources = Sources::new(Settings {
        hub: "http://127.0.0.1:9".to_owned(),
        offline: false,
        files_at_once: 2,
        models_at_once: 1,
        keep_free: 0,
        pause: Duration::from_millis(1),
    });
    sources.fetch(wanted, &Arc::new(Progress::default())).await
}

#[tokio::test]
async fn an_artifact_is_fetched_with_a_token_and_resumed_after_a_cut() {
    let weights = vec![7; 5000];
    let config = br#"{"model_type":"llama"}"#;
    let mut registry =
        TestRegistry::with_files(&[("model.safetensors", &weights), ("config.json", config)]);
    registry.needs_token = true;
    let registry = Arc::new(registry);
    let port = registry.serve().await;
    let folder = tempfile::tempdir().expect("a folder");
    let account = [("OCI_USERNAME", "me"), ("OCI_PASSWORD", "secret")];
    let wanted = wanted(folder.path(), port, tag(), &account);
    fetch(&wanted).await.expect("fetched");
    assert!(wanted.is_here());
    let read = |name: &str| std::fs::read(wanted.folder().join(name)).expect(name);
    assert_eq!(
        (read("model.safetensors"), read("config.json")),
        (weights, config.to_vec())
    );
    let heads = registry.heads();
    assert!(
        heads.iter().any(|head| head.contains("range: bytes=2500-")),
        "{heads:?}"
    );
    let to_token = |head: &&String| head.starts_with("get /token");
    let token = heads.iter().find(to_token).expect("a token");
    assert!(
        token.contains("scope=repository%3alab%2fm%3apull")
            && token.contains("authorization: basic")
    );
    let secret = |head: &&String| head.contains("authorization: basic");
    assert!(
        heads
            .iter()
            .filter(secret)
            .all(|head| head.starts_with("get /token"))
    );
    let digests = wanted.manifest().expect("a manifest").files;
    assert!(digests.iter().all(|file| {
        file.digest
            .as_ref()
            .is_some_and(|digest| digest.starts_with("sha256:"))
    }));
}

#[tokio::test]
async fn content_that_does_not_match_its_digest_is_never_published() {
    let mut registry =
        TestRegistry::with_files(&[("model.safetensors", b"right"), ("config.json", b"{}")]);
    let path = format!("/v2/lab/m/blobs/{}", digest(b"right"));
    registry.bodies.insert(path, b"wrong".to_vec());
    let registry = Arc::new(registry);
    let port = registry.serve().await;
    let folder = tempfile::tempdir().expect("a folder");
    let wanted = wanted(folder.path(), port, tag(), &[]);
    fetch(&wanted).await.expect_err("it is refused");
    assert!(!wanted.is_here());
}

#[tokio::test]
async fn a_digest_names_its_manifest_and_refusals_say_what_to_do() {
    let registry =
        TestRegistry::with_files(&[("model.safetensors", b"weights"), ("config.json", b"{}")]);
    let manifest = registry.bodies["/v2/lab/m/manifests/1"].clone();
    let right = digest(&manifest).replace("sha256:", "");
    let mut registry = registry;
    let other = "0".repeat(64);
    registry
        .bodies
        .insert(format!("/v2/lab/m/manifests/sha256:{other}"), manifest);
    let registry = Arc::new(registry);
    let port = registry.serve().await;
    let folder = tempfile::tempdir().expect("a folder");
    let by_digest = wanted(folder.path(), port, OciVersion::Digest(right.clone()), &[]);
    fetch(&by_digest).await.expect("fetched");
    assert_eq!(by_digest.manifest().expect("a manifest").commit, right);
    let forged = wanted(folder.path(), port, OciVersion::Digest(other), &[]);
    let error = fetch(&forged).await.expect_err("it is refused").to_string();
    assert!(error.contains("digest"), "{error}");
    let missing = wanted(folder.path(), port, OciVersion::Tag("2".to_owned()), &[]);
    let error = fetch(&missing)
        .await
        .expect_err("it is refused")
        .to_string();
    assert!(
        error.contains("404") && error.contains("oci_artifact"),
        "{error}"
    );
}

#[test]
fn only_the_registry_for_which_it_is_meant_receives_the_account_of_the_pool() {
    let account = || Some(("me".to_owned(), "secret".to_owned()));
    let registry = "registry.example.org:5000";
    assert_eq!(
        shared_account(account(), Some(registry), registry),
        account()
    );
    for meant in [
        None,
        Some("registry.example.org"),
        Some("other.example.org:5000"),
    ] {
        assert_eq!(
            shared_account(account(), meant, registry),
            None,
            "{meant:?}"
        );
    }
    assert_eq!(shared_account(None, Some(registry), registry), None);
}

/// A registry with a small model, for the folder of a test.
fn small_registry() -> TestRegistry {
    TestRegistry::with_files(&[("model.safetensors", b"weights"), ("config.json", b"{}")])
}

const ACCOUNT: [(&str, &str); 2] = [("OCI_USERNAME", "me"), ("OCI_PASSWORD", "secret")];
