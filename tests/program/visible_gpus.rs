//! `CUDA_VISIBLE_DEVICES` has the same effect on `check`, `serve` and `node`, each started as the program on a machine with four
//! GPUs, of which the last is cut into two MIG slices.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use support::child::ChildGuard;
use support::machine::Machine;
use support::service::{Pool, wait_for};

const GPUS: &str = "\
driver version=580.95 generation=1
gpu total=85899345920 reserved=0 name=NVIDIA_H100 uuid=GPU-aaaaaaaa
gpu total=85899345920 reserved=0 name=NVIDIA_H100 uuid=GPU-bbbbbbbb
gpu total=85899345920 reserved=0 name=NVIDIA_H100 uuid=GPU-cccccccc
gpu total=85899345920 reserved=0 name=NVIDIA_H100 uuid=GPU-dddddddd mig
gpu total=42949672960 reserved=0 mig_of=3 name=NVIDIA_H100_MIG_3g.40gb uuid=MIG-11111111
gpu total=42949672960 reserved=0 mig_of=3 name=NVIDIA_H100_MIG_3g.40gb uuid=MIG-22222222
";

/// The devices in use, or the output of a program that refuses to start.
type Seen = Result<Vec<String>, String>;

/// A machine under one value of the variable.
struct Lent<'a> {
    machine: &'a Machine,
    value: &'a str,
    inventory: &'a str,
}

impl Lent<'_> {
    fn env(&self) -> Vec<(String, String)> {
        let library = self.machine.library().display().to_string();
        let both = [
            ("MODEL_POOL_NVML_LIBRARY", library.as_str()),
            ("CUDA_VISIBLE_DEVICES", self.value),
        ];
        let owned = both.map(|(name, value)| (name.to_owned(), value.to_owned()));
        owned.to_vec()
    }

    /// Starts a command of the program in `folder`, with a configuration and its output in the file `log`.
    fn start(&self, folder: &Path, config: &str, words: &[&str]) -> ChildGuard {
        let listen = "server: {listen: \"127.0.0.1:0\"}\n";
        let text = format!(
            "{listen}state: {{dir: {:?}}}\n{config}{}",
            folder.join("data"),
            self.inventory
        );
        fs::write(folder.join("config.yaml"), text).unwrap();
        let log = fs::File::create(folder.join("log")).unwrap();
        let child: Child = Command::new(env!("CARGO_BIN_EXE_model-pool"))
            .args(words)
            .args(["--config".as_ref(), folder.join("config.yaml").as_os_str()])
            .current_dir(folder)
            .envs(self.env())
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        ChildGuard(child)
    }

    /// `model-pool check`: the devices of its second line.
    fn check(&self) -> (Seen, String) {
        let folder = tempfile::tempdir().unwrap();
        let models = "catalog: {models_dir: models}\n";
        fs::create_dir(folder.path().join("models")).unwrap();
        let mut child = self.start(folder.path(), models, &["check"]);
        child.wait().unwrap();
        let output = log(folder.path());
        let line = output
            .lines()
            .find_map(|line| line.strip_prefix("devices: "));
        let names = line.and_then(|line| line.split(';').next()).map(|list| {
            let names = list
                .split(", ")
                .filter_map(|device| device.split(' ').next());
            names.map(str::to_owned).collect()
        });
        (names.ok_or_else(|| output.clone()), output)
    }

    /// `model-pool serve`: the devices of the admin API.
    fn serve(&self) -> (Seen, String) {
        let folder = tempfile::tempdir().unwrap();
        let models = "catalog: {models_dir: models}\n";
        fs::create_dir(folder.path().join("models")).unwrap();
        let mut child = self.start(folder.path(), models, &[]);
        let mut is_refused = false;
        wait_for("serve to listen or to end", || {
            is_refused = child.try_wait().unwrap().is_some();
            is_refused || log(folder.path()).contains("serving http")
        });
        drop(child);
        let output = log(folder.path());
        if is_refused {
            return (Err(output.clone()), output);
        }
        // The configuration and the environment are the same.
        let pool = Pool::with_devices_and_env(&[], self.inventory, self.env());
        (Ok(devices(&pool, None)), output)
    }

    /// `model-pool node`: its devices by the admin API of its controller.
    fn node(&self, controller: &Pool, name: &str) -> (Seen, String) {
        let folder = tempfile::tempdir().unwrap();
        let (status, response) = controller.admin("POST", "/llm/admin/nodes/tokens", &json!({}));
        assert_eq!(status, 200, "{response}");
        let token = folder.path().join("token");
        fs::write(&token, response["token"].as_str().unwrap()).unwrap();
        fs::set_permissions(&token, PermissionsExt::from_mode(0o600)).unwrap();
        let url = format!("http://{}", controller.address());
        let words = [
            "node",
            "--controller",
            &url,
            "--name",
            name,
            "--token-file",
            "token",
            "--data",
            "data",
        ];
        let mut child = self.start(folder.path(), "", &words);
        let mut seen = Vec::new();
        let mut is_refused = false;
        wait_for("the node to join or to end", || {
            is_refused = child.try_wait().unwrap().is_some();
            seen = devices(controller, Some(name));
            is_refused || !seen.is_empty()
        });
        let output = log(folder.path());
        if is_refused {
            return (Err(output.clone()), output);
        }
        (Ok(seen), output)
    }

    /// The results of the three commands, each with its output.
    fn all(&self, controller: &Pool, name: &str) -> [(&'static str, Seen, String); 3] {
        let ((check, first), (serve, second)) = (self.check(), self.serve());
        let (node, third) = self.node(controller, name);
        [
            ("check", check, first),
            ("serve", serve, second),
            ("node", node, third),
        ]
    }
}

