//! API keys, looked up by hash in memory and kept in the store. Keys are never logged or shown here.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::caller_group::CallerGroup;
use crate::credentials::key_checks::{early_keys, is_last_admin, other_admins, sees_all};
use crate::credentials::rights::{By, Holder, KeyRefusal, Subject};
use crate::credentials::secret_file::secret_in;
use crate::groups::CallerGroups;
use controller::Clock;
use edge::record;
use pool::{KeyId, Span, Time};
use store::{
    FIRST_ADMIN_KEY, KeyRecord, KeyText, KeyUse, NewKey, Role, Store, StoreError, find_key,
    generate_key, hash_key,
};

/// Minimum interval between writes of a key's last use.
const TOUCH_EVERY: Span = Span::from_secs(60);
/// Interval between checks of the store for changes by commands such as `model-pool admin-key new`.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

/// The current keys.
#[derive(Debug)]
pub struct Keys {
    store: Arc<Store>,
    clock: Clock,
    /// Number of changes by commands that the keys read at start include.
    commands_at_open: i64,
    known: ArcSwap<Vec<KeyRecord>>,
    changes: tokio::sync::Mutex<()>,
    /// The groups of the keys, and of people.
    groups: CallerGroups,
}

impl Keys {
    /// Reads the keys. On the first start, takes the admin key from the file `first`. Without that file, creates a key and writes
    /// it to `admin_key_file` with mode 0600.
    pub async fn open(
        store: Arc<Store>,
        clock: Clock,
        admin_key_file: &Path,
        first: Option<&Path>,
    ) -> Result<Keys, KeysError> {
        // Read before the keys, to miss no change.
        let commands_at_open = store.key_changes_by_commands().await?;
        let known = store.keys().await?;
        let groups = CallerGroups::with_kept(&store.groups().await?);
        let keys = Keys {
            store,
            clock,
            commands_at_open,
            known: ArcSwap::from_pointee(known),
            changes: tokio::sync::Mutex::default(),
            groups,
        };
        let now = clock.wall();
        let known = keys.known.load_full();
        let early = early_keys(&known, now);
        if !early.is_empty() {
            tracing::warn!(
                keys = early.join(", "),
                "the machine's clock shows a time before the creation of keys that expire; they are refused until the clock is correct"
            );
        }
        let has_admin = keys
            .known
            .load()
            .iter()
            .any(|key| key.role == Role::Admin && key.is_valid(now));
        if let Some(file) = first.filter(|_| !has_admin) {
            let text = secret_in(file).map_err(KeysError::First)?;
            let allowed = KeyUse::default();
            let kept = keys.keep(&text, FIRST_ADMIN_KEY, Role::Admin, allowed, None);
            kept.await?;
            tracing::info!(file = %file.display(), "took the admin key from the file");
        } else if !has_admin {
            // Writes the file first: if that fails, the store must not already contain a key that can never be read.
            let text = generate_key()?;
            write_private(admin_key_file, text.reveal()).map_err(|source| KeysError::File {
                path: admin_key_file.display().to_string(),
                source,
            })?;
            let allowed = KeyUse::default();
            let kept = keys.keep(&text, FIRST_ADMIN_KEY, Role::Admin, allowed, None);
            kept.await?;
            tracing::info!(file = %admin_key_file.display(), "created an admin key");
        }
        Ok(keys)
    }

