//! Who asks: API keys, and what each may do. Keys are looked up by hash in memory; the store keeps
//! them. Nothing here logs or shows a key.

use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::extract::FromRequestParts;
use axum::http::{HeaderMap, header, request::Parts};

use super::audit::{self, Actor};
use super::cross_site;
use super::edge::{ClientAddress, record};
use super::error::Failure;
use super::rights::{By, Holder, KeyRefusal};
use super::sight::{Sight, matches_any};
use super::sign_on::Person;
use super::state::App;
use access::limits::{Bucket, place_of};
use config::InferenceAuth;
use controller::Clock;
use pool::{KeyId, Span, Time};
use store::{
    KeyRecord, KeyText, KeyUse, NewKey, Role, Store, StoreFault, find_key, generate_key, hash_key,
};

/// A key's last use is written at most this often.
const TOUCH_EVERY: Span = Span::from_secs(60);

/// The keys as they are now.
#[derive(Debug)]
pub struct Keys {
    store: Arc<Store>,
    clock: Clock,
    known: ArcSwap<Vec<KeyRecord>>,
    changes: tokio::sync::Mutex<()>,
}

impl Keys {
    /// Reads the keys. On the first start an admin key is made, and written to `admin_key_file` for
    /// this machine's user alone (mode 0600).
    pub async fn open(
        store: Arc<Store>,
        clock: Clock,
        admin_key_file: &Path,
    ) -> Result<Keys, KeysError> {
        let known = store.keys().await?;
        let keys = Keys {
            store,
            clock,
            known: ArcSwap::from_pointee(known),
            changes: tokio::sync::Mutex::default(),
        };
        let now = clock.now();
        let has_admin = keys
            .known
            .load()
            .iter()
            .any(|key| key.role == Role::Admin && key.is_valid(now));
        if !has_admin {
            // The file comes first: a kept key that nobody can read would be the only one for ever.
            let text = generate_key()?;
            write_private(admin_key_file, text.reveal()).map_err(|source| KeysError::File {
                path: admin_key_file.display().to_string(),
                source,
            })?;
            let allowed = KeyUse::default();
            let kept = keys.keep(&text, "first admin key", Role::Admin, allowed, None);
            kept.await?;
            tracing::info!(file = %admin_key_file.display(), "an admin key was made and written");
        }
        Ok(keys)
    }

    /// A new key of somebody who may make it, kept before it is given out. The text is shown this once.
    ///
    /// # Errors
    /// [`KeyRefusal::Beyond`] when it may do more than who makes it.
    pub async fn create(
        &self,
        by: By<'_>,
        name: &str,
        role: Role,
        allowed: KeyUse,
        expires: Option<Time>,
    ) -> Result<(KeyRecord, String), KeyRefusal> {
        let _turn = self.changes.lock().await;
        let known = self.store.keys().await?;
        let rights = by.rights(&known, self.clock.now())?;
        by.check(&rights, &allowed, expires)?;
        let text = generate_key()?;
        let record = self.keep(&text, name, role, allowed, expires).await?;
        Ok((record, text.reveal().to_owned()))
    }

    /// Called by one at a time.
    async fn keep(
        &self,
        text: &KeyText,
        name: &str,
        role: Role,
        allowed: KeyUse,
        expires: Option<Time>,
    ) -> Result<KeyRecord, StoreFault> {
        let key = NewKey {
            name: name.to_owned(),
            role,
            allowed,
            prefix: text.prefix(),
            hash: hash_key(text.reveal()),
            created: self.clock.now(),
            expires,
        };
        let record = self.store.add_key(key).await?;
        self.refresh().await?;
        Ok(record)
    }

    /// The key as it is after the change; none if there is no such key, or it is revoked.
    ///
    /// # Errors
    /// [`KeyRefusal::LastAdmin`] when nobody could steer the pool any more, or only for a time;
    /// [`KeyRefusal::Beyond`] when it may do more than who changes it, before or after.
    pub async fn change(
        &self,
        by: By<'_>,
        id: KeyId,
        change: impl FnOnce(&mut KeyRecord),
    ) -> Result<Option<KeyRecord>, KeyRefusal> {
        // One at a time, so that none is laid over another and what is looked at stays as it is.
        let _turn = self.changes.lock().await;
        let known = self.store.keys().await?;
        let rights = by.rights(&known, self.clock.now())?;
        let is_last = is_last_admin(&known, id, self.clock.now());
        let mut found = known.into_iter().filter(|key| key.id == id && !key.revoked);
        let Some(mut key) = found.next() else {
            return Ok(None);
        };
        by.check(&rights, &key.allowed, key.expires)?;
        let end = key.expires;
        change(&mut key);
        by.check(&rights, &key.allowed, key.expires)?;
        if is_last
            && (!key.allowed.routes.is_empty() || key.expires != end && key.expires.is_some())
        {
            return Err(KeyRefusal::LastAdmin);
        }
        let changed = self
            .store
            .change_key(id, &key.name, &key.allowed, key.expires)
            .await?;
        self.refresh().await?;
        Ok(changed.then_some(key))
    }

