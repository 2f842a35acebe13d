//! Weights and files of batches in buckets: a real S3 server and a server of Google's storage API, both on this machine. `.ci/buckets` installs the
//! programs; without them these tests report that they were skipped.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::Digest as _;
use support::buckets::{Gcs, KEY, S3, SECRET, Wire};
use support::service::{Pool, wait_for};

const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/models/tiny-chat");
const HASH: &str = "d0bb58b0dd6d2c3a7f9fbdd5a5f6b2a1c0ffee00";

/// The tiny model, and a larger file that is downloaded with it and never loaded.
fn files() -> Vec<(String, Vec<u8>)> {
    let mut files = support::folder::files_of(Path::new(TINY));
    let large = (0..LARGE).map(|nth| (nth * 7 + nth / 4093) as u8).collect();
    files.push(("extra/adapter.safetensors".to_owned(), large));
    files
}

const LARGE: usize = 6_000_000;

fn all_bytes() -> u64 {
    files()
        .iter()
        .map(|(_, content)| content.len() as u64)
        .sum()
}

fn model(mirror: &Value, env: &Value) -> (String, String) {
    let document = json!({
        "engine_config": {
            "model_id": "far", "type": "CandleEngine", "hf_model_id": "lab/far",
            "max_total_tokens": 64, "s3_mirror_config": mirror,
            "runtime_env": {"env_vars": env},
        },
    });
    ("far.json".to_owned(), document.to_string())
}

fn keys(address: &str) -> Value {
    json!({"AWS_ENDPOINT_URL": format!("http://{address}"), "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"})
}

fn pool(files: &[(String, String)], cache: &Path) -> Pool {
    let config =
        format!("sources: {{cache_dir: {cache:?}, keep_free: 1MiB, extra_roots: [{cache:?}]}}\n");
    Pool::with_env(files, &config, &[])
}

fn ask(pool: &Pool) -> (u16, String) {
    let body = json!({"model": "far", "max_tokens": 4,
        "messages": [{"role": "user", "content": "Hello"}]});
    pool.post("/v1/chat/completions", &body.to_string())
}

/// The folder in which engines find the model.
fn fetched(pool: &Pool) -> PathBuf {
    let folder = pool.data().join("weights");
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap());
    let mut links = entries.filter(|entry| entry.path().is_symlink());
    links.next().unwrap().path()
}

fn view(pool: &Pool) -> Value {
    let key = pool.admin_key();
    let (_, text, _) = pool.request("GET", "/llm/admin/models", "", Some(&key));
    let all: Value = serde_json::from_str(&text).unwrap();
    all["models"][0].clone()
}

#[test]
fn a_mirrored_model_is_served_and_a_killed_download_resumes() {
    let Some(s3) = S3::start() else { return };
    for (name, content) in files() {
        s3.put("lab", &format!("models/far/{name}"), &content);
    }
    s3.put("lab", "models/far/hash", format!("{HASH}\n").as_bytes());
    let wire = Wire::to(&s3.address());
    wire.hold_after(LARGE as u64 / 2);
    let cache = tempfile::tempdir().unwrap();
    let mirror = json!({"bucket_uri": "s3://lab/models/far/"});
    let model = model(&mirror, &keys(&wire.address.to_string()));
    let mut pool = pool(&[model], cache.path());
    let body = json!({"model": "far", "stream": true, "max_tokens": 4,
        "messages": [{"role": "user", "content": "Hello"}]});
    let stream = pool.stream("/v1/chat/completions", &body.to_string());
    wait_for("half of it", || {
        view(&pool)["weights"]["fetch"]["percent"].as_u64() > Some(30)
    });
    assert_eq!(view(&pool)["weights"]["from"], "s3://lab/models/far");
    pool.kill();
    drop(stream);
    wire.let_go();
    let before = wire.came();
    pool.restart();
    assert_eq!(view(&pool)["weights"]["here"], json!(false));
    let (status, text) = ask(&pool);
    assert_eq!(status, 200, "{text}");
    let again = wire.came() - before;
    assert!(
        again < all_bytes() - 1_000_000,
        "{again} of {}",
        all_bytes()
    );
    let root = cache.path().join("models--lab--far");
    let snapshot = root.join("snapshots").join(HASH);
    for (name, content) in files() {
        assert_eq!(std::fs::read(snapshot.join(name)).unwrap(), content);
    }
    assert_eq!(
        std::fs::read_to_string(root.join("refs/main")).unwrap(),
        HASH
    );
    // Local weights need no bucket.
    drop(s3);
    pool.kill_and_restart();
    assert_eq!(ask(&pool).0, 200);
}

