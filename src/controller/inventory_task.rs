//! Reads the devices every few seconds, off the async threads, and tells the loop. It decides nothing,
//! and a reading that fails leaves the last known figures standing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::mpsc;

use super::control::Control;
use super::handle::Message;
use super::snapshot::Snapshot;
use crate::inventory::{DeviceUse, Inventory};
use crate::pool::{DeviceReading, Event};

/// GPUs are shared with others, who come and go; the host's budget is our own.
const READ_GPUS_EVERY: Duration = Duration::from_secs(1);
const READ_HOST_EVERY: Duration = Duration::from_secs(5);

pub(super) async fn run(
    inventory: Inventory,
    snapshot: Arc<ArcSwap<Snapshot>>,
    inbox: mpsc::UnboundedSender<Message>,
) {
    let inventory = Arc::new(inventory);
    let every = match inventory.provider() {
        "nvml" => READ_GPUS_EVERY,
        _ => READ_HOST_EVERY,
    };
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut failing = false;
    loop {
        ticks.tick().await;
        let leaders: BTreeSet<u32> = snapshot
            .load()
            .processes
            .values()
            .filter_map(|it| it.pid)
            .collect();
        let reader = Arc::clone(&inventory);
        let read = tokio::task::spawn_blocking(move || reader.read(&with_children(&leaders))).await;
        match read {
            Ok(Ok(devices)) => {
                failing = false;
                if inbox.send(Message::Readings { devices }).is_err() {
                    return;
                }
            }
            Ok(Err(fault)) if !failing => {
                failing = true;
                tracing::warn!(%fault, "the devices cannot be read; the last known figures stand");
            }
            Ok(Err(_)) => {}
            Err(error) => tracing::error!(%error, "reading the devices panicked"),
        }
    }
}

/// Our engines and every process of their sessions: each engine leads a session of its own.
fn with_children(leaders: &BTreeSet<u32>) -> BTreeSet<u32> {
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
        if session.is_some_and(|session: u32| leaders.contains(&session)) {
            ours.insert(pid);
        }
    }
    ours
}

impl Control {
    pub(super) fn readings(&mut self, readings: Vec<DeviceUse>) {
        let now = self.clock.now();
        let mut devices = self.devices.as_ref().clone();
        let mut events = Vec::new();
        for used in readings {
            let Some(device) = devices.get_mut(&used.id) else {
                continue;
            };
            let reading = DeviceReading {
                name: device.info.name.clone(),
                node: device.info.node,
                total: used.total,
                headroom: device.info.headroom,
                foreign: used.foreign,
                ..DeviceReading::default()
            };
            events.push(Event::DeviceRead {
                device: used.id,
                reading,
            });
            device.used = Some(used);
            device.read_at = Some(now);
        }
        self.devices = Arc::new(devices);
        self.turn_all(events);
    }
}
