//! The books of a shared quantity: each caller's amounts and waiting requests. Decisions never wait; the caller holds the lock.

use std::collections::{BTreeMap, VecDeque};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::account::{Account, Arriving, Needs, Waiting, Want, sum};
use super::{CLASSES, Caller, Capacity, Class};
use pool::Time;

/// The reason why an amount is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The caller's share is used up.
    Share,
    /// The limit of this class and the classes below it is reached.
    Full(usize),
}

/// A caller's places in the queue are ordered by rank, then by time.
const RANK_SHIFT: u32 = 61;

#[derive(Debug, Default)]
pub(super) struct Books {
    held: [u64; CLASSES],
    callers: BTreeMap<Caller, Account>,
    /// Callers with waiting requests, in the order of their turns.
    turns: VecDeque<Caller>,
    next: u64,
}

impl Books {
    pub fn held(&self) -> u64 {
        sum(&self.held, CLASSES - 1)
    }

    pub fn has_waiting(&self, caller: Caller) -> bool {
        let account = self.callers.get(&caller);
        account.is_some_and(|account| !account.waiting.is_empty())
    }

    /// Grants the request now, or returns the reason for refusing it. May evict arriving amounts of callers that hold more.
    pub fn take(
        &mut self,
        capacity: &Capacity,
        caller: Caller,
        want: Want,
        now: Time,
    ) -> Result<(), Refusal> {
        let waits = if capacity.is_divided {
            let end = (self.rank(caller, want) + 1) << RANK_SHIFT;
            let account = self.callers.get(&caller);
            account.is_some_and(|account| {
                let mut ahead = account.waiting.range((1 << RANK_SHIFT)..end);
                ahead.next().is_some()
            })
        } else {
            !self.turns.is_empty()
        };
        if waits && matches!(want, Want::Hold { .. } | Want::Promise { .. }) {
            return Err(Refusal::Share);
        }
        let mut checked = self.check(capacity, caller, want);
        if let Err(Refusal::Full(tier)) = checked
            && self.evict_for(capacity, caller, want, tier, now)
        {
            checked = self.check(capacity, caller, want);
        }
        checked?;
        self.grant(caller, want);
        Ok(())
    }

    /// Grants the request now, or queues it.
    pub(crate) fn take_or_wait(
        &mut self,
        capacity: &Capacity,
        caller: Caller,
        want: Want,
        now: Time,
        granted: oneshot::Sender<()>,
    ) -> Option<u64> {
        if self.take(capacity, caller, want, now).is_ok() {
            return None;
        }
        self.next += 1;
        let place = (self.rank(caller, want) << RANK_SHIFT) | self.next;
        let account = self.callers.entry(caller).or_default();
        if account.waiting.is_empty() {
            self.turns.push_back(caller);
        }
        account.waiting.insert(place, Waiting { want, granted });
        Some(place)
    }

    /// Gives up a place in the queue, or an amount that was granted there but not picked up.
    pub fn leave(&mut self, capacity: &Capacity, caller: Caller, place: u64, want: Want) {
        let Some(account) = self.callers.get_mut(&caller) else {
            return;
        };
        if account.waiting.remove(&place).is_some() {
            if account.waiting.is_empty() {
                self.turns.retain(|other| *other != caller);
            }
            self.forget_if_empty(caller);
            // It may have blocked other requests of its caller.
            self.serve(capacity);
        } else if let Want::Hold { class, amount } = want {
            self.release(capacity, caller, class, amount);
        }
    }

    pub(crate) fn arrive(
        &mut self,
        caller: Caller,
        class: Class,
        first: u64,
        now: Time,
        evicted: CancellationToken,
    ) -> u64 {
        self.next += 1;
        let account = self.callers.entry(caller).or_default();
        account.count += 1;
        account.held[class as usize] += first;
        self.held[class as usize] += first;
        let arriving = Arriving {
            class,
            held: first,
            promised: 0,
            begun: now,
            evicted,
        };
        account.arriving.insert(self.next, arriving);
        self.next
    }

