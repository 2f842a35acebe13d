//! `model-pool pull`: without a server, next to a running server, stopped and continued, and its errors.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use support::hub::Hub;
use support::servers::dead_url;
use support::service::{Pool, wait_for};
use support::terminal::{Terminal, piped};

use super::{err, out};

const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/models/tiny-chat");
/// The tiny model's weights.
const WEIGHTS: usize = 758_424;

/// A hub, a cache, and a machine without a pool or configuration.
struct Lab {
    hub: Hub,
    folder: tempfile::TempDir,
}

impl Lab {
    fn new() -> Lab {
        let hub = Hub::start();
        hub.add_folder("lab/far", Path::new(TINY));
        Lab {
            hub,
            folder: tempfile::tempdir().expect("a folder"),
        }
    }

    fn cache(&self) -> std::path::PathBuf {
        self.folder.path().join("cache")
    }

    /// For a machine without a configuration: the hub's variables give the hub's address and cache.
    fn env(&self) -> Vec<(String, String)> {
        vec![
            ("HF_ENDPOINT".to_owned(), self.hub.url()),
            (
                "HF_HUB_CACHE".to_owned(),
                self.cache().display().to_string(),
            ),
            (
                "MODEL_POOL__SOURCES__KEEP_FREE".to_owned(),
                "1MiB".to_owned(),
            ),
        ]
    }

    fn pull(&self, words: &[&str]) -> std::process::Output {
        let env = self.env();
        let env: Vec<(&str, &str)> = env
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .collect();
        let mut all = vec!["pull"];
        all.extend(words);
        piped(self.folder.path(), &all, &env, b"")
    }

    /// A pool with the same hub and cache, and the state folder that the pulls use.
    fn pool(&self, files: &[(String, String)]) -> Pool {
        self.hub.pool(&self.cache(), files, "", &[])
    }
}

fn far() -> (String, String) {
    let text = "engine_config: {model_id: far, type: CandleEngine, hf_model_id: lab/far, max_total_tokens: 64}\n";
    ("far.yaml".to_owned(), text.to_owned())
}

