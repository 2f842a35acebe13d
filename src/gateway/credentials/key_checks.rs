//! Checks of keys that need no rights: viewers, keys from the future, and the last administrator.

use crate::credentials::rights::KeyRefusal;
use pool::{KeyId, Time};
use store::{KeyRecord, KeyUse, Role};

/// Viewers see all models, so their keys cannot be restricted to some.
pub(crate) fn sees_all(role: Role, allowed: &KeyUse) -> Result<(), KeyRefusal> {
    if role == Role::Viewer && !allowed.models.is_empty() {
        Err(KeyRefusal::ViewerOfSome)
    } else {
        Ok(())
    }
}

/// The names of keys that would be valid if the clock did not show a time before their creation.
pub(crate) fn early_keys(keys: &[KeyRecord], now: Time) -> Vec<&str> {
    let is_early = |key: &&KeyRecord| {
        let counts = !key.revoked && key.expires.is_some();
        counts && store::is_before(key.created, now)
    };
    keys.iter()
        .filter(is_early)
        .map(|key| key.name.as_str())
        .collect()
}

/// Describes the other admin keys for a message.
pub(crate) fn other_admins(keys: &[KeyRecord], id: KeyId, now: Time) -> String {
    const NAMED_MAX: usize = 3;
    let is_other = |key: &&KeyRecord| key.id != id && key.role == Role::Admin && key.is_valid(now);
    let others: Vec<String> = keys
        .iter()
        .filter(is_other)
        .map(|key| format!("{} ({})", key.id, key.name))
        .collect();
    match others.len() {
        0 => "there is no other valid admin key".to_owned(),
        count if count > NAMED_MAX => format!(
            "{} and {} more are other valid admin keys",
            others[..NAMED_MAX].join(", "),
            count - NAMED_MAX
        ),
        1 => format!("{} is the only other valid admin key", others[0]),
        _ => format!("{} are the other valid admin keys", others.join(", ")),
    }
}

/// Returns true if this is the only admin key for all routes.
pub(crate) fn is_last_admin(keys: &[KeyRecord], id: KeyId, now: Time) -> bool {
    let is_full = |key: &&KeyRecord| {
        key.role == Role::Admin && key.is_valid(now) && key.allowed.routes.is_empty()
    };
    let mut full = keys.iter().filter(is_full).map(|key| key.id);
    full.next() == Some(id) && full.next().is_none()
}
