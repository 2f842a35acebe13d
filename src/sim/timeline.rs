//! The loop of a storm: plays its own events and the pool's timer in the order of their times.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use super::world::World;
use pool::Time;

/// The events of a storm that are still to come. Events of one time keep the order in which they were added.
pub(super) struct Timeline<D> {
    heap: BinaryHeap<Reverse<(Time, u64, D)>>,
    sequence: u64,
}

impl<D: Ord> Timeline<D> {
    pub(super) fn new() -> Timeline<D> {
        Timeline {
            heap: BinaryHeap::new(),
            sequence: 0,
        }
    }

    pub(super) fn push(&mut self, at: Time, due: D) {
        self.sequence += 1;
        self.heap.push(Reverse((at, self.sequence, due)));
    }

    pub(super) fn clear(&mut self) {
        self.heap.clear();
    }

    fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }
}

/// A storm that is being played.
pub(super) trait Scene {
    type Due: Ord;

    fn timeline(&mut self) -> &mut Timeline<Self::Due>;

    fn world(&self) -> &World;

    fn happens(&mut self, at: Time, due: Self::Due);

    fn timer_fires(&mut self, at: Time);

    /// Returns true if a check has found something.
    fn is_broken(&self) -> bool;

    /// Plays until this time. Returns false if more than `most` events are due.
    fn play(&mut self, until: Time, most: u64) -> bool {
        for _ in 0..most {
            let wake = self.world().next_turn();
            let due = self.timeline().next();
            let first = wake.into_iter().chain(due).min();
            let Some(at) = first.filter(|at| *at <= until && !self.is_broken()) else {
                return true;
            };
            if due.is_none_or(|due| at < due) {
                self.timer_fires(at);
            } else if let Some(Reverse((at, _, due))) = self.timeline().heap.pop() {
                self.happens(at, due);
            }
        }
        false
    }
}
