//! The CUDA build of `.ci/cuda` on a machine without a GPU: it starts and computes on the processor with only the driver's stub,
//! and the plain program reports what is missing.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use support::child::ChildGuard;
use support::service::{split, wait_for};
use support::{external_programs, net};

fn program() -> Option<PathBuf> {
    let built = support::root().join("target/cuda/model-pool-cuda");
    if built.is_file() {
        return Some(built);
    }
    external_programs::skipped(
        "cuda",
        "target/cuda/model-pool-cuda is missing; bash .ci/cuda",
    );
    None
}

fn stub() -> PathBuf {
    support::root().join("target/cuda-compiler/stub")
}

/// Output of `model-pool check` about the program.
fn check(libraries: &str) -> Option<String> {
    let program = program()?;
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("models")).expect("made");
    let output = Command::new(support::program())
        .arg("check")
        .current_dir(folder.path())
        .env(
            "MODEL_POOL__CATALOG__MODELS_DIR",
            folder.path().join("models"),
        )
        .env("MODEL_POOL__INVENTORY__CUDA_PROGRAM", program)
        .env("LD_LIBRARY_PATH", libraries)
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines();
    let line = lines.find(|line| line.starts_with("embedded engine on GPUs:"));
    Some(line.unwrap_or_else(|| panic!("{text}")).to_owned())
}

fn run(word: &str) -> Option<Output> {
    let output = Command::new(program()?)
        .arg(word)
        .env("LD_LIBRARY_PATH", stub())
        .output();
    Some(output.expect("it starts"))
}

#[test]
fn the_cuda_program_starts_with_its_own_libraries_and_has_the_same_version() {
    let Some(output) = run("version") else {
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(env!("CARGO_PKG_VERSION")), "{text}");
}

/// Status and body of a request, once a server listens.
fn exchange(socket: &Path, request: &str) -> Option<(u16, String)> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response).ok()?;
    let (status, body, _) = split(&response);
    Some((status, body))
}

#[test]
fn the_cuda_program_generates_on_the_cpu_without_a_gpu() {
    let Some(program) = program() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let (socket, log) = (folder.path().join("socket"), folder.path().join("log"));
    let child = Command::new(program)
        .args(["engine", "--device", "cpu", "--model-name", "tiny"])
        .args(["--context", "256", "--concurrency", "1", "--threads", "1"])
        .arg("--model-dir")
        .arg(support::root().join("demo/models/tiny-chat"))
        .arg("--socket")
        .arg(&socket)
        .env("LD_LIBRARY_PATH", stub())
        // The engine ends with the pipe of its controller.
        .stdin(Stdio::piped())
        .stderr(std::fs::File::create(&log).expect("a file"))
        .spawn()
        .expect("it starts");
    let mut engine = ChildGuard(child);
    let printed = || std::fs::read_to_string(&log).unwrap_or_default();
    let close = "Connection: close\r\n";
    let health = net::head("GET", "/health", close);
    wait_for("the model", || {
        let ended = engine.try_wait().expect("its status");
        assert!(ended.is_none(), "{ended:?}: {}", printed());
        exchange(&socket, &health).is_some_and(|(status, _)| status == 200)
    });
    let body = json!({
        "model": "tiny", "max_tokens": 8, "temperature": 0,
        "messages": [{"role": "user", "content": "What is a priority?"}],
    });
    let body = body.to_string();
    let more = format!("Content-Length: {}\r\n{close}", body.len());
    let request = net::head("POST", "/v1/chat/completions", &more) + &body;
    let (status, text) = exchange(&socket, &request).expect("a response");
    assert_eq!(status, 200, "{text}: {}", printed());
    let response: Value = serde_json::from_str(&text).expect("JSON");
    let tokens = response["usage"]["completion_tokens"].as_u64();
    assert!(tokens > Some(0), "{text}");
}

#[test]
fn the_stub_library_of_the_toolkit_is_not_a_driver() {
    let Some(line) = check(&stub().display().to_string()) else {
        return;
    };
    assert!(line.contains("CUDA_ERROR_STUB_LIBRARY"), "{line}");
    assert!(line.contains("remove the folder"), "{line}");
}

#[test]
fn a_missing_driver_library_is_reported_with_advice() {
    let Some(line) = check("") else {
        return;
    };
    let has_driver = line.contains("built for CUDA") || line.contains("CUDA_ERROR");
    let is_named = line.contains("libcuda.so.1 is missing") && line.contains("580 or later");
    assert!(has_driver || is_named, "{line}");
}
