//! Stores for the tests of this crate: a SQLite file, and a PostgreSQL database if there is a server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;

use crate::database::Store;
use crate::sql::Connection;
use crate::sql::query::query;

/// A store, and the resources that it needs while in use.
pub(crate) struct TestStore {
    pub store: Store,
    _folder: tempfile::TempDir,
    _server: Option<Arc<support::postgres::Server>>,
}

impl std::ops::Deref for TestStore {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

/// Empty stores of each kind.
pub(crate) async fn stores() -> Vec<TestStore> {
    let folder = || tempfile::tempdir().expect("a folder");
    let file = folder();
    let url = format!("sqlite://{}/state.db", file.path().display());
    let mut stores = vec![TestStore {
        store: Store::open(&url).await.expect("a store"),
        _folder: file,
        _server: None,
    }];
    if let Some(server) = support::postgres::shared() {
        stores.push(TestStore {
            store: Store::open(&server.database()).await.expect("a store"),
            _folder: folder(),
            _server: Some(server),
        });
    }
    stores
}

/// A SQLite file after only these statements.
pub(crate) async fn file_after(folder: &Path, statements: &[&'static str]) -> PathBuf {
    let path = folder.join("state.db");
    let options = SqliteConnectOptions::new().filename(&path);
    let connection = options.create_if_missing(true).connect().await;
    let mut connection = Connection::Sqlite(connection.expect("a new file"));
    for statement in statements {
        let done = query(*statement).execute(&mut connection).await;
        done.expect(statement);
    }
    path
}
