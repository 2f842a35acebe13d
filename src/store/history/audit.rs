//! The audit: administrators' requests and their results. Entries are only appended; [`Store::forget_audit`] deletes old ones. The
//! caller removes secrets before it adds an entry.

use serde_json::{Map, Value};

use super::records::{FORGOTTEN_AT_ONCE, Retention};
use crate::database::Store;
use crate::sql::integers::{from_integer, to_integer};
use crate::sql::query::query;
use crate::sql::{Connection, Row, StoreError};
use pool::{KeyId, Time};

/// A change that an administrator requested.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditEntry {
    pub at: Time,
    pub key: Option<KeyId>,
    /// The subject of a single sign-on token.
    pub subject: Option<String>,
    /// The name of the key or person; `None` if the requester is unknown.
    pub name: Option<String>,
    /// The path of the requester's group; `None` without a group.
    pub group: Option<String>,
    /// The path of the group of the key that was changed.
    pub key_group: Option<String>,
    pub client: String,
    pub method: String,
    /// The path below the base path.
    pub path: String,
    /// Selected fields of the request.
    pub what: Map<String, Value>,
    pub status: u16,
    /// The `x-request-id`.
    pub request: String,
}

/// A stored entry.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredAudit {
    /// Ascending, never reused.
    pub id: i64,
    pub entry: AuditEntry,
}

/// Selects a part of the audit: the newest matching entries, returned in ascending order of id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditQuery {
    /// Only rows with a smaller id.
    pub before: Option<i64>,
    /// At most this many; values outside of 1 to [`AuditQuery::LIMIT_MAX`] are clamped.
    pub limit: u32,
    /// The id of a key such as `k3`, or the subject of a token.
    pub key: Option<String>,
    /// A prefix of the path.
    pub path: Option<String>,
    /// A name or a path of groups: entries of its members and of the groups below it, and of changes of their keys.
    pub group: Option<String>,
}

impl AuditQuery {
    /// About half a MiB of JSON.
    pub const LIMIT_MAX: u32 = 1000;
}

/// Inserts an entry within a transaction.
pub(crate) async fn insert_audit(
    connection: &mut Connection,
    entry: &AuditEntry,
) -> Result<i64, sqlx::Error> {
    let what = Value::Object(entry.what.clone()).to_string();
    query(
        "INSERT INTO audit (at, key, subject, name, actor_group, key_group, client, method, path, what, status, request)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id",
    )
    .bind(to_integer(entry.at.0))
    .bind(entry.key.map(|key| key.to_string()))
    .bind(entry.subject.as_deref())
    .bind(entry.name.as_deref())
    .bind(entry.group.as_deref())
    .bind(entry.key_group.as_deref())
    .bind(entry.client.as_str())
    .bind(entry.method.as_str())
    .bind(entry.path.as_str())
    .bind(what)
    .bind(i64::from(entry.status))
    .bind(entry.request.as_str())
    .fetch_value(connection)
    .await
}

impl Store {
    /// Appends a row and returns its id.
    pub async fn add_audit(&self, entry: &AuditEntry) -> Result<i64, StoreError> {
        self.write("write the audit", async |connection| {
            insert_audit(connection, entry).await
        })
        .await
    }

    /// A part of the audit, in ascending order of id.
    pub async fn audit(&self, wanted: AuditQuery) -> Result<Vec<StoredAudit>, StoreError> {
        let mut sql = query("SELECT * FROM (SELECT * FROM audit WHERE id < ");
        sql.push_bind(wanted.before.unwrap_or(i64::MAX));
        if let Some(key) = wanted.key {
            sql.push(" AND (key = ").push_bind(key.clone());
            sql.push(" OR subject = ").push_bind(key).push(")");
        }
        if let Some(path) = wanted.path {
            sql.push(" AND substr(path, 1, length(")
                .push_bind(path.clone());
            sql.push(")) = ").push_bind(path);
        }
        if let Some(group) = wanted.group {
            // A path contains the group if it is shorter without it. Both databases have `replace`.
            let mut or = " AND (";
            for column in ["actor_group", "key_group"] {
                sql.push(&format!("{or}replace('/' || {column} || '/', '/' || "))
                    .push_bind(group.clone());
                sql.push(&format!(" || '/', '') <> '/' || {column} || '/'"));
                or = " OR ";
            }
            sql.push(")");
        }
        sql.push(" ORDER BY id DESC LIMIT ")
            .push_bind(i64::from(wanted.limit.clamp(1, AuditQuery::LIMIT_MAX)));
        sql.push(") AS page ORDER BY id");
        let rows = sql
            .fetch_all(&self.readers)
            .await
            .map_err(self.failed("read the audit"))?;
        rows.iter().map(|row| self.read_audit(row)).collect()
    }

