//! When the requests of one minute came: those that waited, before the end of their load; the others, while their model was
//! there. Where the store knows in which seconds requests came, all of them came in these.

use rand::Rng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use super::{MINUTE_MS, Minute};
use store::Seconds;

const SECOND_MS: u64 = 1_000;

/// Milliseconds of the workload, without the last one.
pub(super) type Part = (u64, u64);

/// A load that requests may have waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// When it ended, or where that is not needed, when it was decided.
    pub at: u64,
    pub took: u64,
    /// When the model had left before it; 0: it was there all the time.
    pub left: u64,
}

/// Those that waited for one load.
struct Waiters {
    load: Load,
    requests: u64,
    /// How long the first of them waited.
    longest: u64,
}

/// `parts`: when the model was there in the minute. `loads`: not more than requests that waited.
pub(super) fn moments(
    minute: &Minute,
    parts: &[Part],
    loads: &[Load],
    random: &mut Pcg64Mcg,
) -> Vec<u64> {
    if let Some(seconds) = minute.seconds.filter(|it| !it.is_empty()) {
        return in_seconds(minute, seconds, parts, loads, random);
    }
    let mut came = Vec::new();
    for it in waiters(minute, loads) {
        for request in 0..it.requests {
            let waited = match request {
                0 => it.longest,
                _ => random.random_range(0..it.longest),
            };
            came.push(it.load.at.saturating_sub(waited));
        }
    }
    with_others(minute, came, parts, random)
}

/// Where it is not known what waited: requests came at these moments, as far as there are so many.
pub(super) fn moments_after(
    minute: &Minute,
    came: Vec<u64>,
    parts: &[Part],
    random: &mut Pcg64Mcg,
) -> Vec<u64> {
    match minute.seconds.filter(|it| !it.is_empty()) {
        Some(seconds) => in_seconds(minute, seconds, parts, &[], random),
        None => with_others(minute, came, parts, random),
    }
}

/// Those that came, and all others of the minute, while the model was there.
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

/// Those that wait for one load come at any time between the first of them and its end, so that the first of `n` waits
/// `2n / (n + 1)` times as long as they do on average, and at least for the load.
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

/// Each of these seconds has a request, as far as there are so many; the others came in any of them.
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
    for it in waiters(minute, loads) {
        let first = first_of(minute, seconds.has_earlier(), &it, &marked, random);
        came.push(first);
        let waiting = [(first, it.load.at)];
        let mut free = overlap(&free_of(&marked, &came), &waiting);
        free.shuffle(random);
        let mut later = overlap(&marked, &waiting);
        if first < minute.at {
            // Others may have come before the minute, too.
            later.push((first, minute.at.min(it.load.at)));
        }
        for _ in 1..it.requests {
            let any = (first, it.load.at.max(first + 1));
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
        // All that is known may be that some came before the minute.
        let all = (minute.at, minute.at + MINUTE_MS);
        let found = drawn(&there, random).or_else(|| drawn(parts, random));
        came.push(found.unwrap_or_else(|| drawn_of(all, random)));
    }
    came
}

/// Those of these seconds in which no request came yet.
fn free_of(marked: &[Part], came: &[u64]) -> Vec<Part> {
    let is_free = |it: &Part| !came.iter().any(|at| (it.0..it.1).contains(at));
    marked.iter().copied().filter(is_free).collect()
}

/// When the first of them came: as long before the end of their load as it waited on average, or in the next second that fits,
/// which is while the model was not there and before its load was decided.
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
    match has_earlier {
        true => average.min(minute.at.saturating_sub(1)),
        false => average,
    }
}

/// This moment if it is in one of the parts, or one of the nearest part.
fn nearest(parts: &[Part], at: u64, random: &mut Pcg64Mcg) -> Option<u64> {
    let distance = |(from, to): &&Part| match at < *from {
        true => from - at,
        false => (at + 1).saturating_sub(*to),
    };
    let part = *parts.iter().min_by_key(distance)?;
    let is_in = (part.0..part.1).contains(&at);
    Some(if is_in { at } else { drawn_of(part, random) })
}

/// What is in one of these and in one of those.
fn overlap(these: &[Part], those: &[Part]) -> Vec<Part> {
    let pairs = these
        .iter()
        .flat_map(|one| those.iter().map(move |other| (one, other)));
    let both = pairs.map(|(one, other)| (one.0.max(other.0), one.1.min(other.1)));
    both.filter(|(from, to)| from < to).collect()
}

/// Any moment of these parts; `None`: they have none.
fn drawn(parts: &[Part], random: &mut Pcg64Mcg) -> Option<u64> {
    let all: u64 = parts.iter().map(|(from, to)| to - from).sum();
    (all > 0).then(|| within(parts, random.random_range(0..all)))
}

fn drawn_of((from, to): Part, random: &mut Pcg64Mcg) -> u64 {
    random.random_range(from..to)
}

/// The moment after so many milliseconds of these parts.
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
