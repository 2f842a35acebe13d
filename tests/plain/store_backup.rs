//! Backups of the store: taken during writes, checked before use, and restored in place of a database that is kept next to them.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use model_pool::pool::Time;
use model_pool::store::{
    AuditQuery, BackupError, KeptRay, KeyUse, NEW_ADMIN_KEY, NewKey, Role, Store, StoreError,
    back_up, generate_key, hash_key, restore,
};
use sqlx::Connection;

fn database(folder: &Path) -> PathBuf {
    folder.join("state.db")
}

fn url(folder: &Path) -> String {
    format!("sqlite://{}", database(folder).display())
}

async fn run(folder: &Path, sql: &'static str) {
    let mut connection = sqlx::SqliteConnection::connect(&url(folder)).await.unwrap();
    sqlx::query(sql).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

fn key(name: &str, role: Role) -> NewKey {
    let text = generate_key().unwrap();
    NewKey {
        name: name.to_owned(),
        role,
        allowed: KeyUse::default(),
        prefix: text.prefix(),
        hash: hash_key(text.reveal()),
        created: Time(1_000),
        expires: None,
    }
}

fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_backup_taken_during_writes_is_private_verified_and_consistent() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&url(folder.path())).await.unwrap();
    for nth in 0..200 {
        store
            .save_meta(&format!("fact {nth}"), &"x".repeat(1000))
            .await
            .unwrap();
    }
    let target = folder.path().join("copy.db");
    let address = url(folder.path());
    let writing = async {
        for nth in 0..50 {
            store.save_meta("counter", &nth.to_string()).await.unwrap();
            store.add_key(key("a", Role::User)).await.unwrap();
        }
    };
    let (backup, ()) = tokio::join!(back_up(&address, &target, false), writing);
    let backup = backup.unwrap();
    let data = std::fs::metadata(&target).unwrap();
    assert_eq!(data.permissions().mode() & 0o777, 0o600);
    assert_eq!(
        (data.len(), backup.contents.keys <= 50),
        (backup.bytes.0, true)
    );

    // A counter is written before its key, so it is at most one ahead at any time.
    let other = tempfile::tempdir().unwrap();
    let restored = restore(&url(other.path()), &target, None).await.unwrap();
    assert_eq!(
        (restored.former, restored.backup.contents),
        (None, backup.contents)
    );
    let copy = Store::open(&url(other.path())).await.unwrap();
    let keys = copy.keys().await.unwrap().len();
    let counter = copy.meta("counter").await.unwrap();
    let written = counter.map_or(0, |text| text.parse::<usize>().unwrap() + 1);
    assert!(
        written == keys || written == keys + 1,
        "{written} and {keys}"
    );
    let fact = copy.meta("fact 199").await.unwrap();
    assert_eq!(fact.map(|text| text.len()), Some(1000));
}

#[tokio::test]
async fn a_target_that_may_not_be_written_is_refused_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let address = url(folder.path());
    let target = folder.path().join("copy.db");
    let missing = back_up(&address, &target, false).await.unwrap_err();
    assert!(
        matches!(missing, BackupError::NoDatabase { .. }),
        "{missing}"
    );
    let store = Store::open(&address).await.unwrap();
    std::fs::write(&target, "mine").unwrap();
    let before = files(folder.path());
    for (target, replace, words) in [
        (target.clone(), false, "copy.db exists; name another file"),
        (
            database(folder.path()),
            true,
            "belongs to the database itself",
        ),
        (folder.path().to_owned(), true, "it is a folder"),
        (folder.path().join("no/copy.db"), false, "create its folder"),
        ("/proc/copy.db".into(), false, "cannot write /proc/copy.db"),
    ] {
        let refused = back_up(&address, &target, replace).await.unwrap_err();
        assert!(refused.to_string().contains(words), "{refused}");
    }
    assert_eq!(files(folder.path()), before);
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "mine");
    back_up(&address, &target, true).await.expect("replaced");
    store.close().await;
}

