//! The gauges of `/metrics`: the present state of models, replicas, devices and the store, from the controller's snapshot.

use super::text::{Kind, Text};
use crate::dto;
use crate::inference::request::reading::WorkersSnapshot;
use config::Provider;
use controller::{LoadPath, Snapshot};
use pool::{ModelState, ReplicaState, Span};
use store::Store;
use telemetry::ExporterCounts;

pub fn write(snapshot: &Snapshot, text: &mut Text) {
    waiting(snapshot, text);
    replicas(snapshot, text);
    devices(snapshot, text);
    hosts(snapshot, text);
    nodes(snapshot, text);
    readiness(snapshot, text);
    engines(snapshot, text);
    estimates(snapshot, text);
    load_times(snapshot, text);
    cooldowns(snapshot, text);
    fetches(snapshot, text);
}

/// The pool's own loading, watched.
pub fn write_load_path(path: &LoadPath, text: &mut Text) {
    let help = "By how many seconds the oldest thing that is due is late: a load past its deadline, a stop past its grace, a request that waits beside a free seat, the control loop; 0: nothing is.";
    text.family("load_path_stuck", Kind::Gauge, help);
    // What is late by less than a second is late.
    let late = path.stuck().map_or(0.0, |it| seconds(it.late).max(0.001));
    text.sample(&[], late);
    let help = "Loads that have not made any progress for longer than they should.";
    text.family("loads_without_progress", Kind::Gauge, help);
    let slow = path.findings.iter().filter(|it| !it.stuck).count();
    text.sample(&[], slow as f64);
    let help = "Applications of Ray Serve that may hold GPUs though their replicas have ended, because Ray does not answer or does not remove them.";
    text.family("ray_serve_left_over", Kind::Gauge, help);
    text.sample(&[], path.left_over as f64);
    let help = "Rays that have not answered since the start: it is unknown which applications of this pool run there, and none is removed or deployed.";
    text.family("ray_serve_unanswered", Kind::Gauge, help);
    text.sample(&[], path.silent_rays as f64);
}

/// Those who work on requests before an engine has them.
pub fn write_workers(all: &[WorkersSnapshot], text: &mut Text) {
    let mut gauge = |name: &str, help: &str, of: fn(&WorkersSnapshot) -> usize| {
        text.family(name, Kind::Gauge, help);
        for workers in all {
            text.sample(&[("kind", workers.kind)], of(workers) as f64);
        }
    };
    gauge(
        "workers",
        "How many requests are worked on at once before an engine has them, by kind of work: server.reading_workers, validation_workers, token_workers.",
        |workers| workers.count,
    );
    gauge(
        "workers_busy",
        "How many of these workers are busy.",
        |workers| workers.busy,
    );
    gauge(
        "work_pending",
        "Requests that wait for one of these workers, or for memory to work with.",
        |workers| workers.waiting,
    );
    let help = "How long this work took, from being wanted to its end.";
    text.family("work_seconds", Kind::Histogram, help);
    for workers in all {
        text.histogram(&[("kind", workers.kind)], &workers.taken);
    }
}

pub fn write_store(store: &Store, text: &mut Text) {
    let help = "Whether the state can be written; 0: administrators' changes are refused, such as on a full disk.";
    text.family("store_writable", Kind::Gauge, help);
    text.sample(&[], f64::from(u8::from(store.trouble().is_none())));
    let help = "Whether this controller leads: 1; or stands by: 0.";
    text.family("leader", Kind::Gauge, help);
    text.sample(&[], f64::from(u8::from(store.leads())));
    let help = "Records of the history that could not be written since the start.";
    text.family("history_lost_total", Kind::Counter, help);
    text.sample(&[], store.history_lost_total() as f64);
}

/// Spans of traces, where there are any.
pub fn write_traces(counts: ExporterCounts, text: &mut Text) {
    let help = "Spans by what became of them: exported, dropped because the collector did not take them in time, rejected by it.";
    text.family("trace_spans_total", Kind::Counter, help);
    for (result, count) in [
        ("exported", counts.exported),
        ("dropped", counts.dropped),
        ("rejected", counts.rejected),
    ] {
        text.sample(&[("result", result)], count as f64);
    }
}

fn seconds(span: Span) -> f64 {
    span.0 as f64 / 1000.0
}

