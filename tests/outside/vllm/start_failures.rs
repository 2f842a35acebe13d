//! Failing starts of the real engine: the pool recognises each from vLLM's output, and the error contains the remedy.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

use super::rig::*;

/// The demo model with a changed `config.json`.
fn with_config(folder: &Path, change: impl FnOnce(&mut Value)) {
    copy_folder(&demo(), folder);
    let path = folder.join("config.json");
    let text = fs::read_to_string(&path).expect("config.json");
    let mut config: Value = serde_json::from_str(&text).expect("JSON");
    change(&mut config);
    fs::write(&path, config.to_string()).expect("written");
}

fn script(path: &Path, text: &str) {
    fs::write(path, text).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("executable");
}

#[test]
fn each_kind_of_failed_vllm_start_is_classified_by_its_message() {
    let Some(environment) = environment() else {
        return;
    };
    let _alone = alone();
    let home = tempfile::tempdir().expect("a folder");
    let folder = |name: &str| home.path().join(name);
    with_config(&folder("type"), |config| {
        config["model_type"] = json!("nosuch");
        config["architectures"] = json!(["NoSuchForCausalLM"]);
    });
    with_config(&folder("architecture"), |config| {
        config["architectures"] = json!(["NoSuchForCausalLM"]);
    });
    with_config(&folder("quantised"), |config| {
        config["quantization_config"] = json!({"quant_method": "nosuch"});
    });
    with_config(&folder("cut"), |_| {});
    let weights = fs::OpenOptions::new()
        .write(true)
        .open(folder("cut").join("model.safetensors"))
        .expect("its weights");
    weights.set_len(400_000).expect("cut off");
    with_config(&folder("renamed"), |_| {});
    fs::rename(
        folder("renamed").join("model.safetensors"),
        folder("renamed").join("weights.bak"),
    )
    .expect("renamed");
    let vllm = environment.join("bin/vllm").display().to_string();
    let python = environment.join("bin/python").display().to_string();
    // Occupies the port assigned to vLLM.
    script(
        &folder("takes_the_port"),
        &format!(
            "#!{python}\nimport os, socket, sys\nport = int(sys.argv[sys.argv.index('--port') + 1])\nkept = socket.socket()\nkept.bind(('127.0.0.1', port))\nkept.listen()\nos.set_inheritable(kept.fileno(), True)\nos.execv({vllm:?}, [{vllm:?}, *sys.argv[1:]])\n"
        ),
    );
    // Processor time limit after which the kernel kills the process.
    script(
        &folder("limited"),
        &format!("#!/bin/sh\nulimit -t 3\nexec {vllm} \"$@\"\n"),
    );
    let demo = demo();
    struct Case<'a> {
        name: &'a str,
        folder: std::path::PathBuf,
        program: Option<&'a str>,
        context: u32,
        kwargs: &'a str,
        /// The beginning of the reason, and its cause and remedy.
        kind: &'a str,
        says: &'a [&'a str],
    }
    let case = |name, kind, says| Case {
        name,
        folder: demo.clone(),
        program: None,
        context: 512,
        kwargs: "",
        kind,
        says,
    };
    let cases = [
        Case {
            folder: folder("type"),
            ..case("type", "unknown architecture", &["nosuch", "newer"])
        },
        Case {
            folder: folder("architecture"),
            ..case(
                "architecture",
                "unknown architecture",
                &["NoSuchForCausalLM", "newer"],
            )
        },
        Case {
            folder: folder("quantised"),
            ..case("quantised", "quantisation not supported", &["nosuch"])
        },
        Case {
            // Detected by the pool, which does not start an engine.
            folder: folder("cut"),
            ..case("cut", "its weights are damaged", &["cut off", "missing"])
        },
        Case {
            folder: folder("renamed"),
            ..case("renamed", "model missing", &["weights", "model_path"])
        },
        Case {
            context: 4096,
            ..case("context", "wrong arguments", &["512", "max_total_tokens"])
        },
        Case {
            kwargs: "kv_cache_memory_bytes: 1000",
            ..case("cache", "out of memory", &["max_total_tokens"])
        },
        Case {
            // A flag of the next vLLM version.
            kwargs: "sleep_mode_backend: torch_memory_saver",
            ..case(
                "flag",
                "wrong arguments",
                &["--sleep-mode-backend", "version"],
            )
        },
        Case {
            program: Some("takes_the_port"),
            ..case("port", "port taken", &["in use"])
        },
        Case {
            program: Some("limited"),
            ..case("limited", "crashed", &["signal"])
        },
    ];
    let files: Vec<(String, String)> = cases
        .iter()
        .map(|case| {
            let model = RealModel {
                program: case.program.map(folder),
                context: case.context,
                kwargs: case.kwargs,
                ..RealModel::new(&environment, case.name, &case.folder)
            };
            model.file()
        })
        .collect();
    let pool = pool(&files);
    let mut wrong = Vec::new();
    for case in &cases {
        let reason = failed_load(&pool, case.name);
        println!("{}: {reason}\n", case.name);
        let is_right = reason.starts_with(&format!("{}:", case.kind))
            && case.says.iter().all(|word| reason.contains(word));
        if !is_right {
            wrong.push(format!(
                "{}, {} with {:?}: {reason}",
                case.name, case.kind, case.says
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
