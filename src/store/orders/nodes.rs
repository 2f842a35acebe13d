//! Permanent numbers of nodes, and their tokens and credentials, which are stored as hashes. Drains of nodes are stored with the
//! cordons.

use crate::database::Store;
use crate::keys::api_keys::{hash_key, is_before};
use crate::keys::{KeyHash, KeyText};
use crate::sql::integers::{from_integer, to_integer};
use crate::sql::query::query;
use crate::sql::{Connection, Row, StoreError};
use pool::{Span, Time};

/// Limit of one node's devices with a stored number, twice the number that a node may have. Former devices are forgotten first,
/// oldest first.
pub const NODE_DEVICES_KEPT_MAX: usize = 512;
/// Limit of nodes with stored numbers and without a credential. The oldest are forgotten first.
pub const NODES_KEPT_MAX: i64 = 1024;
/// Limit of expired and revoked tokens that stay in the list.
const OLD_TOKENS_MAX: i64 = 100;

/// A token with less time left is reported.
pub const NODE_TOKEN_EXPIRES_SOON: Span = Span::from_secs(3 * 86_400);
/// The fact with the id of this pool.
const POOL_ID: &str = "pool_id";

/// The numbers of a node and its devices, in the order of the requested names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeNumbers {
    pub node: u32,
    pub devices: Vec<u32>,
}

/// A join token for nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeToken {
    pub id: u64,
    /// The part by which people recognize it.
    pub prefix: String,
    pub created: Time,
    pub expires: Time,
    pub used: Option<Time>,
    pub revoked: bool,
}

/// The meaning of a text that may be a token or a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodePass {
    /// A token, with which any node may join.
    Token,
    /// The credential of this node, which comes back.
    Credential { node: String },
}

/// The reason for refusing a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenRefusal {
    Unknown,
    Expired {
        at: Time,
    },
    /// The clock shows a time before the token's creation.
    Early {
        created: Time,
    },
    Revoked,
}

impl TokenRefusal {
    pub fn name(self) -> &'static str {
        match self {
            TokenRefusal::Unknown => "unknown",
            TokenRefusal::Expired { .. } => "expired",
            TokenRefusal::Early { .. } => "not_yet_valid",
            TokenRefusal::Revoked => "revoked",
        }
    }
}

impl NodeToken {
    /// # Errors
    /// The reason why no node may join with the token at this time.
    pub fn check(&self, now: Time) -> Result<(), TokenRefusal> {
        let (created, at) = (self.created, self.expires);
        if self.revoked {
            Err(TokenRefusal::Revoked)
        } else if at <= now {
            Err(TokenRefusal::Expired { at })
        } else if is_before(created, now) {
            Err(TokenRefusal::Early { created })
        } else {
            Ok(())
        }
    }
}

impl Store {
    /// The numbers of a node and its devices; assigns new ones to new names. A node's names are bounded: numbers of unused names
    /// are forgotten, and never assigned again.
    pub async fn node_numbers(
        &self,
        name: &str,
        devices: &[String],
        now: Time,
    ) -> Result<NodeNumbers, StoreError> {
        self.write("number a node", async |connection| {
            let known = query("SELECT id FROM nodes WHERE name = ?")
                .bind(name)
                .fetch_optional(&mut *connection)
                .await?;
            let node: i64 = match known {
                Some(row) => row.get("id"),
                None => {
                    forget_nodes(&mut *connection).await?;
                    query("INSERT INTO nodes (name, joined_at) VALUES (?, ?) RETURNING id")
                        .bind(name)
                        .bind(to_integer(now.0))
                        .fetch_value(&mut *connection)
                        .await?
                }
            };
            let mut numbers = Vec::with_capacity(devices.len());
            for device in devices {
                let known = query("SELECT id FROM node_devices WHERE node = ? AND name = ?")
                    .bind(node)
                    .bind(device)
                    .fetch_optional(&mut *connection)
                    .await?;
                let number: i64 = match known {
                    Some(row) => row.get("id"),
                    None => {
                        query("INSERT INTO node_devices (node, name) VALUES (?, ?) RETURNING id")
                            .bind(node)
                            .bind(device)
                            .fetch_value(&mut *connection)
                            .await?
                    }
                };
                numbers.push(u32::try_from(number).unwrap_or(u32::MAX));
            }
            forget_devices(&mut *connection, node, &numbers).await?;
            Ok(NodeNumbers {
                node: u32::try_from(node).unwrap_or(u32::MAX),
                devices: numbers,
            })
        })
        .await
    }

