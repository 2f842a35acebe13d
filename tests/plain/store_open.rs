//! Opening the store: an unusable file is refused with an error that names it, and is not changed.

use std::path::Path;

use model_pool::pool::{DeviceId, Time};
use model_pool::pool::{Record, RecordKind};
use model_pool::store::{Store, StoreError};
use serde_json::json;
use sqlx::Connection;

fn url(folder: &Path) -> String {
    format!("sqlite://{}/deep/state.db", folder.display())
}

fn record(at: u64) -> Record {
    Record::new(
        Time(at),
        RecordKind::Load,
        Some("org/a".into()),
        "1 waiting".into(),
    )
}

fn gpu(device: DeviceId) -> String {
    format!("gpu{}", device.0)
}

async fn raw(folder: &Path) -> sqlx::SqliteConnection {
    sqlx::SqliteConnection::connect(&url(folder)).await.unwrap()
}

#[tokio::test]
async fn a_second_opener_is_refused_with_the_process_that_holds_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&url(folder.path())).await.unwrap();
    let refused = Store::open(&url(folder.path())).await.unwrap_err();
    assert!(matches!(refused, StoreError::InUse { .. }), "{refused}");
    let words = refused.to_string();
    assert!(
        words.contains("state.db") && words.contains(&format!("(process {})", std::process::id())),
        "{words}"
    );
    drop(store);
    Store::open(&url(folder.path()))
        .await
        .expect("the lock ended with its holder");
}

#[tokio::test]
async fn a_file_that_is_not_a_database_is_refused_by_name_and_stays_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("deep/state.db");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    for content in [
        "models: []\n",
        "these are more than sixteen bytes of something else",
    ] {
        std::fs::write(&file, content).unwrap();
        let refused = Store::open(&url(folder.path())).await.unwrap_err();
        assert!(
            matches!(refused, StoreError::NotADatabase { .. }),
            "{refused}"
        );
        assert!(
            refused
                .to_string()
                .contains("deep/state.db is not a SQLite database"),
            "{refused}"
        );
        assert_eq!(std::fs::read_to_string(&file).unwrap(), content);
    }
}

#[tokio::test]
async fn a_damaged_database_is_refused_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&url(folder.path())).await.unwrap();
    let records: Vec<Record> = (1..=500).map(record).collect();
    store.append(&records, &gpu).await.unwrap();
    store.close().await;
    let file = store.path().unwrap().to_path_buf();
    drop(store);
    let whole = std::fs::read(&file).unwrap();
    let mut overwritten = whole.clone();
    overwritten[4096 * 12..].fill(0x5a);
    for damaged in [&overwritten[..], &whole[..whole.len() / 2], &whole[..100]] {
        std::fs::write(&file, damaged).unwrap();
        let refused = Store::open(&url(folder.path())).await.unwrap_err();
        assert!(
            matches!(
                refused,
                StoreError::Damaged { .. } | StoreError::NotADatabase { .. }
            ),
            "{refused:?}"
        );
        assert!(refused.to_string().contains("deep/state.db"), "{refused}");
    }
    std::fs::write(&file, whole).unwrap();
    Store::open(&url(folder.path()))
        .await
        .expect("the complete file is valid again");
}

#[tokio::test]
async fn a_newer_sqlite_schema_is_refused_with_both_numbers_and_stays_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    drop(Store::open(&url(folder.path())).await.unwrap());
    let mut connection = raw(folder.path()).await;
    sqlx::query("INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES (9001, 'later', 1, x'00', 0)")
        .execute(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
    let refused = Store::open(&url(folder.path())).await.unwrap_err();
    let migrations = std::fs::read_dir("migrations").unwrap().flatten();
    let migrations = migrations.filter(|entry| entry.path().extension() == Some("sql".as_ref()));
    let newest = migrations.count() as i64;
    assert!(
        matches!(refused, StoreError::Newer { found: 9001, known, .. } if known == newest),
        "{refused}"
    );
    assert!(
        refused
            .to_string()
            .contains("deep/state.db has schema 9001"),
        "{refused}"
    );
}

#[tokio::test]
async fn rows_corrupted_by_another_program_are_reported_by_table_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&url(folder.path())).await.unwrap();
    store.save_registration("org/a", &json!({})).await.unwrap();
    let mut connection = raw(folder.path()).await;
    sqlx::query("UPDATE registrations SET document = '{'")
        .execute(&mut connection)
        .await
        .unwrap();
    let refused = store.registrations().await.unwrap_err().to_string();
    assert!(
        refused.contains("table registrations, row org/a"),
        "{refused}"
    );
}

#[tokio::test]
async fn places_that_cannot_be_written_are_refused_with_their_names() {
    // Even root cannot create a folder in /proc.
    let refused = Store::open("sqlite:///proc/model-pool/state.db")
        .await
        .unwrap_err();
    assert!(matches!(refused, StoreError::Folder { .. }), "{refused}");
    assert!(
        refused.to_string().contains("/proc/model-pool"),
        "{refused}"
    );

    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("deep/state.db")).unwrap();
    let refused = Store::open(&url(folder.path())).await.unwrap_err();
    assert!(
        matches!(refused, StoreError::NotWritable { .. }),
        "a folder stands where the file should be: {refused}"
    );
}

#[tokio::test]
async fn a_read_only_folder_is_refused_with_its_name() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let deep = folder.path().join("deep");
    std::fs::create_dir(&deep).unwrap();
    std::fs::set_permissions(&deep, std::fs::Permissions::from_mode(0o500)).unwrap();
    if std::fs::write(deep.join("probe"), "").is_ok() {
        eprintln!("skipped: this user is root, who writes everywhere");
        return;
    }
    let refused = Store::open(&url(folder.path())).await.unwrap_err();
    assert!(
        matches!(refused, StoreError::NotWritable { .. }),
        "{refused}"
    );
    assert!(refused.to_string().contains("deep/state.db"), "{refused}");
}

#[tokio::test]
async fn urls_without_a_persistent_database_are_refused_without_their_password() {
    for (url, says) in [
        (
            "mysql://pool:hunter2@db/pool",
            "\"mysql\" databases are not supported",
        ),
        ("sqlite://", "names no file"),
        ("sqlite::memory:", "has to survive a restart"),
        ("sqlite:///tmp/x.db?mode=ro", "has to survive a restart"),
        ("sqlite:///tmp/x.db?wrong=1", "wrong"),
    ] {
        let refused = Store::open(url).await.unwrap_err();
        assert!(
            matches!(refused, StoreError::Url { .. }),
            "{url}: {refused}"
        );
        assert!(refused.to_string().contains(says), "{url}: {refused}");
        assert!(
            !format!("{refused} {refused:?}").contains("hunter2"),
            "{refused}"
        );
    }
}

#[tokio::test]
async fn the_database_files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&url(folder.path())).await.unwrap();
    for suffix in ["", "-wal", "-shm"] {
        let file = format!("{}{suffix}", store.path().unwrap().display());
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{file} has mode {mode:o}");
    }
}
