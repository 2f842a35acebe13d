//! Reads the devices again and again, off the async threads, and tells the loop. It decides nothing;
//! a device that cannot be read keeps its last figures, and readers are told since when.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Notify, mpsc};

use super::clock::Clock;
use super::control::Control;
use super::handle::Message;
use super::snapshot::{Snapshot, Stale};
use config::Provider;
use inventory::{
    self, DeviceEvent, DeviceFault, DeviceInfo, DeviceKind, DeviceTrouble, DeviceUse, Inventory,
    Link, MachineMemory, Reach,
};
use pool::{
    self, Bytes, DeviceId, DeviceReading, Event, HostReading, KindId, NodeId, ReplicaId, Time,
};

/// GPUs are shared with others, who come and go; the host's budget is our own.
const READ_GPUS_EVERY: Duration = Duration::from_secs(1);
const READ_HOST_EVERY: Duration = Duration::from_secs(5);
/// While memory that ended processes held has not come back: loads may wait for it (M4).
const READ_SETTLING_EVERY: Duration = Duration::from_millis(100);
/// A reading that takes longer is told as one that failed; its figures count when they come.
const READ_MAX: Duration = Duration::from_secs(5);

/// What one round of measuring gave.
#[derive(Debug)]
pub(super) struct Readings {
    /// When the measuring began: it says nothing of what happened later.
    pub began: Time,
    pub devices: Vec<DeviceUse>,
    /// Why single devices are missing.
    pub faults: BTreeMap<DeviceId, String>,
    /// Why the others are, if they are.
    pub fault: Option<String>,
    /// Those that are gone for good.
    pub lost: Vec<DeviceEvent>,
    /// Whose process is which.
    pub owners: BTreeMap<u32, ReplicaId>,
    /// What the machine itself has, for those who sleep there.
    pub machine: Option<MachineMemory>,
}

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

/// A kind for each product: what a replica takes was measured for devices that are alike (M1).
pub(super) fn kinds(devices: &[DeviceInfo]) -> BTreeMap<String, KindId> {
    let mut kinds = BTreeMap::new();
    for device in devices {
        let next = KindId(u32::try_from(kinds.len()).unwrap_or(u32::MAX));
        kinds.entry(kind_name(device)).or_insert(next);
    }
    kinds
}

/// What devices that measure the same have in common, by a name that stays over restarts.
pub(super) fn kind_name(device: &DeviceInfo) -> String {
    let product = || format!("{:?}", device.kind).to_lowercase();
    device.product_name.clone().unwrap_or_else(product)
}

impl Control {
    pub(super) fn reading_of(&self, info: &DeviceInfo) -> DeviceReading {
        DeviceReading {
            name: info.name.clone(),
            node: info.node,
            kind: self.kinds[&kind_name(info)],
            total: info.total,
            headroom: info.headroom,
            ..DeviceReading::default()
        }
    }

    pub(super) fn readings(&mut self, readings: Readings) {
        let Readings {
            began,
            devices: read,
            faults,
            fault,
            lost,
            owners,
            machine,
        } = readings;
        let mut devices = self.devices.as_ref().clone();
        let mut events = Vec::new();
        let mut seen = BTreeSet::new();
        for used in read {
            let Some(device) = devices.get_mut(&used.id) else {
                continue;
            };
            seen.insert(used.id);
            let mut own: BTreeMap<ReplicaId, Bytes> = BTreeMap::new();
            for (pid, bytes) in &used.processes {
                if let Some(&replica) = owners.get(pid) {
                    let held = own.entry(replica).or_default();
                    *held = *held + *bytes;
                }
            }
            let reading = DeviceReading {
                // Elsewhere memory is the pool's own count, and free when a process ends.
                taken: (self.provider == Provider::Nvml).then_some(began),
                total: used.total,
                foreign: used.foreign,
                own: own
                    .iter()
                    .map(|(&replica, &bytes)| (replica, bytes))
                    .collect(),
                ..self.reading_of(&device.info)
            };
            events.push(Event::DeviceRead {
                device: used.id,
                reading,
            });
            if device.stale.take().is_some() {
                tracing::info!(device = device.info.name, "the device can be read again");
            }
            device.own = own;
            device.used = Some(used);
            device.read_at = Some(began);
        }
        for (_, device) in devices.iter_mut().filter(|(id, _)| !seen.contains(id)) {
            let why = faults
                .get(&device.info.id)
                .or(fault.as_ref())
                .cloned()
                .unwrap_or_else(|| "the driver leaves it out".to_owned());
            match &mut device.stale {
                Some(stale) => stale.why = why,
                None => {
                    tracing::warn!(
                        device = device.info.name,
                        why,
                        "the device cannot be read; its last known figures stand"
                    );
                    let since = device.read_at.unwrap_or(began);
                    device.stale = Some(Stale { since, why });
                }
            }
        }
        events.extend(machine.into_iter().flat_map(|machine| self.hosts(machine)));
        self.devices = Arc::new(devices);
        self.turn_all(events);
        self.take_peaks();
        for event in lost {
            self.device_trouble(event);
        }
    }

    /// What may sleep on each node. A device that is the machine's memory itself has nowhere else to
    /// put its models: only engines that need no room elsewhere sleep there.
    fn hosts(&self, machine: MachineMemory) -> Vec<Event> {
        let mut kinds = self.devices.values().map(|device| device.info.kind);
        let has_room =
            self.provider == Provider::Fixed || kinds.any(|kind| kind == DeviceKind::Nvidia);
        let has_sleepers = || self.facts.values().any(|it| it.entry.parking.is_some());
        if !has_room && !has_sleepers() {
            return Vec::new();
        }
        let all = self.devices.values();
        let nodes: BTreeSet<NodeId> = all.map(|device| device.info.node).collect();
        let parking = &self.config.parking;
        let each = |bytes: Bytes| Bytes(bytes.0 / (nodes.len().max(1) as u64));
        let reading = HostReading {
            capacity: match has_room {
                true => each(parking.host_memory.of(machine.total)),
                false => Bytes::ZERO,
            },
            reserve: each(parking.reserve.of(machine.total)),
            available: each(machine.available),
        };
        nodes
            .iter()
            .map(|&node| Event::HostRead { node, reading })
            .collect()
    }

    /// What a GPU reports of itself: some of it concerns one process, some the whole device (M7).
    pub(super) fn device_trouble(&mut self, event: DeviceEvent) {
        let DeviceEvent { device, what } = event;
        let name = self
            .devices
            .get(&device)
            .map_or_else(|| device.to_string(), |it| it.info.name.clone());
        match what.reach() {
            Reach::Process => tracing::info!(device = name, trouble = %what, "an engine's error"),
            Reach::Watch => tracing::warn!(device = name, trouble = %what, "a GPU to be watched"),
            Reach::Device => {
                // A memory error and most others end the process they struck; others may finish.
                let lost = matches!(what, DeviceTrouble::Lost | DeviceTrouble::Xid { code: 79 });
                self.turn(Event::DeviceFailed {
                    device,
                    trouble: what.to_string(),
                    lost,
                });
            }
        }
    }

    /// How devices reach each other (M5).
    pub(super) fn links(&self) -> Event {
        let mut links = Vec::new();
        for device in self.devices.values() {
            for &(other, link) in &device.info.links {
                let link = match link {
                    Link::NvLink => pool::Link::NvLink,
                    Link::SameRoot => pool::Link::SameRoot,
                    Link::Node => pool::Link::Node,
                };
                links.push((device.info.id, other, link));
            }
        }
        Event::LinksRead { links }
    }
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
