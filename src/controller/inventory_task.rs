//! Reads the devices periodically, off the async threads, and sends the readings to the loop. How soon they are read
//! again is `src/pool/plan/readings.rs`. A device that cannot be read keeps its last figures.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Notify, mpsc};

use super::clock::Clock;
use super::message::{Message, Readings};
use super::snapshot::Snapshot;
use config::Provider;
use inventory::{self, DeviceEvent, DeviceFault, DeviceTrouble, Inventory};
use pool::{ReplicaId, Time};

/// A reading that takes longer is reported as failed; its figures count when they come.
const READ_MAX: Duration = Duration::from_secs(5);

pub(super) async fn run(
    inventory: Inventory,
    snapshot: Arc<ArcSwap<Snapshot>>,
    inbox: mpsc::UnboundedSender<Message>,
    clock: Clock,
    look: Arc<Notify>,
) {
    let inventory = Arc::new(inventory);
    let trouble = inbox.clone();
    let _watch = inventory.events(move |event| {
        let _ = trouble.send(Message::DeviceTrouble(event));
    });
    let shared = inventory.provider() == Provider::Nvml;
    loop {
        let leaders: BTreeMap<u32, ReplicaId> = snapshot
            .load()
            .processes
            .iter()
            .flat_map(|(&replica, it)| {
                let leaders = [it.pid, it.contained].into_iter().flatten();
                leaders.map(move |pid| (pid, replica))
            })
            .collect();
        let began = clock.now();
        let reader = Arc::clone(&inventory);
        let mut reading = tokio::task::spawn_blocking(move || {
            let owners = with_children(&leaders);
            let ours: BTreeSet<u32> = owners.keys().copied().collect();
            let mut readings = Readings {
                began,
                devices: Vec::new(),
                faults: BTreeMap::new(),
                fault: None,
                lost: Vec::new(),
                owners,
                machine: inventory::machine_memory(),
            };
            for (device, reading) in reader.measure(&ours) {
                match reading {
                    Ok(used) => readings.devices.push(used),
                    Err(fault) => {
                        if matches!(fault, DeviceFault::Lost { .. }) {
                            let what = DeviceTrouble::Lost;
                            readings.lost.push(DeviceEvent { device, what });
                        }
                        readings.faults.insert(device, fault.to_string());
                    }
                }
            }
            readings
        });
        let done = match tokio::time::timeout(READ_MAX, &mut reading).await {
            Ok(done) => done,
            Err(_) => {
                if inbox.send(Message::Readings(late(began))).is_err() {
                    return;
                }
                reading.await
            }
        };
        match done {
            Ok(readings) => {
                if inbox.send(Message::Readings(readings)).is_err() {
                    return;
                }
            }
            Err(error) => tracing::error!(%error, "reading the devices panicked"),
        }
        let pause = snapshot.load().pool.next_reading_in(shared);
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(pause.0)) => {}
            // A process has ended: what it held is looked for at once.
            () = look.notified() => {}
        }
    }
}

/// The report of a reading that does not come in time.
fn late(began: Time) -> Readings {
    Readings {
        began,
        devices: Vec::new(),
        faults: BTreeMap::new(),
        lost: Vec::new(),
        fault: Some(format!(
            "the driver has not answered for {} s",
            READ_MAX.as_secs()
        )),
        owners: BTreeMap::new(),
        machine: None,
    }
}

/// Our engines and every process of their sessions: each engine leads a session of its own.
fn with_children(leaders: &BTreeMap<u32, ReplicaId>) -> BTreeMap<u32, ReplicaId> {
    let mut ours = leaders.clone();
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return ours;
    };
    for process in processes.flatten() {
        let Some(pid) = process
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(process.path().join("stat")) else {
            continue;
        };
        // proc(5): after the command in parentheses come state, ppid, pgrp, session.
        let session = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(3)?.parse().ok());
        if let Some(&replica) = session.and_then(|session: u32| leaders.get(&session)) {
            ours.insert(pid, replica);
        }
    }
    ours
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_processes_are_found_with_their_children_and_nobody_elses() {
        let mut child = std::process::Command::new("setsid")
            .args(["sh", "-c", "echo up; sleep 60 & wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("setsid");
        let mut line = String::new();
        let output = child.stdout.take().expect("a pipe");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).expect("up");
        let replica = ReplicaId(7);
        let mut ours = BTreeMap::new();
        while ours.len() < 2 {
            ours = with_children(&BTreeMap::from([(child.id(), replica)]));
        }
        assert!(ours.values().all(|it| *it == replica));
        assert!(!ours.contains_key(&std::process::id()));
        let group = nix::unistd::Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
        nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL).expect("ended");
        child.wait().expect("reaped");
    }
}
