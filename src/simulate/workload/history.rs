//! The pool's history as a workload: the number of requests of each model in each minute, as the store keeps it. The
//! seed spreads them over the part of the minute in which the model was ready; those that waited came so long before it
//! was ready that they waited as long as they did. Where a store does not know what waited, one request came when each
//! load was decided.

use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use rand::{Rng, SeedableRng};
use rand_distr::Exp1;
use rand_pcg::Pcg64Mcg;

use super::fault::WorkloadFault;
use super::in_order::{InOrder, Request};
use config::DatabaseUrl;
use pool::Time;
use store::{ModelPast, Past, Store};

const MINUTE_MS: u64 = 60_000;
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
    /// The mean time of each model's loads, in milliseconds.
    loads: Vec<u64>,
    /// The store knows which requests waited.
    knows_waits: bool,
}

#[derive(Clone, Copy, Debug)]
struct Stay {
    from: u64,
    to: u64,
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
            return Err(fault("has no record of any request yet".to_owned()));
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
            })
            .collect();
        minutes.sort();
        Ok(History::of(names, minutes, first * MINUTE_MS, past))
    }

    /// `first_ms`: the milliseconds since 1970 from which the minutes count.
    fn of(names: Vec<String>, minutes: Vec<Minute>, first_ms: u64, past: Past) -> History {
        let relative = |at: Time| at.0.saturating_sub(first_ms);
        let stays_of = |name: &String| {
            let all = past.models.get(name).into_iter().flat_map(|it| &it.stays);
            let mut stays: Vec<Stay> = all
                .map(|(began, left)| Stay {
                    from: relative(*began),
                    to: left.map_or(u64::MAX, relative),
                    latest: 0,
                })
                .collect();
            stays.sort_by_key(|it| it.from);
            let mut latest = 0;
            for it in &mut stays {
                latest = it.to.max(latest);
                it.latest = latest;
            }
            stays
        };
        let load_of = |name: &String| {
            let load = past.models.get(name).and_then(ModelPast::load);
            load.map_or(0, |load| load.0)
        };
        History {
            stays: names.iter().map(stays_of).collect(),
            loads: names.iter().map(load_of).collect(),
            knows_waits: minutes.iter().any(|it| it.waited > 0),
            names,
            minutes,
            past,
        }
    }

    pub fn past(&self) -> &Past {
        &self.past
    }

    /// The parts of a minute, in milliseconds of the workload, in which the model was there, and the moments in it at which
    /// that began. With a delay of zero it is there from the decision to load it, with that of its load once it is ready.
    fn presence(&self, model: u32, minute: u64, delay: u64) -> (Vec<(u64, u64)>, Vec<u64>) {
        let (from, to) = (minute, minute + MINUTE_MS);
        let (mut parts, mut began) = (Vec::new(), Vec::new());
        let stays = &self.stays[model as usize];
        let begin = |it: &Stay| it.from.saturating_add(delay);
        let before = stays.partition_point(|it| begin(it) < to);
        let near = stays[..before].iter().rev();
        for it in near.take_while(|it| it.latest > from) {
            if it.to > from.max(begin(it)) {
                parts.push((begin(it).max(from), it.to.min(to)));
                began.extend((begin(it) >= from).then(|| begin(it)));
            }
        }
        (parts, began)
    }

    pub fn models(&self) -> Vec<String> {
        self.names.clone()
    }

    /// In the order of time.
    pub fn requests(&self, seed: u64) -> impl Iterator<Item = Request> + '_ {
        let mut random = Pcg64Mcg::seed_from_u64(seed ^ 0x4157);
        let by_minute = self.minutes.chunk_by(|one, next| one.at == next.at);
        let minutes = by_minute.map(move |minute| {
            let mut requests = Vec::new();
            for it in minute {
                let mean_ms = it.busy_ms as f64 / it.requests.max(1) as f64;
                for came in self.moments(it, &mut random) {
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
        let waits = self.minutes.iter().filter(|it| it.waited > 0);
        let wait = |it: &Minute| {
            let load = self.loads[it.model as usize];
            it.mean_wait().saturating_mul(2).max(load)
        };
        waits.map(wait).max().unwrap_or(0)
    }

    /// When the requests of a minute came.
    fn moments(&self, minute: &Minute, random: &mut Pcg64Mcg) -> Vec<u64> {
        let load = self.loads[minute.model as usize];
        let (parts, came) = if self.knows_waits {
            let (parts, ready) = self.presence(minute.model, minute.at, load);
            (parts, waited(minute, &ready, load, random))
        } else {
            self.presence(minute.model, minute.at, 0)
        };
        let all: u64 = parts.iter().map(|(from, to)| to - from).sum();
        let mut came = came.into_iter();
        let one = |_: u64| {
            came.next().unwrap_or_else(|| match all {
                0 => minute.at + random.random_range(0..MINUTE_MS),
                all => within(&parts, random.random_range(0..all)),
            })
        };
        (0..minute.requests).map(one).collect()
    }
}

/// When those requests of a minute came that waited for the loads that ended in it. Those that wait for one load come at any
/// time between the first of them and its end, so that the first of `n` waits `2n / (n + 1)` times as long as they do on
/// average, and at least for the load.
fn waited(minute: &Minute, ready: &[u64], load: u64, random: &mut Pcg64Mcg) -> Vec<u64> {
    let mut came = Vec::new();
    let loads = ready.len() as u64;
    for (nth, ready) in (0..loads).zip(ready) {
        let requests = minute.waited / loads + u64::from(nth < minute.waited % loads);
        let longest = minute.mean_wait().saturating_mul(2 * requests) / (requests + 1);
        let longest = longest.max(load).max(1);
        for request in 0..requests {
            let waited = match request {
                0 => longest,
                _ => random.random_range(0..longest),
            };
            came.push(ready.saturating_sub(waited));
        }
    }
    came
}

/// The moment after so many milliseconds of these parts.
fn within(parts: &[(u64, u64)], mut offset: u64) -> u64 {
    for (from, to) in parts {
        if offset < to - from {
            return from + offset;
        }
        offset -= to - from;
    }
    parts.last().map_or(0, |(_, to)| *to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pool::Span;

    /// Model `a` was loaded at second 10 and left at second 20, and again from 40 to 50.
    fn history() -> History {
        with_waits(0, 0)
    }

    fn with_waits(waited: u64, waited_ms: u64) -> History {
        let minute = |model| Minute {
            at: 0,
            model,
            requests: 40,
            busy_ms: 4_000,
            waited: if model == 0 { waited } else { 0 },
            waited_ms: if model == 0 { waited_ms } else { 0 },
        };
        let at = |second: u64| Time(100 * MINUTE_MS + second * 1_000);
        let mut past = Past::default();
        past.models.insert(
            "a".to_owned(),
            ModelPast {
                loads: 2,
                loading: Span(600),
                placed: None,
                stays: vec![(at(10), Some(at(20))), (at(40), Some(at(50)))],
            },
        );
        let names = vec!["a".to_owned(), "b".to_owned()];
        let minutes = vec![minute(0), minute(1)];
        History::of(names, minutes, 100 * MINUTE_MS, past)
    }

    #[test]
    fn requests_came_while_their_model_was_there_and_when_it_was_loaded() {
        let history = history();
        let times = |model: u32| -> Vec<u64> {
            let all = history.requests(3).filter(|it| it.1 == model);
            all.map(|it| it.0).collect()
        };
        let a = times(0);
        assert_eq!(a.len(), 40);
        assert!(a.contains(&10_000) && a.contains(&40_000), "{a:?}");
        let there = |at: &u64| (10_000..20_000).contains(at) || (40_000..50_000).contains(at);
        assert!(a.iter().all(there), "{a:?}");
        // Of the other one nothing is known but the minute.
        let b = times(1);
        assert!(
            b.iter().any(|at| !there(at)) && b.iter().all(|at| *at < MINUTE_MS),
            "{b:?}"
        );
    }

    #[test]
    fn requests_that_waited_came_so_long_before_the_model_was_ready() {
        // Its loads took 300 ms. Two requests waited for each of them, six seconds on average: the first one eight.
        let history = with_waits(4, 24_000);
        let all: Vec<Request> = history.requests(3).collect();
        assert!(all.is_sorted(), "{all:?}");
        let a: Vec<u64> = all.iter().filter(|it| it.1 == 0).map(|it| it.0).collect();
        assert_eq!(a.len(), 40);
        assert!(a.contains(&2_300) && a.contains(&32_300), "{a:?}");
        let ready = |at: &&u64| (10_300..20_000).contains(*at) || (40_300..50_000).contains(*at);
        let waited = |at: &&u64| (2_300..=10_300).contains(*at) || (32_300..=40_300).contains(*at);
        assert!(a.iter().all(|at| ready(&at) || waited(&at)), "{a:?}");
        assert!(a.iter().filter(waited).count() >= 4, "{a:?}");
        assert!(a.iter().filter(ready).count() >= 36, "{a:?}");
    }

    #[test]
    fn a_mean_load_is_known_once_one_was_measured() {
        assert_eq!(history().past.models["a"].load(), Some(Span(300)));
        assert_eq!(ModelPast::default().load(), None);
    }
}
