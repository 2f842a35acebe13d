//! Tests of `objects.rs` that send no request: which objects a deletion leaves.

use std::path::Path;

use super::*;
use config::Config;
use pool::Time;

/// An address of a later version, whose objects this one cannot delete.
const UNKNOWN: &str = "later://lab";

async fn objects(folder: &Path) -> Arc<Objects> {
    let url = format!("sqlite://{}/state.db", folder.display());
    let store = Arc::new(Store::open(&url).await.expect("a store"));
    let mut config = Config::default();
    config.batch.bucket = Some("s3://lab/files".parse().expect("a folder"));
    let config = LiveConfig::new(config);
    let objects = Objects::new(folder.to_owned(), store, config, Clock::start());
    Arc::new(objects)
}

async fn note(objects: &Objects, name: &str) {
    let object = UnusedObject {
        bucket: UNKNOWN.to_owned(),
        name: name.to_owned(),
    };
    let noted = objects.store.note_object(&object, Time(0)).await;
    noted.expect("noted");
}

/// Returns true if the deletion tried no object.
async fn leaves_all(objects: &Objects, open_batches: &[&str]) -> bool {
    let open = open_batches.iter().map(|id| (*id).to_owned()).collect();
    objects.delete_unused(&open).await
}

#[tokio::test]
async fn a_deletion_leaves_results_of_open_batches_and_uploads_in_progress() {
    let folder = tempfile::tempdir().expect("a folder");
    let objects = objects(folder.path()).await;
    assert!(leaves_all(&objects, &[]).await);
    note(&objects, "batch_1.output").await;
    assert!(leaves_all(&objects, &["batch_1"]).await);
    assert!(!leaves_all(&objects, &["batch_2"]).await);
    note(&objects, "file-1").await;
    objects.in_progress().insert("file-1".to_owned());
    assert!(leaves_all(&objects, &["batch_1"]).await);
    let placed = PlacedObject {
        objects: Arc::clone(&objects),
        object: UnusedObject {
            bucket: UNKNOWN.to_owned(),
            name: "file-1".to_owned(),
        },
    };
    drop(placed);
    assert!(!leaves_all(&objects, &["batch_1"]).await);
}

#[tokio::test]
async fn an_object_that_cannot_be_deleted_stays_noted() {
    let folder = tempfile::tempdir().expect("a folder");
    let objects = objects(folder.path()).await;
    for nth in 0..PAGE + 2 {
        note(&objects, &format!("file-{nth:03}")).await;
    }
    assert!(!leaves_all(&objects, &[]).await);
    let first = UnusedObject {
        bucket: String::new(),
        name: String::new(),
    };
    let noted = objects.store.unused_objects(Time(0), &first, 1_000).await;
    assert_eq!(noted.expect("read").len(), PAGE as usize + 2);
}

#[tokio::test]
async fn new_files_go_to_the_configured_bucket_and_a_file_on_disk_has_no_object() {
    let folder = tempfile::tempdir().expect("a folder");
    let objects = objects(folder.path()).await;
    let target = objects.target().expect("a bucket");
    assert_eq!(target.to_string(), "s3://lab/files");
    let file = StoredFile {
        id: "file-1".to_owned(),
        holder: "key:1".to_owned(),
        purpose: "batch".to_owned(),
        name: "prompts.jsonl".to_owned(),
        stored_as: "file-1".to_owned(),
        bytes: pool::Bytes(1),
        created: Time(0),
        expires: None,
        summary: None,
        bucket: None,
    };
    assert!(objects.read(&file).await.expect("no bucket").is_none());
    assert!(!objects.fetch(&file).await.expect("no bucket"));
    let foreign = StoredFile {
        bucket: Some(UNKNOWN.to_owned()),
        ..file
    };
    let error = objects.read(&foreign).await.expect_err("unknown");
    assert!(error.is_final(), "{error}");
    assert!(error.to_string().contains(UNKNOWN), "{error}");
}