#[tokio::test]
async fn restoring_over_a_database_in_use_or_from_an_invalid_backup_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let address = url(folder.path());
    let store = Store::open(&address).await.unwrap();
    store.add_key(key("first", Role::Admin)).await.unwrap();
    let good = folder.path().join("good.db");
    back_up(&address, &good, false).await.unwrap();
    let refused = restore(&address, &good, None).await.unwrap_err();
    assert!(
        matches!(refused, BackupError::Store(StoreError::InUse { .. })),
        "{refused}"
    );
    store.close().await;
    drop(store);

    let whole = std::fs::read(&good).unwrap();
    let text = folder.path().join("text.db");
    std::fs::write(&text, "models: [and more than sixteen bytes]").unwrap();
    let half = folder.path().join("half.db");
    std::fs::write(&half, &whole[..whole.len() / 2]).unwrap();
    let damaged = folder.path().join("damaged.db");
    let mut bytes = whole.clone();
    bytes[4096 * 3..4096 * 6].fill(0x5a);
    std::fs::write(&damaged, bytes).unwrap();
    let empty = folder.path().join("empty.db");
    std::fs::write(&empty, "").unwrap();
    let foreign = tempfile::tempdir().unwrap();
    let foreign_file = database(foreign.path());
    std::fs::write(&foreign_file, "").unwrap();
    run(foreign.path(), "CREATE TABLE people (name TEXT)").await;
    let newer = tempfile::tempdir().unwrap();
    std::fs::copy(&good, database(newer.path())).unwrap();
    run(newer.path(), "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES (9001, 'later', 1, x'00', 0)").await;
    let before = (
        files(folder.path()),
        std::fs::read(database(folder.path())).unwrap(),
    );
    for (file, words) in [
        (text, "text.db is not a SQLite database"),
        (empty, "empty.db is not a SQLite database"),
        (half, "half.db is damaged"),
        (damaged, "damaged.db is damaged"),
        (foreign_file, "not model-pool's"),
        (database(newer.path()), "has schema 9001"),
        (folder.path().join("none.db"), "none.db"),
    ] {
        let refused = restore(&address, &file, None)
            .await
            .unwrap_err()
            .to_string();
        assert!(refused.contains(words), "{refused}");
        assert!(!refused.contains(".part-"), "{refused}");
    }
    let after = (
        files(folder.path()),
        std::fs::read(database(folder.path())).unwrap(),
    );
    assert_eq!(before, after, "nothing changed");
}

#[tokio::test]
async fn a_restore_keeps_the_previous_database_and_never_reuses_an_id() {
    let folder = tempfile::tempdir().unwrap();
    let address = url(folder.path());
    let copy = folder.path().join("copy.db");
    let store = Store::open(&address).await.unwrap();
    store.add_key(key("old", Role::Admin)).await.unwrap();
    back_up(&address, &copy, false).await.unwrap();
    let later = store.add_key(key("later", Role::User)).await.unwrap();
    store.save_meta("later", "yes").await.unwrap();
    run(
        folder.path(),
        "UPDATE numbers SET last = 40 WHERE name = 'replica'",
    )
    .await;
    // As after `kill -9`: the last changes are only in SQLite's log.
    let log = std::fs::read(with(&database(folder.path()), "-wal")).unwrap();
    let state = std::fs::read(database(folder.path())).unwrap();
    store.close().await;
    drop(store);
    std::fs::write(database(folder.path()), state).unwrap();
    std::fs::write(with(&database(folder.path()), "-wal"), log).unwrap();

    let restored = restore(&address, &copy, None).await.unwrap();
    let former = restored.former.expect("there was one");
    let store = Store::open(&address).await.unwrap();
    assert_eq!(store.keys().await.unwrap().len(), 1);
    assert_eq!(store.meta("later").await.unwrap(), None);
    let next = store.add_key(key("next", Role::User)).await.unwrap();
    assert!(next.id > later.id, "{} after {}", next.id, later.id);
    assert_eq!(store.last_numbers().await.unwrap().0, 40);
    store.close().await;

    let aside = format!("sqlite://{}", former.display());
    let store = Store::open(&aside).await.expect("an intact database");
    assert_eq!(store.meta("later").await.unwrap().as_deref(), Some("yes"));
}

