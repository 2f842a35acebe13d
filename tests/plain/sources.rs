//! Downloads from a hub: the files, their location, and failures of hub, network and disk.
//! One file because every test downloads from the same hub, which fails in a different way each time.

mod gguf;
mod peers;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use model_pool::catalog::{Entry, Fetch, Reference, Source};
use model_pool::config::Config;
use model_pool::pool::Remedy;
use model_pool::source::{Progress, Settings, SourceError, Sources};
use serde_json::{Value, json};
use sha2::Digest as _;
use support::hub::{COMMIT, Hub};

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Size of the weights in these tests.
const WEIGHTS: usize = 300_000;

fn weights(seed: usize) -> Vec<u8> {
    (0..WEIGHTS)
        .map(|nth| (nth * 31 + nth / 251 + seed) as u8)
        .collect()
}

struct Lab {
    hub: Hub,
    cache: tempfile::TempDir,
}

impl Lab {
    /// A hub with `lab/model`: weights, a configuration, and unneeded files.
    fn new() -> Lab {
        let hub = Hub::start();
        hub.add(
            "lab/model",
            &[
                ("config.json", b"{}".to_vec()),
                ("model.safetensors", weights(0)),
                ("sub/folder/tokenizer.json", b"{\"a\": 1}".to_vec()),
                ("consolidated.safetensors", weights(1)),
                ("original/consolidated.00.pth", weights(4)),
                ("pytorch_model.bin", weights(2)),
                ("onnx/model.onnx", weights(3)),
                (".gitattributes", b"*".to_vec()),
                ("picture.png", b"png".to_vec()),
            ],
        );
        Lab {
            hub,
            cache: tempfile::tempdir().unwrap(),
        }
    }

    fn settings(&self) -> Settings {
        Settings {
            hub: self.hub.url(),
            offline: false,
            files_at_once: 4,
            models_at_once: 2,
            keep_free: 0,
            pause: Duration::from_millis(1),
        }
    }

    fn wanted_with(&self, engine: Value) -> Fetch {
        let mut config = Config::default();
        config.sources.cache_dir = Some(self.cache.path().to_owned());
        config.state.dir = self.cache.path().join("state");
        let mut of = json!({"model_id": "m", "type": "CandleEngine", "hf_model_id": "lab/model"});
        let own = of.as_object_mut().unwrap();
        own.extend(engine.as_object().unwrap().clone());
        let document = json!({"engine_config": of});
        let read = Entry::from_document(
            &document,
            Source::Registered,
            &config,
            &Reference::default(),
        );
        let (entry, _) = read.unwrap();
        let mut fetch = entry.fetch.expect("its weights are fetched");
        // Independent of the test machine's environment.
        for name in [
            "HF_TOKEN",
            "HUGGING_FACE_HUB_TOKEN",
            "HF_ENDPOINT",
            "HF_TOKEN_PATH",
        ] {
            let secret = serde_json::from_value(json!("")).unwrap();
            fetch.env.entry(name.to_owned()).or_insert(secret);
        }
        fetch
    }

    fn wanted(&self) -> Fetch {
        self.wanted_with(json!({"runtime_env": {"env_vars": {"HF_HOME": "/nowhere"}}}))
    }

    async fn fetch(&self, wanted: &Fetch) -> Result<Arc<Progress>, SourceError> {
        fetch_by(&Sources::new(self.settings()), wanted).await
    }
}

async fn fetch_by(sources: &Sources, wanted: &Fetch) -> Result<Arc<Progress>, SourceError> {
    let progress = Arc::new(Progress::default());
    let patience = Duration::from_secs(30);
    tokio::time::timeout(patience, sources.fetch(wanted, &progress))
        .await
        .expect("it ends")?;
    Ok(progress)
}

/// Paths below a folder, sorted.
fn below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                folders.push(path)
            } else {
                found.push(path.strip_prefix(folder).unwrap().to_owned())
            }
        }
    }
    found.sort();
    found
}

