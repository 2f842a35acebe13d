//! `model-pool check` on files as they break: it names the file, the numbers and what to do, ends with 1 if anything could
//! not work, and neither starts nor writes anything.

mod engines;
mod files;

use std::path::{Path, PathBuf};
use std::process::Command;

use support::root;

/// A folder with a configuration, a copy of a tiny model, and its model file.
struct World {
    folder: tempfile::TempDir,
}

/// Output and status of a check.
struct CheckOutput {
    status: Option<i32>,
    out: String,
    errors: String,
}

impl CheckOutput {
    fn all(&self) -> String {
        format!("{}{}", self.out, self.errors)
    }

    #[track_caller]
    fn has(&self, parts: &[&str]) {
        support::assert_has(&self.all(), parts);
    }

    #[track_caller]
    fn fails_with(&self, parts: &[&str]) {
        self.has(parts);
        assert_eq!(self.status, Some(1), "{}", self.all());
        assert!(!self.out.contains("would run"), "{}", self.out);
    }
}

fn check(folder: &Path, words: &[&str]) -> CheckOutput {
    let output = Command::new(env!("CARGO_BIN_EXE_model-pool"))
        .arg("check")
        .args(words)
        .current_dir(folder)
        .env_remove("HF_HOME")
        .output()
        .unwrap();
    CheckOutput {
        status: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        errors: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl World {
    fn new() -> World {
        let world = World {
            folder: tempfile::tempdir().unwrap(),
        };
        std::fs::create_dir_all(world.path("models")).unwrap();
        std::fs::create_dir_all(world.path("weights/tiny")).unwrap();
        let files = std::fs::read_dir(root().join("demo/models/tiny-chat")).unwrap();
        for file in files.map(Result::unwrap) {
            let copy = world.path("weights/tiny").join(file.file_name());
            std::fs::copy(file.path(), copy).unwrap();
        }
        world.write("model_reference.json", "{}");
        world.config("inventory: {provider: fixed, devices: [{name: gpu0, memory: 1GiB}]}\n");
        world.model("engine_kwargs: {concurrency: 2}");
        world
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        std::fs::write(self.path(path), text).unwrap();
    }

    fn config(&self, more: &str) {
        let paths = "state: {dir: data}\ncatalog: {models_dir: models, model_reference: model_reference.json}\n";
        self.write("pool.yaml", &format!("{paths}{more}"));
    }

    /// The model's file, with this line in `engine_config`.
    fn model(&self, more: &str) {
        self.write(
            "models/tiny.yaml",
            &format!(
                "engine_config:\n  model_id: lab/tiny\n  type: CandleEngine\n  model_path: ../weights/tiny\n  {more}\n"
            ),
        );
    }

    fn weights(&self, file: &str) -> PathBuf {
        self.path("weights/tiny").join(file)
    }

    fn cut(&self, file: &str, bytes: u64) {
        let file = std::fs::File::options()
            .write(true)
            .open(self.weights(file));
        file.unwrap().set_len(bytes).unwrap();
    }

    fn check(&self) -> CheckOutput {
        check(self.folder.path(), &["--config", "pool.yaml"])
    }
}

#[test]
fn a_complete_model_is_listed_with_its_engine_memory_device_and_command() {
    let world = World::new();
    let said = world.check();
    assert_eq!(said.status, Some(0), "{}", said.all());
    said.has(&[
        "devices: gpu0 1.0 GiB; by inventory.provider fixed",
        "model lab/tiny: candle engine, 1 device with ",
        "model lab/tiny: fits on gpu0 of an empty pool",
        "model lab/tiny: would run: model-pool engine --model-dir ",
    ]);
    assert!(!world.path("data").exists(), "nothing is written");
    assert_eq!(said.errors, "");
}

#[test]
fn a_model_that_is_larger_than_every_device_cannot_be_started() {
    let world = World::new();
    world.config("inventory: {provider: fixed, devices: [{name: gpu0, memory: 2MiB}, {name: gpu1, memory: 3MiB}]}\n");
    world.check().fails_with(&[
        "cannot be started: does not fit: it needs ",
        "the largest device can give 2.9 MiB",
        "use a smaller or quantised model",
    ]);
}

#[test]
fn a_missing_engine_is_reported_with_what_to_install() {
    let world = World::new();
    world.config("inventory: {provider: fixed, devices: [{name: gpu0, memory: 4GiB}]}\n");
    world.write(
        "models/tiny.yaml",
        "engine_config: {model_id: lab/tiny, type: VLLMEngine, program: vllm-of-nobody, model_path: ../weights/tiny}\npool_config: {memory_gib: 3}\n",
    );
    let said = world.check();
    assert_eq!(said.status, Some(0), "{}", said.all());
    said.has(&[
        "warning: models/tiny.yaml: line 1: engine_config.program: there is no program `vllm-of-nobody` on the PATH, so loads fail; install vLLM",
        "model lab/tiny: would run: ",
        " vllm-of-nobody serve ",
    ]);
    world.config("inventory: {host_memory: 4GiB}\n");
    world.write(
        "models/tiny.yaml",
        "engine_config: {model_id: lab/tiny, type: TRTLLMEngine, model_path: ../weights/tiny}\npool_config: {memory_gib: 3}\n",
    );
    world
        .check()
        .fails_with(&["cannot be started: TRTLLMEngine requires GPUs"]);
}

#[test]
fn unknown_devices_are_reported_with_the_existing_ones() {
    let world = World::new();
    world.model("engine_kwargs: {concurrency: 2}\npool_config: {devices: {names: [gpu9, gpu0]}}");
    let said = world.check();
    assert_eq!(said.status, Some(0), "{}", said.all());
    said.has(&[
        "warning: models/tiny.yaml: line 6: pool_config.devices.names[0]: no device is called `gpu9`; did you mean `gpu0`?",
    ]);
    world.model("engine_kwargs: {concurrency: 2}\npool_config: {devices: {names: [gpu9]}}");
    world
        .check()
        .fails_with(&["does not fit: pool_config.devices matches none of the devices (gpu0); correct it (models/tiny.yaml: line 6: pool_config.devices)"]);
}

#[test]
fn a_memory_share_refers_to_a_device_the_model_may_use() {
    let world = World::new();
    let devices = "[{name: large, memory: 80GiB, type: NVIDIA A100 80G}, {name: small, memory: 24GiB, type: NVIDIA A10}]";
    world.config(&format!(
        "inventory: {{provider: fixed, headroom: 0%, devices: {devices}}}\nsources: {{offline: true}}\n"
    ));
    std::fs::remove_file(world.path("models/tiny.yaml")).unwrap();
    let file = "tests/fixtures/rayllm/v0.5.0/amazon--LightGPT.yaml";
    let text = std::fs::read_to_string(root().join(file)).unwrap();
    world.write("models/light.yaml", &text);
    let said = world.check();
    assert_eq!(said.status, Some(0), "{}", said.all());
    said.has(&["amazon/LightGPT: would fit on small of an empty pool"]);
}

#[test]
fn missing_or_mismatched_certificate_files_are_reported() {
    let world = World::new();
    let tls = "server: {tls: {cert: cert.pem, key: key.pem}}\n";
    world.config(tls);
    let said = world.check();
    assert_eq!(said.status, Some(1), "{}", said.all());
    said.has(&["server.tls.cert cert.pem cannot be used", "No such file"]);
    let fresh = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (one, other) = (fresh(), fresh());
    world.write("cert.pem", &one.cert.pem());
    world.write("key.pem", &other.signing_key.serialize_pem());
    let said = world.check();
    assert_eq!(said.status, Some(1), "{}", said.all());
    said.has(&["server.tls.key key.pem", "is not the key of cert.pem"]);
    world.write("key.pem", &one.signing_key.serialize_pem());
    assert_eq!(world.check().status, Some(0));
}

#[test]
fn the_models_and_configuration_of_the_repository_pass_the_check() {
    let said = check(root(), &[]);
    assert_eq!(said.status, Some(0), "{}", said.all());
    for model in ["tiny-chat", "tiny-guide", "tiny-helper"] {
        said.has(&[&format!("model {model}: would run: ")]);
    }
    assert!(!said.out.contains("warning"), "{}", said.out);
    // Also from any other folder.
    let (other, models) = (tempfile::tempdir().unwrap(), root().join("config/models"));
    let said = check(other.path(), &[models.to_str().unwrap()]);
    assert_eq!(said.status, Some(0), "{}", said.all());
    said.has(&["model tiny-chat: would run: "]);
}

#[test]
fn changed_keys_are_listed_first_and_all_keys_only_on_request() {
    let world = World::new();
    let found = world.check().out;
    let first = found.lines().next().expect("a line");
    let is_short = first.starts_with("configuration: ") && !found.contains("\"listen\"");
    assert!(is_short && first.contains("\"inventory\":{"), "{found}");
    let words = ["--config", "pool.yaml", "--show-config"];
    let shown = check(world.folder.path(), &words).all();
    let (before, keys) = shown.split_once("keys in force: ").expect("the keys");
    assert!(before.contains("model lab/tiny: would run: "), "{before}");
    assert!(keys.contains("\"listen\": \"127.0.0.1:8080\""), "{keys}");
}

#[test]
fn a_freshly_installed_service_passes_the_check() {
    let system = tempfile::tempdir().unwrap();
    let etc = system.path().join("etc/model-pool");
    std::fs::create_dir_all(etc.join("models")).unwrap();
    let deploy = root().join("deploy");
    for file in std::fs::read_dir(deploy.join("models")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), etc.join("models").join(file.file_name())).unwrap();
    }
    std::fs::copy(
        root().join("model_reference.json"),
        etc.join("model_reference.json"),
    )
    .unwrap();
    let text = std::fs::read_to_string(deploy.join("model-pool.yaml")).unwrap();
    // The same paths, below a folder of this test.
    let below = |path: &str| system.path().join(path).display().to_string();
    let text = text
        .replace("/etc/model-pool", &below("etc/model-pool"))
        .replace("/var/lib/model-pool", &below("var/lib/model-pool"));
    std::fs::write(etc.join("model-pool.yaml"), text).unwrap();
    let config = etc.join("model-pool.yaml");
    let said = check(system.path(), &["--config", config.to_str().unwrap()]);
    assert_eq!(said.status, Some(0), "{}", said.all());
    assert!(!said.all().contains("warning"), "{}", said.all());
    assert!(!system.path().join("var").exists(), "nothing is written");
    // The example in that folder's README works as a model file.
    let readme = std::fs::read_to_string(deploy.join("models/README")).unwrap();
    let example: String = readme
        .lines()
        .skip_while(|line| line.trim() != "engine_config:")
        .take_while(|line| !line.is_empty())
        .map(|line| format!("{}\n", line.strip_prefix("    ").unwrap()))
        .collect();
    std::fs::write(etc.join("models/first.yaml"), example).unwrap();
    let said = check(system.path(), &["--config", config.to_str().unwrap()]);
    assert_eq!(said.status, Some(0), "{}", said.all());
    said.has(&["model HuggingFaceTB/SmolLM2-135M-Instruct: weights from the hub's"]);
}

