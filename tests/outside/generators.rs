//! Client generators with the OpenAPI document of the running program: openapi-generator (Python and typescript-fetch),
//! openapi-python-client, openapi-typescript and @hey-api/openapi-ts. Each client is compiled and calls the program.
//! `.ci/generators` installs them; without them the test reports that it was skipped.

use std::fs;
use std::process::Command;

use support::external_programs::skipped;
use support::service::Pool;
use support::stub::model;

use crate::clients::{root, user_key};

#[test]
fn generated_clients_call_chat_embeddings_and_models() {
    let generators = root().join("target/generators");
    if !generators.join("version").exists() {
        let why = format!(
            "there is no {}. Bring it with `bash .ci/generators`, and run `cargo test --test outside generators::`",
            generators.display()
        );
        return skipped("generators", &why);
    }
    let demo = root().join("demo").display().to_string();
    let guide = fs::read_to_string(root().join("config/models/tiny-guide.yaml")).unwrap();
    let guide = guide.replace("../../demo", &demo);
    let files = [
        ("tiny-guide.yaml".to_owned(), guide),
        model("embedder", &["--model", "embedder"], "memory_gib: 0.01"),
    ];
    let config = "inventory: {provider: host, host_memory: 512MiB}\nauth: {inference: key}\n";
    let pool = Pool::with_devices(&files, config);
    let key = user_key(&pool);
    let folder = tempfile::tempdir().unwrap();
    let (status, document, _) = pool.request("GET", "/llm/openapi.json", "", Some(&key));
    assert_eq!(status, 200, "{document}");
    fs::write(folder.path().join("openapi.json"), document).unwrap();
    let done = Command::new(generators.join("venv/bin/python"))
        .arg(root().join("tests/clients/generators/generate.py"))
        .arg(&generators)
        .current_dir(folder.path())
        .env("MODEL_POOL_URL", format!("http://{}", pool.address()))
        .env("MODEL_POOL_KEY", &key)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    let errors = String::from_utf8_lossy(&done.stderr);
    println!("{text}");
    assert!(
        text.trim_end().ends_with("5 passed, 0 failed"),
        "{text}\n{errors}"
    );
}
