//! API keys: created here, stored as a hash, shown once. Keys and hashes are never printed, and hashes are compared in constant
//! time.

use std::fmt;

use rand::TryRngCore;
use rand::rngs::OsRng;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::database::Store;
use crate::sql::integers::{from_integer, to_integer};
use crate::sql::query::query;
use crate::sql::{Connection, StoreError};
use config::Limit;
use pool::{KeyId, Span, Time};

/// The permissions of a key.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Admin,
    User,
    /// Reads everything that administrators can read, without changing it.
    Viewer,
    /// Uses models, and administers its group and the groups below it.
    #[serde(rename = "group-admin")]
    GroupAdmin,
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Role::Admin => "admin",
            Role::User => "user",
            Role::Viewer => "viewer",
            Role::GroupAdmin => "group-admin",
        }
    }

    /// The columns `role` and `administers`.
    fn columns(self) -> (&'static str, bool) {
        match self {
            Role::GroupAdmin => (Role::User.name(), true),
            role => (role.name(), false),
        }
    }
}

/// The key itself: `mp-` and 43 characters. Exists only between its creation and the one response that shows it.
#[derive(Clone)]
pub struct KeyText(String);

impl KeyText {
    /// Accepts a secret that another program created, such as a Secret of Kubernetes. Returns `None` if it is too short or too
    /// long, or not allowed in a header.
    pub fn given(text: &str) -> Option<KeyText> {
        let is_long = (GIVEN_CHARACTERS.0..=GIVEN_CHARACTERS.1).contains(&text.len());
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
        (is_long && is_plain).then(|| KeyText(text.to_owned()))
    }

    /// The secret, for the response that shows it, or the key file.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The part by which people recognize a key. Reveals nothing about the rest.
    pub fn prefix(&self) -> String {
        self.0.chars().take(PREFIX_CHARACTERS).collect()
    }
}

impl fmt::Debug for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyText(hidden)")
    }
}

/// SHA-256 of a key. A key has 256 random bits, so no slower hash is needed.
#[derive(Clone, Copy)]
pub struct KeyHash(pub [u8; 32]);

impl PartialEq for KeyHash {
    fn eq(&self, other: &KeyHash) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for KeyHash {}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash(hidden)")
    }
}

/// The uses of a key in addition to its role, and its limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyUse {
    /// Names of models, or patterns with `*`. Empty means all models.
    pub models: Vec<String>,
    /// Routes without their base path, such as `/v1/embeddings` or `/admin/*`. Empty means all routes of the role.
    pub routes: Vec<String>,
    /// `None` means the configured default.
    pub limits: Option<Limit>,
    /// Writes this key's prompts to the access log.
    pub log_prompts: bool,
    /// The name of its group, which takes precedence over groups that list the key.
    pub group: Option<String>,
}

/// A key to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewKey {
    pub name: String,
    pub role: Role,
    pub allowed: KeyUse,
    /// [`KeyText::prefix`].
    pub prefix: String,
    pub hash: KeyHash,
    pub created: Time,
    pub expires: Option<Time>,
}

/// A stored key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// Never 0 and never reused.
    pub id: KeyId,
    pub name: String,
    pub role: Role,
    pub allowed: KeyUse,
    pub prefix: String,
    pub hash: KeyHash,
    pub created: Time,
    pub last_used: Option<Time>,
    pub expires: Option<Time>,
    pub revoked: bool,
}

impl KeyRecord {
    /// Returns true if the key is neither revoked nor expired. A key that expires is valid between its creation and its expiry: a
    /// clock that went back does not make an expired key valid again.
    pub fn is_valid(&self, now: Time) -> bool {
        let is_within = |end| now < end && !is_before(self.created, now);
        !self.revoked && self.expires.is_none_or(is_within)
    }
}

/// Returns true if `now` is earlier than a creation by more than a time service corrects.
pub fn is_before(created: Time, now: Time) -> bool {
    created.since(now) > CLOCK_TOLERANCE
}

const CLOCK_TOLERANCE: Span = Span::from_secs(300);
const PREFIX_CHARACTERS: usize = 9;
/// The minimum and maximum length of a secret that another program created.
const GIVEN_CHARACTERS: (usize, usize) = (32, 256);
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A new key from 32 bytes of the system's random source.
///
/// # Errors
/// [`StoreError::Random`] if the system has no random bytes.
pub fn generate_key() -> Result<KeyText, StoreError> {
    let mut secret = [0_u8; 32];
    OsRng
        .try_fill_bytes(&mut secret)
        .map_err(|source| StoreError::Random { source })?;
    Ok(KeyText(format!("mp-{}", base64url(&secret))))
}

/// The stored form of a key.
pub fn hash_key(text: &str) -> KeyHash {
    KeyHash(Sha256::digest(text.as_bytes()).into())
}

/// The valid key with this text, if it exists. Compares all keys, which keeps the timing from revealing a near match.
pub fn find_key<'a>(keys: &'a [KeyRecord], text: &str, now: Time) -> Option<&'a KeyRecord> {
    let hash = hash_key(text);
    keys.iter().fold(None, |found, key| {
        if key.hash == hash && key.is_valid(now) {
            Some(key)
        } else {
            found
        }
    })
}

/// Base64 with the URL alphabet and without padding (RFC 4648, section 5).
fn base64url(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..=group.len() {
            let index = bits >> (18 - 6 * place) & 63;
            text.push(char::from(ALPHABET[index as usize]));
        }
    }
    text
}

