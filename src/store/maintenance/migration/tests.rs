//! Tests of the list of tables that a move copies.

use std::collections::BTreeSet;

use super::*;
use crate::testing::stores;

#[tokio::test]
async fn every_number_that_postgresql_assigns_continues_after_a_move() {
    let continued = SEQUENCES.map(|table| (table, "id"));
    let continued: BTreeSet<(&str, &str)> = continued.into_iter().chain(NUMBERED).collect();
    for store in stores().await {
        if store.dialect() == Dialect::Sqlite {
            continue;
        }
        // Row ids are not copied: the new ones rise in the same order.
        let rows = query(
            "SELECT CAST(table_name AS TEXT) AS name, CAST(column_name AS TEXT) AS id FROM information_schema.columns \
             WHERE table_schema = current_schema() AND is_identity = 'YES' AND column_name <> 'rowid'",
        )
        .fetch_all(&store.readers)
        .await
        .unwrap();
        let assigned: Vec<(String, String)> = rows
            .iter()
            .map(|row| (row.get("name"), row.get("id")))
            .collect();
        let assigned = assigned.iter();
        let assigned: BTreeSet<(&str, &str)> = assigned
            .map(|(name, id)| (name.as_str(), id.as_str()))
            .collect();
        assert_eq!(assigned, continued);
    }
}

#[tokio::test]
async fn both_databases_have_the_same_tables_and_columns_and_every_table_is_migrated() {
    let mut schemas = Vec::new();
    for store in stores().await {
        let rows = query(store.dialect().tables()).fetch_all(&store.readers);
        let names: Vec<String> = rows
            .await
            .unwrap()
            .iter()
            .map(|row| row.get("name"))
            .collect();
        let of_program =
            |name: &&String| !name.starts_with("_sqlx") && !name.starts_with("sqlite_");
        let names: BTreeSet<String> = names.iter().filter(of_program).cloned().collect();
        let mut moved: BTreeSet<String> =
            TABLES.iter().map(|(name, _)| (*name).to_owned()).collect();
        // The generation belongs to one database and is not moved.
        moved.insert("leadership".to_owned());
        assert_eq!(names, moved);
        let mut schema = Vec::new();
        for (table, _) in TABLES {
            schema.push((table, columns(&store, table).await.unwrap()));
        }
        schemas.push(schema);
    }
    assert!(
        schemas.windows(2).all(|two| two[0] == two[1]),
        "{schemas:#?}"
    );
}
