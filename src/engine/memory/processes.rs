//! The host memory of an engine's processes: anonymous and shared pages, plus the mapped file pages that the engine reports as its
//! weights. Samples and keeps the peak; all engines share one scan of the system's processes. Does not measure GPU memory.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::sessions;
use crate::connection::Endpoint;
use crate::health::probe::probe;
use pool::Bytes;

/// Smaller changes are not reported.
const QUIET: u64 = Bytes::MIB;
/// The mapped weights that an engine reports. The system counts their pages as page cache, but an engine that computes with them
/// needs all of them.
#[derive(Debug, Default)]
pub(crate) struct MappedBytes(AtomicU64);

impl MappedBytes {
    fn bytes(&self) -> Bytes {
        Bytes(self.0.load(Ordering::Relaxed))
    }

    /// Reads `path`, if given, now and after each pause.
    pub async fn follow(
        &self,
        endpoint: &Endpoint,
        path: Option<&str>,
        pause: Duration,
    ) -> Infallible {
        let Some(path) = path else {
            return std::future::pending().await;
        };
        loop {
            if let Ok(response) = probe(endpoint, path).await
                && let Some(bytes) = mapped_in(&response.body)
            {
                self.0.store(bytes, Ordering::Relaxed);
            }
            ticks::pause(pause).await;
        }
    }
}

fn mapped_in(body: &[u8]) -> Option<u64> {
    let body: serde_json::Value = serde_json::from_slice(body).ok()?;
    body.get("weights_mapped_bytes")?.as_u64()
}

/// Follows one engine's memory.
pub(crate) struct Meter<'a> {
    leader: u32,
    mapped: &'a MappedBytes,
    reported: Bytes,
    pub peak: Bytes,
}

impl<'a> Meter<'a> {
    pub fn new(leader: u32, mapped: &'a MappedBytes) -> Meter<'a> {
        Meter {
            leader,
            mapped,
            reported: Bytes::ZERO,
            peak: Bytes::ZERO,
        }
    }

    /// The memory that the processes hold now, recorded as reported. `None` if the system does not report it.
    pub async fn read(&mut self) -> Option<Bytes> {
        let leader = self.leader;
        let now = tokio::task::spawn_blocking(move || measure(leader)).await;
        let now = now.ok().flatten()? + self.mapped.bytes();
        self.peak = self.peak.max(now);
        self.reported = now;
        Some(now)
    }

    /// The memory held now, if it differs from the last report by more than 1 MiB.
    pub async fn changed(&mut self) -> Option<Bytes> {
        let before = self.reported;
        let now = self.read().await?;
        if now.0.abs_diff(before.0) > QUIET {
            return Some(now);
        }
        self.reported = before;
        None
    }
}

fn measure(leader: u32) -> Option<Bytes> {
    let held = sessions::members(leader).into_iter().filter_map(own_pages);
    let held: Vec<Bytes> = held.collect();
    (!held.is_empty()).then(|| held.into_iter().sum())
}

fn own_pages(process: u32) -> Option<Bytes> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    sum_of(&status)
}

/// `RssAnon` and `RssShmem` of a `/proc/PID/status`. A zombie has neither.
fn sum_of(status: &str) -> Option<Bytes> {
    let lines = status.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        matches!(name, "RssAnon" | "RssShmem").then_some(value)
    });
    lines
        .map(|value| {
            let kib: u64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
            Some(Bytes(kib << 10))
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_files_are_not_counted() {
        let status =
            "Name:\tx\nVmRSS:\t 900 kB\nRssAnon:\t 100 kB\nRssFile:\t 790 kB\nRssShmem:\t 10 kB\n";
        assert_eq!(sum_of(status), Some(Bytes(110 << 10)));
        assert_eq!(sum_of("Name:\tx\nState:\tZ (zombie)\n"), Some(Bytes::ZERO));
        assert_eq!(sum_of("RssAnon:\tmany\n"), None);
    }

    #[test]
    fn mapped_weight_bytes_are_read_from_the_engines_report() {
        let body = br#"{"weights_bytes": 9, "weights_mapped_bytes": 7, "resident_bytes": null}"#;
        assert_eq!(mapped_in(body), Some(7));
        assert_eq!(mapped_in(br#"{"weights_bytes": 9}"#), None);
        assert_eq!(mapped_in(b"no JSON"), None);
    }
}
