//! The pool's history as a workload: the number of requests of each model in each minute, as the store keeps it. The
//! seed spreads them over those seconds of the minute in which some came, or where the store does not know them, over the
//! part of it in which the model was ready; those that waited came so long before it was ready that they waited as long as
//! they did. Where a store does not know what waited, one request came when each load was decided.

mod placing;

use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use rand::{Rng, SeedableRng};
use rand_distr::Exp1;
use rand_pcg::Pcg64Mcg;

use super::fault::WorkloadFault;
use super::in_order::{InOrder, Request};
use config::DatabaseUrl;
use placing::{Load, Part};
use pool::{Span, Time};
use store::{Past, PastStay, Seconds, Store};

const MINUTE_MS: u64 = 60_000;
/// How long after the end of its load a request had its seat, at most.
const SEAT_AFTER_MS: u64 = 1_000;
/// The first bytes of every SQLite file.
const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";

#[derive(Debug)]
pub struct History {
    names: Vec<String>,
    /// In the order of time.
    minutes: Vec<Minute>,
    past: Past,
    /// The stays of each model's replicas, in milliseconds of the workload, in the order in which they began.
    stays: Vec<Vec<Stay>>,
    /// The store knows which requests waited.
    knows_waits: bool,
}

#[derive(Clone, Copy, Debug)]
struct Stay {
    /// Where the store knows what waited, when the replica was ready; otherwise when its load was decided.
    from: u64,
    to: u64,
    /// How long its load took; `None`: no request has waited for it.
    load: Option<u64>,
    /// The latest end of this one and all earlier ones.
    latest: u64,
}

/// The requests for one model in one minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Minute {
    /// Milliseconds from the first minute.
    at: u64,
    model: u32,
    requests: u64,
    busy_ms: u64,
    /// How many of them waited, and for how long together.
    waited: u64,
    waited_ms: u64,
    /// In which seconds they came; `None`: not known.
    seconds: Option<Seconds>,
}

impl Minute {
    /// The mean wait of those that waited.
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

    /// Whether the workload is a store in PostgreSQL.
    ///
    /// # Errors
    /// [`WorkloadFault::Spec`], without its password.
    pub fn is_database(spec: &str) -> Result<bool, WorkloadFault> {
        if !spec.starts_with("postgres://") && !spec.starts_with("postgresql://") {
            return Ok(false);
        }
        let wrong = |spec: &str, problem: String| WorkloadFault::Spec {
            spec: spec.to_owned(),
            problem,
        };
        let url = DatabaseUrl::from_str(spec)
            .map_err(|error| wrong("postgres://…", error.to_string()))?;
        match url.has_password() {
            true => Err(wrong(
                &url.to_string(),
                "a password on the command line shows in the list of processes; write it to the file ~/.pgpass or the variable PGPASSWORD".to_owned(),
            )),
            false => Ok(true),
        }
    }

    pub fn read(path: &Path) -> Result<History, WorkloadFault> {
        let fault = |problem: String| WorkloadFault::File {
            path: path.to_owned(),
            problem,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| WorkloadFault::Read {
                path: path.to_owned(),
                source,
            })?;
        let usage = runtime
            .block_on(Store::read_usage(path))
            .map_err(|error| fault(error.to_string()))?;
        let past = runtime
            .block_on(Store::read_past(path))
            .map_err(|error| fault(error.to_string()))?;
        let mut names: Vec<String> = usage.iter().map(|it| it.model.clone()).collect();
        names.sort();
        names.dedup();
        if names.is_empty() {
            return Err(fault("has no record of any request yet; a pool writes requests when their minute is over".to_owned()));
        }
        let first = usage.iter().map(|it| it.minute).min().unwrap_or(0);
        let mut minutes: Vec<Minute> = usage
            .into_iter()
            .map(|it| Minute {
                at: (it.minute - first) * MINUTE_MS,
                model: names.binary_search(&it.model).unwrap_or(0) as u32,
                requests: it.requests,
                busy_ms: it.busy_ms,
                waited: it.waited,
                waited_ms: it.waited_ms,
                seconds: it.seconds,
            })
            .collect();
        minutes.sort();
        Ok(History::of(names, minutes, first * MINUTE_MS, past))
    }

