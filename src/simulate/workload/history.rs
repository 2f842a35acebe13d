//! The pool's history as a workload: the number of requests of each model in each minute, as the store keeps it. The
//! seed spreads them over the minute.

use std::io::Read;
use std::path::Path;

use rand::{Rng, SeedableRng};
use rand_distr::Exp1;
use rand_pcg::Pcg64Mcg;

use super::fault::WorkloadFault;
use store::{Store, UsageMinute};

const MINUTE_MS: u64 = 60_000;
/// The first bytes of every SQLite file.
const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";

#[derive(Debug)]
pub struct History {
    names: Vec<String>,
    /// In the order of time.
    minutes: Vec<(u64, u32, UsageMinute)>,
}

impl History {
    pub fn is_store(path: &Path) -> bool {
        let mut head = [0; 16];
        std::fs::File::open(path)
            .and_then(|mut file| file.read_exact(&mut head))
            .is_ok_and(|()| head == SQLITE_MAGIC)
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
        let mut names: Vec<String> = usage.iter().map(|it| it.model.clone()).collect();
        names.sort();
        names.dedup();
        if names.is_empty() {
            return Err(fault("has no record of any request yet".to_owned()));
        }
        let first = usage.iter().map(|it| it.minute).min().unwrap_or(0);
        let mut minutes: Vec<(u64, u32, UsageMinute)> = usage
            .into_iter()
            .map(|it| {
                let nth = names.binary_search(&it.model).unwrap_or(0) as u32;
                ((it.minute - first) * MINUTE_MS, nth, it)
            })
            .collect();
        minutes.sort_by_key(|(at, nth, _)| (*at, *nth));
        Ok(History { names, minutes })
    }

    pub fn models(&self) -> Vec<String> {
        self.names.clone()
    }

    /// (milliseconds, model, duration of the request).
    pub fn requests(&self, seed: u64) -> impl Iterator<Item = (u64, u32, u64)> + '_ {
        let mut random = Pcg64Mcg::seed_from_u64(seed ^ 0x4157);
        let by_minute = self.minutes.chunk_by(|one, next| one.0 == next.0);
        by_minute.flat_map(move |minute| {
            let mut requests = Vec::new();
            for (at, model, usage) in minute {
                let mean_ms = usage.busy_ms as f64 / usage.requests.max(1) as f64;
                for _ in 0..usage.requests {
                    let within = random.random_range(0..MINUTE_MS);
                    let length: f64 = random.sample(Exp1);
                    requests.push((at + within, *model, 1 + (length * mean_ms) as u64));
                }
            }
            requests.sort_unstable();
            requests
        })
    }
}
