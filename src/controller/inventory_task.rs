//! Reads the devices again and again, off the async threads, and tells the loop. It decides nothing;
//! a device that cannot be read keeps its last figures, and readers are told since when.

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
use pool::{self, Bytes, ReplicaId, Time};

/// GPUs are shared with others, who come and go; the host's budget is our own.
const READ_GPUS_EVERY: Duration = Duration::from_secs(1);
const READ_HOST_EVERY: Duration = Duration::from_secs(5);
/// While memory that ended processes held has not come back: loads may wait for it (M4).
const READ_SETTLING_EVERY: Duration = Duration::from_millis(100);
/// A reading that takes longer is told as one that failed; its figures count when they come.
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
    // Told until this task ends with the pool.
    let _watch = inventory.events(move |event| {
        let _ = trouble.send(Message::DeviceTrouble(event));
    });
    let every = match inventory.provider() {
        Provider::Nvml => READ_GPUS_EVERY,
        _ => READ_HOST_EVERY,
    };
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
        let settling = |it: &pool::DeviceView| it.settling > Bytes::ZERO;
        let pause = match snapshot.load().pool.devices.iter().any(settling) {
            true => READ_SETTLING_EVERY,
            false => every,
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            // A process has ended: what it held is looked for at once.
            () = look.notified() => {}
        }
    }
}

/// What is told of a reading that does not come in time.
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
