//! The state on a disk that fills up and is freed again: acknowledged changes hold, changes that cannot be stored are refused with
//! an error that says what to free, models are served in the meantime, and the service recovers automatically. The disk is a small
//! tmpfs; where none can be mounted (no root), the tests report that and end.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use model_pool::catalog::{Entry, Fetch, Reference, Source};
use model_pool::config::Config;
use model_pool::source::{Progress, Settings, SourceError, Sources};
use serde_json::Value;
use support::external_programs::skipped;
use support::family::{asks, chat, reasons, shown, stub};
use support::hub::Hub;
use support::service::{Pool, wait_for};

/// A small separate disk, removed with the test.
struct Disk(tempfile::TempDir);

impl Disk {
    fn new(size: &str) -> Option<Disk> {
        let folder = tempfile::tempdir().unwrap();
        let size = format!("size={size},mode=0700");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(folder.path())
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(Disk(folder)),
            other => {
                let why = format!("a tmpfs cannot be mounted here, run as root: {other:?}");
                skipped("tmpfs", &why);
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Fills it completely.
    fn fill(&self) {
        let mut file = fs::File::create(self.path().join("filler")).unwrap();
        for size in [1 << 16, 1 << 12, 1] {
            while file.write_all(&vec![b'x'; size]).is_ok() {}
        }
    }

    fn free(&self) {
        fs::remove_file(self.path().join("filler")).unwrap();
    }

    fn remount(&self, how: &str) {
        let status = Command::new("mount")
            .args(["-o", &format!("remount,{how}")])
            .arg(self.path())
            .status();
        assert!(status.unwrap().success(), "remount {how}");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

fn metric(pool: &Pool, name: &str) -> f64 {
    let (_, text, _) = pool.request("GET", "/metrics", "", None);
    let line = text
        .lines()
        .find(|line| line.starts_with(&format!("{name} ")));
    let line = line.unwrap_or_else(|| panic!("no {name} in {text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn revoke(pool: &Pool, key: &Value) -> (u16, Value) {
    let path = format!("/llm/admin/keys?id={}", key["id"].as_str().unwrap());
    pool.admin_text("DELETE", &path, "")
}

/// A request whose load cannot be written into the history: twice, because the next transaction then follows a transaction that
/// SQLite has rolled back.
fn history_is_lost(pool: &Pool, model: &str) {
    for _ in 0..2 {
        let (status, text) = asks(pool, model);
        assert!(status == 200 || status == 503, "{status} {text}");
    }
    wait_for("the disk's trouble to be noticed", || pool.ready().0 == 503);
}

#[test]
fn acknowledged_changes_survive_a_full_disk() {
    let _alone = super::ALONE.blocking_lock();
    let Some(disk) = Disk::new("12m") else { return };
    let talk = ["--tokens", "400", "--token-ms", "20"];
    let models = [
        stub("a", &[]),
        stub("b", &talk),
        stub("c", &[]),
        stub("cold", &[]),
    ];
    let mut pool = Pool::on_disk(&models, "pool: {keep_hot: 5m}\n", disk.path());
    let old = pool.new_key("old").1;
    assert!(pool.accepts(&old));
    assert_eq!(pool.set_priority("a", 1).0, 200);
    assert_eq!(asks(&pool, "a").0, 200);
    let stream = pool.stream("/v1/chat/completions", &chat("b", true));
    wait_for("the first chunk", || stream.text().contains("data: "));

    disk.fill();
    history_is_lost(&pool, "c");
    // Administrators' orders are refused with advice on what to free; none has an effect.
    let (status, refused) = pool.new_key("lost");
    assert_eq!(status, 503, "{refused}");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("free 16.0 MiB there"), "{message}");
    assert!(
        !message.contains(disk.path().to_str().unwrap()),
        "{message}"
    );
    assert_eq!(revoke(&pool, &old).0, 503);
    assert!(pool.accepts(&old), "it was not revoked");
    let (_, text) = pool.set_priority("a", 2);
    assert_eq!(text["error"]["code"], "not_saved", "{text}");
    assert_eq!(shown(&pool, "a")["priority"], 1);
    let (_, why) = pool.ready();
    assert!(why.contains("free of 12.0 MiB"), "{why}");
    assert!(metric(&pool, "model_pool_store_writable") < 0.5);
    // Models are served, and the stream continues.
    for _ in 0..20 {
        assert_eq!(asks(&pool, "a").0, 200);
    }
    assert!(stream.whole().contains("[DONE]"), "{}", stream.text());
    // Space for the record of a new engine is reserved.
    let (status, text) = asks(&pool, "cold");
    assert_eq!(status, 200, "{text}");

    disk.free();
    wait_for("it to recover automatically", || pool.ready().0 == 200);
    assert!(metric(&pool, "model_pool_store_writable") > 0.5);
    let log = pool.log();
    assert_eq!(
        log.matches("the state cannot be written").count(),
        1,
        "{log}"
    );
    assert_eq!(
        log.matches("the state can be written again").count(),
        1,
        "{log}"
    );
    let (status, new) = pool.new_key("new");
    assert_eq!(status, 200, "{new}");
    assert!(pool.accepts(&new), "a key that was given out works");
    assert_eq!(revoke(&pool, &old).0, 200);
    assert!(!pool.accepts(&old), "a key that is revoked does not");
    assert_eq!(pool.set_priority("a", 2).0, 200);
    // Refusals while the disk was full are in the history, because they were kept in memory.
    wait_for("the history", || !reasons(&pool, "set").is_empty());

    pool.kill_and_restart();
    assert!(pool.accepts(&new));
    assert!(!pool.accepts(&old));
    assert_eq!(shown(&pool, "a")["priority"], 2);
    assert_eq!(asks(&pool, "a").0, 200);
}

#[test]
fn a_repeatedly_full_disk_loses_no_acknowledged_change() {
    let _alone = super::ALONE.blocking_lock();
    let Some(disk) = Disk::new("12m") else { return };
    let models: Vec<_> = (0..6).map(|nth| stub(&format!("m{nth}"), &[])).collect();
    let mut pool = Pool::on_disk(&models, "", disk.path());
    let mut keys = Vec::new();
    for turn in 0..6 {
        let (status, key) = pool.new_key(&format!("k{turn}"));
        assert_eq!(status, 200, "{key}");
        keys.push(key);
        disk.fill();
        history_is_lost(&pool, &format!("m{turn}"));
        assert_eq!(pool.new_key("refused").0, 503);
        if turn % 2 == 0 {
            // Killed with a full disk; a start needs no free space.
            pool.kill();
            disk.free();
            pool.restart();
        } else {
            disk.free();
            wait_for("it to go on", || pool.ready().0 == 200);
        }
        assert!(keys.iter().all(|key| pool.accepts(key)), "turn {turn}");
    }
    let (_, all) = pool.admin_text("GET", "/llm/admin/keys", "");
    assert!(!all.to_string().contains("refused"), "{all}");
}

#[test]
fn on_a_full_disk_the_pool_starts_and_serves_loaded_models() {
    let _alone = super::ALONE.blocking_lock();
    let Some(disk) = Disk::new("12m") else { return };
    let mut pool = Pool::on_disk(&[stub("a", &["--stderr", "words"])], "", disk.path());
    assert_eq!(pool.set_priority("a", 1).0, 200);
    pool.kill();
    disk.fill();
    pool.restart();
    assert_eq!(shown(&pool, "a")["priority"], 1);
    assert_eq!(pool.set_priority("a", 2).0, 503);
    // The journal of a new engine cannot be written: the error says so, and disappears when the disk has space again.
    let (status, text) = asks(&pool, "a");
    assert!(status == 200 || text.contains("space"), "{status} {text}");
    disk.free();
    wait_for("it to go on", || asks(&pool, "a").0 == 200);
    assert_eq!(pool.set_priority("a", 2).0, 200);
}

#[test]
fn a_read_only_disk_is_reported_at_the_start_and_loses_nothing() {
    let _alone = super::ALONE.blocking_lock();
    let Some(disk) = Disk::new("12m") else { return };
    let mut pool = Pool::on_disk(&[stub("a", &[])], "", disk.path());
    assert_eq!(pool.set_priority("a", 1).0, 200);
    pool.kill();
    disk.remount("ro");
    let refused = Command::new(env!("CARGO_BIN_EXE_model-pool"))
        .arg("--config")
        .arg(pool.folder().join("config.yaml"))
        .output();
    let text = String::from_utf8(refused.unwrap().stderr).unwrap();
    assert!(text.contains("Read-only file system"), "{text}");
    assert!(text.contains("writable"), "what to do: {text}");
    disk.remount("rw");
    pool.restart();
    assert_eq!(shown(&pool, "a")["priority"], 1);
}

const WEIGHTS: usize = 1 << 20;

/// The bytes on disk of the largest file in a folder and its subfolders.
fn largest_below(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.path() {
        path if path.is_dir() => largest_below(&path),
        path => std::fs::metadata(path).map_or(0, |about| about.blocks() * 512),
    });
    sizes.max().unwrap_or(0)
}

fn wanted(cache: &Path) -> Fetch {
    let mut config = Config::default();
    config.sources.cache_dir = Some(cache.join("cache"));
    config.state.dir = cache.join("state");
    let document = serde_json::json!({"engine_config":
        {"model_id": "m", "type": "CandleEngine", "hf_model_id": "lab/model"}});
    let reference = Reference::default();
    let read = Entry::from_document(&document, Source::Registered, &config, &reference);
    read.unwrap().0.fetch.expect("its weights are fetched")
}

#[tokio::test]
async fn a_download_to_a_disk_that_fills_up_reports_the_needed_space_and_resumes() {
    let _alone = super::ALONE.lock().await;
    let Some(disk) = Disk::new("12m") else { return };
    let hub = Hub::start();
    let weights = vec![7; WEIGHTS];
    let files = [
        ("config.json", b"{}".to_vec()),
        ("model.safetensors", weights),
    ];
    hub.add("lab/model", &files);
    hub.behave(|manners| manners.hold_after = Some(WEIGHTS / 2));
    let sources = Sources::new(Settings {
        hub: hub.url(),
        offline: false,
        files_at_once: 1,
        models_at_once: 1,
        keep_free: 0,
        pause: Duration::from_millis(1),
    });
    let (fetch, progress) = (wanted(disk.path()), Arc::new(Progress::default()));
    let fills = async {
        // Bytes that were sent may still be on their way to the disk.
        while hub.bytes_sent() < WEIGHTS / 2 || largest_below(disk.path()) < WEIGHTS as u64 / 4 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        disk.fill();
        hub.behave(|manners| manners.hold_after = None);
    };
    let both = async { tokio::join!(sources.fetch(&fetch, &progress), fills).0 };
    let patience = Duration::from_secs(60);
    let error = tokio::time::timeout(patience, both).await.unwrap();
    let error = error.expect_err("the disk is full");
    assert!(matches!(error, SourceError::NoRoom { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("make room"), "{text}");
    let sent = hub.bytes_sent();

    disk.free();
    let again = sources.fetch(&fetch, &progress);
    tokio::time::timeout(patience, again)
        .await
        .unwrap()
        .unwrap();
    let more = hub.bytes_sent() - sent;
    assert!(more < WEIGHTS, "{more} bytes came again");
}
