//! The cheapest set of victims that frees what every device of a domain needs (P5): a greedy solution first, then a
//! search that is exact for up to twelve candidates and bounded for more.
//! One file because the greedy solution, the search and its bound work on the same table of gains.
//!
//! Greedy by value per byte was the best of sixteen policies on real traces. But it counts bytes, while P5 counts busy replicas
//! first: evicting one large busy victim is better than evicting two small ones.

use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::types::choice::Evictable;
use crate::types::ids::{Bytes, DeviceId};
use crate::types::rank::Cost;

/// Devices that together hold one replica, and the bytes it needs on each.
#[derive(Clone, Debug)]
pub(crate) struct Domain {
    pub devices: Vec<DeviceId>,
    pub needs: Vec<Bytes>,
}

/// The search is exact up to this many candidates: their tree has fewer nodes than `STEPS_EXACT`.
const EXACT_MAX: usize = 12;
const STEPS_EXACT: u32 = 1 << (EXACT_MAX + 1);
/// The maximum number of nodes that the search visits with more candidates. Its result is never worse than greedy.
const STEPS_MANY: u32 = 1 << 9;

/// Returns the cheapest set: within the lowest sufficient priority class, the fewest busy replicas, then the least expected loss,
/// then the fewest bytes. Of equally cheap sets it returns the greedy one, whose last sort key is an id.
pub(crate) fn cheapest(
    domain: &Domain,
    free: &[Bytes],
    mut evictable: Vec<Evictable>,
) -> Option<(Cost, Vec<Evictable>)> {
    evictable.sort_by_key(|victim| (victim.priority, victim.rank));
    let mut freed = free.to_vec();
    let class = evictable.iter().find_map(|victim| {
        add(domain, &mut freed, victim);
        fits(domain, &freed).then_some(victim.priority)
    })?;
    evictable.retain(|victim| victim.priority <= class);
    evictable.sort_by_key(|victim| victim.rank);

    let found = Problem::new(domain, free, &evictable).solve();
    let mut chosen: Vec<Evictable> = found
        .into_iter()
        .map(|nth| evictable[nth].clone())
        .collect();
    chosen.sort_by_key(most_valuable_first);
    Some((cost(&chosen), chosen))
}

/// The free memory on each device after these victims have left.
pub(crate) fn with_freed(domain: &Domain, free: &[Bytes], victims: &[Evictable]) -> Vec<Bytes> {
    let mut freed = free.to_vec();
    for victim in victims {
        add(domain, &mut freed, victim);
    }
    freed
}

fn most_valuable_first(victim: &Evictable) -> impl Ord + use<> {
    Reverse((
        victim.priority,
        victim.rank.busy,
        victim.loss,
        victim.rank.bytes.0,
        victim.replica,
    ))
}

fn add(domain: &Domain, freed: &mut [Bytes], victim: &Evictable) {
    for share in &victim.shares {
        let at = |device: &DeviceId| *device == share.device;
        if let Some(nth) = domain.devices.iter().position(at) {
            freed[nth] = freed[nth] + share.bytes;
        }
    }
}

fn fits(domain: &Domain, free: &[Bytes]) -> bool {
    free.iter()
        .zip(&domain.needs)
        .all(|(free, needs)| free >= needs)
}

fn cost(victims: &[Evictable]) -> Cost {
    Cost {
        highest_priority: victims.iter().map(|victim| victim.priority).max(),
        busy: victims.iter().filter(|victim| victim.rank.busy).count() as u32,
        loss: victims
            .iter()
            .fold(0, |sum, victim| sum.saturating_add(victim.loss)),
        bytes: victims.iter().map(|victim| victim.rank.bytes.0).sum(),
    }
}

/// The key by which P5 compares sets within a priority class.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    busy: u32,
    loss: u64,
    bytes: u64,
}

impl Key {
    const NONE: Key = Key {
        busy: 0,
        loss: 0,
        bytes: 0,
    };