fn incomplete(lab: &Lab) -> Vec<PathBuf> {
    let root = lab.cache.path();
    let is_one = |path: &PathBuf| path.to_string_lossy().ends_with(".incomplete");
    below(root).into_iter().filter(is_one).collect()
}

#[tokio::test]
async fn a_model_is_stored_in_the_hubs_cache_layout_with_one_format_of_its_weights() {
    let lab = Lab::new();
    let wanted = lab.wanted();
    assert!(!wanted.is_here());
    let progress = lab.fetch(&wanted).await.unwrap();
    assert!(wanted.is_here());
    assert_eq!(progress.percent(), Some(100));
    let root = lab.cache.path().join("models--lab--model");
    let snapshot = root.join("snapshots").join(COMMIT);
    assert_eq!(
        below(&snapshot),
        [
            "config.json",
            "model.safetensors",
            "sub/folder/tokenizer.json"
        ]
        .map(PathBuf::from)
    );
    assert_eq!(
        std::fs::read(snapshot.join("model.safetensors")).unwrap(),
        weights(0)
    );
    let link = std::fs::read_link(snapshot.join("sub/folder/tokenizer.json")).unwrap();
    assert!(link.starts_with("../../../../blobs"), "{}", link.display());
    assert_eq!(
        std::fs::read_to_string(root.join("refs/main")).unwrap(),
        COMMIT
    );
    assert_eq!(below(&wanted.folder()), below(&snapshot));
    // Existing files are not requested again.
    let sent = lab.hub.bytes_sent();
    lab.fetch(&wanted).await.unwrap();
    assert_eq!(lab.hub.bytes_sent(), sent);
}

#[tokio::test]
async fn a_broken_connection_is_resumed_at_the_same_byte() {
    let lab = Lab::new();
    lab.hub.behave(|manners| manners.cut_after = Some(40_000));
    lab.fetch(&lab.wanted()).await.unwrap();
    let parts: Vec<usize> = lab
        .hub
        .asked()
        .iter()
        .filter(|request| request.path == "model.safetensors")
        .map(|request| request.from)
        .collect();
    assert!(parts.len() > 5 && parts.is_sorted(), "{parts:?}");
    let all = WEIGHTS + 2 + 8;
    assert_eq!(lab.hub.bytes_sent(), all, "nothing came twice");
    let kept = lab.wanted().folder().join("model.safetensors");
    assert_eq!(std::fs::read(kept).unwrap(), weights(0));
}

#[tokio::test]
async fn a_server_without_range_support_is_read_from_the_beginning() {
    let lab = Lab::new();
    lab.hub.behave(|manners| manners.hold_after = Some(50_000));
    end_midway(&lab).await;
    lab.hub.behave(|manners| {
        manners.hold_after = None;
        manners.no_ranges = true;
    });
    let progress = lab.fetch(&lab.wanted()).await.unwrap();
    assert_eq!(progress.done(), progress.total());
    let kept = lab.wanted().folder().join("model.safetensors");
    assert_eq!(std::fs::read(kept).unwrap(), weights(0));
}

/// Checks the condition every millisecond until it holds.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let looks = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, looks).await;
    assert!(in_time.is_ok(), "waited {PATIENCE:?} in vain for {what}");
}

/// Starts a download and drops it while the hub delays the rest.
async fn end_midway(lab: &Lab) {
    let wanted = lab.wanted();
    let sources = Sources::new(lab.settings());
    let progress = Arc::new(Progress::default());
    let fetching = sources.fetch(&wanted, &progress);
    let midway = async {
        until("40,000 bytes", || progress.came() >= 40_000).await;
    };
    tokio::select! {
        ended = fetching => panic!("it ended: {ended:?}"),
        () = midway => {}
    }
}

