//! The start times of jobs. Ray only lists when jobs were submitted, possibly hours before, so a node's script prints its start
//! into the job's log. Each log is read once.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::client::{JOBS, RayClient};
use super::jobs::Job;
use super::start_line;

/// Limit of attempts to find the line in a log. Later versions of the script may not print it.
const TRIES_MAX: u8 = 5;
/// Limit per poll.
const READS_MAX: usize = 50;

#[derive(Default)]
pub(super) struct Starts {
    known: Mutex<BTreeMap<String, Start>>,
}

#[derive(Clone, Copy)]
enum Start {
    At(u64),
    Unknown { tries: u8 },
}

impl Starts {
    /// The start times of the jobs that run or have run and whose log has it. Forgets other jobs.
    pub async fn lookup(&self, jobs: &[Job], client: &RayClient) -> BTreeMap<String, u64> {
        let mut known = std::mem::take(&mut *self.locked());
        known.retain(|id, _| jobs.iter().any(|job| job.id == *id));
        let mut reads = 0;
        for job in jobs.iter().filter(|job| job.has_started()) {
            let tries = match known.get(&job.id) {
                Some(Start::At(_)) => continue,
                Some(Start::Unknown { tries }) if *tries >= TRIES_MAX => continue,
                Some(Start::Unknown { tries }) => *tries,
                None => 0,
            };
            reads += 1;
            if reads > READS_MAX {
                break;
            }
            let response = client.get(&format!("{JOBS}{}/logs", job.id)).await;
            let start = match response {
                // Retried at the next poll.
                Err(_) => continue,
                Ok(response) => {
                    match start_line::of_log(response["logs"].as_str().unwrap_or_default()) {
                        Some(unix) => Start::At(unix),
                        None => Start::Unknown { tries: tries + 1 },
                    }
                }
            };
            known.insert(job.id.clone(), start);
        }
        let starts = known.iter().filter_map(|(id, start)| match start {
            Start::At(unix) => Some((id.clone(), *unix)),
            Start::Unknown { .. } => None,
        });
        let starts = starts.collect();
        self.locked().extend(known);
        starts
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Start>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
