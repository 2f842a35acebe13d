//! The groups that administrators set with the API, as JSON by name (D1).

use std::collections::BTreeMap;

use crate::database::Store;
use crate::sql::query::query;
use crate::sql::{Row, StoreError};

impl Store {
    /// Replaces the group of this name; `None` deletes it.
    pub async fn save_group(&self, name: &str, group: Option<&str>) -> Result<(), StoreError> {
        let change = match group {
            None => query("DELETE FROM groups WHERE name = ?").bind(name),
            Some(group) => query(
                "INSERT INTO groups (name, group_json) VALUES (?, ?) \
                 ON CONFLICT (name) DO UPDATE SET group_json = excluded.group_json",
            )
            .bind(name)
            .bind(group),
        };
        self.write("save a group", async |connection| {
            change.execute(connection).await
        })
        .await
        .map(|_| ())
    }

    /// All groups by name.
    pub async fn groups(&self) -> Result<BTreeMap<String, String>, StoreError> {
        let rows = query("SELECT name, group_json FROM groups")
            .fetch_all(&self.readers)
            .await
            .map_err(self.failed("read the groups"))?;
        let group = |row: &Row| (row.get("name"), row.get("group_json"));
        Ok(rows.iter().map(group).collect())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::stores;

    #[tokio::test]
    async fn a_group_is_replaced_and_deleted_by_its_name() {
        for store in stores().await {
            for (name, group) in [
                ("a", Some("{}")),
                ("b", Some("1")),
                ("a", Some("2")),
                ("b", None),
            ] {
                store.save_group(name, group).await.expect("written");
            }
            let kept = store.groups().await.expect("read");
            assert_eq!(
                kept.into_iter().collect::<Vec<_>>(),
                [("a".to_owned(), "2".to_owned())]
            );
        }
    }
}
