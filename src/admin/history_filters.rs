//! Filters of the history: a time, given as a duration before now or a timestamp; a caller, given by the id or name of a key; and a
//! group, given by its name or path.

use std::collections::{BTreeMap, BTreeSet};

use api_types::error::Failure;
use chrono::DateTime;
use config::Length;
use gateway::fields::Fields;
use gateway::state::App;
use pool::{KeyId, Span, Time};

/// A timestamp, or a duration before now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Ago(Span),
    At(Time),
}

impl When {
    pub fn read(fields: &mut Fields, name: &'static str) -> Result<Option<When>, Failure> {
        let Some(text) = fields.text(name)? else {
            return Ok(None);
        };
        if let Ok(moment) = DateTime::parse_from_rfc3339(text.trim()) {
            let at = u64::try_from(moment.timestamp_millis()).unwrap_or(0);
            return Ok(Some(When::At(Time(at))));
        }
        if let Ok(Length(span)) = text.parse::<Length>() {
            return Ok(Some(When::Ago(span)));
        }
        let shown: String = text.chars().take(60).collect();
        Err(Failure::invalid(
            Some(name.to_owned()),
            format!(
                "{name}: {shown:?} is not a time; allowed: a duration before now such as \"2d\", or a timestamp such as \"2026-01-31T20:15:00Z\""
            ),
        ))
    }

    pub(crate) fn moment(self, now: Time) -> Time {
        match self {
            When::Ago(span) => Time(now.0.saturating_sub(span.0)),
            When::At(moment) => moment,
        }
    }
}

/// The display name for an id such as `k3`.
pub(crate) fn name_of(app: &App, id: &str) -> String {
    let keys = app.keys.all();
    let known = |key| keys.iter().find(|record| record.id == key);
    display_name(app, id, |key| known(key).map(|record| record.name.clone()))
}

/// The display names for many ids.
pub(crate) fn names_of<'a>(app: &App, ids: &BTreeSet<&'a str>) -> BTreeMap<&'a str, String> {
    let keys = app.keys.all();
    let names = keys.iter().map(|record| (record.id, record.name.as_str()));
    let names: BTreeMap<KeyId, &str> = names.collect();
    let known = |key| names.get(&key).map(|&name| name.to_owned());
    let ids = ids.iter();
    ids.map(|&id| (id, display_name(app, id, known))).collect()
}

fn display_name(app: &App, id: &str, known: impl Fn(KeyId) -> Option<String>) -> String {
    let number = id.strip_prefix('k').and_then(|digits| digits.parse().ok());
    match number.map(KeyId) {
        None => id.to_owned(),
        Some(KeyId(0)) => "anonymous".to_owned(),
        Some(key) => {
            let person = || app.oidc.as_ref().and_then(|oidc| oidc.name_of(key));
            let name = known(key).or_else(person);
            name.unwrap_or_else(|| id.to_owned())
        }
    }
}

/// Resolves an id, the name of a key, or `anonymous` in this field to an id.
pub(crate) fn asker(app: &App, field: &'static str, text: &str) -> Result<String, Failure> {
    let is_id = text.strip_prefix('k').is_some_and(|digits| {
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    });
    if is_id {
        return Ok(text.to_owned());
    }
    if text == "anonymous" {
        return Ok(KeyId(0).to_string());
    }
    let keys = app.keys.all();
    let mut named = keys.iter().filter(|key| key.name == text);
    let shown: String = text.chars().take(60).collect();
    match (named.next(), named.next()) {
        (Some(key), None) => Ok(key.id.to_string()),
        (Some(one), Some(other)) => Err(Failure::invalid(
            Some(field.to_owned()),
            format!(
                "{field}: more than one key is called {shown:?}; give the id, such as {} or {}",
                one.id, other.id
            ),
        )),
        (None, _) => Err(Failure::invalid(
            Some(field.to_owned()),
            format!(
                "{field}: no key is called {shown:?}; give an id such as k3, a key's name (`admin-client keys list`), or anonymous"
            ),
        )),
    }
}

/// Returns true if the path of groups contains this group, given as a name or as a part of the path.
pub(crate) fn is_within(path: &str, wanted: &str) -> bool {
    format!("/{path}/").contains(&format!("/{wanted}/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_by_its_name_and_its_path() {
        for wanted in ["physics", "lab", "physics/lab"] {
            assert!(is_within("physics/lab", wanted), "{wanted}");
        }
        for wanted in ["la", "physics/l", "lab/physics", "/", "ab"] {
            assert!(!is_within("physics/lab", wanted), "{wanted}");
        }
        assert!(!is_within("", "lab"));
    }

    #[test]
    fn since_accepts_a_duration_or_a_time() {
        let read = |text: &str| {
            let json = serde_json::json!({ "since": text }).to_string();
            When::read(&mut Fields::parse(json.as_bytes()).unwrap(), "since")
        };
        let day = Span::from_secs(86_400);
        assert_eq!(read("1d").unwrap(), Some(When::Ago(day)));
        let moment = read("1970-01-02T00:00:00Z").unwrap().unwrap();
        assert_eq!(moment.moment(Time(5)), Time(day.0));
        assert_eq!(When::Ago(day).moment(Time(5)), Time(0));
        let message = read("yesterday").expect_err("no time").body.error.message;
        assert!(message.contains("2d"), "{message}");
    }
}
