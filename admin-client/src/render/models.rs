//! Models as text: the table of all models, and one model with its replicas. Pure.

use crate::render::fold::{item, name, painted};
use crate::render::plan::needs;
use crate::render::quantity::{Clock, bytes, later, milliseconds};
use crate::render::table::{Cell, Column, Row, column, facts, table};
use crate::responses::{FetchView, ModelView, ReplicaView, Share, WeightsView};
use crate::state::LoadState;
use crate::style::{Style, Tint, clean};
use terminal::row;

const COLUMNS: [Column; 8] = [
    column("MODEL").shortens_to(20),
    column("STATE"),
    column("PRIORITY").leaves(6),
    column("REPLICAS").leaves(2),
    column("MEMORY").leaves(5),
    column("WAITING").leaves(3),
    column("LAST USED").leaves(1),
    column("KEEP-HOT LEFT").leaves(4),
];

const REPLICAS: [Column; 9] = [
    column("REPLICA"),
    column("STATE").shortens_to(14),
    column("DEVICES").shortens_to(16),
    column("MEASURED").leaves(3),
    column("IN FLIGHT").leaves(5),
    column("READY").leaves(2),
    column("LEAVES IN").leaves(4),
    column("PID").leaves(1),
    column("REASON").goes_below(),
];

/// One line per model.
pub fn models(views: &[ModelView], clock: Clock, style: Style) -> String {
    let table = table(
        &COLUMNS,
        views.iter().map(|view| row(view, clock)),
        "The catalogue is empty. Put model files into the server's models directory, or use `admin-client register FILE`.",
        style,
    );
    table + &broken_files(views, style)
}

/// The problems of broken model files, one per line.
fn broken_files(views: &[ModelView], style: Style) -> String {
    let line = |view: &ModelView| {
        let error = view.file_error.as_deref()?;
        let instead = match view.state {
            LoadState::Broken => "",
            _ => " (its last good version is served)",
        };
        let (model, error) = (clean(&view.model), clean(error));
        let text = format!("broken: {model}{instead}: {error}");
        Some(painted(&text, &[(Tint::Bad, "broken:")], style))
    };
    views.iter().filter_map(line).collect()
}

fn row(view: &ModelView, clock: Clock) -> Row {
    row![
        Cell::tinted(view.model.as_str(), Some(Tint::Strong)),
        Cell::tinted(view.state.as_str(), state_tint(&view.state)),
        priority(view),
        replicas(view),
        memory(view),
        Some(view.waiting).filter(|waiting| *waiting > 0),
        view.last_used_at.as_deref().map(|at| clock.ago(at)),
        keep_hot_left(view, clock),
    ]
}

pub fn state_tint(state: &LoadState) -> Option<Tint> {
    match state {
        LoadState::Ready => Some(Tint::Good),
        LoadState::Waiting | LoadState::Loading | LoadState::Draining => Some(Tint::Warning),
        LoadState::Cooling | LoadState::Quarantined | LoadState::Broken => Some(Tint::Bad),
        LoadState::Cold => Some(Tint::Faint),
        _ => None,
    }
}

pub fn priority(view: &ModelView) -> String {
    if view.always_hot {
        format!("{} always-hot", view.priority)
    } else {
        view.priority.to_string()
    }
}

/// Ready replicas, and the number that exist or are wanted if it is higher: `1`, `1/2`.
pub fn replicas(view: &ModelView) -> String {
    let ready = view
        .replicas
        .iter()
        .filter(|replica| replica.state == LoadState::Ready)
        .count();
    let wanted = view.wished_replicas.map_or(0, |wanted| wanted as usize);
    match wanted.max(view.replicas.len()) {
        0 => "-".to_owned(),
        all if all == ready => ready.to_string(),
        all => format!("{ready}/{all}"),
    }
}

/// The memory that the model holds, or `remote`. The memory it would need is shown in brackets if it holds none.
pub fn memory(view: &ModelView) -> String {
    if view.engine.as_deref() == Some("remote") {
        return "remote".to_owned();
    }
    if view.state == LoadState::Broken {
        return "-".to_owned();
    }
    let held: u64 = view
        .replicas
        .iter()
        .flat_map(|replica| &replica.devices)
        .map(|share| share.bytes)
        .sum();
    match (&view.needs, held) {
        (Some(needs), 0) => format!(
            "({})",
            bytes(needs.bytes_per_device.saturating_mul(needs.devices.into()))
        ),
        (None, 0) => "-".to_owned(),
        (_, held) => bytes(held),
    }
}

