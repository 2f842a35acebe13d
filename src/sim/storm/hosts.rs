//! Sleeping and waking engines of a storm, and the memory of their hosts: most obey, some fail, some never respond, and some keep
//! memory that they should free.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::conditions::host_total;
use super::engines::Process;
use super::{Due, Fault, HOUR_MS, Play};
use pool::{Bytes, Event, HostReading, NodeId, ReplicaId, Share, Span, Time};

impl Play {
    pub(super) fn hosts_begin(&mut self) {
        if self.conditions.host == Bytes::ZERO {
            return;
        }
        let nodes: BTreeSet<NodeId> = self
            .hardware
            .values()
            .map(|hardware| hardware.constant.node)
            .collect();
        for node in nodes {
            self.host_read_due(Time(0), node);
        }
    }

    /// Sometimes other processes take host memory.
    pub(super) fn host_read_due(&mut self, at: Time, node: NodeId) {
        if at > self.ends_at {
            return;
        }
        let capacity = self.conditions.host;
        let reserve = Bytes(capacity.0 / 10);
        let total = host_total(capacity);
        let unused = match self.random.below(10) {
            0 => Bytes(self.random.below(reserve.0)),
            1 | 2 => Bytes(self.random.below(capacity.0)),
            _ => total,
        };
        let has_parts = self
            .specs
            .values()
            .any(|spec| spec.host_bytes > Bytes::ZERO);
        let reading = HostReading {
            capacity,
            reserve,
            available: if has_parts && self.fault != Some(Fault::HostUnseen) {
                unused.saturating_sub(self.held_of_host(node))
            } else {
                unused
            },
            total: if has_parts { total } else { Bytes::ZERO },
        };
        self.feed(at, Event::HostRead { node, reading });
        let later = Span(self.random.between(1_000, HOUR_MS / 20));
        self.push(at + later, Due::HostRead(node));
    }

    /// The host memory of processes on a node. A sleeper holds that of its weights in addition to its part.
    fn held_of_host(&self, node: NodeId) -> Bytes {
        let of_process = |process: &Process| {
            let spec = &self.specs[&process.model];
            let sleeps = process.shares != process.awake;
            let weights = spec.parking.as_ref().filter(|_| sleeps);
            spec.host_bytes + weights.map_or(Bytes::ZERO, |parking| parking.host)
        };
        let there = |process: &&Process| {
            let device = process.awake[0].device;
            self.hardware[&device].constant.node == node
        };
        self.processes.values().filter(there).map(of_process).sum()
    }

    pub(super) fn parks(&mut self, at: Time, replica: ReplicaId) {
        let takes = Span(self.random.between(50, 20_000));
        match self.random.below(100) {
            0..=7 => self.push(at + takes, Due::SleepFails(replica)),
            8..=13 => self.push(at + takes, Due::Crash(replica)),
            // It never responds.
            14..=18 => {}
            _ => self.push(at + takes, Due::Asleep(replica)),
        }
    }

    pub(super) fn is_asleep(&mut self, at: Time, replica: ReplicaId) {
        let Some(process) = self.processes.get(&replica).filter(|process| process.runs) else {
            return;
        };
        let parking = self.specs[&process.model].parking.as_ref();
        let resident = parking.map_or(Bytes::ZERO, |parking| parking.resident_per_device);
        let measurements: Vec<Share> = process
            .awake
            .iter()
            .map(|share| Share {
                device: share.device,
                bytes: share.bytes.min(resident),
            })
            .collect();
        self.report.slept += 1;
        let keeps_more = self.conditions.growth && self.random.chance(100);
        for share in &measurements {
            let more = Bytes(if keeps_more { Bytes::GIB } else { 0 });
            self.device(share.device).holds(replica, share.bytes + more);
        }
        self.referee.asleep(replica, at, &measurements);
        self.processes.get_mut(&replica).expect("there").shares = measurements;
        self.feed(at, Event::ReplicaAsleep { replica });
    }

    pub(super) fn sleep_fails(&mut self, at: Time, replica: ReplicaId) {
        if self
            .processes
            .get(&replica)
            .is_some_and(|process| process.runs)
        {
            let message = "POST /sleep answers 500".to_owned();
            self.feed(at, Event::SleepFailed { replica, message });
        }
    }

    pub(super) fn wake_fails(&mut self, at: Time, replica: ReplicaId) {
        if self
            .processes
            .get(&replica)
            .is_some_and(|process| process.runs)
        {
            let message = "POST /wake_up answers 500".to_owned();
            self.feed(at, Event::WakeFailed { replica, message });
        }
    }

    /// It has its former memory from now on.
    pub(super) fn wakes(&mut self, at: Time, replica: ReplicaId) {
        let Some(process) = self.processes.get_mut(&replica) else {
            return;
        };
        process.shares = process.awake.clone();
        let shares = process.shares.clone();
        self.report.woken += 1;
        for share in &shares {
            self.device(share.device).holds(replica, share.bytes);
        }
        let takes = Span(self.random.between(50, 10_000));
        match self.random.below(100) {
            0..=9 => self.push(at + takes, Due::Crash(replica)),
            // It never responds.
            10..=12 => {}
            13..=17 => self.push(at + takes, Due::WakeFails(replica)),
            _ => self.push(at + takes, Due::Ready(replica)),
        }
    }
}