#[tokio::test]
async fn an_interrupted_download_never_looks_complete_and_is_resumed_later() {
    let lab = Lab::new();
    lab.hub.behave(|manners| manners.hold_after = Some(50_000));
    end_midway(&lab).await;
    assert!(!lab.wanted().is_here());
    assert!(!lab.wanted().folder().exists());
    let snapshots = lab.cache.path().join("models--lab--model/snapshots");
    assert!(!snapshots.exists());
    // The bytes in flight are still written to the disk.
    until("a part of it on the disk", || !incomplete(&lab).is_empty()).await;
    lab.hub.behave(|manners| manners.hold_after = None);
    let progress = lab.fetch(&lab.wanted()).await.unwrap();
    let from = lab.hub.asked().iter().map(|request| request.from).max();
    assert!(from >= Some(32_000), "{from:?}");
    assert!(progress.came() < WEIGHTS as u64 - 30_000, "{progress:?}");
    assert_eq!(progress.done(), progress.total());
    assert!(lab.wanted().is_here());
    assert_eq!(incomplete(&lab), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn a_file_corrupted_once_is_fetched_again_and_refused_the_second_time() {
    let lab = Lab::new();
    lab.hub
        .behave(|manners| manners.corrupt = Some(("model.safetensors".into(), 1)));
    lab.fetch(&lab.wanted()).await.unwrap();
    let kept = lab.wanted().folder().join("model.safetensors");
    assert_eq!(std::fs::read(kept).unwrap(), weights(0));

    let lab = Lab::new();
    lab.hub
        .behave(|manners| manners.corrupt = Some(("model.safetensors".into(), 9)));
    let error = lab.fetch(&lab.wanted()).await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, SourceError::Mismatch { .. }), "{text}");
    assert!(
        text.contains("model.safetensors") && text.contains("sha256"),
        "{text}"
    );
    assert!(!lab.wanted().is_here());
    let digest = support::hub::hex(&sha2::Sha256::digest(weights(0)));
    let of_it = |path: &PathBuf| path.to_string_lossy().contains(&digest);
    assert!(!incomplete(&lab).iter().any(of_it), "no part of it is kept");
    // Small files have git's digest.
    let lab = Lab::new();
    lab.hub
        .behave(|manners| manners.corrupt = Some(("config.json".into(), 9)));
    let text = lab.fetch(&lab.wanted()).await.unwrap_err().to_string();
    assert!(
        text.contains("config.json") && text.contains("git"),
        "{text}"
    );
}

#[tokio::test]
async fn a_listing_waits_for_a_hub_that_names_a_short_time() {
    let lab = Lab::new();
    let wanted = lab.wanted();
    lab.hub.behave(|manners| {
        manners.busy = 2;
        manners.retry_after = Some(0);
    });
    lab.fetch(&wanted).await.unwrap();
    assert!(wanted.is_here());
    // A longer time is left to the pool.
    let lab = Lab::new();
    lab.hub.behave(|manners| {
        manners.busy = 1;
        manners.retry_after = Some(3600);
    });
    let error = lab.fetch(&lab.wanted()).await.unwrap_err();
    assert!(error.to_string().contains("503"), "{error}");
    assert_eq!(error.remedy(), Remedy::Time);
}

#[tokio::test]
async fn a_busy_hub_is_retried() {
    let lab = Lab::new();
    let wanted = lab.wanted();
    lab.hub.behave(|manners| manners.busy = 1);
    let error = lab.fetch(&wanted).await.unwrap_err();
    assert!(error.to_string().contains("503"), "{error}");
    assert_eq!(error.remedy(), Remedy::Time);
    lab.hub.behave(|manners| manners.cut_after = Some(90_000));
    let sources = Sources::new(lab.settings());
    let progress = Arc::new(Progress::default());
    let mut fetching = std::pin::pin!(sources.fetch(&wanted, &progress));
    tokio::select! {
        ended = &mut fetching => panic!("it ended: {ended:?}"),
        () = async { while progress.came() < 20_000 { tokio::task::yield_now().await } } => {}
    }
    lab.hub.behave(|manners| manners.busy = 2);
    fetching.await.unwrap();
    assert!(wanted.is_here());
}

