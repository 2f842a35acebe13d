//! The gauges of `/metrics`: the current state of models, replicas, devices and the store, from the controller's snapshot.

use super::device_time;
use super::text::{Kind, Text};
use crate::reading::WorkersSnapshot;
use api_types::dto;
use controller::{LoadPath, Snapshot};
use pool::{ModelState, ReplicaState, Span};
use store::Store;
use telemetry::ExporterCounts;

pub fn write(snapshot: &Snapshot, text: &mut Text) {
    waiting(snapshot, text);
    replicas(snapshot, text);
    devices(snapshot, text);
    device_time::write(snapshot, text);
    hosts(snapshot, text);
    nodes(snapshot, text);
    readiness(snapshot, text);
    engines(snapshot, text);
    estimates(snapshot, text);
    load_times(snapshot, text);
    cooldowns(snapshot, text);
    fetches(snapshot, text);
}

/// Writes the health of the pool's load path.
pub(crate) fn write_load_path(path: &LoadPath, text: &mut Text) {
    let help = "Seconds by which the oldest overdue work is late: a load past its deadline, a stop past its grace period, a request that waits although a seat is free, or the control loop; 0: nothing is late.";
    text.family("load_path_stuck", Kind::Gauge, help);
    // Less than a millisecond late is still late.
    let late = path
        .stuck()
        .map_or(0.0, |finding| seconds(finding.late).max(0.001));
    text.sample(&[], late);
    let help = "Loads that have not made any progress for longer than they should.";
    text.family("loads_without_progress", Kind::Gauge, help);
    let slow = path
        .findings
        .iter()
        .filter(|finding| !finding.stuck)
        .count();
    text.sample(&[], slow as f64);
    let help = "Ray Serve applications that may hold GPUs although their replicas have ended, because Ray does not respond or does not remove them.";
    text.family("ray_serve_left_over", Kind::Gauge, help);
    text.sample(&[], path.left_over as f64);
    let help = "Ray clusters that have not responded since the start; applications of this pool there are unknown, and none is removed or deployed.";
    text.family("ray_serve_unanswered", Kind::Gauge, help);
    text.sample(&[], path.silent_rays as f64);
}

/// Writes the workers that process requests before an engine receives them.
pub(crate) fn write_workers(all: &[WorkersSnapshot], text: &mut Text) {
    let mut gauge = |name: &str, help: &str, of: fn(&WorkersSnapshot) -> usize| {
        text.family(name, Kind::Gauge, help);
        for workers in all {
            text.sample(&[("kind", workers.kind)], of(workers) as f64);
        }
    };
    gauge(
        "workers",
        "Number of workers that process requests before an engine receives them, by kind of work: server.reading_workers, validation_workers, token_workers.",
        |workers| workers.count,
    );
    gauge(
        "workers_busy",
        "Number of these workers that are busy.",
        |workers| workers.busy,
    );
    gauge(
        "work_pending",
        "Requests that wait for one of these workers, or for memory.",
        |workers| workers.waiting,
    );
    let help = "Time from submitting this work to its end.";
    text.family("work_seconds", Kind::Histogram, help);
    for workers in all {
        text.histogram(&[("kind", workers.kind)], &workers.taken);
    }
}

pub(crate) fn write_store(store: &Store, text: &mut Text) {
    let help = "1 if the state can be written; 0: administrators' changes are refused, for example because the disk is full.";
    text.family("store_writable", Kind::Gauge, help);
    text.sample(&[], f64::from(u8::from(store.trouble().is_none())));
    let help = "1 if this controller is the leader; 0 if it is a standby.";
    text.family("leader", Kind::Gauge, help);
    text.sample(&[], f64::from(u8::from(store.leads())));
    let help = "Records of the history that could not be written since the start.";
    text.family("history_lost_total", Kind::Counter, help);
    text.sample(&[], store.history_lost_total() as f64);
}