fn waiting(snapshot: &Snapshot, text: &mut Text) {
    let pool = &snapshot.pool;
    text.family(
        "requests_pending",
        Kind::Gauge,
        "Requests that wait for a seat.",
    );
    for model in &pool.models {
        text.sample(&[("model", &model.name)], f64::from(model.waiting));
    }
    let oldest = pool
        .waiting
        .iter()
        .map(|it| pool.now.since(it.since))
        .max()
        .unwrap_or_default();
    text.family(
        "oldest_waiting_seconds",
        Kind::Gauge,
        "How long the oldest waiting request has waited; 0: none.",
    );
    text.sample(&[], seconds(oldest));
}

fn replicas(snapshot: &Snapshot, text: &mut Text) {
    text.family("replicas", Kind::Gauge, "Replicas of each model, by state.");
    for model in &snapshot.pool.models {
        for state in ReplicaState::ALL {
            let count = model
                .replicas
                .iter()
                .filter(|replica| replica.state == state)
                .count();
            text.sample(
                &[("model", &model.name), ("state", state.name())],
                count as f64,
            );
        }
    }
}

fn devices(snapshot: &Snapshot, text: &mut Text) {
    let help = "Memory of each device: all of it, measured in use, given to replicas, held by others, held by replicas beyond what they were given, not given back yet by processes that ended.";
    text.family("device_memory_bytes", Kind::Gauge, help);
    for device in &snapshot.pool.devices {
        let name = snapshot.device_name(device.device);
        let used = snapshot
            .devices
            .get(&device.device)
            .and_then(|it| it.used.as_ref())
            .map(|used| used.used);
        let known = [
            ("reserved", device.reserved),
            ("settling", device.settling),
            ("excess", device.excess),
            ("foreign", device.foreign),
            ("total", device.total),
        ];
        for (kind, bytes) in known.into_iter().chain(used.map(|used| ("used", used))) {
            text.sample(&[("device", &name), ("kind", kind)], bytes.0 as f64);
        }
    }
}

/// Of machines that have joined; there are at most a thousand.
fn nodes(snapshot: &Snapshot, text: &mut Text) {
    let nodes = || {
        let views = snapshot.pool.nodes.iter();
        views.filter_map(|view| Some((view, snapshot.nodes.get(&view.node)?)))
    };
    let help = "Nodes that have joined: 1 in the state in which they are (joined, silent, draining, ends_others).";
    text.family("node_state", Kind::Gauge, help);
    for (view, facts) in nodes() {
        text.sample(&[("node", &facts.name), ("state", view.state.name())], 1.0);
    }
    let help = "Replicas on a node.";
    text.family("node_replicas", Kind::Gauge, help);
    for (view, facts) in nodes() {
        let on = snapshot.replicas_on(view.node).len();
        text.sample(&[("node", &facts.name)], on as f64);
    }
}

fn hosts(snapshot: &Snapshot, text: &mut Text) {
    let help = "Memory of each node's host: what sleepers may take, what they take, what the system has left.";
    text.family("host_memory_bytes", Kind::Gauge, help);
    for host in &snapshot.pool.hosts {
        let node = host.node.to_string();
        let known = [
            ("capacity", host.capacity),
            ("held", host.held),
            ("available", host.available),
        ];
        for (kind, bytes) in known {
            text.sample(&[("node", &node), ("kind", kind)], bytes.0 as f64);
        }
    }
}

fn readiness(snapshot: &Snapshot, text: &mut Text) {
    let help = "1: nothing new is placed on the device (M7).";
    text.family("device_cordoned", Kind::Gauge, help);
    for device in &snapshot.pool.devices {
        let name = snapshot.device_name(device.device);
        let cordoned = f64::from(u8::from(device.cordon.is_some()));
        text.sample(&[("device", &name)], cordoned);
    }
    let help = "How old the figures of a device are that cannot be read; 0: it can.";
    text.family("device_readings_stale_seconds", Kind::Gauge, help);
    for device in snapshot.devices.values() {
        let age = device
            .stale
            .as_ref()
            .map_or(Span::ZERO, |stale| snapshot.pool.now.since(stale.since));
        text.sample(&[("device", &device.info.name)], seconds(age));
    }
}

