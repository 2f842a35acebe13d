//! The results of commands that change something: loads, unloads, cleanups, reloads, keys. Pure.

use serde_json::Value;

use crate::render::fold::{item, name, painted, sentence};
use crate::render::models::shares;
use crate::render::plan::evicted;
use crate::render::quantity::{Clock, bytes, count, label, milliseconds};
use crate::render::table::{Cell, Column, column, table};
use crate::responses::{
    ChangedKey, CleanupResponse, KeyList, KeyView, LoadResponse, NewKey, ReloadResponse,
    UnloadResponse,
};
use crate::style::{Style, Tint, clean};
use terminal::row;

/// The result of a load.
pub fn load(response: &LoadResponse, style: Style) -> String {
    let model = name(&response.model, style);
    let took = took(response.took_ms);
    let ready = response.ready_replicas.len();
    let order = response.order.as_deref();
    let order = order.map_or_else(String::new, |order| format!(" (order {})", clean(order)));
    let (text, tint) = match response.status.as_str() {
        "ready" => (format!("{model} is ready{took}"), (Tint::Good, "ready")),
        "partial" => {
            let wanted = count(response.wanted_replicas.unwrap_or(0) as usize, "replica");
            let text = format!("{model} is partly ready: {ready} of {wanted}{took}");
            (text, (Tint::Warning, "partly ready"))
        }
        "started" => {
            let show = format!("`admin-client show {model}` shows its progress");
            (
                format!("{model} is loading{order}\n{show}"),
                (Tint::Good, ""),
            )
        }
        other => (format!("{model}: {}{took}", clean(other)), (Tint::Good, "")),
    };
    let mut out = painted(&text, &[(Tint::Strong, model.as_str()), tint], style);
    for replica in &response.ready_replicas {
        let text = format!(
            "  {}  {}",
            clean(&replica.replica),
            shares(&replica.devices)
        );
        out.push_str(&sentence(&text, style));
    }
    for victim in &response.evicted {
        let text = evicted(victim);
        out.push_str(&item("evicted", Some(Tint::Warning), &text, style));
    }
    if let Some(text) = missing(response) {
        out.push_str(&item("missing", Some(Tint::Warning), &text, style));
    }
    out
}

/// Returns a note if an existing replica has another number of devices than `--gpus`.
pub fn other_devices(response: &LoadResponse, wanted: Option<u32>) -> Option<String> {
    let wanted = wanted?;
    let other = response
        .ready_replicas
        .iter()
        .find(|replica| replica.devices.len() != wanted as usize)?;
    Some(format!(
        "{} keeps its {}: --gpus applies to new replicas only. Run `admin-client unload {}` first, then load it again.",
        clean(&other.replica),
        count(other.devices.len(), "device"),
        clean(&response.model)
    ))
}

/// The reason for missing replicas, and the number that the devices could hold.
fn missing(response: &LoadResponse) -> Option<String> {
    let why = clean(response.shortfall.as_deref()?);
    let wanted = response.wanted_replicas.unwrap_or(0) as usize;
    let lacking = wanted.saturating_sub(response.ready_replicas.len());
    let lacking = match lacking {
        0 => String::new(),
        lacking => format!("{}: ", count(lacking, "replica")),
    };
    let room = match response.fits_when_empty {
        Some(most) if (most as usize) < wanted => format!(
            ". The devices hold at most {} if no other model is loaded",
            count(most as usize, "replica")
        ),
        Some(_) => ". All replicas would fit if no other model were loaded".to_owned(),
        None => String::new(),
    };
    Some(format!("{lacking}{why}{room}"))
}

pub fn unload(response: &UnloadResponse, style: Style) -> String {
    let text = format!(
        "{}: {}{}",
        clean(&response.model),
        unloaded(&response.unloaded),
        took(response.took_ms)
    );
    sentence(&text, style)
}

/// The result of a reset.
pub fn reset(response: &UnloadResponse, style: Style) -> String {
    let text = format!("{}; failures are cleared", unloaded(&response.unloaded));
    sentence(&text, style)
}

fn took(ms: Option<u64>) -> String {
    ms.map_or_else(String::new, |ms| format!(", after {}", milliseconds(ms)))
}

/// `unloaded r1, r2`, or `nothing was loaded`.
fn unloaded(replicas: &[String]) -> String {
    match replicas {
        [] => "nothing was loaded".to_owned(),
        some => format!("unloaded {}", clean(&some.join(", "))),
    }
}

const CLEANED: [Column; 5] = [
    column("REPLICA"),
    column("MODEL").shortens_to(12),
    column("PRIORITY").leaves(2),
    column("IN FLIGHT").leaves(1),
    column("MEMORY"),
];

/// The replicas that a cleanup has unloaded, and the consequence for always-hot models.
pub fn cleanup(response: &CleanupResponse, clock: Clock, style: Style) -> String {
    let unloaded = unloaded(&response.unloaded);
    let text = format!("{unloaded}; {}", closed_until(response, clock));
    sentence(&text, style)
}