/// Writes the counts of trace spans, if tracing is enabled.
pub(crate) fn write_traces(counts: ExporterCounts, text: &mut Text) {
    let help = "Spans by result: exported, dropped because the collector did not accept them in time, or rejected by it.";
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
        .map(|waiter| pool.now.since(waiter.since))
        .max()
        .unwrap_or_default();
    text.family(
        "oldest_waiting_seconds",
        Kind::Gauge,
        "Time that the oldest waiting request has waited; 0: none waits.",
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
    let help = "Memory of each device: total, measured in use, assigned to replicas, held by others, held by replicas beyond their assignment, and not yet released by processes that have ended.";
    text.family("device_memory_bytes", Kind::Gauge, help);
    for device in &snapshot.pool.devices {
        let name = snapshot.device_name(device.device);
        let used = snapshot
            .devices
            .get(&device.device)
            .and_then(|reading| reading.used.as_ref())
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

/// Writes the nodes that have joined, of which there are at most a thousand.
fn nodes(snapshot: &Snapshot, text: &mut Text) {
    let nodes = || {
        let views = snapshot.pool.nodes.iter();
        views.filter_map(|view| Some((view, snapshot.nodes.get(&view.node)?)))
    };
    let help = "Nodes that have joined: 1 for their current state (joined, silent, draining, ends_others).";
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
    let help = "Seconds until the node's lease ends; only nodes whose end is known.";
    text.family("node_lease_seconds", Kind::Gauge, help);
    for (view, facts) in nodes() {
        if let Some(ends) = view.ends {
            let left = ends.since(snapshot.pool.now);
            text.sample(&[("node", &facts.name)], seconds(left));
        }
    }
    node_sizes(snapshot, text);
}

/// The sizes that the cluster can bring, the open requests, and the use by requested nodes (S2).
fn node_sizes(snapshot: &Snapshot, text: &mut Text) {
    let pool = &snapshot.pool;
    let help =
        "Nodes of a size from cluster.shapes that count towards the limits, with open requests.";
    text.family("node_size_held", Kind::Gauge, help);
    for view in &pool.node_shapes {
        text.sample(&[("size", &view.shape.name)], f64::from(view.held));
    }
    let help = "1 if a node of the size may be requested; 0 at a limit, after a refusal, or if the cluster cannot bring one.";
    text.family("node_size_available", Kind::Gauge, help);
    for view in &pool.node_shapes {
        let may = view.unavailable.is_none();
        text.sample(&[("size", &view.shape.name)], f64::from(u8::from(may)));
    }
    let help = "Cost of a node per hour, as configured.";
    text.family("node_size_cost_per_hour", Kind::Gauge, help);
    for view in &pool.node_shapes {
        if let Some(cents) = view.shape.cost_per_hour_cents {
            text.sample(&[("size", &view.shape.name)], f64::from(cents) / 100.0);
        }
    }
    let help = "Seconds for which a request for a node has been open.";
    text.family("node_request_seconds", Kind::Gauge, help);
    for pending in &pool.node_demands {
        let open = pool.now.since(pending.since);
        text.sample(&[("size", &pending.shape_name)], seconds(open));
    }
    let spent = &pool.nodes_spent;
    let mut periods = vec![("day", spent.day), ("month", spent.month)];
    if pool.node_shapes.is_empty() {
        periods.clear();
    }
    let help = "GPU hours of requested nodes in the current day and month.";
    text.family("node_gpu_hours", Kind::Gauge, help);
    for (period, used) in &periods {
        text.sample(&[("period", period)], used.gpu_seconds as f64 / 3600.0);
    }
    let help = "Cost of requested nodes in the current day and month.";
    text.family("node_cost", Kind::Gauge, help);
    for (period, used) in &periods {
        text.sample(&[("period", period)], used.cents as f64 / 100.0);
    }
}

fn hosts(snapshot: &Snapshot, text: &mut Text) {
    let help = "Memory of each node's host: limit for sleeping replicas, used by them, used by parts of loaded models, and available on the system.";
    text.family("host_memory_bytes", Kind::Gauge, help);
    for host in &snapshot.pool.hosts {
        let node = dto::node_name(host.node, snapshot);
        let known = [
            ("capacity", host.capacity),
            ("held", host.held),
            ("parts", host.parts),
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
    let help = "Age of the last reading of a device that cannot be read; 0: it can be read.";
    text.family("device_readings_stale_seconds", Kind::Gauge, help);
    for device in snapshot.devices.values() {
        let age = device
            .stale
            .as_ref()
            .map_or(Span::ZERO, |stale| snapshot.pool.now.since(stale.since));
        text.sample(&[("device", &device.info.name)], seconds(age));
    }
}

/// Writes the numbers reported by engines, under names shared by all engines.
fn engines(snapshot: &Snapshot, text: &mut Text) {
    let replicas = snapshot.pool.models.iter().flat_map(|model| {
        let load = |replica: &pool::ReplicaView| {
            let load = snapshot.processes.get(&replica.replica)?.load;
            Some((model.name.clone(), replica.replica.to_string(), load))
        };
        model.replicas.iter().filter_map(load)
    });
    let loads: Vec<_> = replicas.collect();
    let help = "Requests inside an engine, as reported by it: running or waiting.";
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
    let help = "The part of an engine's cache in use, as reported by it.";
    text.family("engine_cache_used_ratio", Kind::Gauge, help);
    for (model, replica, load) in &loads {
        if let Some(used) = load.cache_per_mille {
            let labels = [("model", model.as_str()), ("replica", replica)];
            text.sample(&labels, f64::from(used) / 1000.0);
        }
    }
}

fn estimates(snapshot: &Snapshot, text: &mut Text) {
    let help = "Measured memory of a model divided by its estimate; if either is missing, the memory of its fullest replica divided by its reservation.";
    text.family("memory_estimate_ratio", Kind::Gauge, help);
    for model in &snapshot.pool.models {
        let estimated = snapshot
            .models
            .get(&model.model)
            .map(|facts| facts.estimated.0);
        let learned = model.learned.iter().map(|(_, bytes)| bytes.0).max();
        if let (Some(estimated @ 1..), Some(learned)) = (estimated, learned) {
            text.sample(&[("model", &model.name)], learned as f64 / estimated as f64);
            continue;
        }
        let ratio = |replica: &pool::ReplicaView| {
            let reserved: u64 = replica.shares.iter().map(|share| share.bytes.0).sum();
            // The peak of the processes does not include GPU memory.
            let peak = snapshot
                .processes
                .get(&replica.replica)
                .and_then(|process| process.peak);
            let peak = peak.filter(|_| !snapshot.provider.measures_devices());
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
    let help = "Recent load times of a model, by the source of its weights.";
    text.family("recent_load_seconds", Kind::Gauge, help);
    for model in &snapshot.pool.models {
        for (tier, took) in &model.load_times {
            let labels = [("model", model.name.as_str()), ("source", tier.name())];
            text.sample(&labels, seconds(*took));
        }
    }
}

/// Writes the fetches in progress.
fn fetches(snapshot: &Snapshot, text: &mut Text) {
    let help = "Weights being fetched: bytes present, and total bytes.";
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
    let help = "Seconds until a model whose load failed is tried again; 0: now, +Inf: quarantined.";
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
