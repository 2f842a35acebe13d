//! Sleep in vLLM's double: its routes exist only where vLLM's do, its memory moves between GPU and host, and the calls of the
//! engine table put it to sleep and wake it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use model_pool::catalog::{Call, Sleep, find_engine};
use serde_json::{Value, json};

use support::child::ChildGuard;
use support::double::vllm_double;
use support::machine::{GIB, Machine};

struct Double {
    child: ChildGuard,
    port: u16,
}

impl Double {
    /// On GPU 0 of the machine, with weights of 8 GiB.
    fn start(machine: &Machine, flags: &[&str], development: bool) -> Double {
        let port = free_port();
        let mut child = Command::new(vllm_double())
            .args([
                "serve",
                "org/m",
                "--port",
                &port.to_string(),
                "--gpu-memory-utilization",
                "0.5",
            ])
            .args(flags)
            .env("MODEL_POOL_FAKE_NVML", machine.state_file())
            .env("CUDA_VISIBLE_DEVICES", "0")
            .env("VLLM_DOUBLE_LOAD_MS", "10")
            .env("VLLM_SERVER_DEV_MODE", if development { "1" } else { "0" })
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the double runs");
        let output = child.stdout.take().expect("its output");
        let mut lines = BufReader::new(output).lines();
        let listens =
            lines.any(|line| line.is_ok_and(|line| line.contains("Starting vLLM server")));
        assert!(listens, "the double ended");
        // Reads its further output to keep the pipe from filling.
        std::thread::spawn(move || lines.for_each(drop));
        Double {
            child: ChildGuard(child),
            port,
        }
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        // It listens shortly after it has printed the line.
        let mut stream = loop {
            match TcpStream::connect(("127.0.0.1", self.port)) {
                Ok(stream) => break stream,
                Err(_) => std::thread::yield_now(),
            }
        };
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .expect("asked");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("a response");
        let status = text.split(' ').nth(1).and_then(|word| word.parse().ok());
        let (_, body) = text.split_once("\r\n\r\n").expect("a body");
        let body = serde_json::from_str(body).unwrap_or_else(|_| json!(body));
        (status.expect("a status"), body)
    }

    fn call(&self, call: &Call) {
        let (status, response) = self.ask(call.method, call.path, call.body.unwrap_or_default());
        assert_eq!(status, 200, "{call:?}: {response}");
    }

    fn chat(&self) -> u16 {
        let body = json!({"model": "org/m", "messages": [{"role": "user", "content": "Hi"}]});
        self.ask("POST", "/v1/chat/completions", &body.to_string())
            .0
    }

    /// Its private host memory in bytes.
    fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))
            .expect("a process");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kib.expect("a figure") << 10
    }
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

fn machine(folder: &tempfile::TempDir) -> Machine {
    Machine::new(folder.path()).gpus(1, "NVIDIA H100 80GB HBM3", 80 * GIB)
}

#[test]
fn weights_wait_in_host_memory_while_asleep_and_return() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = machine(&folder);
    let double = Double::start(&machine, &["--enable-sleep-mode", "--enforce-eager"], true);
    let parking = find_engine("VLLMEngine").and_then(|engine| engine.parks(Sleep::Weights));
    let parking = parking.expect("it sleeps");
    let is_sleeping = || {
        let (_, response) = double.ask("GET", parking.is_sleeping.expect("a route"), "");
        response["is_sleeping"] == json!(true)
    };
    assert_eq!(
        (machine.used(0), double.chat(), is_sleeping()),
        (40 * GIB, 200, false)
    );
    let before = double.resident();
    double.call(&parking.sleep);
    assert!(is_sleeping());
    assert!(
        machine.used(0) <= parking.resident_per_device.0,
        "{}",
        machine.used(0)
    );
    let copy = double.resident() - before;
    assert!(copy >= (8 * GIB / 1024) / 2, "{copy}");
    assert_eq!(double.chat(), 500);
    for call in parking.wake {
        double.call(call);
    }
    assert_eq!(
        (machine.used(0), double.chat(), is_sleeping()),
        (40 * GIB, 200, false)
    );
}

#[test]
fn discarded_weights_are_read_again_before_the_engine_responds() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = machine(&folder);
    let double = Double::start(&machine, &["--enable-sleep-mode", "--enforce-eager"], true);
    let parking = find_engine("VLLMEngine").and_then(|engine| engine.parks(Sleep::Discard));
    let parking = parking.expect("it sleeps");
    double.call(&parking.sleep);
    // Awake, but without its weights.
    double.call(&Call {
        method: "POST",
        path: "/wake_up",
        body: None,
    });
    assert_eq!(double.chat(), 500);
    double.call(&parking.sleep);
    for call in parking.wake {
        double.call(call);
    }
    assert_eq!((machine.used(0), double.chat()), (40 * GIB, 200));
}

#[test]
fn a_sleeping_engine_does_not_wake_if_another_process_took_the_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = machine(&folder);
    let double = Double::start(&machine, &["--enable-sleep-mode", "--enforce-eager"], true);
    double.call(
        &model_pool::catalog::find_engine("VLLMEngine")
            .expect("it")
            .parking[0]
            .sleep,
    );
    machine.foreign(0, 99_999_999, 60 * GIB);
    let (status, response) = double.ask("POST", "/wake_up", "");
    assert_eq!(status, 500);
    assert!(
        response.to_string().contains("CUDA out of memory"),
        "{response}"
    );
}

#[test]
fn without_the_flag_or_the_mode_the_double_cannot_sleep() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = machine(&folder);
    let closed = Double::start(&machine, &["--enable-sleep-mode"], false);
    assert_eq!(closed.ask("POST", "/sleep?level=1", "").0, 404);
    assert_eq!(closed.ask("GET", "/is_sleeping", "").0, 404);
    drop(closed);
    let awake = Double::start(&machine, &[], true);
    assert_eq!(awake.ask("POST", "/sleep?level=1", "").0, 500);
}

#[test]
fn the_doubles_metrics_have_vllms_names() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = machine(&folder);
    let double = Double::start(&machine, &["--served-model-name", "org/m"], false);
    assert_eq!(double.chat(), 200);
    let (status, text) = double.ask("GET", "/metrics", "");
    assert_eq!(status, 200);
    let text = text.as_str().expect("text").to_owned();
    for line in [
        "vllm:num_requests_running{engine=\"0\",model_name=\"org/m\"} 0",
        "vllm:num_requests_waiting{engine=\"0\",model_name=\"org/m\"} 0",
        "vllm:kv_cache_usage_perc{",
        "vllm:gpu_cache_usage_perc{",
        "vllm:generation_tokens_total{engine=\"0\",model_name=\"org/m\"} 5",
    ] {
        assert!(text.contains(line), "{line} is missing in {text}");
    }
}

#[test]
fn a_flag_unknown_to_vllm_exits_with_2() {
    let output = Command::new(vllm_double())
        .args(["serve", "org/m", "--tensor-parallel", "2"])
        .output();
    let output = output.expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    let failure = find_engine("VLLMEngine").and_then(|engine| engine.failure(&words));
    assert!(
        failure.is_some_and(|failure| failure.class.name() == "wrong_flags"),
        "{words}"
    );
}
