//! Measures a controller with many nodes: the real program, and one process that simulates the nodes over the protocol of
//! `model-pool node`. `benches/nodes.rs` runs it at full size; a test runs a small version to keep it working.
//!
//! ```text
//!  nodes join ─▶ an administrator loads ─▶ nothing more happens ─▶ one node ends ─▶ one stands still
//!                                          for as long as it is     └── until the history says that
//!                                          measured                     it does not respond
//! ```
//!
//! A simulated node sends the same as a real one: a beat and a reading of eight GPUs each second, a report of an engine's memory
//! each second, and the numbered reports of each load and end. It computes nothing and starts no processes.

mod fleet;
mod machine;
mod outcome;
mod program;
mod simulated_node;

use std::thread;
use std::time::{Duration, Instant};

use support::net::raise_open_files;

use fleet::Fleet;
use machine::DEVICES;
use outcome::Outcome;
use program::{ModelTarget, Program};
use simulated_node::Presence;

/// The maximum time without any progress.
const PATIENCE: Duration = Duration::from_secs(120);
/// The maximum number of ordered replicas that are not ready.
const ORDERED_MAX: u32 = 200;
/// The time between the last load and the first measured second.
const SETTLES_IN: Duration = Duration::from_secs(3);
/// The maximum time for the decision about a loss.
const LOSS_PATIENCE: Duration = Duration::from_secs(60);
/// Open files in addition to one per node.
const FILES_BESIDE: u64 = 200;

pub struct Scale {
    /// At least two, because the bench loses two.
    pub nodes: u32,
    pub replicas: u32,
    /// The duration of the measurement.
    pub seconds: u64,
    /// The time from the start of an engine until it is ready.
    pub load: Duration,
}

impl Default for Scale {
    fn default() -> Scale {
        Scale {
            nodes: 1000,
            replicas: 10_000,
            seconds: 60,
            load: Duration::from_millis(500),
        }
    }
}

/// The controller's resource use during the measurement.
struct ResourceUse {
    cores: f64,
    cores_most: f64,
    memory_bytes: u64,
    frames_a_second: f64,
}

/// # Panics
/// If the nodes do not join, or the replicas are not loaded.
pub fn run(scale: &Scale) -> Outcome {
    assert!(scale.nodes >= 2 && scale.seconds >= 1, "too small");
    allow_files(u64::from(scale.nodes) + FILES_BESIDE);
    let models = program::wanted(scale);
    let program = Program::start(&models);
    let began = now();
    let address = program.pool.address();
    let fleet = Fleet::start(address, program.token(), scale.nodes, scale.load);
    until(&fleet, "the nodes to join", || fleet.joined(), scale.nodes);
    until(
        &fleet,
        "the controller to list the nodes",
        || count(program.shown().0),
        scale.nodes,
    );
    let joined_in = began.elapsed();
    println!("{} nodes have joined", scale.nodes);
    let began = now();
    load(&program, &fleet, &models);
    let loaded_in = began.elapsed();
    println!("{} replicas are ready", scale.replicas);
    thread::sleep(SETTLES_IN);
    let (joined, replicas) = program.shown();
    let expected = (scale.nodes, scale.replicas);
    assert_eq!(
        (count(joined), count(replicas)),
        expected,
        "{:?}",
        fleet.troubles()
    );
    let held = hold(&program, &fleet, scale.seconds);
    let lost = fleet.lost();
    let closed = loss(&program, &fleet, 0, Presence::Ended);
    let silent = loss(&program, &fleet, 1, Presence::Frozen);
    for trouble in fleet.troubles() {
        println!("{trouble}");
    }
    Outcome {
        nodes: scale.nodes,
        replicas: scale.replicas,
        seconds: scale.seconds,
        joined_in,
        loaded_in,
        cores: held.cores,
        cores_most: held.cores_most,
        memory_bytes: held.memory_bytes,
        memory_bytes_most: program.memory_bytes("VmHWM"),
        frames_a_second: held.frames_a_second,
        closed,
        silent,
        lost,
    }
}

/// One order per model, one after the other, as an administrator would.
fn load(program: &Program, fleet: &Fleet, models: &[ModelTarget]) {
    let mut ordered = 0;
    for model in models {
        let before = (ordered + model.replicas).saturating_sub(ORDERED_MAX);
        until(fleet, "the replicas", || fleet.ready(), before);
        program.load(model);
        ordered += model.replicas;
    }
    until(fleet, "the replicas", || fleet.ready(), ordered);
    let is_done = || u32::from(program.is_done());
    until(fleet, "the orders to end", is_done, 1);
}

fn hold(program: &Program, fleet: &Fleet, seconds: u64) -> ResourceUse {
    let frames = fleet.frames();
    let (began, spent) = (now(), program.processor());
    let (mut last, mut last_spent) = (began, spent);
    let mut held = ResourceUse {
        cores: 0.0,
        cores_most: 0.0,
        memory_bytes: 0,
        frames_a_second: 0.0,
    };
    let cores = |spent: Duration, time: Duration| spent.as_secs_f64() / time.as_secs_f64();
    for _ in 0..seconds {
        thread::sleep(Duration::from_secs(1));
        let (at, spent) = (now(), program.processor());
        let second = cores(spent - last_spent, at - last);
        held.cores_most = held.cores_most.max(second);
        held.memory_bytes = held.memory_bytes.max(program.memory_bytes("VmRSS"));
        (last, last_spent) = (at, spent);
    }
    held.cores = cores(last_spent - spent, last - began);
    held.frames_a_second = (fleet.frames() - frames) as f64 / (last - began).as_secs_f64();
    held
}

/// The time until the history records the node as silent and its state agrees.
fn loss(program: &Program, fleet: &Fleet, nth: usize, how: Presence) -> Option<Duration> {
    let events = program.follow("node_silent");
    let node = fleet.name(nth);
    let began = now();
    fleet.set(nth, how);
    events.wait_for(&format!("node {node} does not respond;"), LOSS_PATIENCE)?;
    // The state follows with the next snapshot.
    while program.state(node) != "silent" {
        if began.elapsed() > LOSS_PATIENCE {
            return None;
        }
        thread::sleep(Duration::from_millis(10));
    }
    Some(began.elapsed())
}

/// Waits until a figure reaches `least`, as long as it keeps changing.
fn until(fleet: &Fleet, what: &str, figure: impl Fn() -> u32, least: u32) {
    let (mut last, mut changed) = (figure(), now());
    while last < least {
        assert!(
            changed.elapsed() < PATIENCE,
            "waited in vain for {what}: {last} of {least}; {:?}",
            fleet.troubles()
        );
        thread::sleep(Duration::from_millis(50));
        let next = figure();
        if next != last {
            (last, changed) = (next, now());
        }
    }
}

/// Each connection is an open file, here and in the controller, which inherits the limit.
fn allow_files(least: u64) {
    let limit = raise_open_files();
    assert!(
        limit >= least,
        "{limit} open files are allowed and {least} are needed: raise the hard limit (ulimit -Hn)"
    );
}

fn count(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}

#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn now() -> Instant {
    Instant::now()
}
