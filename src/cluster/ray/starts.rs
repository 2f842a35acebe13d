//! When jobs have started. Ray lists only when they were submitted, which may be hours before; so a node's script prints
//! the time into the log of its job. Each log is read once.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::client::{JOBS, RayClient};
use super::jobs::Job;
use super::start_line;

/// A log that has no such line yet is read this often; later versions of the script may print none.
const TRIES_MAX: u8 = 5;
/// Of one look.
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
    /// Of those of these jobs that run or have run, and whose log says it. Others are forgotten.
    pub async fn of(&self, jobs: &[Job], client: &RayClient) -> BTreeMap<String, u64> {
        let mut known = std::mem::take(&mut *self.locked());
        known.retain(|id, _| jobs.iter().any(|job| job.id == *id));
        let mut reads = 0;
        for job in jobs.iter().filter(|it| it.has_started()) {
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
            let answer = client.get(&format!("{JOBS}{}/logs", job.id)).await;
            let start = match answer {
                // It is tried again at the next look.
                Err(_) => continue,
                Ok(answer) => match start_line::of_log(answer["logs"].as_str().unwrap_or_default())
                {
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