#[test]
fn paths_with_a_home_folder_are_expanded() {
    let world = World::new();
    let home = world.folder.path().display().to_string();
    world.config("inventory: {provider: fixed, devices: [{name: gpu0, memory: 1GiB}]}\n");
    let text = std::fs::read_to_string(world.path("pool.yaml")).unwrap();
    world.write(
        "pool.yaml",
        &text.replace("models_dir: models", "models_dir: ~/models"),
    );
    world.write(
        "models/tiny.yaml",
        "engine_config: {model_id: lab/tiny, type: CandleEngine, model_path: $HOME/weights/tiny}\n",
    );
    let output = Command::new(env!("CARGO_BIN_EXE_model-pool"))
        .args(["check", "--config", "pool.yaml"])
        .arg("--show-config")
        .current_dir(world.folder.path())
        .env("HOME", &home)
        .output()
        .unwrap();
    let all = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{all}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(all.contains("model lab/tiny: fits on gpu0"), "{all}");
    assert!(!all.contains("\"~/"), "{all}");
}

#[test]
fn the_time_zone_of_the_machine_is_found_in_every_form() {
    let world = World::new();
    for zone in [
        ":/etc/localtime",
        "CET-1CEST,M3.5.0,M10.5.0/3",
        "<+0330>-3:30",
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_model-pool"))
            .args(["check", "--config", "pool.yaml"])
            .current_dir(world.folder.path())
            .env("TZ", zone)
            .output()
            .unwrap();
        let all = String::from_utf8_lossy(&output.stdout);
        assert!(!all.contains("cannot be used"), "{zone}: {all}");
    }
}