fn with(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[tokio::test]
async fn a_new_admin_key_made_next_to_a_running_service_revokes_only_generated_keys() {
    let folder = tempfile::tempdir().unwrap();
    let address = url(folder.path());
    let service = Store::open(&address).await.unwrap();
    let first = service
        .add_key(key("first admin key", Role::Admin))
        .await
        .unwrap();
    let made = service.add_key(key("ops", Role::Admin)).await.unwrap();
    let in_file = service.add_key(key("renamed", Role::Admin)).await.unwrap();
    let user = service
        .add_key(key("first admin key", Role::User))
        .await
        .unwrap();
    assert_eq!(service.key_changes_by_commands().await.unwrap(), 0);

    let beside = Store::open_beside(&address).await.unwrap();
    let hashes = [in_file.hash];
    let (id, revoked) = beside
        .replace_generated_keys(key(NEW_ADMIN_KEY, Role::Admin), Some(&hashes), "here")
        .await
        .unwrap();
    let ids: Vec<_> = revoked.iter().map(|key| key.id).collect();
    assert_eq!(ids, [first.id, in_file.id]);
    assert_eq!(service.key_changes_by_commands().await.unwrap(), 1);
    let keys = service.keys().await.unwrap().into_iter();
    let valid = keys.filter(|key| !key.revoked);
    let valid: Vec<_> = valid.map(|key| key.id).collect();
    assert_eq!(valid, [made.id, user.id, id]);
    let kept = beside.replace_generated_keys(key(NEW_ADMIN_KEY, Role::Admin), None, "here");
    assert_eq!(kept.await.unwrap().1, [], "all stay");
    let rows = service
        .audit(AuditQuery {
            limit: 10,
            ..AuditQuery::default()
        })
        .await
        .unwrap();
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0].entry.what["revoked"], "k1, k3");
    beside.close().await;
    service.save_meta("a", "b").await.expect("it still writes");
}

#[tokio::test]
async fn a_store_of_an_older_schema_is_not_opened_next_to_its_service() {
    let folder = tempfile::tempdir().unwrap();
    let address = url(folder.path());
    let missing = Store::open_beside(&address).await.unwrap_err();
    assert!(missing.to_string().contains("state.db"), "{missing}");
    drop(Store::open(&address).await.unwrap());
    run(
        folder.path(),
        "DELETE FROM _sqlx_migrations WHERE version > 1",
    )
    .await;
    let older = Store::open_beside(&address).await.unwrap_err();
    assert!(matches!(older, StoreError::Older { .. }), "{older}");
}

#[tokio::test]
async fn a_restored_copy_keeps_its_rays_and_those_used_since() {
    let ray = |address: &str| KeptRay {
        address: address.to_owned(),
        prefix: "model-pool.lab.r".to_owned(),
        token_file: Some("/etc/ray.token".to_owned()),
        timeout_ms: 30_000,
        section: "engine_config".to_owned(),
    };
    let folder = tempfile::tempdir().unwrap();
    let address = url(folder.path());
    let store = Store::open(&address).await.unwrap();
    store.save_used_ray(&ray("http://a:8265")).await.unwrap();
    let copy = folder.path().join("copy.db");
    back_up(&address, &copy, false).await.unwrap();
    store.save_used_ray(&ray("http://b:8265")).await.unwrap();
    store.close().await;
    drop(store);
    restore(&address, &copy, None).await.unwrap();
    let store = Store::open(&address).await.unwrap();
    let rays = [ray("http://a:8265"), ray("http://b:8265")];
    assert_eq!(store.used_rays().await.unwrap(), rays);

    let other = tempfile::tempdir().unwrap();
    let other = url(other.path());
    restore(&other, &copy, None).await.unwrap();
    let second = Store::open(&other).await.unwrap();
    assert_eq!(second.used_rays().await.unwrap(), [ray("http://a:8265")]);
}