    /// The class and size of a completely received amount; `None` if it was evicted.
    pub fn complete(&mut self, caller: Caller, number: u64) -> Option<(Class, u64)> {
        let account = self.callers.get_mut(&caller)?;
        let arrived = account.arriving.remove(&number)?;
        account.promised -= arrived.promised;
        Some((arrived.class, arrived.held))
    }

    /// Returns the amount held by an arrival, unless it is complete or evicted.
    pub fn withdraw(&mut self, capacity: &Capacity, caller: Caller, number: u64) {
        if let Some((class, amount)) = self.complete(caller, number) {
            self.release(capacity, caller, class, amount);
        } else {
            // An eviction may have freed more than was needed.
            self.serve(capacity);
        }
    }

    pub fn release(&mut self, capacity: &Capacity, caller: Caller, class: Class, amount: u64) {
        self.held[class as usize] -= amount;
        if let Some(account) = self.callers.get_mut(&caller) {
            account.held[class as usize] -= amount;
            account.count -= 1;
        }
        self.forget_if_empty(caller);
        self.serve(capacity);
    }

    fn forget_if_empty(&mut self, caller: Caller) {
        let account = self.callers.get(&caller);
        if account.is_some_and(|account| account.count == 0 && account.waiting.is_empty()) {
            self.callers.remove(&caller);
        }
    }

    /// Growing bodies come before other requests of their caller, which may wait for them; then the higher class comes first.
    fn rank(&self, caller: Caller, want: Want) -> u64 {
        match want {
            Want::Grow { .. } => 0,
            Want::Hold { .. } | Want::Promise { .. } => {
                CLASSES as u64 - self.needs(caller, want).class as u64
            }
        }
    }

    fn needs(&self, caller: Caller, want: Want) -> Needs {
        let arriving = |number| self.callers.get(&caller)?.arriving.get(&number);
        match want {
            Want::Hold { class, amount } => Needs {
                class,
                memory: amount,
                share: amount,
                itself: 0,
            },
            Want::Promise { number, amount } => Needs {
                class: arriving(number).map_or(Class::Small, |amount: &Arriving| amount.class),
                memory: 0,
                share: amount,
                itself: 1,
            },
            Want::Grow {
                number,
                class,
                held,
            } => {
                let (before, promised) =
                    arriving(number).map_or((held, 0), |entry| (entry.held, entry.promised));
                let memory = held.saturating_sub(before);
                Needs {
                    class,
                    memory,
                    share: memory.saturating_sub(promised),
                    itself: 1,
                }
            }
        }
    }

    fn check(&self, capacity: &Capacity, caller: Caller, want: Want) -> Result<(), Refusal> {
        let needs = self.needs(caller, want);
        let tiers = needs.class as usize..CLASSES;
        if let Some(account) = self.callers.get(&caller)
            && capacity.is_divided
            && needs.share > 0
            && account.count > needs.itself
        {
            let has_share = tiers.clone().all(|tier| {
                let own = sum(&account.held, tier);
                let others = sum(&self.held, tier) - own;
                let most = capacity.most[tier].saturating_sub(others) / 2;
                own + account.promised + needs.share <= most
            });
            if !has_share {
                return Err(Refusal::Share);
            }
        }
        let is_full = |tier: &usize| sum(&self.held, *tier) + needs.memory > capacity.most[*tier];
        match tiers.clone().find(is_full) {
            Some(tier) if needs.memory > 0 => Err(Refusal::Full(tier)),
            _ => Ok(()),
        }
    }

    fn grant(&mut self, caller: Caller, want: Want) {
        let account = self.callers.entry(caller).or_default();
        match want {
            Want::Hold { class, amount } => {
                account.count += 1;
                account.held[class as usize] += amount;
                self.held[class as usize] += amount;
            }
            Want::Promise { number, amount } => {
                if let Some(entry) = account.arriving.get_mut(&number) {
                    entry.promised += amount;
                    account.promised += amount;
                }
            }
            Want::Grow {
                number,
                class,
                held,
            } => {
                let Some(entry) = account.arriving.get_mut(&number) else {
                    return;
                };
                let more = held.saturating_sub(entry.held);
                let kept = more.min(entry.promised);
                entry.promised -= kept;
                account.promised -= kept;
                // An amount of unknown length may turn out to be large.
                for books in [&mut account.held, &mut self.held] {
                    books[entry.class as usize] -= entry.held;
                    books[class as usize] += entry.held + more;
                }
                entry.held += more;
                entry.class = class;
            }
        }
    }