    fn with(self, victim: &Evictable) -> Key {
        Key {
            busy: self.busy + u32::from(victim.rank.busy),
            loss: self.loss.saturating_add(victim.loss),
            bytes: self.bytes.saturating_add(victim.rank.bytes.0.0),
        }
    }
}

/// The candidates, and the bytes that each would free on the devices that lack memory.
struct Problem<'a> {
    all: &'a [Evictable],
    /// The bytes that each device lacks. Devices with enough memory are not listed.
    deficits: Vec<u64>,
    /// Row-major matrix, one row per candidate: the bytes it frees on each of these devices, capped at what the device lacks.
    gains: Vec<u64>,
    /// The sums of the rows.
    sums: Vec<u128>,
}

impl<'a> Problem<'a> {
    fn new(domain: &Domain, free: &[Bytes], all: &'a [Evictable]) -> Problem<'a> {
        let short = free.iter().zip(&domain.needs).zip(&domain.devices);
        let short: Vec<(DeviceId, u64)> = short
            .map(|((free, needs), device)| (*device, needs.saturating_sub(*free).0))
            .filter(|(_, deficits)| *deficits > 0)
            .collect();
        let mut gains = Vec::with_capacity(all.len() * short.len());
        for candidate in all {
            for (device, deficits) in &short {
                let here = candidate
                    .shares
                    .iter()
                    .filter(|share| share.device == *device);
                let bytes: Bytes = here.map(|share| share.bytes).sum();
                gains.push(bytes.0.min(*deficits));
            }
        }
        let width = short.len().max(1);
        let sum = |row: &[u64]| row.iter().map(|gain| u128::from(*gain)).sum();
        Problem {
            all,
            sums: gains.chunks(width).map(sum).collect(),
            gains,
            deficits: short.into_iter().map(|(_, deficits)| deficits).collect(),
        }
    }

    /// The indices of the cheapest set, in rank order.
    fn solve(&self) -> Vec<usize> {
        if self.deficits.is_empty() {
            return Vec::new();
        }
        let greedy = self.completed(Vec::new());
        let mut best = (self.key(&greedy), greedy);
        let single = (0..self.all.len())
            .filter(|nth| self.covers(&[*nth]))
            .min_by_key(|&nth| (self.key(&[nth]), self.all[nth].replica));
        let few = (best.0.busy > 1).then(|| self.completed(self.few_busy()));
        for other in single.map(|nth| vec![nth]).into_iter().chain(few) {
            let key = self.key(&other);
            if key < best.0 {
                best = (key, other);
            }
        }
        Search::new(self, best).run()
    }

    fn row(&self, nth: usize) -> &[u64] {
        &self.gains[nth * self.deficits.len()..][..self.deficits.len()]
    }

    fn key(&self, chosen: &[usize]) -> Key {
        chosen
            .iter()
            .fold(Key::NONE, |key, &nth| key.with(&self.all[nth]))
    }

    /// The bytes that each device still lacks after `chosen` have left.
    fn left(&self, chosen: impl Iterator<Item = usize>) -> Vec<u64> {
        let mut left = self.deficits.clone();
        chosen.for_each(|nth| self.take(&mut left, nth));
        left
    }

    fn take(&self, left: &mut [u64], nth: usize) {
        for (left, gain) in left.iter_mut().zip(self.row(nth)) {
            *left = left.saturating_sub(*gain);
        }
    }

    fn covers(&self, chosen: &[usize]) -> bool {
        let mut columns = self.deficits.iter().enumerate();
        columns.all(|(column, deficits)| {
            let gains = chosen.iter().map(|nth| self.row(*nth)[column]);
            gains.fold(0, u64::saturating_add) >= *deficits
        })
    }

    fn helps(&self, left: &[u64], nth: usize) -> u128 {
        let gains = left.iter().zip(self.row(nth));
        gains.map(|(left, gain)| u128::from(*left.min(gain))).sum()
    }

    /// Extends `chosen` until it covers every deficit, idle before busy and lowest value per byte first. Then removes victims that
    /// are not needed, most valuable first.
    fn completed(&self, mut chosen: Vec<usize>) -> Vec<usize> {
        let mut left = self.left(chosen.iter().copied());
        for nth in 0..self.all.len() {
            // Evicting a replica that frees nothing on the devices that lack memory is useless.
            if !chosen.contains(&nth) && self.helps(&left, nth) > 0 {
                self.take(&mut left, nth);
                chosen.push(nth);
            }
        }
        chosen.sort_by_key(|nth| most_valuable_first(&self.all[*nth]));
        let mut nth = 0;
        while nth < chosen.len() {
            let victim = chosen.remove(nth);
            if !self.covers(&chosen) {
                chosen.insert(nth, victim);
                nth += 1;
            }
        }
        chosen
    }

    /// The busy replicas that must leave in addition to all idle ones. Picks the replica that frees most at each step. On a single
    /// device no smaller set exists, and if one busy replica is enough, it is found.
    fn few_busy(&self) -> Vec<usize> {
        let busy = |nth: &usize| self.all[*nth].rank.busy;
        let mut left = self.left((0..self.all.len()).filter(|nth| !busy(nth)));
        let mut chosen: Vec<usize> = Vec::new();
        while left.iter().any(|left| *left > 0) {
            let next = (0..self.all.len())
                .filter(|nth| busy(nth) && !chosen.contains(nth))
                .min_by_key(|&nth| (Reverse(self.helps(&left, nth)), self.all[nth].loss, nth));
            let Some(next) = next else { break };
            self.take(&mut left, next);
            chosen.push(next);
        }
        chosen
    }
}

/// Depth-first branch and bound: each candidate is first included, then excluded. Cuts a branch whose lower bound is not better
/// than the best known set.
struct Search<'a> {
    problem: &'a Problem<'a>,
    /// Busy replicas sorted by what they free, then idle ones by loss relative to it.
    order: Vec<usize>,
    busy: usize,
    /// Row-major matrix of suffix sums: the bytes that all candidates from an index of `order` on would free on each device.
    ahead: Vec<u128>,
    /// The bytes that all idle candidates would free.
    idle_gain: u128,
    /// For each index of `order`, the candidates from there on that cost least per byte freed: by loss, and by bytes.
    least: Vec<(usize, usize)>,
    steps: u32,
    chosen: Vec<usize>,
    /// A stack of rows, one per chosen candidate: the bytes that each device still lacks. Avoids an allocation per step.
    left: Vec<u64>,
    best: (Key, Vec<usize>),
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem<'a>, best: (Key, Vec<usize>)) -> Search<'a> {
        let all = problem.all;
        // If idle replicas suffice, busy ones are left out.
        let is_possible =
            |nth: &usize| problem.sums[*nth] > 0 && (best.0.busy > 0 || !all[*nth].rank.busy);
        let mut order: Vec<usize> = (0..all.len()).filter(is_possible).collect();
        order.sort_by_key(|&nth| {
            let candidate = &all[nth];
            let gain = Reverse(problem.sums[nth]);
            (
                !candidate.rank.busy,
                candidate.rank.busy.then_some(gain),
                nth,
            )
        });
        let busy = order.iter().take_while(|nth| all[**nth].rank.busy).count();
        let width = problem.deficits.len();
        let mut ahead = vec![0; (order.len() + 1) * width];
        let mut least = vec![(usize::MAX, usize::MAX); order.len()];
        for place in (0..order.len()).rev() {
            let nth = order[place];
            for (column, gain) in problem.row(nth).iter().enumerate() {
                ahead[place * width + column] =
                    ahead[(place + 1) * width + column] + u128::from(*gain);
            }
            let (by_loss, by_bytes) = least.get(place + 1).copied().unwrap_or((nth, nth));
            let of = |nth: usize, by: fn(&Evictable) -> u64| {
                (u128::from(by(&all[nth])), problem.sums[nth])
            };
            let less = |one: usize, other: usize, by: fn(&Evictable) -> u64| {
                let ((cost, gain), (known, known_gain)) = (of(one, by), of(other, by));
                cost.saturating_mul(known_gain) < known.saturating_mul(gain)
            };
            let better = |known: usize, by: fn(&Evictable) -> u64| {
                if less(nth, known, by) { nth } else { known }
            };
            least[place] = (better(by_loss, loss_of), better(by_bytes, bytes_of));
        }
        let idle = order[busy..].iter();
        Search {
            problem,
            busy,
            ahead,
            idle_gain: idle.map(|nth| problem.sums[*nth]).sum(),
            least,
            steps: match order.len() {
                ..=EXACT_MAX => STEPS_EXACT,
                _ => STEPS_MANY,
            },
            chosen: Vec::with_capacity(order.len()),
            left: problem.deficits.clone(),
            order,
            best,
        }
    }

