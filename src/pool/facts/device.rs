//! The memory ledger of a device. It counts the bytes that replicas reserve, that are promised to loads, and that have not been
//! returned yet. It never hands out more than the device has (M2–M4), and makes no choices.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;

use crate::types::event::DeviceReading;
use crate::types::ids::{Bytes, DeviceId, KindId, NodeId, ReplicaId, Span, Time};
use crate::types::link::Link;
use crate::types::model::Cordon;
use crate::types::node::Away;

/// A process that has ended on a measured device.
#[derive(Clone, Debug)]
struct Ended {
    replica: ReplicaId,
    at: Time,
    /// The part of its reservation that no reading has shown as free.
    bytes: Bytes,
    /// A later reading has shown that the memory is still held.
    shown: bool,
}

/// The ledger of a GPU, or of the host's memory.
///
/// ```text
/// total = headroom + foreign + excess + settling + reserved + free now
/// free later = free now + settling + what is leaving, with its excess − what is promised
/// ```
#[derive(Clone, Debug)]
pub struct Device {
    pub(crate) name: String,
    pub(crate) node: NodeId,
    pub(crate) kind: KindId,
    pub(crate) total: Bytes,
    pub(crate) headroom: Bytes,
    pub(crate) foreign: Bytes,
    /// The bytes that the pool's replicas were measured to hold beyond their reservations; below, the same by replica.
    pub(crate) excess: Bytes,
    pub(crate) excess_of: BTreeMap<ReplicaId, Bytes>,
    /// The sum over all replicas with a share, including replicas that are leaving.
    pub(crate) reserved: Bytes,
    /// The part of `reserved` whose replicas drain or stop.
    pub(crate) leaving: Bytes,
    /// The bytes promised to planned loads that wait for memory.
    pub(crate) promised: Bytes,
    /// The replicas with a share, and planned loads.
    pub(crate) holders: BTreeSet<ReplicaId>,
    /// The end of the last request on a replica that has left.
    pub(crate) used: Time,
    /// Memory of ended processes that no reading has shown as free yet (M4).
    pub(crate) settling: Bytes,
    /// `settling` by process, oldest first.
    ended: VecDeque<Ended>,
    /// True if readings show what is free. Otherwise the memory of an ended process is free immediately.
    pub(crate) measured: bool,
    pub(crate) cordon: Option<Cordon>,
    /// The drain of its node (N5).
    pub(crate) drain: Option<Cordon>,
    pub(crate) away: Option<Away>,
    /// The processes on the device are dead (M7).
    pub(crate) lost: bool,
    /// The links to other devices of its node; unlisted devices count as `Link::Node` (M5).
    pub(crate) links: BTreeMap<DeviceId, Link>,
}

impl Device {
    pub(crate) fn new(reading: &DeviceReading) -> Device {
        Device {
            name: reading.name.clone(),
            node: reading.node,
            kind: reading.kind,
            total: reading.total,
            headroom: reading.headroom,
            foreign: reading.foreign,
            excess: Bytes::ZERO,
            excess_of: BTreeMap::new(),
            reserved: Bytes::ZERO,
            leaving: Bytes::ZERO,
            promised: Bytes::ZERO,
            holders: BTreeSet::new(),
            used: Time(0),
            settling: Bytes::ZERO,
            ended: VecDeque::new(),
            measured: reading.taken.is_some(),
            cordon: None,
            drain: None,
            away: None,
            lost: false,
            links: BTreeMap::new(),
        }
    }

    /// The bytes that replicas may hold when no other process uses the device. Decides M6.
    pub fn capacity(&self) -> Bytes {
        self.total.saturating_sub(self.headroom)
    }

    /// The reason why it takes nothing new: its own cordon (M7) or the drain of its node (N5).
    pub(crate) fn closed(&self) -> Option<&Cordon> {
        self.cordon.as_ref().or(self.drain.as_ref())
    }

    pub(crate) fn takes_nothing(&self) -> bool {
        self.away.is_some() || self.closed().is_some()
    }