#[test]
fn pull_prints_the_location_of_the_model_and_the_next_step() {
    let lab = Lab::new();
    let output = lab.pull(&["lab/far"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let text = out(&output);
    assert!(text.starts_with("Fetched lab/far: "), "{text}");
    let place = lab.cache().join("models--lab--far");
    assert!(text.contains(&place.display().to_string()), "{text}");
    assert!(text.contains("Next: model-pool run lab/far"), "{text}");
    assert!(
        err(&output).contains("lab/far: 100 %") || err(&output).is_empty(),
        "{}",
        err(&output)
    );
    assert!(!text.contains('\x1b') && !err(&output).contains('\x1b'));
    let snapshots = std::fs::read_dir(place.join("snapshots")).expect("snapshots");
    let snapshot = snapshots.flatten().next().expect("one").path();
    let same = |name: &str| {
        let read = |path: &Path| std::fs::read(path.join(name)).expect(name);
        assert_eq!(read(&snapshot), read(Path::new(TINY)), "{name}");
    };
    same("model.safetensors");
    same("tokenizer.json");
    let sent = lab.hub.bytes_sent();
    let output = lab.pull(&["https://huggingface.co/lab/far"]);
    assert!(
        out(&output).starts_with("lab/far is on this machine already"),
        "{}",
        out(&output)
    );
    assert_eq!(lab.hub.bytes_sent(), sent, "nothing is fetched twice");
}

#[test]
fn a_pool_on_the_same_cache_downloads_nothing_after_a_pull() {
    let lab = Lab::new();
    assert_eq!(lab.pull(&["lab/far"]).status.code(), Some(0));
    let sent = lab.hub.bytes_sent();
    let pool = lab.pool(&[far()]);
    let env = [("MODEL_POOL_SERVER", pool.address())];
    let words = ["run", "far", "Hello", "--max-tokens", "4"];
    let output = piped(lab.folder.path(), &words, &env, b"");
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(lab.hub.bytes_sent(), sent);
}

#[test]
fn an_interrupted_pull_resumes() {
    let lab = Lab::new();
    lab.hub
        .behave(|manners| manners.hold_after = Some(WEIGHTS / 2));
    let env = lab.env();
    let env: Vec<(&str, &str)> = env
        .iter()
        .map(|(name, value)| (&**name, &**value))
        .collect();
    let mut terminal = Terminal::start(lab.folder.path(), &["pull", "lab/far"], &env, 80);
    terminal.wait_for(" %, ");
    wait_for("half of it", || lab.hub.bytes_sent() >= WEIGHTS / 2);
    wait_for("half of it on the disk", || {
        let blobs = std::fs::read_dir(lab.cache().join("models--lab--far/blobs"));
        let files = blobs.into_iter().flatten().flatten();
        let sizes = files.filter_map(|file| Some(file.metadata().ok()?.len()));
        sizes.max().unwrap_or(0) >= (WEIGHTS / 3) as u64
    });
    terminal.keys("\x03");
    let (status, shown) = terminal.end();
    assert_eq!(status, Some(130), "{shown}");
    assert!(shown.contains("the same command continues"), "{shown}");
    lab.hub.behave(|manners| manners.hold_after = None);
    let output = lab.pull(&["lab/far"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(
        out(&output).starts_with("Fetched the rest of lab/far: "),
        "{}",
        out(&output)
    );
    let asked = lab.hub.asked();
    let last = asked
        .iter()
        .rfind(|request| request.path.ends_with(".safetensors"));
    assert!(last.expect("the weights").from > 0, "{asked:?}");
}

#[test]
fn a_pull_and_a_running_pool_download_each_file_once() {
    let lab = Lab::new();
    lab.hub
        .behave(|manners| manners.hold_after = Some(WEIGHTS / 2));
    let pool = lab.pool(&[far()]);
    let body = json!({"model": "far", "stream": true, "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]});
    let stream = pool.stream("/v1/chat/completions", &body.to_string());
    wait_for("the pool to fetch", || lab.hub.bytes_sent() >= WEIGHTS / 2);
    let mut pull = Command::new(support::program())
        .args(["pull", "lab/far"])
        .current_dir(lab.folder.path())
        .envs(lab.env())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program");
    // The pull has started once it has also requested the list.
    wait_for("the pull to list the files", || lab.hub.listed() >= 2);
    assert!(
        pull.try_wait().expect("its state").is_none(),
        "it waits for the pool's download"
    );
    lab.hub.behave(|manners| manners.hold_after = None);
    let output = pull.wait_with_output().expect("its end");
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(stream.whole().ends_with("data: [DONE]\n\n"));
    let weights = lab.hub.asked();
    let weights = weights
        .iter()
        .filter(|request| request.path.ends_with(".safetensors"));
    assert_eq!(
        weights.count(),
        1,
        "one process downloads it, the other waits"
    );
}

#[test]
fn a_catalogue_name_is_resolved_to_its_weights() {
    let lab = Lab::new();
    let models = lab.folder.path().join("config/models");
    std::fs::create_dir_all(&models).expect("a folder");
    std::fs::write(models.join("far.yaml"), far().1).expect("written");
    let local =
        format!("engine_config: {{model_id: here, type: CandleEngine, model_path: {TINY:?}}}\n");
    std::fs::write(models.join("here.yaml"), local).expect("written");
    let output = lab.pull(&["far"]);
    assert!(
        out(&output).starts_with("Fetched far: "),
        "{}{}",
        out(&output),
        err(&output)
    );
    let refused = |name: &str, expected: &str| {
        let output = lab.pull(&[name]);
        assert_eq!(output.status.code(), Some(1));
        assert!(err(&output).contains(expected), "{}", err(&output));
    };
    refused("here", "there is nothing to fetch");
    refused("fra", "the closest is far");
}

#[test]
fn a_failed_pull_is_reported_with_its_exit_status() {
    let lab = Lab::new();
    let output = lab.pull(&["lab/nowhere"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        err(&output).contains("there is no lab/nowhere"),
        "{}",
        err(&output)
    );
    lab.hub
        .behave(|manners| manners.token = Some("hf_right".to_owned()));
    let output = lab.pull(&["lab/far"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("HF_TOKEN"), "{}", err(&output));
    let output = lab.pull(&["a b/c"]);
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    let output = lab.pull(&["lab/far", "--config", "none.yaml"]);
    assert_eq!(output.status.code(), Some(2), "{}", err(&output));
    let dead = dead_url();
    let env = [("HF_ENDPOINT", dead.as_str())];
    let output = piped(lab.folder.path(), &["pull", "lab/far"], &env, b"");
    assert_eq!(output.status.code(), Some(3), "{}", err(&output));
    assert!(
        err(&output).contains("cannot be reached"),
        "{}",
        err(&output)
    );
}

#[test]
fn a_suffix_selects_a_quantization_with_all_its_parts() {
    let lab = Lab::new();
    let part = |seed: u8| vec![seed; 3000];
    lab.hub.add(
        "lab/many",
        &[
            ("config.json", b"{}".to_vec()),
            ("Q8_0/m-Q8_0-00001-of-00002.gguf", part(1)),
            ("Q8_0/m-Q8_0-00002-of-00002.gguf", part(2)),
            ("m-Q4_K_M.gguf", part(3)),
            ("m-Q5_0.gguf", part(5)),
            ("mmproj-m-f16.gguf", part(4)),
        ],
    );
    let output = lab.pull(&["lab/many:q8_0"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let mut asked: Vec<String> = lab
        .hub
        .asked()
        .into_iter()
        .map(|request| request.path)
        .collect();
    asked.sort();
    assert_eq!(
        asked,
        [
            "Q8_0/m-Q8_0-00001-of-00002.gguf",
            "Q8_0/m-Q8_0-00002-of-00002.gguf",
            "config.json"
        ]
    );
    for (name, expected) in [
        ("lab/many:Q2_K", "Q4_K_M, Q5_0, Q8_0"),
        ("lab/many", "lab/many:Q4_K_M"),
        ("lab/far:Q4_K_M", "no GGUF file"),
    ] {
        let output = lab.pull(&[name]);
        assert_eq!(output.status.code(), Some(1), "{name}");
        assert!(err(&output).contains(expected), "{name}: {}", err(&output));
    }
    let manifests = std::fs::read_dir(lab.folder.path().join("data/weights")).expect("manifests");
    let mut names = manifests.flatten().map(|entry| entry.path());
    let manifest = names.find(|path| {
        path.extension()
            .is_some_and(|extension| extension == "json")
    });
    let text = std::fs::read(manifest.expect("one")).expect("read");
    let manifest: Value = serde_json::from_slice(&text).expect("JSON");
    let files = manifest["files"].as_array().expect("files");
    let files: Vec<&str> = files
        .iter()
        .filter_map(|file| file["path"].as_str())
        .collect();
    assert!(
        files.contains(&"m-Q8_0-00001-of-00002.gguf"),
        "engines find them in one folder: {files:?}"
    );
}

#[test]
fn the_hub_is_searched_by_words_and_a_wrong_name_gets_suggestions() {
    let lab = Lab::new();
    let gguf = [("m-Q4_K_M.gguf", vec![1_u8; 10])];
    lab.hub.add("lab/Small-Chat-GGUF", &gguf);
    lab.hub.add("other/small-chat", &[]);
    lab.hub.add("other/large", &[]);
    let output = lab.pull(&["--search", "chat", "SMALL"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let text = out(&output);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "lab/Small-Chat-GGUF  19.0k  gguf         text-generation",
            "other/small-chat     16.0k  safetensors  text-generation",
            "Next: model-pool pull lab/Small-Chat-GGUF",
        ]
    );
    assert_eq!(lab.hub.asked().len(), 0, "nothing is fetched");
    let one = lab.pull(&["--search", "small", "--limit", "1"]);
    assert_eq!(out(&one).lines().count(), 2, "{}", out(&one));
    let says = |words: &[&str], status: i32, expected: &str| {
        let output = lab.pull(words);
        assert_eq!(output.status.code(), Some(status), "{words:?}");
        assert!(err(&output).contains(expected), "{}", err(&output));
    };
    says(
        &["--search", "gpt9"],
        1,
        "no model with \"gpt9\" in its name",
    );
    says(
        &["lab/small-chat"],
        1,
        "The hub has: lab/Small-Chat-GGUF, other/small-chat;",
    );
    says(
        &["lab/large-instruct"],
        1,
        "The hub has: other/large; `model-pool pull --search large`",
    );
    says(
        &["small"],
        1,
        "`model-pool pull --search small` looks for it there",
    );
    says(&["lab/far", "--search", "far"], 2, "cannot be used with");
    says(&["--limit", "3"], 2, "required");
    let dead = dead_url();
    let env = [("HF_ENDPOINT", dead.as_str())];
    let output = piped(lab.folder.path(), &["pull", "--search", "x"], &env, b"");
    assert_eq!(output.status.code(), Some(3), "{}", err(&output));
    let env = [("HF_HUB_OFFLINE", "1")];
    let output = piped(lab.folder.path(), &["pull", "--search", "x"], &env, b"");
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    assert!(
        err(&output).contains("network access is off"),
        "{}",
        err(&output)
    );
}