pub fn keep_hot_left(view: &ModelView, clock: Clock) -> String {
    if view.replicas.is_empty() {
        return "-".to_owned();
    }
    if view.replicas.iter().any(|replica| replica.in_flight > 0) {
        return "in use".to_owned();
    }
    let last = view
        .replicas
        .iter()
        .filter_map(|replica| replica.expires_at.as_deref())
        .reduce(later);
    let mut leases = view.replicas.iter();
    let lease = leases.find_map(|replica| leased(replica, clock));
    match (last, lease) {
        (Some(at), _) => clock.until(at),
        (None, Some(lease)) => lease,
        (None, None) if view.always_hot => "stays".to_owned(),
        (None, None) => "-".to_owned(),
    }
}

/// `leased 1 h 59 min`, for a replica that a lease keeps.
fn leased(replica: &ReplicaView, clock: Clock) -> Option<String> {
    let until = replica.leased_until_at.as_deref()?;
    Some(format!("leased {}", clock.until(until)))
}

/// One model with all its facts.
pub fn model(view: &ModelView, clock: Clock, style: Style) -> String {
    let model = name(&view.model, style);
    let state = clean(view.state.as_str());
    let tint = state_tint(&view.state);
    let tints = [
        (Tint::Strong, model.as_str()),
        (tint.unwrap_or(Tint::Strong), state.as_str()),
    ];
    let shown = if tint.is_some() {
        &tints[..]
    } else {
        &tints[..1]
    };
    let mut out = painted(&format!("{model}  {state}"), shown, style);
    if view.state == LoadState::Broken {
        let next = "fix the file, then run `admin-client reload`".to_owned();
        let pairs = [
            ("file", view.source.clone()),
            ("problem", view.file_error.clone()),
            ("next step", Some(next)),
        ];
        return out + &facts(&pairs, style);
    }
    let from = view
        .priority_from
        .as_deref()
        .map_or_else(String::new, |from| format!(" (from {from})"));
    let pairs = [
        (
            "aliases",
            (!view.aliases.is_empty()).then(|| view.aliases.join(", ")),
        ),
        (
            "adapters",
            (!view.adapters.is_empty()).then(|| view.adapters.join(", ")),
        ),
        ("broken file", view.file_error.clone()),
        ("engine", view.engine.clone()),
        ("source", view.source.clone()),
        ("weights", view.weights.as_ref().map(weights)),
        ("priority", Some(format!("{}{from}", priority(view)))),
        ("keep-hot", view.keep_hot_ms.map(milliseconds)),
        ("set by an administrator", changed(view, clock)),
        ("needs", view.needs.as_ref().map(needs)),
        ("planned with", planned_with(view)),
        ("loads in about", view.load_ms_expected.map(milliseconds)),
        (
            "replicas wanted",
            view.wished_replicas
                .filter(|&n| n > 0)
                .map(|n| n.to_string()),
        ),
        ("requests waiting", Some(view.waiting.to_string())),
        (
            "requests in total",
            view.requests_total.map(|n| n.to_string()),
        ),
        (
            "last used",
            view.last_used_at.as_deref().map(|at| clock.ago(at)),
        ),
        (
            "failures in a row",
            (view.failures > 0).then(|| view.failures.to_string()),
        ),
        ("last failure", view.last_failure.clone()),
        (
            "cools down for",
            (view.cooling_until_at.as_deref())
                .filter(|_| view.state != LoadState::Quarantined)
                .map(|at| clock.until(at)),
        ),
        (
            "not tried again",
            (view.state == LoadState::Quarantined).then(|| {
                format!(
                    "until `admin-client load {}`, or until its file changes",
                    view.model
                )
            }),
        ),
    ];
    out.push_str(&facts(&pairs, style));
    if !view.replicas.is_empty() {
        let replicas = view.replicas.iter();
        let rows = replicas.map(|replica| replica_row(replica, clock));
        out.push('\n');
        out.push_str(&table(&REPLICAS, rows, "", style));
    }
    for warning in &view.warnings {
        out.push_str(&item(
            "warning",
            Some(Tint::Warning),
            &clean(warning),
            style,
        ));
    }
    out
}