    /// `first_ms`: the milliseconds since 1970 from which the minutes count.
    fn of(names: Vec<String>, minutes: Vec<Minute>, first_ms: u64, past: Past) -> History {
        let knows_waits = minutes.iter().any(|it| it.waited > 0);
        let stay = |it: &PastStay, mean: Span| {
            let ready = it.ready.unwrap_or(it.began + mean);
            let from = if knows_waits { ready } else { it.began };
            let relative = |at: Time| at.0.saturating_sub(first_ms);
            let is_before = from.0.saturating_add(MINUTE_MS) < first_ms;
            Stay {
                from: relative(from),
                to: it.left.map_or(u64::MAX, relative),
                load: (!it.is_adopted && !is_before).then_some(ready.since(it.began).0),
                latest: 0,
            }
        };
        let stays_of = |name: &String| {
            let Some(model) = past.models.get(name) else {
                return Vec::new();
            };
            // Only where it is not known when the replica was ready.
            let mean = model.load().unwrap_or_default();
            let all = model.stays.iter().map(|it| stay(it, mean));
            let mut stays: Vec<Stay> = all.filter(|it| it.from < it.to).collect();
            stays.sort_by_key(|it| it.from);
            let mut latest = 0;
            for it in &mut stays {
                latest = it.to.max(latest);
                it.latest = latest;
            }
            stays
        };
        History {
            stays: names.iter().map(stays_of).collect(),
            knows_waits,
            names,
            minutes,
            past,
        }
    }

    pub fn past(&self) -> &Past {
        &self.past
    }

    /// The parts of a minute, in milliseconds of the workload, in which the model was there.
    fn presence(&self, model: u32, minute: u64) -> Vec<Part> {
        let (from, to) = (minute, minute + MINUTE_MS);
        let stays = &self.stays[model as usize];
        let before = stays.partition_point(|it| it.from < to);
        let near = stays[..before].iter().rev();
        let near = near.take_while(|it| it.latest > from);
        let there = near.filter(|it| it.to > from);
        there.map(|it| (it.from.max(from), it.to.min(to))).collect()
    }

    /// The stays that began in this time with a load.
    fn loaded(&self, model: u32, from: u64, to: u64) -> impl Iterator<Item = Load> {
        let stays = &self.stays[model as usize];
        let first = stays.partition_point(|it| it.from < from);
        let until = stays.partition_point(|it| it.from < to);
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

    /// In the order of time.
    pub fn requests(&self, seed: u64) -> impl Iterator<Item = Request> + '_ {
        let mut random = Pcg64Mcg::seed_from_u64(seed ^ 0x4157);
        let by_minute = self.minutes.chunk_by(|one, next| one.at == next.at);
        // Of each model, from when on no minute has its loads yet.
        let mut unclaimed = vec![0; self.names.len()];
        let minutes = by_minute.map(move |minute| {
            let mut requests = Vec::new();
            for it in minute {
                let mean_ms = it.busy_ms as f64 / it.requests.max(1) as f64;
                let unclaimed = &mut unclaimed[it.model as usize];
                for came in self.moments(it, unclaimed, &mut random) {
                    let length: f64 = random.sample(Exp1);
                    requests.push((came, it.model, 1 + (length * mean_ms) as u64));
                }
            }
            (minute[0].at, requests)
        });
        InOrder::new(minutes, self.reach())
    }

    /// How long before its minute a request came at most.
    fn reach(&self) -> u64 {
        let loads = |stays: &Vec<Stay>| stays.iter().filter_map(|it| it.load).max();
        let longest = self.stays.iter().map(|it| loads(it).unwrap_or(0));
        let longest: Vec<u64> = longest.collect();
        let waits = self.minutes.iter().filter(|it| it.waited > 0);
        let wait = |it: &Minute| {
            let load = longest[it.model as usize];
            it.mean_wait().saturating_mul(2).max(load)
        };
        let wait = waits.map(wait).max();
        wait.map_or(0, |it| it.saturating_add(MINUTE_MS))
    }

    /// When the requests of a minute came.
    fn moments(&self, minute: &Minute, unclaimed: &mut u64, random: &mut Pcg64Mcg) -> Vec<u64> {
        let parts = self.presence(minute.model, minute.at);
        let to = minute.at + MINUTE_MS;
        if !self.knows_waits {
            let decided = self.loaded(minute.model, minute.at, to).map(|it| it.at);
            return placing::moments_after(minute, decided.collect(), &parts, random);
        }
        let before = match minute.seconds {
            Some(_) => SEAT_AFTER_MS,
            // A minute of older versions began and ended in the middle of those of the clock, and has the name of the one in
            // which it ended.
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