fn closed_until(response: &CleanupResponse, clock: Clock) -> String {
    let until = match response.reopen_at.as_deref() {
        Some(at) => clock.weekday_or_stamp(at),
        None => "`admin-client load MODEL`, because evening.reopen is off".to_owned(),
    };
    format!("always-hot models are loaded on request only until {until}")
}

/// The replicas that a cleanup would unload.
pub fn cleanup_preview(response: &CleanupResponse, clock: Clock, style: Style) -> String {
    let rows = response.replicas.iter().map(|replica| {
        row![
            &replica.replica,
            &replica.model,
            replica.priority,
            replica.in_flight,
            bytes(replica.bytes),
        ]
    });
    let table = table(&CLEANED, rows, "Nothing would be unloaded.", style);
    let after = format!("After the cleanup {}.", closed_until(response, clock));
    table + &sentence(&after, style)
}

/// `pool.keep_hot: 10m -> 30m`.
fn changed_key(change: &ChangedKey) -> String {
    let shown = |value: &Value| match value {
        Value::String(text) => clean(text),
        other => clean(&other.to_string()),
    };
    format!(
        "{}: {} -> {}",
        clean(&change.key),
        shown(&change.from),
        shown(&change.to)
    )
}

/// The changes that a reload applied.
pub fn reload(response: &ReloadResponse, style: Style) -> String {
    let mut out = String::new();
    for change in &response.applied {
        let note = change.note.as_deref();
        let note = note.map_or_else(String::new, |note| format!("; {}", clean(note)));
        out.push_str(&sentence(&format!("{}{note}", changed_key(change)), style));
    }
    for change in &response.needs_restart {
        let text = format!("{}: restart the service to apply it", changed_key(change));
        out.push_str(&sentence(&text, style));
    }
    for (change, names) in [
        ("added", &response.added),
        ("changed", &response.changed),
        ("removed", &response.removed),
    ] {
        if !names.is_empty() {
            let text = format!("{change}: {}", clean(&names.join(", ")));
            out.push_str(&sentence(&text, style));
        }
    }
    if out.is_empty() {
        out.push_str("no changes\n");
    }
    for broken in &response.broken {
        let instead = if broken.serves_last_good {
            "its last good version is served"
        } else {
            "it is not served"
        };
        let (model, error) = (clean(&broken.model), clean(&broken.error));
        let text = format!("broken: {model} ({instead}): {error}");
        out.push_str(&painted(&text, &[(Tint::Bad, "broken:")], style));
    }
    for warning in &response.warnings {
        let text = format!("warning: {}", clean(warning));
        out.push_str(&painted(&text, &[(Tint::Warning, "warning:")], style));
    }
    out
}

/// A key's permissions and limits in short form: `tiny-*, 60 requests/min`.
fn allowed(key: &KeyView) -> Cell {
    let group = key.group.iter().map(|group| format!("group {group}"));
    let own = key.models.iter().chain(&key.routes).cloned();
    let mut parts: Vec<String> = group.chain(own).collect();
    let units = [
        ("requests_per_minute", "requests/min"),
        ("tokens_per_minute", "tokens/min"),
        ("concurrent_requests", "concurrent"),
        ("tokens_per_day", "tokens/day"),
    ];
    for (name, unit) in units {
        let figure = key.limits.as_ref().and_then(|limits| *limits.get(name)?);
        parts.extend(figure.map(|figure| format!("{figure} {unit}")));
    }
    if key.log_prompts {
        parts.push("prompts logged".to_owned());
    }
    if parts.is_empty() {
        Cell::usual("everything")
    } else {
        Cell::from(parts.join(", "))
    }
}

const KEYS: [Column; 8] = [
    column("ID"),
    column("NAME").shortens_to(12),
    column("ROLE").leaves(5),
    column("KEY").leaves(2),
    column("CREATED").leaves(1),
    column("LAST USED").leaves(3),
    column("EXPIRES").leaves(4),
    column("FOR").goes_below(),
];

pub fn keys(list: &KeyList, clock: Clock, style: Style) -> String {
    let time = |at: &Option<String>, none: &str| match at {
        Some(at) => clock.stamp(at),
        None => none.to_owned(),
    };
    let rows = list.keys.iter().map(|key| {
        row![
            label(&key.id),
            &key.name,
            &key.role,
            key.prefix.as_deref().map(|prefix| format!("{prefix}…")),
            time(&key.created_at, "-"),
            time(&key.last_used_at, "never"),
            time(&key.expires_at, "never"),
            allowed(key),
        ]
    });
    table(
        &KEYS,
        rows,
        "No keys. Create one with `admin-client keys create NAME --role user`.",
        style,
    )
}

/// A new key. The last line is the key alone, for scripts.
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
mod tests;