/// `fetched, from s3://bucket/model`, or the progress of the fetch.
fn weights(view: &WeightsView) -> String {
    let from = clean(&view.from);
    match &view.fetch {
        Some(fetch) => format!("{}, from {from}", fetched(fetch)),
        None if view.here => format!("fetched, from {from}"),
        None => format!("not fetched yet, from {from}"),
    }
}

/// `fetching 37 %, 1.2 of 3.4 GiB, 20 s left`.
pub fn fetched(fetch: &FetchView) -> String {
    let mut text = clean(&fetch.words);
    if let Some(percent) = fetch.percent {
        text.push_str(&format!(" {percent:.0} %"));
    }
    if fetch.bytes_total > 0 {
        let (done, total) = (bytes(fetch.bytes_done), bytes(fetch.bytes_total));
        text.push_str(&format!(", {done} of {total}"));
    }
    if let Some(left) = fetch.left_ms {
        text.push_str(&format!(", {} left", milliseconds(left)));
    }
    text
}

/// The memory that loads are planned with on each kind of device where a replica was measured, and its difference from the
/// estimate. It may exceed the measurement: a cache grows with use.
fn planned_with(view: &ModelView) -> Option<String> {
    let estimated = view.estimated_bytes_per_device.filter(|bytes| *bytes > 0);
    let drift = |planned: u64| match estimated {
        None => String::new(),
        Some(estimated) if estimated == planned => ", as estimated".to_owned(),
        Some(estimated) => {
            let percent = planned as f64 / estimated as f64 * 100.0 - 100.0;
            format!(", {percent:+.0} % of the estimated {}", bytes(estimated))
        }
    };
    let parts: Vec<String> = view
        .learned
        .iter()
        .map(|measured| {
            let planned = measured.bytes_per_device;
            format!("{} on {}{}", bytes(planned), measured.kind, drift(planned))
        })
        .collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// The override, as `priority 3, keep-hot 10 min, leased for another 1 h 59 min`.
fn changed(view: &ModelView, clock: Clock) -> Option<String> {
    let changed = view.changed.as_ref()?;
    let mut parts = Vec::new();
    parts.extend(
        changed
            .priority
            .map(|priority| format!("priority {priority}")),
    );
    parts.extend(
        changed
            .keep_hot_ms
            .map(|ms| format!("keep-hot {}", milliseconds(ms))),
    );
    parts.extend(
        changed
            .expires_at
            .as_deref()
            .map(|at| format!("leased for another {}", clock.until(at))),
    );
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn replica_row(replica: &ReplicaView, clock: Clock) -> Row {
    let stage = match (replica.stage.as_deref(), replica.percent) {
        (Some(stage), Some(percent)) => format!("{} ({stage} {percent:.0} %)", replica.state),
        (Some(stage), None) => format!("{} ({stage})", replica.state),
        (None, _) => replica.state.to_string(),
    };
    let leaves = replica.expires_at.as_deref().map(|at| clock.until(at));
    row![
        &replica.replica,
        Cell::tinted(stage, state_tint(&replica.state)),
        shares(&replica.devices),
        replica.measured_bytes.map(bytes),
        replica.in_flight,
        replica.ready_at.as_deref().map(|at| clock.ago(at)),
        leaves.or_else(|| leased(replica, clock)),
        processes(replica),
        replica.reason.as_deref().unwrap_or_default(),
    ]
}

/// The process, or `gpu-1 4711, gpu-2 815` by rank for a replica that spans several nodes.
fn processes(replica: &ReplicaView) -> Option<String> {
    if replica.members.is_empty() {
        return replica.pid.map(|pid| pid.to_string());
    }
    let members = replica.members.iter().map(|member| {
        let process = match (member.has_ended, member.pid) {
            (true, _) => "ended".to_owned(),
            (false, Some(pid)) => pid.to_string(),
            (false, None) => "starting".to_owned(),
        };
        format!("{} {process}", clean(&member.node))
    });
    Some(members.collect::<Vec<String>>().join(", "))
}

/// `gpu0 10.0 GiB, gpu1 10.0 GiB`.
pub fn shares(shares: &[Share]) -> String {
    let parts: Vec<String> = shares
        .iter()
        .map(|share| format!("{} {}", clean(&share.device), bytes(share.bytes)))
        .collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests;