fn log(folder: &Path) -> String {
    fs::read_to_string(folder.join("log")).unwrap_or_default()
}

/// The names of a pool's devices, or of the devices of one node without its name.
fn devices(pool: &Pool, node: Option<&str>) -> Vec<String> {
    let (status, response) = pool.admin("GET", "/llm/admin/devices", &Value::Null);
    assert_eq!(status, 200, "{response}");
    let devices = response["devices"].as_array().expect("devices");
    let names = devices
        .iter()
        .filter_map(|device| device["device"].as_str());
    let names = names.filter_map(|name| match node {
        Some(node) => name.strip_prefix(node)?.strip_prefix('/'),
        None => Some(name),
    });
    names.map(str::to_owned).collect()
}

fn machine() -> (tempfile::TempDir, Machine) {
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::new(folder.path());
    machine.set(GPUS);
    (folder, machine)
}

fn controller() -> Pool {
    let small = "inventory: {provider: fixed, devices: [{name: small, memory: 1MiB}]}\n";
    Pool::with_devices(&[], small)
}

#[test]
fn seven_forms_of_the_variable_mean_the_same_to_check_serve_and_node() {
    let (_folder, machine) = machine();
    let controller = controller();
    // The value, the devices, and a part of the output: the GPUs that are left out, or the reason for the refusal.
    let forms: [(&str, Option<&[&str]>, &str); 7] = [
        (
            "1",
            Some(&["gpu1"]),
            "leaves out the GPUs of index 0, 2, 3:0, 3:1",
        ),
        (
            "2,0",
            Some(&["gpu2", "gpu0"]),
            "leaves out the GPUs of index 1, 3:0, 3:1",
        ),
        (
            "GPU-bbbbbbbb",
            Some(&["gpu1"]),
            "leaves out the GPUs of index 0, 2, 3:0, 3:1",
        ),
        (
            "MIG-22222222",
            Some(&["gpu3-mig1"]),
            "leaves out the GPUs of index 0, 1, 2, 3:0",
        ),
        ("", Some(&["host"]), ""),
        ("-1", Some(&["host"]), ""),
        (
            "7",
            None,
            "CUDA_VISIBLE_DEVICES is `7`: `7` is wrong, because no such GPU exists",
        ),
    ];
    for (nth, (value, names, words)) in forms.into_iter().enumerate() {
        let lent = Lent {
            machine: &machine,
            value,
            inventory: "inventory: {provider: auto}\n",
        };
        for (command, seen, output) in lent.all(&controller, &format!("node-{nth}")) {
            match (names, seen) {
                (Some(names), Ok(seen)) => assert_eq!(seen, names, "{command}, {value:?}"),
                (None, Err(_)) => {}
                (_, seen) => panic!("{command}, {value:?}: {seen:?}"),
            }
            assert!(output.contains(words), "{command}, {value:?}: {output}");
        }
    }
}

#[test]
fn configured_devices_that_the_variable_leaves_out_are_used_with_a_warning_by_each_command() {
    let (_folder, machine) = machine();
    let lent = Lent {
        machine: &machine,
        value: "1",
        inventory: "inventory: {provider: nvml, devices: [{name: mine, index: 2, memory: 40GiB}]}\n",
    };
    for (command, seen, output) in lent.all(&controller(), "node-1") {
        assert_eq!(seen.as_deref(), Ok(&["mine".to_owned()][..]), "{command}");
        let warning =
            "inventory.devices takes the GPUs of index 2, which CUDA_VISIBLE_DEVICES leaves out";
        assert!(output.contains(warning), "{command}: {output}");
    }
}