/// The numbers that engines give of themselves, under names that are the same for all of them.
fn engines(snapshot: &Snapshot, text: &mut Text) {
    let replicas = snapshot.pool.models.iter().flat_map(|model| {
        let load = |it: &pool::ReplicaView| {
            let load = snapshot.processes.get(&it.replica)?.load;
            Some((model.name.clone(), it.replica.to_string(), load))
        };
        model.replicas.iter().filter_map(load)
    });
    let loads: Vec<_> = replicas.collect();
    let help = "Requests inside an engine, as it says itself: computed, or waiting there.";
    text.family("engine_requests", Kind::Gauge, help);
    for (model, replica, load) in &loads {
        for (state, count) in [("running", load.running), ("waiting", load.waiting)] {
            if let Some(count) = count {
                let labels = [
                    ("model", model.as_str()),
                    ("replica", replica),
                    ("state", state),
                ];
                text.sample(&labels, f64::from(count));
            }
        }
    }
    let help = "The part of an engine's cache that is in use, as it says itself.";
    text.family("engine_cache_used_ratio", Kind::Gauge, help);
    for (model, replica, load) in &loads {
        if let Some(used) = load.cache_per_mille {
            let labels = [("model", model.as_str()), ("replica", replica)];
            text.sample(&labels, f64::from(used) / 1000.0);
        }
    }
}

fn estimates(snapshot: &Snapshot, text: &mut Text) {
    let help = "What a model was measured to take over what was estimated; without both, what its fullest replica really holds over what is reserved for it.";
    text.family("memory_estimate_ratio", Kind::Gauge, help);
    for model in &snapshot.pool.models {
        let estimated = snapshot.models.get(&model.model).map(|it| it.estimated.0);
        let learned = model.learned.iter().map(|(_, bytes)| bytes.0).max();
        if let (Some(estimated @ 1..), Some(learned)) = (estimated, learned) {
            text.sample(&[("model", &model.name)], learned as f64 / estimated as f64);
            continue;
        }
        let ratio = |replica: &pool::ReplicaView| {
            let reserved: u64 = replica.shares.iter().map(|share| share.bytes.0).sum();
            // The peak of the processes says nothing of what they hold on a GPU.
            let peak = snapshot
                .processes
                .get(&replica.replica)
                .and_then(|process| process.peak);
            let peak = peak.filter(|_| snapshot.provider != Provider::Nvml);
            let held =
                peak.or_else(|| dto::measured(replica.replica, &replica.shares, snapshot))?;
            (reserved > 0).then(|| held.0 as f64 / reserved as f64)
        };
        if let Some(ratio) = model
            .replicas
            .iter()
            .filter_map(ratio)
            .max_by(f64::total_cmp)
        {
            text.sample(&[("model", &model.name)], ratio);
        }
    }
}

fn load_times(snapshot: &Snapshot, text: &mut Text) {
    let help = "What loads of a model took lately, by where its weights came from.";
    text.family("recent_load_seconds", Kind::Gauge, help);
    for model in &snapshot.pool.models {
        for (tier, took) in &model.load_times {
            let labels = [("model", model.name.as_str()), ("source", tier.name())];
            text.sample(&labels, seconds(*took));
        }
    }
}

/// While they run.
fn fetches(snapshot: &Snapshot, text: &mut Text) {
    let help = "Bytes of weights that are being fetched: those that are here, and all of them.";
    text.family("fetch_bytes", Kind::Gauge, help);
    for model in &snapshot.pool.models {
        let Some(fetch) = snapshot.fetches.get(&model.model) else {
            continue;
        };
        let progress = &fetch.progress;
        for (kind, bytes) in [("done", progress.done()), ("total", progress.total())] {
            let labels = [("model", model.name.as_str()), ("kind", kind)];
            text.sample(&labels, bytes as f64);
        }
    }
}

fn cooldowns(snapshot: &Snapshot, text: &mut Text) {
    let help =
        "Seconds until a model whose load failed is tried again; 0: at once, +Inf: quarantined.";
    text.family("cooldown", Kind::Gauge, help);
    for model in &snapshot.pool.models {
        let left = match (model.state, model.cooling_until) {
            (ModelState::Quarantined, _) => f64::INFINITY,
            (_, Some(until)) => seconds(until.since(snapshot.pool.now)),
            (_, None) => 0.0,
        };
        text.sample(&[("model", &model.name)], left);
    }
}
