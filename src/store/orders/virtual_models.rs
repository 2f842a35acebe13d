//! The virtual models that administrators set with the API, as JSON by name (D1).

use std::collections::BTreeMap;

use crate::database::Store;
use crate::sql::query::query;
use crate::sql::{Row, StoreError};

impl Store {
    /// Replaces the virtual model of this name; `None` deletes it.
    pub async fn save_virtual_model(
        &self,
        name: &str,
        model: Option<&str>,
    ) -> Result<(), StoreError> {
        let change = match model {
            None => query("DELETE FROM virtual_models WHERE name = ?").bind(name),
            Some(model) => query(
                "INSERT INTO virtual_models (name, model_json) VALUES (?, ?) \
                 ON CONFLICT (name) DO UPDATE SET model_json = excluded.model_json",
            )
            .bind(name)
            .bind(model),
        };
        self.write("save a virtual model", async |connection| {
            change.execute(connection).await
        })
        .await
        .map(|_| ())
    }

    /// All virtual models by name.
    pub async fn virtual_models(&self) -> Result<BTreeMap<String, String>, StoreError> {
        let rows = query("SELECT name, model_json FROM virtual_models")
            .fetch_all(&self.readers)
            .await
            .map_err(self.failed("read the virtual models"))?;
        let model = |row: &Row| (row.get("name"), row.get("model_json"));
        Ok(rows.iter().map(model).collect())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::stores;

    #[tokio::test]
    async fn a_virtual_model_is_replaced_and_deleted_by_its_name() {
        for store in stores().await {
            for (name, model) in [
                ("a", Some("{}")),
                ("b", Some("1")),
                ("a", Some("2")),
                ("b", None),
            ] {
                store
                    .save_virtual_model(name, model)
                    .await
                    .expect("written");
            }
            let kept = store.virtual_models().await.expect("read");
            assert_eq!(
                kept.into_iter().collect::<Vec<_>>(),
                [("a".to_owned(), "2".to_owned())]
            );
        }
    }
}