    /// Numbers and names of the nodes that may come back without a token: at most `limit`, newest first.
    pub async fn nodes_with_credentials(
        &self,
        limit: u32,
    ) -> Result<Vec<(u32, String)>, StoreError> {
        let rows = query(
            "SELECT id, name FROM nodes WHERE credential IS NOT NULL ORDER BY id DESC LIMIT ?",
        )
        .bind(limit)
        .fetch_all(&self.readers)
        .await
        .map_err(self.failed("read the nodes"))?;
        let number = |row: &Row| {
            let id: i64 = row.get("id");
            (u32::try_from(id).unwrap_or(u32::MAX), row.get("name"))
        };
        Ok(rows.iter().map(number).collect())
    }

    /// Stores the credential with which the node may come back, and voids the former one. With `None` it needs a token again.
    pub async fn save_node_credential(
        &self,
        name: &str,
        credential: Option<&KeyText>,
    ) -> Result<(), StoreError> {
        let hash = credential.map(|text| hash_key(text.reveal()).0.to_vec());
        self.write("save a node's credential", async |connection| {
            query("UPDATE nodes SET credential = ? WHERE name = ?")
                .bind(hash)
                .bind(name)
                .execute(connection)
                .await
        })
        .await
        .map(|_| ())
    }

    /// Checks a token or credential. Comparing in the database is safe, because a hash of 256 random bits reveals nothing about a
    /// near match.
    pub async fn node_pass(
        &self,
        text: &str,
        now: Time,
    ) -> Result<Result<NodePass, TokenRefusal>, StoreError> {
        let hash = hash_key(text).0.to_vec();
        let node = query("SELECT name FROM nodes WHERE credential = ?")
            .bind(&hash[..])
            .fetch_optional(&self.readers)
            .await
            .map_err(self.failed("read a node's credential"))?;
        if let Some(row) = node {
            let node = row.get("name");
            return Ok(Ok(NodePass::Credential { node }));
        }
        let token = query("SELECT * FROM node_tokens WHERE hash = ?")
            .bind(&hash[..])
            .fetch_optional(&self.readers)
            .await
            .map_err(self.failed("read a token of nodes"))?;
        let Some(token) = token.as_ref().map(token_of) else {
            return Ok(Err(TokenRefusal::Unknown));
        };
        if let Err(refusal) = token.check(now) {
            return Ok(Err(refusal));
        }
        let used = self
            .write("note the use of a token", async |connection| {
                query("UPDATE node_tokens SET used_at = ? WHERE id = ?")
                    .bind(to_integer(now.0))
                    .bind(to_integer(token.id))
                    .execute(connection)
                    .await
            })
            .await;
        used.map(|_| Ok(NodePass::Token))
    }

    /// Stores a token by its hash.
    pub async fn add_node_token(
        &self,
        text: &KeyText,
        now: Time,
        expires: Time,
    ) -> Result<NodeToken, StoreError> {
        let KeyHash(hash) = hash_key(text.reveal());
        let prefix = text.prefix();
        let id = self
            .write("save a token of nodes", async |connection| {
                query(
                    "DELETE FROM node_tokens WHERE (revoked = 1 OR expires_at <= ?) AND id NOT IN \
                     (SELECT id FROM node_tokens ORDER BY id DESC LIMIT ?)",
                )
                .bind(to_integer(now.0))
                .bind(OLD_TOKENS_MAX)
                .execute(&mut *connection)
                .await?;
                query(
                    "INSERT INTO node_tokens (prefix, hash, created_at, expires_at) VALUES (?, ?, ?, ?) RETURNING id",
                )
                .bind(prefix.as_str())
                .bind(&hash[..])
                .bind(to_integer(now.0))
                .bind(to_integer(expires.0))
                .fetch_value(connection)
                .await
            })
            .await?;
        Ok(NodeToken {
            id: from_integer(id),
            prefix,
            created: now,
            expires,
            used: None,
            revoked: false,
        })
    }