    /// Grants waiting requests round-robin by caller. A request that waits for room is not overtaken by requests of its class.
    fn serve(&mut self, capacity: &Capacity) {
        let mut full = None;
        let mut nth = 0;
        while let Some(&caller) = self.turns.get(nth) {
            let first = self.callers.get(&caller);
            let Some((&place, want)) = first
                .and_then(|account| account.waiting.first_key_value())
                .map(|(place, waiting)| (place, waiting.want))
            else {
                self.turns.remove(nth);
                continue;
            };
            let class = self.needs(caller, want).class as usize;
            let checked = match full {
                Some(highest) if class <= highest => Err(Refusal::Share),
                _ => self.check(capacity, caller, want),
            };
            match checked {
                Err(Refusal::Share) => nth += 1,
                Err(Refusal::Full(_)) => {
                    full = full.max(Some(class));
                    nth += 1;
                }
                Ok(()) => {
                    self.grant(caller, want);
                    self.turns.remove(nth);
                    let Some(account) = self.callers.get_mut(&caller) else {
                        continue;
                    };
                    let granted = account.waiting.remove(&place);
                    if !account.waiting.is_empty() {
                        self.turns.push_back(caller);
                    }
                    if let Some(waiting) = granted {
                        let _ = waiting.granted.send(());
                    }
                }
            }
        }
    }

    /// Evicts arriving amounts of callers that hold more, the slowest first and then the largest, until there is enough room.
    fn evict_for(
        &mut self,
        capacity: &Capacity,
        caller: Caller,
        want: Want,
        mut tier: usize,
        now: Time,
    ) -> bool {
        let needed = self.needs(caller, want).memory;
        // Evicts nothing if that would not free enough.
        let own = self.callers.get(&caller);
        let own = own.map_or(0, |account| sum(&account.held, tier)) + needed;
        let evictable: u64 = self
            .callers
            .iter()
            .filter(|(other, account)| **other != caller && sum(&account.held, tier) > own)
            .flat_map(|(_, account)| account.arriving.values())
            .filter(|entry| entry.class as usize <= tier)
            .map(|entry| entry.held)
            .sum();
        if sum(&self.held, tier) + needed > capacity.most[tier] + evictable {
            return false;
        }
        loop {
            let own = self.callers.get(&caller);
            let own = own.map_or(0, |account| sum(&account.held, tier)) + needed;
            let of_tier = |entry: &Arriving| entry.class as usize <= tier && entry.held > 0;
            let largest = self
                .callers
                .iter()
                .filter(|(other, account)| {
                    **other != caller
                        && sum(&account.held, tier) > own
                        && account.arriving.values().any(of_tier)
                })
                .max_by_key(|(_, account)| sum(&account.held, tier));
            let Some((&other, account)) = largest else {
                return false;
            };
            let victim = account
                .arriving
                .iter()
                .filter(|(_, entry)| of_tier(entry))
                .max_by_key(|(number, entry)| (entry.is_slow(now), entry.held, **number));
            let Some(number) = victim.map(|(number, _)| *number) else {
                return false;
            };
            self.evict(other, number);
            match self.check(capacity, caller, want) {
                Err(Refusal::Full(next)) => tier = next,
                Err(Refusal::Share) => return false,
                Ok(()) => return true,
            }
        }
    }

    fn evict(&mut self, caller: Caller, number: u64) {
        let Some(account) = self.callers.get_mut(&caller) else {
            return;
        };
        if let Some(entry) = account.arriving.remove(&number) {
            account.promised -= entry.promised;
            account.count -= 1;
            account.held[entry.class as usize] -= entry.held;
            self.held[entry.class as usize] -= entry.held;
            entry.evicted.cancel();
        }
        self.forget_if_empty(caller);
    }
}
