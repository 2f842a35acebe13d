//! Documents of registered models, as received, and small facts by name, such as the time of the last cleanup. The catalogue
//! interprets the documents.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::database::Store;
use crate::sql::StoreError;
use crate::sql::query::query;

impl Store {
    /// Saves a model's document. Replaces the previous document of the same name.
    pub async fn save_registration(&self, name: &str, document: &Value) -> Result<(), StoreError> {
        self.write("save a registration", async |connection| {
            query(
                "INSERT INTO registrations (name, document) VALUES (?, ?) \
                 ON CONFLICT (name) DO UPDATE SET document = excluded.document",
            )
            .bind(name)
            .bind(document.to_string())
            .execute(connection)
            .await
        })
        .await
        .map(|_| ())
    }

    /// Removes a document. Returns true if it existed.
    pub async fn remove_registration(&self, name: &str) -> Result<bool, StoreError> {
        self.write("remove a registration", async |connection| {
            query("DELETE FROM registrations WHERE name = ?")
                .bind(name)
                .execute(connection)
                .await
        })
        .await
        .map(|removed| removed > 0)
    }

    /// All registered models by name.
    pub async fn registrations(&self) -> Result<BTreeMap<String, Value>, StoreError> {
        let rows = query("SELECT name, document FROM registrations ORDER BY name")
            .fetch_all(&self.readers)
            .await
            .map_err(self.failed("read the registrations"))?;
        rows.into_iter()
            .map(|row| {
                let name: String = row.get("name");
                let document = serde_json::from_str(row.get("document"))
                    .map_err(|error| self.bad_row("registrations", &name, error))?;
                Ok((name, document))
            })
            .collect()
    }

    /// Saves a small fact. Replaces the previous fact of the same name.
    pub async fn save_meta(&self, key: &str, value: &str) -> Result<(), StoreError> {
        self.write("save a fact", async |connection| {
            query(
                "INSERT INTO meta (key, value) VALUES (?, ?) \
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            )
            .bind(key)
            .bind(value)
            .execute(connection)
            .await
        })
        .await
        .map(|_| ())
    }

    /// The fact of this name, if it exists.
    pub async fn meta(&self, key: &str) -> Result<Option<String>, StoreError> {
        let row = query("SELECT value FROM meta WHERE key = ?")
            .bind(key)
            .fetch_optional(&self.readers)
            .await
            .map_err(self.failed("read a fact"))?;
        Ok(row.map(|row| row.get("value")))
    }
}
