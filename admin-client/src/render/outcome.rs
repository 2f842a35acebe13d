//! The results of commands that change something: loads, unloads, cleanups, reloads, keys. Pure.

use std::fmt::Write as _;

use crate::answers::{
    CleanupAnswer, KeyList, KeyView, LoadAnswer, NewKey, ReloadAnswer, UnloadAnswer,
};
use crate::render::models::shares;
use crate::render::plan::evicted;
use crate::render::quantity::{Clock, bytes, count, label, milliseconds};
use crate::render::table::{Cell, table};
use crate::screen::{Style, Tint, clean};

/// The result of a load.
pub fn load(answer: &LoadAnswer, style: Style) -> String {
    let model = style.paint(Tint::Strong, &clean(&answer.model));
    let took = took(answer.took_ms);
    let ready = answer.ready_replicas.len();
    let mut out = match answer.status.as_str() {
        "ready" => format!("{model} is {}{took}\n", style.paint(Tint::Good, "ready")),
        "partial" => format!(
            "{model} is {}: {ready} of {}{took}\n",
            style.paint(Tint::Warning, "partly ready"),
            count(answer.wanted_replicas.unwrap_or(0) as usize, "replica")
        ),
        "started" => format!(
            "{model} is loading{}; `admin-client show {}` shows its progress\n",
            answer
                .order
                .as_deref()
                .map_or_else(String::new, |order| format!(" (order {})", clean(order))),
            clean(&answer.model)
        ),
        other => format!("{model}: {}{took}\n", clean(other)),
    };
    for replica in &answer.ready_replicas {
        let _ = writeln!(
            out,
            "  {}  {}",
            clean(&replica.replica),
            shares(&replica.devices)
        );
    }
    for victim in &answer.evicted {
        let _ = writeln!(
            out,
            "  {} {}",
            style.paint(Tint::Warning, "evicted"),
            evicted(victim)
        );
    }
    if let Some(shortfall) = &answer.shortfall {
        let _ = writeln!(
            out,
            "  {} {}",
            style.paint(Tint::Warning, "missing"),
            clean(shortfall)
        );
    }
    out
}

pub fn unload(answer: &UnloadAnswer) -> String {
    format!(
        "{}: {}{}\n",
        clean(&answer.model),
        unloaded(&answer.unloaded),
        took(answer.took_ms)
    )
}

fn took(ms: Option<u64>) -> String {
    ms.map_or_else(String::new, |ms| format!(", after {}", milliseconds(ms)))
}

/// `unloaded r1, r2`, or `nothing was loaded`.
pub fn unloaded(replicas: &[String]) -> String {
    match replicas {
        [] => "nothing was loaded".to_owned(),
        some => format!("unloaded {}", clean(&some.join(", "))),
    }
}

/// What a cleanup would unload.
pub fn cleanup_preview(answer: &CleanupAnswer, style: Style) -> String {
    let rows: Vec<Vec<Cell>> = answer
        .replicas
        .iter()
        .map(|replica| {
            vec![
                Cell::from(replica.replica.as_str()),
                Cell::from(replica.model.as_str()),
                Cell::from(
                    replica
                        .priority
                        .map_or_else(|| "-".to_owned(), |priority| priority.to_string()),
                ),
                Cell::from(replica.in_flight.to_string()),
                Cell::from(bytes(replica.bytes)),
            ]
        })
        .collect();
    table(
        &["REPLICA", "MODEL", "PRIORITY", "IN FLIGHT", "MEMORY"],
        &rows,
        "Nothing would be unloaded.",
        style,
    )
}

/// What a reload changed.
pub fn reload(answer: &ReloadAnswer, style: Style) -> String {
    let mut out = String::new();
    for (change, names) in [
        ("added", &answer.added),
        ("changed", &answer.changed),
        ("removed", &answer.removed),
    ] {
        if !names.is_empty() {
            let _ = writeln!(out, "{change}: {}", clean(&names.join(", ")));
        }
    }
    if out.is_empty() {
        out.push_str("nothing has changed\n");
    }
    for warning in &answer.warnings {
        let _ = writeln!(
            out,
            "{} {}",
            style.paint(Tint::Warning, "warning:"),
            clean(warning)
        );
    }
    out
}

/// What a key may be used for, in short: `tiny-*, 60 requests/min`.
fn allowed(key: &KeyView) -> String {
    let mut parts: Vec<String> = key.models.iter().chain(&key.routes).cloned().collect();
    let units = [
        ("requests_per_minute", "requests/min"),
        ("tokens_per_minute", "tokens/min"),
        ("concurrent_requests", "at once"),
        ("tokens_per_day", "tokens/day"),
    ];
    for (name, unit) in units {
        let figure = key.limits.as_ref().and_then(|it| *it.get(name)?);
        parts.extend(figure.map(|figure| format!("{figure} {unit}")));
    }
    if key.log_prompts {
        parts.push("prompts logged".to_owned());
    }
    match parts.is_empty() {
        true => "everything".to_owned(),
        false => clean(&parts.join(", ")),
    }
}

