//! The state of the store's tests, here in an SQLite file. `tests/outside/postgres` has the variant for PostgreSQL.

use model_pool::store::Store;

pub struct State(tempfile::TempDir);

impl State {
    /// `None` without such a database.
    pub fn new() -> Option<State> {
        Some(State(tempfile::tempdir().unwrap()))
    }

    pub async fn open(&self) -> Store {
        let url = format!("sqlite://{}/deep/state.db", self.0.path().display());
        Store::open(&url).await.unwrap()
    }
}