    /// False if there is no such key, or it is revoked already.
    ///
    /// # Errors
    /// [`KeyRefusal::LastAdmin`] when nobody could steer the pool any more; [`KeyRefusal::Beyond`] when it
    /// may do more than who revokes it.
    pub async fn revoke(&self, by: By<'_>, id: KeyId) -> Result<bool, KeyRefusal> {
        let _turn = self.changes.lock().await;
        let known = self.store.keys().await?;
        let rights = by.rights(&known, self.clock.now())?;
        if let Some(key) = known.iter().find(|key| key.id == id) {
            by.check(&rights, &key.allowed, key.expires)?;
        }
        if is_last_admin(&known, id, self.clock.now()) {
            return Err(KeyRefusal::LastAdmin);
        }
        let revoked = self.store.revoke_key(id).await?;
        self.refresh().await?;
        Ok(revoked)
    }

    pub fn all(&self) -> Arc<Vec<KeyRecord>> {
        self.known.load_full()
    }

    async fn refresh(&self) -> Result<(), StoreFault> {
        self.known.store(Arc::new(self.store.keys().await?));
        Ok(())
    }

    /// The valid key of a request. The time of its use is kept, not waited for.
    fn find(self: &Arc<Keys>, text: &str) -> Option<KeyRecord> {
        let now = self.clock.now();
        let known = self.known.load();
        let key = find_key(&known, text, now)?.clone();
        record::asked_by(key.id, &key.name, key.allowed.log_prompts);
        if key.last_used.is_none_or(|at| now.since(at) > TOUCH_EVERY) {
            self.touch(key.id, now);
        }
        Some(key)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "one small write; losing it at the end loses a date of use"
    )]
    fn touch(self: &Arc<Keys>, id: KeyId, now: Time) {
        // Of a list that another one has taken the place of meanwhile nothing may come back.
        self.known.rcu(|known| {
            let mut newer = known.as_ref().clone();
            newer
                .iter_mut()
                .filter(|key| key.id == id)
                .for_each(|key| key.last_used = Some(now));
            newer
        });
        let keys = Arc::clone(self);
        tokio::spawn(async move {
            if let Err(fault) = keys.store.touch_key(id, now).await
                && !fault.is_told_by_the_store()
            {
                tracing::warn!(%fault, "the time of a key's use was not kept");
            }
        });
    }
}

/// Whether nobody else may steer all of the pool.
fn is_last_admin(keys: &[KeyRecord], id: KeyId, now: Time) -> bool {
    let is_full = |key: &&KeyRecord| {
        key.role == Role::Admin && key.is_valid(now) && key.allowed.routes.is_empty()
    };
    let mut full = keys.iter().filter(is_full).map(|key| key.id);
    full.next() == Some(id) && full.next().is_none()
}

#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error(transparent)]
    Store(#[from] StoreFault),
    #[error(
        "the admin key cannot be written to {path}: {source}; make the folder writable or set auth.admin_key_file"
    )]
    File {
        path: String,
        source: std::io::Error,
    },
}

fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    // A file left from another database is replaced, never widened: it is made anew with its mode.
    let _ = std::fs::remove_file(path);
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    writeln!(file, "{text}")?;
    file.sync_all()
}

/// Somebody who may use models. `key` is 0 for people without a key.
#[derive(Clone, Debug)]
pub struct User {
    pub key: KeyId,
    /// Whose use is counted, and what they may have.
    pub bucket: Bucket,
    /// Which models are for them.
    pub sight: Sight,
}

impl User {
    fn of_key(key: KeyRecord, app: &App) -> User {
        User {
            key: key.id,
            bucket: Bucket {
                id: format!("key:{}", key.id.0),
                words: format!("the key {} ({})", key.id, key.name),
                limit: key.allowed.limits.unwrap_or(app.limits.default_limit()),
            },
            sight: Sight::of_patterns(key.allowed.models),
        }
    }

    pub(super) fn of_person(key: KeyId, name: &str, person: Person, app: &App) -> User {
        User {
            key,
            bucket: Bucket {
                id: format!("person:{:x}", key.0),
                words: name.to_owned(),
                limit: app.limits.default_limit(),
            },
            sight: Sight::of_person(person),
        }
    }

    /// Who has no key, if it is no page of somebody else's that asks by their browser.
    fn anonymous(parts: &Parts, app: &App) -> Result<User, Failure> {
        cross_site::check(parts, app)?;
        let client = parts.extensions.get::<ClientAddress>();
        let peer = client.map_or_else(|| "unknown".to_owned(), |it| place_of(it.address));
        Ok(User {
            key: KeyId(0),
            bucket: Bucket {
                words: format!("the address {peer}, which has no key,"),
                id: format!("address:{peer}"),
                limit: app.limits.anonymous_limit(),
            },
            sight: Sight::default(),
        })
    }
}

