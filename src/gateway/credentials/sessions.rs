//! Browser sessions: after logging in with a key or token, the browser holds a cookie instead. Only the hash of the cookie's secret
//! is kept, in memory, so a restart ends all sessions. The table is limited per holder and in total.
//!
//! ```text
//! log in ─▶ open ──(used, and its secret is old)──▶ rotated: the former secret counts for a minute more
//!             └──▶ over: logged out, idle, too old, or its key was revoked, has ended or was changed
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use access::oidc::Identity;
use pool::{KeyId, Span, Time};
use store::{KeyRecord, KeyUse, Role, StoreError, generate_key, hash_key};

/// Idle time after which a session ends.
const IDLE_MAX: Span = Span::from_secs(2 * 3600);
/// Longest lifetime of a session.
const LASTS: Span = Span::from_secs(12 * 3600);
/// Longer for viewers, who can change nothing and run wall displays.
const VIEWER_LASTS: Span = Span::from_secs(30 * 24 * 3600);
/// Age at which a secret is replaced when its page requests its session.
const ROTATE_AFTER: Span = Span::from_secs(15 * 60);
/// Time for which the former secret is still accepted, for requests sent before the new one arrived.
const FORMER_COUNTS: Span = Span::from_secs(60);

pub const OF_ONE_MAX: usize = 32;
pub const ALL_MAX: usize = 1024;

type Hash = [u8; 32];

/// The key or person that has logged in.
#[derive(Clone, Debug)]
pub enum Holder {
    /// The key as it was at login. If it has changed, it must be sent again.
    Key(Box<Stamp>),
    /// A person of the single sign-on.
    Person(Arc<Identity>),
}

/// The properties of a key that must not change during a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub id: KeyId,
    role: Role,
    allowed: KeyUse,
    expires: Option<Time>,
}

impl Stamp {
    pub fn from_record(key: &KeyRecord) -> Stamp {
        Stamp {
            id: key.id,
            role: key.role,
            allowed: key.allowed.clone(),
            expires: key.expires,
        }
    }

    /// Returns true if the key is unchanged and valid.
    pub fn counts(&self, keys: &[KeyRecord], now: Time) -> bool {
        let key = keys.iter().find(|key| key.id == self.id);
        key.is_some_and(|key| key.is_valid(now) && Stamp::from_record(key) == *self)
    }
}

impl Holder {
    fn id(&self) -> KeyId {
        match self {
            Holder::Key(stamp) => stamp.id,
            Holder::Person(identity) => identity.key,
        }
    }

    fn expires(&self) -> Option<Time> {
        match self {
            Holder::Key(stamp) => stamp.expires,
            Holder::Person(identity) => Some(identity.expires),
        }
    }

    fn lasts(&self) -> Span {
        match self {
            Holder::Key(stamp) if stamp.role == Role::Viewer => VIEWER_LASTS,
            _ => LASTS,
        }
    }
}

#[derive(Debug)]
struct Session {
    holder: Holder,
    secret: Hash,
    secret_since: Time,
    former: Option<(Hash, Time)>,
    used: Time,
    expires: Time,
}

impl Session {
    fn is_over(&self, now: Time) -> bool {
        now >= self.expires || now.since(self.used) >= IDLE_MAX
    }
}

/// A session as seen by its requests.
#[derive(Clone, Debug)]
pub struct Open {
    pub id: u64,
    pub holder: Holder,
    pub expires: Time,
}

/// The secret of a cookie. Only shown to its browser.
pub struct Secret(String);