    /// Deletes some entries that are too old or too many. Returns their number, at most [`FORGOTTEN_AT_ONCE`].
    pub async fn forget_audit(&self, now: Time, retention: Retention) -> Result<u64, StoreError> {
        let last = self.last_id_of("audit").await?;
        let old = query(
            "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE id <= ?1 OR at < ?2 LIMIT ?3)",
        )
        .bind(last.saturating_sub(to_integer(retention.rows)))
        .bind(to_integer(now.0.saturating_sub(retention.age.0)))
        .bind(FORGOTTEN_AT_ONCE);
        self.write("delete old rows of the audit", async |connection| {
            old.execute(connection).await
        })
        .await
    }

    fn read_audit(&self, row: &Row) -> Result<StoredAudit, StoreError> {
        let id: i64 = row.get("id");
        let key: Option<&str> = row.get("key");
        let key = key.map(|text| {
            let number = text
                .strip_prefix('k')
                .and_then(|digits| digits.parse().ok());
            number
                .map(KeyId)
                .ok_or_else(|| self.bad_row("audit", id, "the key is not a key's id"))
        });
        let what = serde_json::from_str(row.get("what"));
        Ok(StoredAudit {
            id,
            entry: AuditEntry {
                at: Time(from_integer(row.get("at"))),
                key: key.transpose()?,
                subject: row.get("subject"),
                name: row.get("name"),
                group: row.get("actor_group"),
                key_group: row.get("key_group"),
                client: row.get("client"),
                method: row.get("method"),
                path: row.get("path"),
                what: what.map_err(|error| self.bad_row("audit", id, error))?,
                status: u16::try_from(row.get::<i64>("status")).unwrap_or(0),
                request: row.get("request"),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::stores;

    fn entry(at: u64, group: Option<&str>, key_group: Option<&str>) -> AuditEntry {
        AuditEntry {
            at: Time(at),
            key: Some(KeyId(1)),
            subject: None,
            name: None,
            group: group.map(str::to_owned),
            key_group: key_group.map(str::to_owned),
            client: "127.0.0.1".to_owned(),
            method: "POST".to_owned(),
            path: "/admin/keys".to_owned(),
            what: Map::new(),
            status: 200,
            request: "r".to_owned(),
        }
    }

    #[tokio::test]
    async fn entries_are_found_by_the_group_of_the_sender_or_of_the_changed_key() {
        let rows = [
            entry(1, Some("physics/lab"), None),
            entry(2, None, Some("physics/lab/night")),
            entry(3, Some("physics/labs"), Some("chemistry")),
            entry(4, None, None),
        ];
        for store in stores().await {
            for row in &rows {
                store.add_audit(row).await.expect("written");
            }
            for (group, expected) in [
                ("lab", vec![1, 2]),
                ("physics/lab", vec![1, 2]),
                ("physics", vec![1, 2, 3]),
                ("chemistry", vec![3]),
                ("la%", vec![]),
                ("night", vec![2]),
            ] {
                let wanted = AuditQuery {
                    limit: 9,
                    group: Some(group.to_owned()),
                    ..AuditQuery::default()
                };
                let found = store.audit(wanted).await.expect("read");
                let times: Vec<u64> = found.iter().map(|row| row.entry.at.0).collect();
                assert_eq!(times, expected, "{group}");
            }
            let all = AuditQuery {
                limit: 9,
                ..AuditQuery::default()
            };
            let found = store.audit(all).await.expect("read");
            assert_eq!(found[1].entry, rows[1]);
        }
    }
}