/// Somebody who may steer the pool.
#[derive(Clone, Debug)]
pub struct Admin {
    pub name: String,
    /// Whose rights bound what they may give to others.
    pub holder: Holder,
}

/// The route as keys name it: without the base path.
fn route_of<'a>(parts: &'a Parts, app: &App) -> &'a str {
    let path = parts.uri.path();
    let base = app.config.server.base_path.as_str();
    path.strip_prefix(base).unwrap_or(path)
}

/// A key that is for some routes is refused on the others.
fn on_its_routes(key: &KeyRecord, parts: &Parts, app: &App) -> Result<(), Failure> {
    let (routes, route) = (&key.allowed.routes, route_of(parts, app));
    if routes.is_empty() || matches_any(routes, route) {
        return Ok(());
    }
    Err(Failure::forbidden(
        "route_not_allowed",
        format!(
            "the key {}… is for {} and not for {route}",
            key.prefix,
            routes.join(", ")
        ),
    ))
}

pub(super) fn bearer(headers: &HeaderMap) -> Option<&str> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
        return scheme.eq_ignore_ascii_case("bearer").then_some(key.trim());
    }
    headers.get("x-api-key")?.to_str().ok()
}

impl FromRequestParts<App> for User {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<User, Failure> {
        if let Some(person) = Person::of(bearer(&parts.headers), parts, app).await? {
            return person.user(app);
        }
        let anonymous = match app.config.auth.inference {
            InferenceAuth::Open => true,
            InferenceAuth::Loopback => from_loopback(parts),
            InferenceAuth::Key => false,
        };
        // A wrong key is told, also where none is needed: its owner thinks that it counts. OpenAI's
        // clients insist on some key, so that any other text than one of ours passes where none is
        // needed.
        match bearer(&parts.headers) {
            Some(text) => match app.keys.find(text) {
                Some(key) => {
                    on_its_routes(&key, parts, app)?;
                    Ok(User::of_key(key, app))
                }
                None if anonymous && !text.starts_with("mp-") => User::anonymous(parts, app),
                None => Err(Failure::unauthorized_key()),
            },
            None if anonymous => User::anonymous(parts, app),
            None => Err(Failure::unauthorized(
                "an API key is needed: send it as `Authorization: Bearer mp-…`; an administrator makes one with `admin-client keys create NAME --role user`",
            )),
        }
    }
}

impl FromRequestParts<App> for Admin {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Admin, Failure> {
        if let Some(person) = Person::of(bearer(&parts.headers), parts, app).await? {
            return person.admin();
        }
        let text = bearer(&parts.headers).ok_or_else(|| {
            let file = app.config.admin_key_file();
            Failure::unauthorized(format!(
                "an admin key is needed: send it as `Authorization: Bearer mp-…`; the first one was written to {} on the server",
                file.display()
            ))
        })?;
        let key = app.keys.find(text).ok_or_else(|| {
            Failure::forbidden("invalid_api_key", "this key is unknown, expired or revoked")
        })?;
        audit::tell(parts, || Actor {
            key: Some(key.id),
            subject: None,
            name: key.name.clone(),
            is_admin: key.role == Role::Admin,
        });
        match key.role {
            Role::Admin => {
                on_its_routes(&key, parts, app)?;
                let holder = Holder::Key(key.id);
                Ok(Admin {
                    name: key.name,
                    holder,
                })
            }
            Role::User => Err(Failure::forbidden(
                "not_an_admin",
                format!("the key {}… may use models, not steer the pool", key.prefix),
            )),
        }
    }
}

/// The client itself is on this machine, and speaks for nobody else.
pub(super) fn from_loopback(parts: &Parts) -> bool {
    let client = parts.extensions.get::<ClientAddress>();
    client.is_some_and(ClientAddress::is_loopback)
}

impl Failure {
    fn unauthorized_key() -> Failure {
        let mut failure = Failure::unauthorized("this API key is unknown, expired or revoked");
        failure.body.error.code = Some("invalid_api_key");
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: u64, role: Role, revoked: bool) -> KeyRecord {
        KeyRecord {
            id: KeyId(id),
            name: format!("key {id}"),
            role,
            allowed: KeyUse::default(),
            prefix: "mp-".to_owned(),
            hash: hash_key("x"),
            created: Time(0),
            last_used: None,
            expires: None,
            revoked,
        }
    }

    #[test]
    fn the_last_valid_admin_key_is_known() {
        let keys = vec![
            key(1, Role::Admin, true),
            key(2, Role::Admin, false),
            key(3, Role::User, false),
        ];
        assert!(is_last_admin(&keys, KeyId(2), Time(1)));
        assert!(!is_last_admin(&keys, KeyId(3), Time(1)));
        let mut two = vec![key(1, Role::Admin, false), key(2, Role::Admin, false)];
        assert!(!is_last_admin(&two, KeyId(1), Time(1)));
        two[1].allowed.routes = vec!["/admin/plan".to_owned()];
        assert!(
            is_last_admin(&two, KeyId(1), Time(1)),
            "that one is for little"
        );
    }
}