impl Secret {
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

#[derive(Debug, Default)]
pub struct Sessions(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    last: u64,
    all: BTreeMap<u64, Session>,
    /// By valid secret, including former ones.
    by_secret: BTreeMap<Hash, u64>,
}

impl Sessions {
    /// Opens a session and returns the secret for its cookie. If there are too many, the least recently used one ends.
    ///
    /// # Errors
    /// The system provides no random bytes.
    pub fn open(&self, holder: Holder, now: Time) -> Result<(Open, Secret), StoreError> {
        // The same entropy and source as a key.
        let secret = Secret(generate_key()?.reveal()[3..].to_owned());
        let hash = hash_key(secret.reveal()).0;
        let expires = now + holder.lasts();
        let expires = holder.expires().map_or(expires, |end| end.min(expires));
        let mut table = self.table();
        table.forget_ended(now);
        table.make_room(holder.id());
        table.last += 1;
        let id = table.last;
        let open = Open {
            id,
            holder: holder.clone(),
            expires,
        };
        table.by_secret.insert(hash, id);
        let session = Session {
            holder,
            secret: hash,
            secret_since: now,
            former: None,
            used: now,
            expires,
        };
        table.all.insert(id, session);
        Ok((open, secret))
    }

    /// Returns the session of a cookie and marks it as used.
    pub fn find(&self, secret: &str, now: Time) -> Option<Open> {
        let hash = hash_key(secret).0;
        let mut table = self.table();
        let id = *table.by_secret.get(&hash)?;
        let session = table.all.get_mut(&id)?;
        let is_former = session.secret != hash;
        let counts = session
            .former
            .is_some_and(|(former, until)| former == hash && now < until);
        if session.is_over(now) {
            table.end(id);
            return None;
        }
        if is_former && !counts {
            table.by_secret.remove(&hash);
            return None;
        }
        session.used = now;
        Some(Open {
            id,
            holder: session.holder.clone(),
            expires: session.expires,
        })
    }

    /// Returns true if the session is still valid, without marking it as used.
    pub(crate) fn is_open(&self, id: u64, now: Time) -> bool {
        let table = self.table();
        table
            .all
            .get(&id)
            .is_some_and(|session| !session.is_over(now))
    }

    /// Replaces the secret if it is old.
    pub fn rotate(&self, id: u64, now: Time) -> Option<Secret> {
        let mut table = self.table();
        let session = table.all.get_mut(&id)?;
        if now.since(session.secret_since) < ROTATE_AFTER {
            return None;
        }
        // Without random bytes the old secret stays; this does not extend the session.
        let secret = Secret(generate_key().ok()?.reveal()[3..].to_owned());
        let hash = hash_key(secret.reveal()).0;
        let former = std::mem::replace(&mut session.secret, hash);
        session.secret_since = now;
        let older = session.former.replace((former, now + FORMER_COUNTS));
        if let Some((older, _)) = older {
            table.by_secret.remove(&older);
        }
        table.by_secret.insert(hash, id);
        Some(secret)
    }

    pub fn end(&self, id: u64) {
        self.table().end(id);
    }

    fn table(&self) -> std::sync::MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn end(&mut self, id: u64) {
        if let Some(session) = self.all.remove(&id) {
            self.by_secret.remove(&session.secret);
            if let Some((former, _)) = session.former {
                self.by_secret.remove(&former);
            }
        }
    }

    fn forget_ended(&mut self, now: Time) {
        let ended = self.all.iter().filter(|(_, session)| session.is_over(now));
        let ended: Vec<u64> = ended.map(|(id, _)| *id).collect();
        ended.into_iter().for_each(|id| self.end(id));
    }

    /// Makes room for another session of this holder.
    fn make_room(&mut self, holder: KeyId) {
        let of_one = |session: &Session| session.holder.id() == holder;
        if self.all.values().filter(|session| of_one(session)).count() >= OF_ONE_MAX {
            self.end_least_used(of_one);
        }
        if self.all.len() >= ALL_MAX {
            // Users are many and must not displace administrators.
            let is_user = |session: &Session| match &session.holder {
                Holder::Key(stamp) => matches!(stamp.role, Role::User | Role::GroupAdmin),
                Holder::Person(_) => true,
            };
            let has_users = self.all.values().any(is_user);
            self.end_least_used(|session| !has_users || is_user(session));
        }
    }

