//! When jobs have started. Ray lists only when they were submitted, which may be hours before; so a node's script prints
//! the time into the log of its job. The log of each job that runs is read once.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::JOBS;
use super::client::RayClient;
use super::jobs::Job;

/// A log that has no such line yet is read this often; later versions of the script may print none.
const TRIES_MAX: u8 = 5;
const LINE: &str = "model-pool: the job starts at ";

/// The command of a node's script that prints the line.
pub(super) fn command() -> String {
    format!("echo \"{LINE}$(date +%s)\"")
}

/// The time in seconds since 1970, if the log has it. Ray writes the script into the log as well, in which no number
/// follows.
pub(super) fn of_log(log: &str) -> Option<u64> {
    let mut lines = log.lines().filter_map(|line| line.strip_prefix(LINE));
    lines.find_map(|rest| rest.trim().parse().ok())
}

pub(super) fn is_line(line: &str) -> bool {
    line.starts_with(LINE)
}

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
    /// Of those of these jobs that run, and whose log says it. Others are forgotten.
    pub async fn of(&self, jobs: &[Job], client: &RayClient) -> BTreeMap<String, u64> {
        let mut known = std::mem::take(&mut *self.locked());
        known.retain(|id, _| jobs.iter().any(|job| job.id == *id));
        for job in jobs.iter().filter(|it| it.is_running()) {
            let tries = match known.get(&job.id) {
                Some(Start::At(_)) => continue,
                Some(Start::Unknown { tries }) if *tries >= TRIES_MAX => continue,
                Some(Start::Unknown { tries }) => *tries,
                None => 0,
            };
            let answer = client.get(&format!("{JOBS}{}/logs", job.id)).await;
            let start = match answer {
                // It is tried again at the next look.
                Err(_) => continue,
                Ok(answer) => match of_log(answer["logs"].as_str().unwrap_or_default()) {
                    Some(unix) => Start::At(unix),
                    None => Start::Unknown { tries: tries + 1 },
                },
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
