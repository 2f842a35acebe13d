//! The state of the store's tests, here in a database of a real PostgreSQL. `tests/plain` has the variant for SQLite.

use std::sync::Arc;

use model_pool::store::Store;
use support::postgres::{Server, shared};

pub struct State {
    pub server: Arc<Server>,
    pub url: String,
}

impl State {
    /// `None` without PostgreSQL.
    pub fn new() -> Option<State> {
        let server = shared()?;
        let url = server.database();
        Some(State { server, url })
    }

    pub async fn open(&self) -> Store {
        Store::open(&self.url).await.unwrap()
    }
}