    fn run(mut self) -> Vec<usize> {
        self.from(0, Key::NONE);
        self.best.1
    }

    /// Continues with the chosen set, whose row of `left` is the last one.
    fn from(&mut self, place: usize, key: Key) {
        if self.steps == 0 {
            return;
        }
        self.steps -= 1;
        let row = self.left.len() - self.problem.deficits.len();
        let left = &self.left[row..];
        let deficits: u128 = left.iter().map(|left| u128::from(*left)).sum();
        if deficits == 0 {
            if key < self.best.0 {
                self.best = (key, self.chosen.clone());
            }
            return;
        }
        if !self.is_open(place, left) || self.at_least(place, deficits, key) >= self.best.0 {
            return;
        }
        let nth = self.order[place];
        if self.problem.helps(left, nth) > 0 {
            let end = self.left.len();
            self.left.extend_from_within(row..);
            self.problem.take(&mut self.left[end..], nth);
            self.chosen.push(nth);
            self.from(place + 1, key.with(&self.problem.all[nth]));
            self.chosen.pop();
            self.left.truncate(end);
        }
        self.from(place + 1, key);
    }

    /// Returns true if the candidates from `place` on can still free enough.
    fn is_open(&self, place: usize, left: &[u64]) -> bool {
        let ahead = &self.ahead[place * left.len()..][..left.len()];
        let enough = |(left, ahead): (&u64, &u128)| u128::from(*left) <= *ahead;
        place < self.order.len() && left.iter().zip(ahead).all(enough)
    }

    /// Lower bound of the cost of a set that extends the chosen one and still lacks `deficits` bytes in total.
    fn at_least(&self, place: usize, deficits: u128, key: Key) -> Key {
        let all = self.problem.all;
        let mut busy = key.busy;
        let mut rest = deficits.saturating_sub(self.idle_gain);
        for nth in self.order.iter().take(self.busy).skip(place) {
            if rest == 0 {
                break;
            }
            rest = rest.saturating_sub(self.problem.sums[*nth]);
            busy += 1;
        }
        let more = |nth: usize, by: fn(&Evictable) -> u64| {
            let cost = u128::from(by(&all[nth])).saturating_mul(deficits) / self.problem.sums[nth];
            u64::try_from(cost).unwrap_or(u64::MAX)
        };
        let (by_loss, by_bytes) = self.least[place];
        Key {
            busy,
            loss: key.loss.saturating_add(more(by_loss, loss_of)),
            bytes: key.bytes.saturating_add(more(by_bytes, bytes_of)),
        }
    }
}

fn loss_of(victim: &Evictable) -> u64 {
    victim.loss
}

fn bytes_of(victim: &Evictable) -> u64 {
    victim.rank.bytes.0.0
}

#[cfg(test)]
mod tests;