pub fn keys(list: &KeyList, clock: Clock, style: Style) -> String {
    let rows: Vec<Vec<Cell>> = list
        .keys
        .iter()
        .map(|key| {
            let time = |at: &Option<String>, none: &str| {
                Cell::from(
                    at.as_deref()
                        .map_or_else(|| none.to_owned(), |at| clock.stamp(at)),
                )
            };
            vec![
                Cell::from(label(&key.id)),
                Cell::from(key.name.as_str()),
                Cell::from(key.role.as_str()),
                Cell::from(
                    key.prefix
                        .as_deref()
                        .map_or_else(|| "-".to_owned(), |prefix| format!("{prefix}…")),
                ),
                time(&key.created_at, "-"),
                time(&key.last_used_at, "never"),
                time(&key.expires_at, "never"),
                Cell::from(allowed(key)),
            ]
        })
        .collect();
    table(
        &[
            "ID",
            "NAME",
            "ROLE",
            "KEY",
            "CREATED",
            "LAST USED",
            "EXPIRES",
            "FOR",
        ],
        &rows,
        "There are no keys. Create one with `admin-client keys create NAME --role user`.",
        style,
    )
}

/// A new key. The key alone is on the last line, for scripts that take the last line.
pub fn new_key(key: &NewKey) -> String {
    format!(
        "key {} for {} ({}). Save it; it is not shown again:\n{}\n",
        label(&key.id),
        clean(&key.name),
        clean(&key.role),
        clean(&key.key)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::quantity::tests::noon;
    use serde_json::json;

    #[test]
    fn a_load_tells_where_it_is_and_who_left() {
        let answer: LoadAnswer = serde_json::from_value(json!({
            "model": "m", "status": "partial", "wanted_replicas": 2,
            "ready_replicas": [{"replica": "r3", "devices": [{"device": "gpu0", "bytes": 1u64 << 30}]}],
            "evicted": [{"replica": "r1", "model": "old", "priority": 0, "bytes": 2u64 << 30, "reason": "idle, same priority"}],
            "shortfall": "1 replica has no room", "order": "o5", "took_ms": 2100}))
        .expect("an answer");
        assert_eq!(
            load(&answer, Style::PLAIN),
            "m is partly ready: 1 of 2 replicas, after 2.1 s\n\
             \x20 r3  gpu0 1.0 GiB\n\
             \x20 evicted r1 of old (priority 0, 2.0 GiB): idle, same priority\n\
             \x20 missing 1 replica has no room\n"
        );
    }

    #[test]
    fn a_load_that_was_only_started_says_how_to_watch_it() {
        let answer: LoadAnswer =
            serde_json::from_value(json!({"model": "m", "status": "started", "order": "o5"}))
                .expect("an answer");
        assert_eq!(
            load(&answer, Style::PLAIN),
            "m is loading (order o5); `admin-client show m` shows its progress\n"
        );
    }

    #[test]
    fn an_unload_names_the_replicas() {
        let answer: UnloadAnswer =
            serde_json::from_value(json!({"model": "m", "unloaded": ["r1", "r2"], "took_ms": 40}))
                .expect("an answer");
        assert_eq!(unload(&answer), "m: unloaded r1, r2, after 40 ms\n");
    }

    #[test]
    fn a_reload_names_what_changed_or_says_that_nothing_did() {
        assert_eq!(
            reload(&ReloadAnswer::default(), Style::PLAIN),
            "nothing has changed\n"
        );
        let answer: ReloadAnswer = serde_json::from_value(
            json!({"added": ["a"], "removed": ["b", "c"], "warnings": ["w"]}),
        )
        .expect("an answer");
        assert_eq!(
            reload(&answer, Style::PLAIN),
            "added: a\nremoved: b, c\nwarning: w\n"
        );
    }

    #[test]
    fn keys_show_their_prefix_only_and_a_new_key_stands_alone_on_the_last_line() {
        let list: KeyList = serde_json::from_value(json!({"keys": [{"id": "k1", "name": "ann", "role": "user",
            "prefix": "mp-ab", "created_at": "2026-11-21T11:00:00Z", "last_used_at": null, "expires_at": null}]}))
        .expect("keys");
        let text = keys(&list, noon(), Style::PLAIN);
        assert!(
            text.contains(
                "k1  ann   user  mp-ab…  2026-11-21 11:00:00  never      never    everything\n"
            ),
            "{text}"
        );
        let new: NewKey = serde_json::from_value(
            json!({"id": 4, "name": "ann", "role": "user", "key": "mp-secret"}),
        )
        .expect("a key");
        assert_eq!(new_key(&new).lines().last(), Some("mp-secret"));
    }
}