/// Lists of texts and figures can always be serialized as JSON.
fn as_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Inserts a key within a transaction and returns its id.
pub(super) async fn insert_key(
    connection: &mut Connection,
    key: &NewKey,
) -> Result<KeyId, sqlx::Error> {
    let (role, administers) = key.role.columns();
    let insert = query(
        "INSERT INTO keys (name, role, administers, prefix, hash, created_at, expires_at, models, routes, limits, log_prompts, group_name) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id",
    )
    .bind(key.name.as_str())
    .bind(role)
    .bind(administers)
    .bind(key.prefix.as_str())
    .bind(&key.hash.0[..])
    .bind(to_integer(key.created.0))
    .bind(key.expires.map(|time| to_integer(time.0)))
    .bind(as_json(&key.allowed.models))
    .bind(as_json(&key.allowed.routes))
    .bind(key.allowed.limits.as_ref().map(as_json))
    .bind(key.allowed.log_prompts)
    .bind(key.allowed.group.as_deref());
    let id = insert.fetch_value(connection).await?;
    Ok(KeyId(from_integer(id)))
}

impl Store {
    /// Stores a key and assigns its id.
    pub async fn add_key(&self, key: NewKey) -> Result<KeyRecord, StoreError> {
        let id = self
            .write("save a key", async |connection| {
                insert_key(connection, &key).await
            })
            .await?;
        Ok(KeyRecord {
            id,
            name: key.name,
            role: key.role,
            allowed: key.allowed,
            prefix: key.prefix,
            hash: key.hash,
            created: key.created,
            last_used: None,
            expires: key.expires,
            revoked: false,
        })
    }

    /// All keys in the order of creation, including revoked and expired ones.
    pub async fn keys(&self) -> Result<Vec<KeyRecord>, StoreError> {
        let rows = query("SELECT * FROM keys ORDER BY id")
            .fetch_all(&self.readers)
            .await
            .map_err(self.failed("read the keys"))?;
        rows.into_iter()
            .map(|row| {
                let id: i64 = row.get("id");
                let administers = row.get::<i64>("administers") != 0;
                let role = match row.get("role") {
                    "user" if administers => Role::GroupAdmin,
                    "admin" => Role::Admin,
                    "user" => Role::User,
                    "viewer" => Role::Viewer,
                    _ => {
                        let problem = "the role is neither admin nor user nor viewer";
                        return Err(self.bad_row("keys", id, problem));
                    }
                };
                let hash: [u8; 32] = row
                    .get::<&[u8]>("hash")
                    .try_into()
                    .map_err(|_| self.bad_row("keys", id, "the hash has not 32 bytes"))?;
                let time = |column: &str| {
                    row.get::<Option<i64>>(column)
                        .map(|value| Time(from_integer(value)))
                };
                let unread = |error: serde_json::Error| self.bad_row("keys", id, error);
                let limits: Option<&str> = row.get("limits");
                let allowed = KeyUse {
                    models: serde_json::from_str(row.get("models")).map_err(unread)?,
                    routes: serde_json::from_str(row.get("routes")).map_err(unread)?,
                    limits: limits
                        .map(serde_json::from_str)
                        .transpose()
                        .map_err(unread)?,
                    log_prompts: row.get::<i64>("log_prompts") != 0,
                    group: row.get("group_name"),
                };
                Ok(KeyRecord {
                    id: KeyId(from_integer(id)),
                    name: row.get("name"),
                    role,
                    allowed,
                    prefix: row.get("prefix"),
                    hash: KeyHash(hash),
                    created: Time(from_integer(row.get("created_at"))),
                    last_used: time("last_used_at"),
                    expires: time("expires_at"),
                    revoked: row.get::<i64>("revoked") != 0,
                })
            })
            .collect()
    }

    /// Changes the name, uses or expiry of a key. Returns false if it does not exist.
    pub async fn change_key(
        &self,
        id: KeyId,
        name: &str,
        allowed: &KeyUse,
        expires: Option<Time>,
    ) -> Result<bool, StoreError> {
        let change = query(
            "UPDATE keys SET name = ?, models = ?, routes = ?, limits = ?, log_prompts = ?, group_name = ?, expires_at = ? \
             WHERE id = ? AND revoked = 0",
        )
        .bind(name)
        .bind(as_json(&allowed.models))
        .bind(as_json(&allowed.routes))
        .bind(allowed.limits.as_ref().map(as_json))
        .bind(allowed.log_prompts)
        .bind(allowed.group.as_deref())
        .bind(expires.map(|time| to_integer(time.0)))
        .bind(to_integer(id.0));
        self.write("change a key", async |connection| {
            change.execute(connection).await
        })
        .await
        .map(|changed| changed > 0)
    }

    /// Revokes a key. Returns true if it exists. It stays in the list, where the history can name it.
    pub async fn revoke_key(&self, id: KeyId) -> Result<bool, StoreError> {
        let change = query("UPDATE keys SET revoked = 1 WHERE id = ?").bind(to_integer(id.0));
        self.write("revoke a key", async |connection| {
            change.execute(connection).await
        })
        .await
        .map(|changed| changed > 0)
    }

    /// Records when a key was last used. Writes to disk: call it occasionally, not for every request.
    pub async fn touch_key(&self, id: KeyId, at: Time) -> Result<(), StoreError> {
        let change = query(
            "UPDATE keys SET last_used_at = ?1 WHERE id = ?2 AND coalesce(last_used_at, 0) < ?1",
        )
        .bind(to_integer(at.0))
        .bind(to_integer(id.0));
        self.write("record the use of a key", async |connection| {
            change.execute(connection).await
        })
        .await
        .map(|_| ())
    }
}