    /// The bytes that a launch may take now. Zero on a cordoned device (M7) and where nothing is placed for now (N2, N4).
    pub fn free_now(&self) -> Bytes {
        if self.takes_nothing() {
            Bytes::ZERO
        } else {
            self.unreserved()
        }
    }

    /// The bytes that no replica holds. Does not depend on where new replicas may go: an engine found on a cordoned device holds its
    /// memory until it has ended.
    pub(crate) fn unreserved(&self) -> Bytes {
        self.available_to_pool()
            .saturating_sub(self.settling)
            .saturating_sub(self.reserved)
    }

    /// The bytes that a plan may use once everything that is leaving has left and every promise is kept, and the bytes still
    /// lacking then. At least one is zero. `returning` is the excess of leaving replicas.
    pub(crate) fn later(&self, returning: Bytes) -> (Bytes, Bytes) {
        self.balance(returning, self.committed())
    }

    /// The bytes that a launch may take once everything that is leaving now has left.
    pub(crate) fn soon(&self, returning: Bytes) -> Bytes {
        self.balance(returning, self.reserved.saturating_sub(self.leaving))
            .0
    }

    fn balance(&self, returning: Bytes, ours: Bytes) -> (Bytes, Bytes) {
        let has = self.capacity() + returning;
        let taken = self.foreign + self.excess + ours;
        let free = has.saturating_sub(taken);
        if self.takes_nothing() {
            (Bytes::ZERO, Bytes::ZERO)
        } else {
            (free, taken.saturating_sub(has))
        }
    }

    /// The capacity without the memory of others.
    fn available_to_pool(&self) -> Bytes {
        self.capacity()
            .saturating_sub(self.foreign)
            .saturating_sub(self.excess)
    }

    /// The bytes of the replicas that stay, and of promises.
    pub(crate) fn committed(&self) -> Bytes {
        self.reserved.saturating_sub(self.leaving) + self.promised
    }

    pub(crate) fn promise(&mut self, load: ReplicaId, bytes: Bytes) {
        self.promised = self.promised + bytes;
        self.holders.insert(load);
    }

    /// `holds_more`: the load wakes a sleeper, which keeps its share on the device.
    pub(crate) fn unpromise(&mut self, load: ReplicaId, bytes: Bytes, holds_more: bool) {
        self.promised = Bytes(self.promised.0 - bytes.0);
        if !holds_more {
            self.holders.remove(&load);
        }
    }

    pub(crate) fn reserve(&mut self, replica: ReplicaId, bytes: Bytes) {
        assert!(
            self.unreserved() >= bytes,
            "M3: {replica} would over-commit a device"
        );
        self.reserved = self.reserved + bytes;
        self.holders.insert(replica);
    }

    /// The process has ended. On a measured device its memory becomes free only when a reading shows it.
    pub(crate) fn release(&mut self, replica: ReplicaId, bytes: Bytes, leaving: bool, now: Time) {
        self.reserved = Bytes(self.reserved.0 - bytes.0);
        if leaving {
            self.leaving = Bytes(self.leaving.0 - bytes.0);
        }
        self.holders.remove(&replica);
        // All its memory is returned, including what exceeds its share.
        let more = self.excess_of.remove(&replica).unwrap_or_default();
        self.excess = self.excess.saturating_sub(more);
        let bytes = bytes + more;
        if self.measured {
            self.settling = self.settling + bytes;
            self.ended.push_back(Ended {
                replica,
                at: now,
                bytes,
                shown: false,
            });
        }
    }

    /// A replica has fallen asleep and keeps `to` of `from` bytes. On a measured device the rest becomes free only when a reading
    /// shows it.
    pub(crate) fn shrink(&mut self, replica: ReplicaId, from: Bytes, to: Bytes, now: Time) {
        let freed = from.saturating_sub(to);
        self.reserved = Bytes(self.reserved.0 - freed.0);
        self.leaving = Bytes(self.leaving.0 - freed.0);
        if self.measured {
            self.settling = self.settling + freed;
            self.ended.push_back(Ended {
                replica,
                at: now,
                bytes: freed,
                shown: false,
            });
        }
    }