#[tokio::test]
async fn a_gated_model_is_refused_with_advice_and_opens_with_the_models_own_token() {
    let lab = Lab::new();
    lab.hub
        .behave(|manners| manners.token = Some("hf_right".into()));
    let error = lab.fetch(&lab.wanted()).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("accept its licence") && text.contains("no token"),
        "{text}"
    );
    assert_eq!(error.remedy(), Remedy::Change);
    for name in ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"] {
        let env = |token: &str| json!({"runtime_env": {"env_vars": {name: token}}});
        let wrong = lab.wanted_with(env("hf_wrong-and-secret"));
        let text = lab.fetch(&wrong).await.unwrap_err().to_string();
        assert!(text.contains("a token was sent"), "{text}");
        assert!(!text.contains("secret"), "{text}");
        assert!(!format!("{wrong:?}").contains("secret"));
        let right = lab.wanted_with(env("hf_right"));
        lab.fetch(&right).await.unwrap();
        std::fs::remove_dir_all(lab.cache.path().join("models--lab--model")).unwrap();
    }
}

#[tokio::test]
async fn the_token_is_sent_to_the_hub_and_not_to_a_host_it_redirects_to() {
    let lab = Lab::new();
    lab.hub.behave(|manners| {
        manners.token = Some("hf_right".into());
        manners.redirect = true;
    });
    let wanted = lab.wanted_with(json!({"env": {"HF_TOKEN": "hf_right"}}));
    lab.fetch(&wanted).await.unwrap();
    let requests = lab.hub.asked();
    let moved = |request: &&support::hub::HubRequest| request.host.starts_with("localhost");
    let redirected: Vec<_> = requests.iter().filter(moved).collect();
    assert_eq!(redirected.len(), 1, "{requests:?}");
    assert!(
        redirected
            .iter()
            .all(|request| request.authorization.is_none())
    );
}

#[tokio::test]
async fn missing_models_revisions_and_files_are_reported_differently() {
    let lab = Lab::new();
    let missing = lab.wanted_with(json!({"hf_model_id": "lab/other"}));
    let text = lab.fetch(&missing).await.unwrap_err().to_string();
    assert!(
        text.contains("there is no lab/other") && text.contains("private"),
        "{text}"
    );
    let revision = lab.wanted_with(json!({"revision": "nightly"}));
    let text = lab.fetch(&revision).await.unwrap_err().to_string();
    assert!(text.contains("no revision nightly"), "{text}");
    let mut settings = lab.settings();
    settings.hub = "http://127.0.0.1:9".to_owned();
    let error = fetch_by(&Sources::new(settings), &lab.wanted())
        .await
        .unwrap_err();
    assert!(matches!(error, SourceError::Unreachable { .. }), "{error}");
    assert_eq!(error.remedy(), Remedy::Time);
}

#[tokio::test]
async fn pickles_are_refused_for_engines_that_do_not_read_them_and_fetched_for_others() {
    let lab = Lab::new();
    let files = [
        ("config.json", b"{}".to_vec()),
        ("pytorch_model.bin", weights(0)),
    ];
    lab.hub.add("lab/model", &files);
    let error = lab.fetch(&lab.wanted()).await.unwrap_err();
    assert!(matches!(error, SourceError::Pickle { .. }), "{error}");
    assert!(error.to_string().contains("runs the code in it"), "{error}");
    assert_eq!(lab.hub.bytes_sent(), 0);
    let vllm = lab.wanted_with(json!({"type": "VLLMEngine"}));
    lab.fetch(&vllm).await.unwrap();
    assert!(vllm.folder().join("pytorch_model.bin").exists());
    lab.hub
        .add("lab/model", &[("README.md", b"hello".to_vec())]);
    let error = lab.fetch(&lab.wanted()).await.unwrap_err();
    assert!(error.to_string().contains("README.md"), "{error}");
}

