//! The pool's history as a workload: the number of requests per model and minute, as the store keeps it. The seed spreads them over
//! the seconds of the minute that had requests, or, if the store does not know these, over the time in which the model was ready.
//! Waiting requests are placed before the model became ready, to reproduce the recorded waits. If the store has no waits, one
//! request came when each load was decided.

mod placing;

use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use rand::{Rng, SeedableRng};
use rand_distr::Exp1;
use rand_pcg::Pcg64Mcg;

use super::error::WorkloadError;
use super::in_order::{InOrder, Request};
use config::DatabaseUrl;
use placing::{Load, Part};
use pool::{Span, Time};
use store::{PastStay, PoolHistory, Seconds, Store};

const MINUTE_MS: u64 = 60_000;
/// The maximum time between the end of a load and the seat of a request that waited for it.
const SEAT_AFTER_MS: u64 = 1_000;
/// The first bytes of every SQLite file.
const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";

#[derive(Debug)]
pub struct History {
    names: Vec<String>,
    /// The start of the first minute, in milliseconds since 1970.
    first_ms: u64,
    /// The minutes in the order of time.
    minutes: Vec<Minute>,
    past: PoolHistory,
    /// The stays of each model's replicas, in milliseconds of the workload, by start time.
    stays: Vec<Vec<Stay>>,
    /// True if the store knows which requests waited.
    knows_waits: bool,
}

#[derive(Clone, Copy, Debug)]
struct Stay {
    /// The time the replica was ready if the store knows the waits, otherwise the time its load was decided.
    from: u64,
    to: u64,
    /// The duration of its load; `None` if no request waited for it.
    load: Option<u64>,
    /// The latest end of this stay and all earlier ones.
    latest: u64,
}

/// The requests for a model in one minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Minute {
    /// Milliseconds from the first minute.
    at: u64,
    model: u32,
    requests: u64,
    busy_ms: u64,
    /// The number of requests that waited, and their total wait.
    waited: u64,
    waited_ms: u64,
    /// The seconds in which they came; `None` if unknown.
    seconds: Option<Seconds>,
}

impl Minute {
    /// The mean wait of the waiting requests.
    fn mean_wait(&self) -> u64 {
        self.waited_ms.checked_div(self.waited).unwrap_or(0)
    }
}

impl History {
    pub fn is_store(path: &Path) -> bool {
        let mut head = [0; 16];
        std::fs::File::open(path)
            .and_then(|mut file| file.read_exact(&mut head))
            .is_ok_and(|()| head == SQLITE_MAGIC)
    }

    /// Returns true if the workload is a store in PostgreSQL.
    ///
    /// # Errors
    /// [`WorkloadError::Spec`], without its password.
    pub fn is_database(spec: &str) -> Result<bool, WorkloadError> {
        if !spec.starts_with("postgres://") && !spec.starts_with("postgresql://") {
            return Ok(false);
        }
        let wrong = |spec: &str, problem: String| WorkloadError::Spec {
            spec: spec.to_owned(),
            problem,
        };
        let url = DatabaseUrl::from_str(spec)
            .map_err(|error| wrong("postgres://…", error.to_string()))?;
        if url.has_password() {
            Err(wrong(
            &url.to_string(),
            "a password on the command line shows in the list of processes; write it to the file ~/.pgpass or the variable PGPASSWORD".to_owned(),
        ))
        } else {
            Ok(true)
        }
    }

    pub fn read(path: &Path) -> Result<History, WorkloadError> {
        let fault = |problem: String| WorkloadError::File {
            path: path.to_owned(),
            problem,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| WorkloadError::Read {
                path: path.to_owned(),
                source,
            })?;
        let usage = runtime
            .block_on(Store::read_usage(path))
            .map_err(|error| fault(error.to_string()))?;
        let past = runtime
            .block_on(Store::read_past(path))
            .map_err(|error| fault(error.to_string()))?;
        let mut names: Vec<String> = usage.iter().map(|row| row.model.clone()).collect();
        names.sort();
        names.dedup();
        if names.is_empty() {
            return Err(fault(
                "has no recorded requests yet; a pool writes them once their minute is over"
                    .to_owned(),
            ));
        }
        let first = usage.iter().map(|row| row.minute).min().unwrap_or(0);
        let mut minutes: Vec<Minute> = usage
            .into_iter()
            .map(|row| Minute {
                at: (row.minute - first) * MINUTE_MS,
                model: names.binary_search(&row.model).unwrap_or(0) as u32,
                requests: row.requests,
                busy_ms: row.busy_ms,
                waited: row.waited,
                waited_ms: row.waited_ms,
                seconds: row.seconds,
            })
            .collect();
        minutes.sort();
        Ok(History::new(names, minutes, first * MINUTE_MS, past))
    }

