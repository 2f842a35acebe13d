//! The pool's history as a workload: the number of requests of each model in each minute, as the store keeps it. The
//! seed spreads them over the part of the minute in which the model was there; where the history says that a request
//! called for a load, one came then.

use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use rand::{Rng, SeedableRng};
use rand_distr::Exp1;
use rand_pcg::Pcg64Mcg;

use super::fault::WorkloadFault;
use config::DatabaseUrl;
use pool::Time;
use store::{Past, Store};

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
        History {
            stays: names.iter().map(stays_of).collect(),
            names,
            minutes,
            past,
        }
    }

    pub fn past(&self) -> &Past {
        &self.past
    }

    /// The parts of a minute, in milliseconds of the workload, in which the model was there or loading, and the moments
    /// in it at which a load was decided.
    fn presence(&self, model: u32, minute: u64) -> (Vec<(u64, u64)>, Vec<u64>) {
        let (from, to) = (minute, minute + MINUTE_MS);
        let (mut parts, mut decided) = (Vec::new(), Vec::new());
        let stays = &self.stays[model as usize];
        let before = stays.partition_point(|it| it.from < to);
        let near = stays[..before].iter().rev();
        for it in near.take_while(|it| it.latest > from) {
            if it.to > from {
                parts.push((it.from.max(from), it.to.min(to)));
                decided.extend((it.from >= from).then_some(it.from));
            }
        }
        (parts, decided)
    }

    pub fn models(&self) -> Vec<String> {
        self.names.clone()
    }

    /// (milliseconds, model, duration of the request).
    pub fn requests(&self, seed: u64) -> impl Iterator<Item = (u64, u32, u64)> + '_ {
        let mut random = Pcg64Mcg::seed_from_u64(seed ^ 0x4157);
        let by_minute = self.minutes.chunk_by(|one, next| one.at == next.at);
        by_minute.flat_map(move |minute| {
            let mut requests = Vec::new();
            for &Minute {
                at,
                model,
                requests: count,
                busy_ms,
            } in minute
            {
                let mean_ms = busy_ms as f64 / count.max(1) as f64;
                let (parts, decided) = self.presence(model, at);
                let all: u64 = parts.iter().map(|(from, to)| to - from).sum();
                let mut decided = decided.into_iter();
                for _ in 0..count {
                    let came = decided.next().unwrap_or_else(|| match all {
                        0 => at + random.random_range(0..MINUTE_MS),
                        all => within(&parts, random.random_range(0..all)),
                    });
                    let length: f64 = random.sample(Exp1);
                    requests.push((came, model, 1 + (length * mean_ms) as u64));
                }
            }
            requests.sort_unstable();
            requests
        })
    }
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
    use store::ModelPast;

    /// Model `a` was loaded at second 10 and left at second 20, and again from 40 to 50.
    fn history() -> History {
        let minute = |model| Minute {
            at: 0,
            model,
            requests: 40,
            busy_ms: 4_000,
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
    fn a_mean_load_is_known_once_one_was_measured() {
        assert_eq!(history().past.models["a"].load(), Some(Span(300)));
        assert_eq!(ModelPast::default().load(), None);
    }
}