    /// All tokens in the order of creation, including invalid ones.
    pub async fn node_tokens(&self) -> Result<Vec<NodeToken>, StoreError> {
        let rows = query("SELECT * FROM node_tokens ORDER BY id")
            .fetch_all(&self.readers)
            .await
            .map_err(self.failed("read the tokens of nodes"))?;
        Ok(rows.iter().map(token_of).collect())
    }

    /// The token with this text, valid or not. Does not count as a use.
    pub async fn node_token(&self, text: &str) -> Result<Option<NodeToken>, StoreError> {
        let hash = hash_key(text).0.to_vec();
        let row = query("SELECT * FROM node_tokens WHERE hash = ?")
            .bind(&hash[..])
            .fetch_optional(&self.readers)
            .await
            .map_err(self.failed("read a token of nodes"))?;
        Ok(row.as_ref().map(token_of))
    }

    /// The id of this pool, if it has one. Two pools of one account with the same `cluster.name` differ in it.
    pub async fn pool_id(&self) -> Result<Option<String>, StoreError> {
        self.meta(POOL_ID).await
    }

    pub async fn save_pool_id(&self, id: &str) -> Result<(), StoreError> {
        self.save_meta(POOL_ID, id).await
    }

    /// Revokes a token. Returns true if it exists. Nodes that have joined with it stay.
    pub async fn revoke_node_token(&self, id: u64) -> Result<bool, StoreError> {
        let revoked = self
            .write("revoke a token of nodes", async |connection| {
                query("UPDATE node_tokens SET revoked = 1 WHERE id = ? AND revoked = 0")
                    .bind(to_integer(id))
                    .execute(connection)
                    .await
            })
            .await?;
        Ok(revoked > 0)
    }
}

/// Forgets the numbers of a node's former devices beyond the limit. `numbers` are the current ones.
async fn forget_devices(
    connection: &mut Connection,
    node: i64,
    numbers: &[u32],
) -> Result<(), sqlx::Error> {
    let rows = query("SELECT id FROM node_devices WHERE node = ? ORDER BY id DESC")
        .bind(node)
        .fetch_all(&mut *connection)
        .await?;
    let surplus = rows.len().saturating_sub(NODE_DEVICES_KEPT_MAX);
    let ids = rows.iter().rev().map(|row| row.get::<i64>("id"));
    let is_former = |id: &i64| !numbers.iter().any(|number| i64::from(*number) == *id);
    for id in ids.filter(is_former).take(surplus) {
        query("DELETE FROM node_devices WHERE id = ?")
            .bind(id)
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

/// Makes room for one more node: forgets the oldest nodes without a credential.
async fn forget_nodes(connection: &mut Connection) -> Result<(), sqlx::Error> {
    const OLD: &str =
        "SELECT id FROM nodes WHERE credential IS NULL ORDER BY id DESC LIMIT ? OFFSET ?";
    let rows = query(OLD)
        .bind(NODES_KEPT_MAX)
        .bind(NODES_KEPT_MAX - 1)
        .fetch_all(&mut *connection)
        .await?;
    for row in &rows {
        let id: i64 = row.get("id");
        for statement in [
            "DELETE FROM node_devices WHERE node = ?",
            "DELETE FROM nodes WHERE id = ?",
        ] {
            query(statement).bind(id).execute(&mut *connection).await?;
        }
    }
    Ok(())
}

fn token_of(row: &Row) -> NodeToken {
    NodeToken {
        id: from_integer(row.get("id")),
        prefix: row.get("prefix"),
        created: Time(from_integer(row.get("created_at"))),
        expires: Time(from_integer(row.get("expires_at"))),
        used: time(row, "used_at"),
        revoked: row.get::<i64>("revoked") != 0,
    }
}

fn time(row: &Row, column: &str) -> Option<Time> {
    row.get::<Option<i64>>(column)
        .map(|at| Time(from_integer(at)))
}

#[cfg(test)]
mod tests;