    /// `first_ms` is the start of the minutes, in milliseconds since 1970.
    fn new(names: Vec<String>, minutes: Vec<Minute>, first_ms: u64, past: PoolHistory) -> History {
        let knows_waits = minutes.iter().any(|minute| minute.waited > 0);
        let stay = |past: &PastStay, mean: Span| {
            let ready = past.ready.unwrap_or(past.began + mean);
            let from = if knows_waits { ready } else { past.began };
            let relative = |at: Time| at.0.saturating_sub(first_ms);
            let is_before = from.0.saturating_add(MINUTE_MS) < first_ms;
            Stay {
                from: relative(from),
                to: past.left.map_or(u64::MAX, relative),
                load: (!past.is_adopted && !is_before).then_some(ready.since(past.began).0),
                latest: 0,
            }
        };
        let stays_of = |name: &String| {
            let Some(model) = past.models.get(name) else {
                return Vec::new();
            };
            // Only used if the time the replica was ready is unknown.
            let mean = model.load().unwrap_or_default();
            let all = model.stays.iter().map(|past| stay(past, mean));
            let mut stays: Vec<Stay> = all.filter(|stay| stay.from < stay.to).collect();
            stays.sort_by_key(|stay| stay.from);
            let mut latest = 0;
            for stay in &mut stays {
                latest = stay.to.max(latest);
                stay.latest = latest;
            }
            stays
        };
        History {
            stays: names.iter().map(stays_of).collect(),
            knows_waits,
            first_ms,
            names,
            minutes,
            past,
        }
    }

    pub fn first_ms(&self) -> u64 {
        self.first_ms
    }

    pub fn past(&self) -> &PoolHistory {
        &self.past
    }

    /// The parts of a minute, in milliseconds of the workload, during which the model was loaded.
    fn presence(&self, model: u32, minute: u64) -> Vec<Part> {
        let (from, to) = (minute, minute + MINUTE_MS);
        let stays = &self.stays[model as usize];
        let before = stays.partition_point(|stay| stay.from < to);
        let near = stays[..before].iter().rev();
        let near = near.take_while(|stay| stay.latest > from);
        let there = near.filter(|stay| stay.to > from);
        there
            .map(|stay| (stay.from.max(from), stay.to.min(to)))
            .collect()
    }

    /// The stays that began with a load in this period.
    fn loaded(&self, model: u32, from: u64, to: u64) -> impl Iterator<Item = Load> {
        let stays = &self.stays[model as usize];
        let first = stays.partition_point(|stay| stay.from < from);
        let until = stays.partition_point(|stay| stay.from < to);
        (first..until).filter_map(move |nth| {
            let (at, took) = (stays[nth].from, stays[nth].load?);
            let before = nth.checked_sub(1).map(|before| stays[before].latest);
            let left = before.filter(|left| *left < at).unwrap_or(0);
            Some(Load { at, took, left })
        })
    }

    pub fn models(&self) -> Vec<String> {
        self.names.clone()
    }

    /// The requests in the order of time.
    pub fn requests(&self, seed: u64) -> impl Iterator<Item = Request> + '_ {
        let mut random = Pcg64Mcg::seed_from_u64(seed ^ 0x4157);
        let by_minute = self.minutes.chunk_by(|one, next| one.at == next.at);
        // For each model, the time from which loads are not claimed by a minute yet.
        let mut unclaimed = vec![0; self.names.len()];
        let minutes = by_minute.map(move |minute| {
            let mut requests = Vec::new();
            for row in minute {
                let mean_ms = row.busy_ms as f64 / row.requests.max(1) as f64;
                let unclaimed = &mut unclaimed[row.model as usize];
                for came in self.moments(row, unclaimed, &mut random) {
                    let length: f64 = random.sample(Exp1);
                    requests.push((came, row.model, 1 + (length * mean_ms) as u64));
                }
            }
            (minute[0].at, requests)
        });
        InOrder::new(minutes, self.reach())
    }

    /// The maximum time by which a request came before its minute.
    fn reach(&self) -> u64 {
        let loads = |stays: &Vec<Stay>| stays.iter().filter_map(|stay| stay.load).max();
        let longest = self.stays.iter().map(|stays| loads(stays).unwrap_or(0));
        let longest: Vec<u64> = longest.collect();
        let waits = self.minutes.iter().filter(|minute| minute.waited > 0);
        let wait = |minute: &Minute| {
            let load = longest[minute.model as usize];
            minute.mean_wait().saturating_mul(2).max(load)
        };
        let wait = waits.map(wait).max();
        wait.map_or(0, |wait| wait.saturating_add(MINUTE_MS))
    }

    /// The times of a minute's requests.
    fn moments(&self, minute: &Minute, unclaimed: &mut u64, random: &mut Pcg64Mcg) -> Vec<u64> {
        let parts = self.presence(minute.model, minute.at);
        let to = minute.at + MINUTE_MS;
        if !self.knows_waits {
            let decided = self.loaded(minute.model, minute.at, to).map(|load| load.at);
            return placing::moments_after(minute, decided.collect(), &parts, random);
        }
        let before = match minute.seconds {
            Some(_) => SEAT_AFTER_MS,
            // A minute of older versions began and ended in the middle of clock minutes, and is named after the one in which it
            // ended.
            None => MINUTE_MS,
        };
        let from = minute.at.saturating_sub(before).max(*unclaimed);
        let most = usize::try_from(minute.waited).unwrap_or(usize::MAX);
        let loads = self.loaded(minute.model, from, to).take(most);
        let loads: Vec<Load> = loads.collect();
        if let Some(last) = loads.last() {
            *unclaimed = last.at + 1;
        }
        placing::moments(minute, &parts, &loads, random)
    }
}

#[cfg(test)]
mod tests;
