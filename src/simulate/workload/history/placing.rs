//! Places the requests of a minute: waiting requests before the end of their load, the others while their model was loaded. If the
//! store knows in which seconds requests came, all of them are placed in these.

use rand::Rng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use super::{MINUTE_MS, Minute};
use store::Seconds;

const SECOND_MS: u64 = 1_000;

/// Milliseconds of the workload; the end is exclusive.
pub(super) type Part = (u64, u64);

/// A load that requests may have waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// The time it ended, or if that is not needed, the time it was decided.
    pub at: u64,
    pub took: u64,
    /// The time the model had left before it; 0 if it never left.
    pub left: u64,
}

/// The requests that waited for a load.
struct Waiters {
    load: Load,
    requests: u64,
    /// The wait of the first of them.
    longest: u64,
}

/// `parts`: the periods of the minute in which the model was loaded. `loads`: at most as many as requests that waited.
pub(super) fn moments(
    minute: &Minute,
    parts: &[Part],
    loads: &[Load],
    random: &mut Pcg64Mcg,
) -> Vec<u64> {
    if let Some(seconds) = minute.seconds.filter(|seconds| !seconds.is_empty()) {
        return in_seconds(minute, seconds, parts, loads, random);
    }
    let mut came = Vec::new();
    for waiters in waiters(minute, loads) {
        for request in 0..waiters.requests {
            let waited = match request {
                0 => waiters.longest,
                _ => random.random_range(0..waiters.longest),
            };
            came.push(waiters.load.at.saturating_sub(waited));
        }
    }
    with_others(minute, came, parts, random)
}

/// If the waits are unknown: requests came at these times, up to the number of requests.
pub(super) fn moments_after(
    minute: &Minute,
    came: Vec<u64>,
    parts: &[Part],
    random: &mut Pcg64Mcg,
) -> Vec<u64> {
    match minute.seconds.filter(|seconds| !seconds.is_empty()) {
        Some(seconds) => in_seconds(minute, seconds, parts, &[], random),
        None => with_others(minute, came, parts, random),
    }
}

/// Adds the other requests of the minute, while the model was loaded.
fn with_others(
    minute: &Minute,
    mut came: Vec<u64>,
    parts: &[Part],
    random: &mut Pcg64Mcg,
) -> Vec<u64> {
    came.truncate(usize::try_from(minute.requests).unwrap_or(usize::MAX));
    for _ in came.len() as u64..minute.requests {
        let anywhere = (minute.at, minute.at + MINUTE_MS);
        came.push(drawn(parts, random).unwrap_or_else(|| drawn_of(anywhere, random)));
    }
    came
}

/// Requests that wait for a load arrive evenly between the first of them and the end of the load. The first of `n` therefore waits
/// `2n / (n + 1)` times the mean, and at least for the load.
fn waiters(minute: &Minute, loads: &[Load]) -> impl Iterator<Item = Waiters> {
    let (waited, mean_wait, count) = (minute.waited, minute.mean_wait(), loads.len() as u64);
    (0..count).zip(loads).map(move |(nth, load)| {
        let requests = waited / count + u64::from(nth < waited % count);
        let longest = mean_wait.saturating_mul(2 * requests) / (requests + 1);
        Waiters {
            load: *load,
            requests,
            longest: longest.max(load.took).max(1),
        }
    })
}

