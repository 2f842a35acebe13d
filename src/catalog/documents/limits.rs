//! Limits for names and numbers in the catalogue. Each check returns the checked value, or the allowed range as text; the caller
//! adds the key.

use pool::{Bytes, Priority};

/// Maximum devices per replica (M5).
pub const DEVICES_MAX: u32 = 64;
/// Maximum number of nodes of a replica (M8).
pub const NODES_PER_REPLICA_MAX: u32 = 16;
/// Maximum length of a model id in bytes.
pub const MODEL_ID_MAX: usize = 200;
/// Maximum characters of an invalid name shown in a message.
const SHOWN_LETTERS: usize = 80;
/// Maximum simultaneous requests per replica.
pub const SEATS_MAX: u32 = 100_000;
/// Maximum context in tokens.
pub const CONTEXT_MAX: u32 = 100_000_000;
const MEMORY_GIB_MAX: f64 = 1_000_000.0;

/// An integer from 1 to `most`.
pub(crate) fn count(value: i64, most: u32) -> Result<u32, String> {
    match u32::try_from(value) {
        Ok(count) if (1..=most).contains(&count) => Ok(count),
        _ => Err(format!("allowed: 1 to {most}")),
    }
}

pub(crate) fn device_count(value: i64) -> Result<u32, String> {
    count(value, DEVICES_MAX)
}

pub(crate) fn priority(value: i64) -> Result<Priority, String> {
    match u32::try_from(value) {
        Ok(priority) if priority <= Priority::MAX.0 => Ok(Priority(priority)),
        _ => Err(format!("allowed: 0 to {}", Priority::MAX)),
    }
}

pub(crate) fn memory_gib(value: f64) -> Result<Bytes, String> {
    let bytes = (value * Bytes::GIB as f64).ceil();
    // The limit prevents an overflow; NaN fails the comparison too.
    if value > 0.0 && value <= MEMORY_GIB_MAX {
        Ok(Bytes(bytes as u64))
    } else {
        Err(format!("allowed: more than 0, at most {MEMORY_GIB_MAX}"))
    }
}

/// A name shortened for a message.
pub(crate) fn shown(name: &str) -> String {
    match name.char_indices().nth(SHOWN_LETTERS) {
        None => name.to_owned(),
        Some((end, _)) => format!("{}…", &name[..end]),
    }
}

/// Returns the problem of a model id or alias. Valid names have one or two parts separated by `/`, optionally followed by `:` and a
/// tag; each consists of letters, digits, `.`, `_` and `-` and begins with a letter or digit.
pub fn model_id_problem(id: &str) -> Option<String> {
    if id.len() > MODEL_ID_MAX {
        return Some(format!(
            "the name is {} bytes long; allowed: 1 to {MODEL_ID_MAX}",
            id.len()
        ));
    }
    let sound = |part: &str| {
        part.bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphanumeric())
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    let (plain, tag) = match id.split_once(':') {
        Some((plain, tag)) => (plain, Some(tag)),
        None => (id, None),
    };
    let parts: Vec<&str> = plain.split('/').collect();
    if parts.len() <= 2 && parts.iter().all(|part| sound(part)) && tag.is_none_or(sound) {
        None
    } else {
        Some(
            "a model's name is `name` or `organisation/name`, each of letters, digits, `.`, `_` and `-`, beginning with a letter or digit; `:` and a tag may follow, as in `organisation/name:Q4_K_M`".to_owned(),
        )
    }
}