#[tokio::test]
async fn a_full_disk_is_reported_with_numbers_before_any_transfer() {
    let lab = Lab::new();
    let mut settings = lab.settings();
    settings.keep_free = u64::MAX / 2;
    let error = fetch_by(&Sources::new(settings), &lab.wanted())
        .await
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("needs 293.0 KiB more") && text.contains("free"),
        "{text}"
    );
    assert_eq!(lab.hub.bytes_sent(), 0);
}

#[tokio::test]
async fn two_concurrent_fetches_of_one_model_transfer_it_once() {
    let lab = Lab::new();
    lab.hub.behave(|manners| manners.hold_after = Some(60_000));
    let (first, second) = (Sources::new(lab.settings()), Sources::new(lab.settings()));
    let wanted = lab.wanted();
    let both = async { tokio::join!(fetch_by(&first, &wanted), fetch_by(&second, &wanted)) };
    let release = async {
        until("both to ask", || {
            lab.hub.listed() >= 2 && lab.hub.bytes_sent() >= 60_000
        })
        .await;
        lab.hub.behave(|manners| manners.hold_after = None);
    };
    let ((one, other), ()) = tokio::join!(both, release);
    assert_eq!(one.unwrap().percent(), Some(100));
    assert_eq!(other.unwrap().percent(), Some(100));
    assert_eq!(lab.hub.bytes_sent(), WEIGHTS + 2 + 8);
}

#[tokio::test]
async fn offline_a_complete_model_of_another_program_is_used_and_an_incomplete_one_is_not() {
    let lab = Lab::new();
    let mut settings = lab.settings();
    settings.offline = true;
    let sources = Sources::new(settings);
    let wanted = lab.wanted();
    let error = fetch_by(&sources, &wanted).await.unwrap_err();
    assert!(error.to_string().contains("sources.offline"), "{error}");
    let root = lab.cache.path().join("models--lab--model");
    let snapshot = root.join("snapshots").join(COMMIT);
    std::fs::create_dir_all(&snapshot).unwrap();
    std::fs::create_dir_all(root.join("refs")).unwrap();
    std::fs::write(root.join("refs/main"), COMMIT).unwrap();
    std::fs::write(snapshot.join("config.json"), "{}").unwrap();
    let index = json!({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}});
    std::fs::write(
        snapshot.join("model.safetensors.index.json"),
        index.to_string(),
    )
    .unwrap();
    std::fs::write(snapshot.join("model-1.safetensors"), "1").unwrap();
    assert!(
        fetch_by(&sources, &wanted).await.is_err(),
        "a shard is missing"
    );
    std::fs::write(snapshot.join("model-2.safetensors"), "2").unwrap();
    let error = fetch_by(&sources, &wanted).await;
    assert!(error.is_err(), "a tokenizer is missing");
    std::fs::write(snapshot.join("tokenizer.json"), "{}").unwrap();
    fetch_by(&sources, &wanted).await.unwrap();
    assert!(wanted.is_here());
    assert_eq!(lab.hub.listed(), 0);
    // A deleted file is noticed.
    std::fs::remove_file(snapshot.join("model-2.safetensors")).unwrap();
    assert!(!wanted.is_here());
}

#[tokio::test]
async fn a_file_name_that_leaves_the_folder_is_refused_before_any_transfer() {
    for name in [
        "../outside.safetensors",
        "/etc/x.safetensors",
        "a//b.safetensors",
        "a\nb.safetensors",
    ] {
        let lab = Lab::new();
        lab.hub.add("lab/model", &[(name, weights(0))]);
        let error = lab.fetch(&lab.wanted()).await.unwrap_err();
        assert!(matches!(error, SourceError::UnsafeName { .. }), "{error}");
        assert_eq!(lab.hub.bytes_sent(), 0);
    }
}