/// Each of these seconds gets a request, up to the number of requests; the remaining ones fall into any of them.
fn in_seconds(
    minute: &Minute,
    seconds: Seconds,
    parts: &[Part],
    loads: &[Load],
    random: &mut Pcg64Mcg,
) -> Vec<u64> {
    let second = |nth: u64| {
        let from = minute.at + nth * SECOND_MS;
        (from, from + SECOND_MS)
    };
    let marked: Vec<Part> = seconds.of_minute().map(second).collect();
    let mut came = Vec::new();
    for waiters in waiters(minute, loads) {
        let first = first_of(minute, seconds.has_earlier(), &waiters, &marked, random);
        came.push(first);
        let waiting = [(first, waiters.load.at)];
        let mut free = overlap(&free_of(&marked, &came), &waiting);
        free.shuffle(random);
        let mut later = overlap(&marked, &waiting);
        if first < minute.at {
            // Others may have come before the minute too.
            later.push((first, minute.at.min(waiters.load.at)));
        }
        for _ in 1..waiters.requests {
            let any = (first, waiters.load.at.max(first + 1));
            came.push(match free.pop() {
                Some(part) => drawn_of(part, random),
                None => drawn(&later, random).unwrap_or_else(|| drawn_of(any, random)),
            });
        }
    }
    came.truncate(usize::try_from(minute.requests).unwrap_or(usize::MAX));
    let mut left = minute.requests - came.len() as u64;
    let mut free = free_of(&marked, &came);
    free.shuffle(random);
    for second in free {
        if left == 0 {
            break;
        }
        left -= 1;
        let there = overlap(&[second], parts);
        came.push(drawn(&there, random).unwrap_or_else(|| drawn_of(second, random)));
    }
    let there = overlap(&marked, parts);
    let there = if there.is_empty() { marked } else { there };
    for _ in 0..left {
        // It may only be known that some came before the minute.
        let all = (minute.at, minute.at + MINUTE_MS);
        let found = drawn(&there, random).or_else(|| drawn(parts, random));
        came.push(found.unwrap_or_else(|| drawn_of(all, random)));
    }
    came
}

/// The seconds in which no request has come yet.
fn free_of(marked: &[Part], came: &[u64]) -> Vec<Part> {
    let is_free = |(from, to): &Part| !came.iter().any(|at| (*from..*to).contains(at));
    marked.iter().copied().filter(is_free).collect()
}

/// The time of the first request: the mean wait before the end of its load, or in the next fitting second, while the model was not
/// loaded and before its load was decided.
fn first_of(
    minute: &Minute,
    has_earlier: bool,
    waiters: &Waiters,
    marked: &[Part],
    random: &mut Pcg64Mcg,
) -> u64 {
    let load = &waiters.load;
    let average = load.at.saturating_sub(waiters.longest);
    if has_earlier && average < minute.at {
        return average;
    }
    let decided = load.at.saturating_sub(load.took);
    for until in [decided, load.at] {
        let fit = overlap(marked, &[(load.left, until + 1)]);
        if let Some(at) = nearest(&fit, average, random) {
            return at;
        }
    }
    if has_earlier {
        average.min(minute.at.saturating_sub(1))
    } else {
        average
    }
}

/// This time if it is in any of the parts, otherwise a time in the nearest part.
fn nearest(parts: &[Part], at: u64, random: &mut Pcg64Mcg) -> Option<u64> {
    let distance = |(from, to): &&Part| {
        if at < *from {
            from - at
        } else {
            (at + 1).saturating_sub(*to)
        }
    };
    let part = *parts.iter().min_by_key(distance)?;
    let is_in = (part.0..part.1).contains(&at);
    Some(if is_in { at } else { drawn_of(part, random) })
}

/// The intersections of two lists of parts.
fn overlap(these: &[Part], those: &[Part]) -> Vec<Part> {
    let pairs = these
        .iter()
        .flat_map(|one| those.iter().map(move |other| (one, other)));
    let both = pairs.map(|(one, other)| (one.0.max(other.0), one.1.min(other.1)));
    both.filter(|(from, to)| from < to).collect()
}

/// A random time in these parts; `None` if they are empty.
fn drawn(parts: &[Part], random: &mut Pcg64Mcg) -> Option<u64> {
    let all: u64 = parts.iter().map(|(from, to)| to - from).sum();
    (all > 0).then(|| within(parts, random.random_range(0..all)))
}

fn drawn_of((from, to): Part, random: &mut Pcg64Mcg) -> u64 {
    random.random_range(from..to)
}

/// The time after this many milliseconds of these parts.
fn within(parts: &[Part], mut offset: u64) -> u64 {
    for (from, to) in parts {
        if offset < to - from {
            return from + offset;
        }
        offset -= to - from;
    }
    parts.last().map_or(0, |(_, to)| *to)
}

#[cfg(test)]
mod tests;
