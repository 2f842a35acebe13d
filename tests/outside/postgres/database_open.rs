//! Opening a state in PostgreSQL: unusable databases are refused with a clear error, and passwords are never shown.

use model_pool::config::Config;
use model_pool::pool::{Override, Priority};
use model_pool::store::{BackupError, Store, StoreError, back_up};
use support::postgres::{PASSWORD, name_of};

use super::state::State;

fn refused(error: &StoreError) -> String {
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains(PASSWORD), "{shown}");
    error.to_string()
}

#[tokio::test]
async fn a_second_opener_is_refused_with_the_process_that_has_the_database() {
    let Some(state) = State::new() else { return };
    let store = state.open().await;
    let error = Store::open(&state.url).await.unwrap_err();
    assert!(matches!(error, StoreError::DatabaseInUse { .. }), "{error}");
    let words = refused(&error);
    let process = format!("process {})", std::process::id());
    assert!(words.contains(&process), "{words}");
    assert!(!format!("{store:?}").contains(PASSWORD));
    store.close().await;
    let store = Store::open(&state.url).await;
    store.expect("the lock ended with its holder").close().await;
}

#[tokio::test]
async fn another_database_or_schema_is_a_separate_state() {
    let Some(state) = State::new() else { return };
    let name = name_of(&state.url);
    state.server.ask(name, "CREATE SCHEMA second").unwrap();
    let second = format!("{}?options[search_path]=second", state.url);
    let first = state.open().await;
    let second = Store::open(&second).await.expect("its own lock and tables");
    first.save_meta("a", "first").await.unwrap();
    second.save_meta("a", "second").await.unwrap();
    assert_eq!(first.meta("a").await.unwrap().as_deref(), Some("first"));
    assert_eq!(second.meta("a").await.unwrap().as_deref(), Some("second"));
}

#[tokio::test]
async fn a_newer_postgresql_schema_is_refused_with_both_numbers_and_stays_unchanged() {
    let Some(state) = State::new() else { return };
    state.open().await.close().await;
    let name = name_of(&state.url);
    let newer = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES (9001, 'later', true, '', 0)";
    state.server.ask(name, newer).unwrap();
    let error = Store::open(&state.url).await.unwrap_err();
    assert!(
        matches!(error, StoreError::Newer { found: 9001, .. }),
        "{error}"
    );
    assert!(refused(&error).contains("has schema 9001"), "{error}");
}

#[tokio::test]
async fn a_database_that_cannot_be_reached_or_used_is_reported_without_the_password() {
    let Some(state) = State::new() else { return };
    let wrong_password = state.url.replace(PASSWORD, "not-the-password");
    let no_database = format!("{}_missing", state.url);
    let nothing_listens = format!("postgres://pool:{PASSWORD}@127.0.0.1:1/pool");
    for (url, part) in [
        (&wrong_password, "password authentication failed"),
        (&no_database, "does not exist"),
        (&nothing_listens, "postgres://127.0.0.1:1/pool"),
    ] {
        let error = Store::open(url).await.unwrap_err();
        assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
        let words = refused(&error);
        assert!(words.contains(part), "{words}");
        assert!(!words.contains("not-the-password"), "{words}");
        assert!(
            words.contains("check that PostgreSQL runs there"),
            "{words}"
        );
    }
    let latin = "pool_latin";
    let create = format!("CREATE DATABASE {latin} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
    state.server.ask("postgres", &create).unwrap();
    let error = Store::open(&state.server.url(latin)).await.unwrap_err();
    assert!(refused(&error).contains("ENCODING 'UTF8'"), "{error}");
    for (more, part) in [
        ("?password=hunter3", "before the `@`"),
        ("?sslmod=require", "`sslmod` is not a parameter"),
        ("?sslmode=perhaps", "sslmode"),
    ] {
        let error = Store::open(&format!("{}{more}", state.url))
            .await
            .unwrap_err();
        let words = refused(&error);
        assert!(words.contains(part) || words.contains("perhaps"), "{words}");
        assert!(!words.contains("hunter3"), "{words}");
    }
}

#[tokio::test]
async fn backups_of_postgresql_are_left_to_its_own_tools() {
    let Some(state) = State::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let error = back_up(&state.url, &folder.path().join("copy"), false).await;
    let error = error.unwrap_err();
    assert!(matches!(error, BackupError::Postgres { .. }), "{error}");
    let words = error.to_string();
    assert!(
        words.contains("pg_dump") && words.contains("pg_restore"),
        "{words}"
    );
    assert!(!words.contains(PASSWORD), "{words}");
}

#[test]
fn the_password_is_hidden_in_the_configuration_and_all_output() {
    let Some(state) = State::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pool.yaml");
    std::fs::write(
        &file,
        format!("state: {{database_url: \"{}\"}}\n", state.url),
    )
    .unwrap();
    let config = Config::load(Some(&file), &std::collections::BTreeMap::new()).unwrap();
    assert_eq!(config.database_url().reveal(), state.url);
    let shown = format!("{config:?} {}", config.effective_json());
    assert!(!shown.contains(PASSWORD), "{shown}");
    assert!(shown.contains("pool:…@"), "{shown}");
    let checked = std::process::Command::new(env!("CARGO_BIN_EXE_model-pool"))
        .args(["check", "--show-config", "--config"])
        .arg(&file)
        .current_dir(folder.path())
        .output()
        .unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&checked.stdout),
        String::from_utf8_lossy(&checked.stderr)
    );
    assert!(!text.contains(PASSWORD), "{text}");
    assert!(text.contains("pool:…@"), "{text}");
}

#[tokio::test]
async fn a_nul_character_is_removed_from_stored_text() {
    let Some(state) = State::new() else { return };
    let store = state.open().await;
    let over = Override {
        priority: Some(Priority(1)),
        ..Override::default()
    };
    store.save_override("a\0b", &over).await.unwrap();
    assert_eq!(store.wishes().await.unwrap()[0].model, "a\u{fffd}b");
    store
        .save_override("a\0b", &Override::default())
        .await
        .unwrap();
    assert!(store.wishes().await.unwrap().is_empty());
}