    fn end_least_used(&mut self, which: impl Fn(&Session) -> bool) {
        let those = self.all.iter().filter(|(_, session)| which(session));
        let least = those.min_by_key(|(id, session)| (session.used, **id));
        if let Some(id) = least.map(|(id, _)| *id) {
            self.end(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(id: u64, role: Role, expires: Option<Time>) -> Holder {
        Holder::Key(Box::new(Stamp {
            id: KeyId(id),
            role,
            allowed: KeyUse::default(),
            expires,
        }))
    }

    fn minutes(minutes: u64) -> Time {
        Time(minutes * 60_000)
    }

    #[test]
    fn an_active_session_lasts_twelve_hours_and_an_idle_one_two() {
        let sessions = Sessions::default();
        let (_, idle) = sessions
            .open(holder(1, Role::Admin, None), minutes(0))
            .unwrap();
        let (_, used) = sessions
            .open(holder(1, Role::Admin, None), minutes(0))
            .unwrap();
        for minute in (0..720).step_by(60) {
            assert!(
                sessions.find(used.reveal(), minutes(minute)).is_some(),
                "{minute}"
            );
        }
        assert!(sessions.find(idle.reveal(), minutes(121)).is_none());
        assert!(sessions.find(used.reveal(), minutes(720)).is_none());
    }

    #[test]
    fn a_session_ends_no_later_than_its_key() {
        let sessions = Sessions::default();
        let key = holder(1, Role::Viewer, Some(minutes(5)));
        let (open, secret) = sessions.open(key, minutes(0)).unwrap();
        assert_eq!(open.expires, minutes(5));
        assert!(sessions.find(secret.reveal(), minutes(4)).is_some());
        assert!(sessions.find(secret.reveal(), minutes(5)).is_none());
    }

    #[test]
    fn a_rotated_session_secret_is_valid_for_one_more_minute() {
        let sessions = Sessions::default();
        let (open, first) = sessions
            .open(holder(1, Role::Admin, None), minutes(0))
            .unwrap();
        assert!(sessions.rotate(open.id, minutes(14)).is_none());
        let second = sessions.rotate(open.id, minutes(15)).unwrap();
        assert!(sessions.find(first.reveal(), minutes(15)).is_some());
        assert!(sessions.find(first.reveal(), minutes(16)).is_none());
        assert!(sessions.find(second.reveal(), minutes(16)).is_some());
        sessions.end(open.id);
        assert!(sessions.find(second.reveal(), minutes(16)).is_none());
        assert_eq!(sessions.table().by_secret.len(), 0);
    }

    #[test]
    fn sessions_are_bounded_and_users_cannot_displace_administrators() {
        let sessions = Sessions::default();
        let (admin, _) = sessions
            .open(holder(1, Role::Admin, None), Time(0))
            .unwrap();
        for nth in 0..2 * ALL_MAX as u64 {
            let user = holder(2 + nth % 100, Role::User, None);
            sessions.open(user, Time(1 + nth)).unwrap();
        }
        assert!(sessions.is_open(admin.id, minutes(1)));
        let table = sessions.table();
        assert_eq!((table.all.len(), table.by_secret.len()), (ALL_MAX, ALL_MAX));
        drop(table);
        for nth in 0..100 {
            sessions
                .open(holder(500, Role::User, None), Time(10_000 + nth))
                .unwrap();
        }
        let table = sessions.table();
        let of_one = table
            .all
            .values()
            .filter(|session| session.holder.id() == KeyId(500));
        assert_eq!(of_one.count(), OF_ONE_MAX);
    }

    #[test]
    fn debug_output_of_sessions_contains_no_secret() {
        let sessions = Sessions::default();
        let (open, secret) = sessions
            .open(holder(1, Role::Admin, None), Time(0))
            .unwrap();
        let shown = format!("{open:?} {secret:?} {sessions:?}");
        assert!(!shown.contains(secret.reveal()), "{shown}");
        assert_eq!(secret.reveal().len(), 43, "256 bits");
    }
}