#[test]
fn a_copy_that_does_not_match_its_digest_is_detected_and_not_kept() {
    let Some(s3) = S3::start() else { return };
    let mut sums = String::new();
    for (name, mut content) in files() {
        let digest = sha2::Sha256::digest(&content);
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        sums.push_str(&format!("{digest}  ./{name}\n"));
        if name == "model.safetensors" {
            let middle = content.len() / 2;
            content[middle] ^= 1;
        }
        s3.put("public", &name, &content);
    }
    s3.put("public", "SHA256SUMS", sums.as_bytes());
    let cache = tempfile::tempdir().unwrap();
    let mirror = json!({"bucket_uri": "s3://public", "s3_sync_args": ["--no-sign-request"]});
    let env = json!({"AWS_ENDPOINT_URL": format!("http://{}", s3.address())});
    let pool = pool(&[model(&mirror, &env)], cache.path());
    let (status, text) = ask(&pool);
    assert_eq!(status, 503, "{text}");
    assert!(
        text.contains("model.safetensors is damaged at the source: expected sha256"),
        "{text}"
    );
    assert_eq!(view(&pool)["weights"]["here"], json!(false));
    // Once complete again, it is accepted although its revision has no name.
    let whole = std::fs::read(Path::new(TINY).join("model.safetensors")).unwrap();
    s3.put("public", "model.safetensors", &whole);
    let key = pool.admin_key();
    let (status, text, _) = pool.request(
        "POST",
        "/llm/admin/load",
        "{\"model\": \"far\"}",
        Some(&key),
    );
    assert_eq!(status, 200, "{text}");
    let state = cache
        .path()
        .join("models--lab--far/snapshots")
        .join("0".repeat(40));
    assert!(state.join("SHA256SUMS").exists());
}

/// Responds to every POST that has the right token with the keys.
fn key_giver(token: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut buffer = vec![0; 4096];
            let count = client.read(&mut buffer).unwrap_or(0);
            let request = String::from_utf8_lossy(&buffer[..count]).to_lowercase();
            let right = request.starts_with("post /keys?user=me")
                && request.contains(&format!("authorization: bearer {token}"));
            let (status, body) = if right {
                (
                    "200 OK",
                    json!({"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}).to_string(),
                )
            } else {
                ("403 Forbidden", "{}".to_owned())
            };
            let _ = write!(
                client,
                "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
        }
    });
    format!("http://{address}/keys?user=me")
}

#[test]
fn bucket_options_read_keys_from_a_url_exclude_files_and_place_extra_ones() {
    let Some(s3) = S3::start() else { return };
    for (name, content) in files() {
        s3.put("lab", &format!("far/{name}"), &content);
    }
    s3.put("lab", "more/deep/list.txt", b"extra");
    let cache = tempfile::tempdir().unwrap();
    let mirror = json!({
        "bucket_uri": "s3://lab/far",
        "s3_sync_args": ["--exclude", "*", "--include", "*.json", "--include=model.safetensors",
            "--quiet", "--endpoint-url", format!("http://{}", s3.address())],
        "s3_aws_credentials": {
            "create_aws_credentials_url": key_giver("right"),
            "auth_token_env_variable": "KEYS_TOKEN",
        },
        "extra_files": [
            {"bucket_uri": "s3://lab/more", "destination_path": cache.path().join("elsewhere")},
        ],
    });
    let pool = pool(
        &[model(&mirror, &json!({"KEYS_TOKEN": "right"}))],
        cache.path(),
    );
    let (status, text) = ask(&pool);
    assert_eq!(status, 200, "{text}");
    let folder = fetched(&pool);
    assert!(folder.join("tokenizer.json").exists());
    assert!(!folder.join("README.md").exists() && !folder.join("extra").exists());
    let extra = cache.path().join("elsewhere/deep/list.txt");
    assert_eq!(std::fs::read(extra).unwrap(), b"extra");
    let log = pool.log();
    assert!(!log.contains(SECRET) && !log.contains("user=me"), "{log}");
}

#[test]
fn bucket_errors_are_reported_without_keys() {
    let Some(s3) = S3::start() else { return };
    s3.put("lab", "far/config.json", b"{}");
    let good = keys(&s3.address());
    let with = |name: &str, value: &str| {
        let mut env = good.clone();
        env[name] = json!(value);
        env
    };
    let far = json!({"bucket_uri": "s3://lab/far"});
    for (mirror, env, words) in [
        (
            &far,
            with("AWS_SECRET_ACCESS_KEY", "wrong-secret"),
            "SignatureDoesNotMatch",
        ),
        (
            &far,
            with("AWS_ACCESS_KEY_ID", "nobody"),
            "InvalidAccessKeyId",
        ),
        (
            &json!({"bucket_uri": "s3://nowhere/far"}),
            good.clone(),
            "NoSuchBucket",
        ),
        (
            &json!({"bucket_uri": "s3://lab/other"}),
            good.clone(),
            "s3://lab/other is empty",
        ),
        (
            &far,
            good.clone(),
            "has no weights that can be loaded; its files: config.json",
        ),
        (
            &far,
            with("AWS_ENDPOINT_URL", "http://127.0.0.1:9"),
            "cannot read",
        ),
    ] {
        let cache = tempfile::tempdir().unwrap();
        let pool = pool(&[model(mirror, &env)], cache.path());
        let (status, text) = ask(&pool);
        assert_eq!(status, 503, "{text}");
        assert!(text.contains(words), "{words}: {text}");
        let log = pool.log();
        assert!(!(text + &log).contains("secret"), "{words}: {log}");
    }
}