    /// Creates a key and stores it before returning it. Its text is only shown this once.
    ///
    /// # Errors
    /// [`KeyRefusal::Beyond`] if the key would have more rights than its creator.
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
        let rights = by.rights(&known, self.clock.wall(), &self.groups)?;
        let group = match &allowed.group {
            Some(name) => Some(self.group(name)?),
            None => None,
        };
        let subject = Subject {
            role,
            allowed: &allowed,
            expires,
            group,
        };
        by.check_new(&rights, &subject)?;
        rights.check_room(&known)?;
        sees_all(role, &allowed)?;
        let text = generate_key()?;
        let record = self.keep(&text, name, role, allowed, expires).await?;
        Ok((record, text.reveal().to_owned()))
    }

    /// Must be called with `changes` locked.
    async fn keep(
        &self,
        text: &KeyText,
        name: &str,
        role: Role,
        allowed: KeyUse,
        expires: Option<Time>,
    ) -> Result<KeyRecord, StoreError> {
        let key = NewKey {
            name: name.to_owned(),
            role,
            allowed,
            prefix: text.prefix(),
            hash: hash_key(text.reveal()),
            created: self.clock.wall(),
            expires,
        };
        let record = self.store.add_key(key).await?;
        self.refresh().await?;
        Ok(record)
    }

    /// Changes a key and returns it. `None` if the key does not exist or is revoked.
    ///
    /// # Errors
    /// [`KeyRefusal::LastAdmin`] if no permanent admin key for all routes would remain; [`KeyRefusal::Beyond`] if the key has more
    /// rights than its changer, before or after the change.
    pub async fn change(
        &self,
        by: By<'_>,
        id: KeyId,
        change: impl FnOnce(&mut KeyRecord),
    ) -> Result<Option<KeyRecord>, KeyRefusal> {
        // Serialized: no change overwrites another, and the checks stay valid.
        let _turn = self.changes.lock().await;
        let known = self.store.keys().await?;
        let rights = by.rights(&known, self.clock.wall(), &self.groups)?;
        let is_last = is_last_admin(&known, id, self.clock.wall());
        let mut found = known.into_iter().filter(|key| key.id == id && !key.revoked);
        let Some(mut key) = found.next() else {
            return Ok(None);
        };
        by.check(&rights, &self.subject(&key))?;
        let (end, group) = (key.expires, key.allowed.group.clone());
        change(&mut key);
        if let Some(name) = key
            .allowed
            .group
            .as_ref()
            .filter(|_| key.allowed.group != group)
        {
            self.group(name)?;
        }
        by.check_new(&rights, &self.subject(&key))?;
        sees_all(key.role, &key.allowed)?;
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

    /// Revokes a key. Returns false if it does not exist or is already revoked. The caller's own key is only revoked if
    /// `confirmed`.
    ///
    /// # Errors
    /// [`KeyRefusal::LastAdmin`] if no admin key for all routes would remain; [`KeyRefusal::Beyond`] if the key has more rights
    /// than the caller; [`KeyRefusal::OwnKey`].
    pub async fn revoke(&self, by: By<'_>, id: KeyId, confirmed: bool) -> Result<bool, KeyRefusal> {
        let _turn = self.changes.lock().await;
        let known = self.store.keys().await?;
        let rights = by.rights(&known, self.clock.wall(), &self.groups)?;
        if let Some(key) = known.iter().find(|key| key.id == id) {
            by.check(&rights, &self.subject(key))?;
        }
        if is_last_admin(&known, id, self.clock.wall()) {
            return Err(KeyRefusal::LastAdmin);
        }
        if !confirmed && matches!(by.holder, Holder::Key(own) if *own == id) {
            return Err(KeyRefusal::OwnKey(other_admins(
                &known,
                id,
                self.clock.wall(),
            )));
        }
        let revoked = self.store.revoke_key(id).await?;
        self.refresh().await?;
        Ok(revoked)
    }

    /// The group of this name.
    fn group(&self, name: &str) -> Result<Arc<CallerGroup>, KeyRefusal> {
        let group = self.groups.named(name);
        group.ok_or_else(|| KeyRefusal::NoSuchGroup(name.to_owned()))
    }

    fn subject<'a>(&self, key: &'a KeyRecord) -> Subject<'a> {
        Subject {
            role: key.role,
            allowed: &key.allowed,
            expires: key.expires,
            group: self.groups.group_of(key),
        }
    }

    pub fn groups(&self) -> &CallerGroups {
        &self.groups
    }

    pub fn all(&self) -> Arc<Vec<KeyRecord>> {
        self.known.load_full()
    }

    async fn refresh(&self) -> Result<(), StoreError> {
        self.known.store(Arc::new(self.store.keys().await?));
        Ok(())
    }

    /// Reads the keys again whenever a command on this machine has changed them. Never returns.
    pub async fn follow_commands(self: Arc<Keys>) {
        let mut applied = self.commands_at_open;
        loop {
            ticks::pause(FOLLOW_EVERY).await;
            match self.follow(&mut applied).await {
                Ok(false) => {}
                Ok(true) => tracing::info!("applied key changes made by a command on this machine"),
                // Retried at the next check; the store logs lasting trouble.
                Err(fault) => tracing::debug!(%fault, "could not reload the keys"),
            }
        }
    }

    /// Returns true if another program has changed the keys since the last check.
    async fn follow(&self, applied: &mut i64) -> Result<bool, StoreError> {
        let changes = self.store.key_changes_by_commands().await?;
        if *applied == changes {
            return Ok(false);
        }
        let _turn = self.changes.lock().await;
        self.refresh().await?;
        *applied = changes;
        Ok(true)
    }

    /// The valid key of a request. Its last use is recorded in the background.
    pub fn find(self: &Arc<Keys>, text: &str) -> Option<KeyRecord> {
        let now = self.clock.wall();
        let known = self.known.load();
        let key = find_key(&known, text, now)?.clone();
        record::note_key(key.id, &key.name, key.allowed.log_prompts);
        Some(self.used(key, now))
    }

    /// Like [`Keys::find`], for the key that opened a session.
    pub(crate) fn find_id(self: &Arc<Keys>, id: KeyId) -> Option<KeyRecord> {
        let now = self.clock.wall();
        let known = self.known.load();
        let key = known.iter().find(|key| key.id == id && key.is_valid(now))?;
        Some(self.used(key.clone(), now))
    }

    fn used(self: &Arc<Keys>, key: KeyRecord, now: Time) -> KeyRecord {
        if key.last_used.is_none_or(|at| now.since(at) > TOUCH_EVERY) {
            self.touch(key.id, now);
        }
        key
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "one small write; losing it at shutdown only loses a date of use"
    )]
    fn touch(self: &Arc<Keys>, id: KeyId, now: Time) {
        // Updates the current list, which may have been replaced in the meantime.
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
                && !fault.is_logged_by_the_store()
            {
                tracing::warn!(%fault, "could not store the last use of a key");
            }
        });
    }
}

#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(
        "the admin key cannot be written to {path}: {source}; make the folder writable or set auth.admin_key_file"
    )]
    File {
        path: String,
        source: std::io::Error,
    },
    #[error("auth.first_admin_key_file: {0}")]
    First(String),
}

fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    // A file left by another database is replaced, to never widen its permissions.
    let _ = std::fs::remove_file(path);
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    writeln!(file, "{text}")?;
    file.sync_all()
}

#[cfg(test)]
mod tests;