    pub(crate) fn starts_leaving(&mut self, bytes: Bytes) {
        self.leaving = self.leaving + bytes;
    }

    pub(crate) fn stays(&mut self, bytes: Bytes) {
        self.leaving = Bytes(self.leaving.0 - bytes.0);
    }

    /// Applies a reading. Returns true if it changes what a plan may use.
    ///
    /// Memory that an ended process still holds belongs to no known process, so readings show it as foreign. While memory is
    /// settling, growth of foreign memory up to that amount counts as unreturned. The remainder becomes foreign after `patience`.
    pub(crate) fn read(
        &mut self,
        reading: &DeviceReading,
        excess_of: BTreeMap<ReplicaId, Bytes>,
        now: Time,
        patience: Span,
    ) -> bool {
        let before = self.figures();
        self.total = reading.total;
        self.headroom = reading.headroom;
        self.kind = reading.kind;
        self.excess = excess_of.values().copied().sum();
        self.excess_of = excess_of;
        self.measured = reading.taken.is_some();
        match self.ended.back().map(|last| last.at) {
            Some(last) if reading.taken.is_some_and(|taken| taken > last) => {
                let grown = reading.foreign.saturating_sub(self.foreign);
                let unreturned = grown.min(self.settling);
                // Waits even for a small remainder; otherwise it would count as foreign permanently.
                if unreturned == Bytes::ZERO {
                    self.settling = Bytes::ZERO;
                    self.ended.clear();
                    self.foreign = reading.foreign;
                } else {
                    self.came_back(Bytes(self.settling.0 - unreturned.0));
                    self.foreign = reading.foreign.saturating_sub(unreturned);
                    self.give_up(now, patience);
                }
            }
            // The reading is older than the end of a process and cannot show it yet.
            Some(_) => self.foreign = self.foreign.min(reading.foreign),
            None => self.foreign = reading.foreign,
        }
        before != self.figures()
    }

    /// Credits returned memory to the processes that ended first. The rest has been shown as held.
    fn came_back(&mut self, mut bytes: Bytes) {
        self.settling = self.settling.saturating_sub(bytes);
        while let Some(first) = self.ended.front_mut() {
            if first.bytes > bytes {
                first.bytes = first.bytes.saturating_sub(bytes);
                break;
            }
            bytes = bytes.saturating_sub(first.bytes);
            self.ended.pop_front();
        }
        for ended in &mut self.ended {
            ended.shown = true;
        }
    }

    /// Stops waiting for memory of processes that ended too long ago. Memory that a reading has shown as held now counts as
    /// foreign; memory that no reading has covered counts as free (M4).
    pub(crate) fn give_up(&mut self, now: Time, patience: Span) {
        while let Some(first) = self
            .ended
            .front()
            .filter(|ended| ended.at + patience <= now)
        {
            self.settling = self.settling.saturating_sub(first.bytes);
            if first.shown {
                self.foreign = self.foreign + first.bytes;
            }
            self.ended.pop_front();
        }
    }

    /// The bytes that an ended or sleeping process still held when the reading was taken.
    pub(crate) fn held_at(&self, replica: ReplicaId, taken: Option<Time>) -> Bytes {
        let later = |ended: &&Ended| taken.is_none_or(|taken| ended.at >= taken);
        let of_it = self.ended.iter().filter(|ended| ended.replica == replica);
        let of_it = of_it.filter(later);
        of_it.map(|ended| ended.bytes).sum()
    }

    /// The time at which the wait for memory began.
    pub(crate) fn settling_since(&self) -> Option<Time> {
        self.ended.front().map(|first| first.at)
    }

    fn figures(&self) -> [Bytes; 5] {
        [
            self.total,
            self.headroom,
            self.foreign,
            self.excess,
            self.settling,
        ]
    }

    pub(crate) fn link(&self, other: DeviceId) -> Link {
        self.links.get(&other).copied().unwrap_or(Link::Node)
    }
}