#[test]
fn a_model_is_fetched_from_google_cloud_storage() {
    let Some(gcs) = Gcs::start() else { return };
    gcs.make_bucket("lab-models");
    for (name, content) in files() {
        gcs.put("lab-models", &format!("far/{name}"), &content);
    }
    let cache = tempfile::tempdir().unwrap();
    let document = json!({"engine_config": {
        "model_id": "far", "type": "CandleEngine", "hf_model_id": "lab/far", "max_total_tokens": 64,
        "gcs_mirror_config": {"bucket_uri": "gs://lab-models/far"},
        "runtime_env": {"env_vars": {"GOOGLE_BASE_URL": format!("http://{}", gcs.address()),
            "GOOGLE_SKIP_SIGNATURE": "true"}},
    }});
    let pool = pool(
        &[("far.json".to_owned(), document.to_string())],
        cache.path(),
    );
    let (status, text) = ask(&pool);
    assert_eq!(status, 200, "{text}");
    assert_eq!(view(&pool)["weights"]["from"], "gs://lab-models/far");
    let folder = fetched(&pool);
    for (name, content) in files() {
        assert_eq!(std::fs::read(folder.join(name)).unwrap(), content);
    }
}

/// A form with a file of these lines, and its id once it is uploaded.
fn uploaded(pool: &Pool, text: &str) -> String {
    let body = format!(
        "--x\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.jsonl\"\r\n\r\n{text}\r\n--x--\r\n"
    );
    let (status, text, _) = pool.request_as("multipart/form-data; boundary=x", "/v1/files", &body);
    assert_eq!(status, 200, "{text}");
    let file: Value = serde_json::from_str(&text).unwrap();
    file["id"].as_str().unwrap().to_owned()
}

fn content(pool: &Pool, file: &str) -> String {
    let path = format!("/v1/files/{file}/content");
    let (status, text, _) = pool.request("GET", &path, "", None);
    assert_eq!(status, 200, "{text}");
    text
}

#[test]
fn files_of_batches_are_read_from_a_bucket_after_the_folder_is_lost() {
    let Some(s3) = S3::start() else { return };
    // Also creates the bucket.
    s3.put("lab", "batches/other.txt", b"stays");
    let address = format!("http://{}", s3.address());
    let env = [
        ("AWS_ENDPOINT_URL", address.as_str()),
        ("AWS_ACCESS_KEY_ID", KEY),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_REGION", "us-east-1"),
    ];
    let models = [support::stub::model(
        "writer",
        &["--tokens", "2"],
        "memory_gib: 1",
    )];
    let pool = Pool::with_env(&models, "batch: {bucket: 's3://lab/batches'}\n", &env);
    let line = |custom_id: &str, words: &str| {
        let body = json!({"model": "writer", "messages": [{"role": "user", "content": words}]});
        json!({"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body})
            .to_string()
            + "\n"
    };
    let text: String = (0..8).map(|nth| line(&nth.to_string(), "Hello")).collect();
    let file = uploaded(&pool, &text);
    // It is put in several parts.
    let words = "x".repeat(1 << 20);
    let large: String = (0..18).map(|nth| line(&nth.to_string(), &words)).collect();
    let large_file = uploaded(&pool, &large);
    let body = json!({"input_file_id": file, "endpoint": "/v1/chat/completions",
        "completion_window": "24h"});
    let (status, batch) = pool.call(None, "POST", "/v1/batches", &body);
    assert_eq!(status, 200, "{batch}");
    let path = format!("/v1/batches/{}", batch["id"].as_str().unwrap());
    let shown = || pool.call(None, "GET", &path, &Value::Null).1;
    wait_for("the end of the batch", || shown()["status"] == "completed");
    let folder = pool.data().join("files");
    // The pool may be removing a local copy.
    wait_for("the loss of the folder", || {
        let _ = std::fs::remove_dir_all(&folder);
        !folder.exists()
    });
    let output = shown()["output_file_id"].as_str().unwrap().to_owned();
    assert_eq!(content(&pool, &output).lines().count(), 8);
    assert_eq!(content(&pool, &file), text);
    assert!(content(&pool, &large_file) == large);
    let batch = batch["id"].as_str().unwrap();
    let objects = [
        format!("batches/{file}.jsonl"),
        format!("batches/{large_file}.jsonl"),
        format!("batches/{batch}.output.jsonl"),
    ];
    for object in &objects {
        assert!(s3.has("lab", object), "{object}");
    }
    for file in [file, large_file, output] {
        let path = format!("/v1/files/{file}");
        assert_eq!(pool.call(None, "DELETE", &path, &Value::Null).0, 200);
    }
    wait_for("the deletion of the objects", || {
        objects.iter().all(|object| !s3.has("lab", object))
    });
    assert!(s3.has("lab", "batches/other.txt"));
    assert!(!pool.log().contains(SECRET));
}
