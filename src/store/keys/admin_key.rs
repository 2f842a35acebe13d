//! Replaces the admin keys that the program has generated with a new one, in one transaction. A counter tells a running service
//! that another program has changed the keys.

use serde_json::{Map, json};

use super::api_keys::{KeyHash, NewKey, insert_key};
use crate::database::Store;
use crate::history::AuditEntry;
use crate::history::audit::insert_audit;
use crate::sql::integers::from_integer;
use crate::sql::query::query;
use crate::sql::{Connection, Row, StoreError};
use pool::{KeyId, Time};

/// The name of the key created at the first start.
pub const FIRST_ADMIN_KEY: &str = "first admin key";
/// The name of keys created with `model-pool admin-key new`.
pub const NEW_ADMIN_KEY: &str = "admin key made on the server";

/// The entry of the table `meta` that counts changes of the keys by other programs.
const CHANGES: &str = "changes of keys by commands";

/// A key revoked in favour of a new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevokedKey {
    pub id: KeyId,
    pub name: String,
}

impl Store {
    /// Stores the key and an audit entry for this client. With `former`, revokes the admin keys that the program has generated and
    /// the keys with these hashes.
    pub async fn replace_generated_keys(
        &self,
        key: NewKey,
        former: Option<&[KeyHash]>,
        client: &str,
    ) -> Result<(KeyId, Vec<RevokedKey>), StoreError> {
        self.write("save a key", async |connection| {
            let revoked = match former {
                Some(hashes) => revoke_generated(&mut *connection, hashes).await?,
                None => Vec::new(),
            };
            let id = insert_key(&mut *connection, &key).await?;
            count_change(&mut *connection).await?;
            let entry = audit_entry(key.created, id, &revoked, client);
            insert_audit(&mut *connection, &entry).await?;
            Ok((id, revoked))
        })
        .await
    }

    /// A counter that increases whenever another program changes the keys.
    pub async fn key_changes_by_commands(&self) -> Result<i64, StoreError> {
        let text = self.meta(CHANGES).await?;
        Ok(text.and_then(|text| text.parse().ok()).unwrap_or(0))
    }
}

async fn revoke_generated(
    connection: &mut Connection,
    hashes: &[KeyHash],
) -> Result<Vec<RevokedKey>, sqlx::Error> {
    let mut revoked = Vec::new();
    let mut add = |rows: Vec<Row>| {
        revoked.extend(rows.into_iter().map(|row| RevokedKey {
            id: KeyId(from_integer(row.get("id"))),
            name: row.get("name"),
        }));
    };
    let by_name = query(
        "UPDATE keys SET revoked = 1 WHERE role = 'admin' AND revoked = 0 AND name IN (?, ?) RETURNING id, name",
    );
    let by_name = by_name.bind(FIRST_ADMIN_KEY).bind(NEW_ADMIN_KEY);
    add(by_name.fetch_all(&mut *connection).await?);
    for hash in hashes {
        let by_hash = query(
            "UPDATE keys SET revoked = 1 WHERE role = 'admin' AND revoked = 0 AND hash = ? RETURNING id, name",
        );
        add(by_hash
            .bind(&hash.0[..])
            .fetch_all(&mut *connection)
            .await?);
    }
    Ok(revoked)
}

async fn count_change(connection: &mut Connection) -> Result<(), sqlx::Error> {
    query(
        "INSERT INTO meta (key, value) VALUES (?, '1')
         ON CONFLICT (key) DO UPDATE SET value = CAST(CAST(meta.value AS BIGINT) + 1 AS TEXT)",
    )
    .bind(CHANGES)
    .execute(connection)
    .await
    .map(|_| ())
}

fn audit_entry(at: Time, id: KeyId, revoked: &[RevokedKey], client: &str) -> AuditEntry {
    let mut what = Map::new();
    what.insert("id".to_owned(), json!(id.to_string()));
    if !revoked.is_empty() {
        let ids: Vec<String> = revoked.iter().map(|key| key.id.to_string()).collect();
        what.insert("revoked".to_owned(), json!(ids.join(", ")));
    }
    AuditEntry {
        at,
        key: None,
        subject: None,
        name: None,
        group: None,
        key_group: None,
        client: client.to_owned(),
        method: "COMMAND".to_owned(),
        path: "model-pool admin-key new".to_owned(),
        what,
        status: 200,
        request: String::new(),
    }
}
