//! How much host memory an engine's processes have for themselves: anonymous and shared pages, not
//! the mapped weight files that other replicas may share. It owns the sampling and the peak; it
//! never looks at GPU memory.

use super::group::Group;
use crate::pool::Bytes;

/// A change that is not worth a report.
const QUIET: u64 = Bytes::MIB;

/// Follows one engine's memory.
pub(super) struct Meter {
    group: Group,
    reported: Bytes,
    pub peak: Bytes,
}

impl Meter {
    pub fn new(group: Group) -> Meter {
        Meter {
            group,
            reported: Bytes::ZERO,
            peak: Bytes::ZERO,
        }
    }

    /// What the processes hold now; `None` where the system cannot tell. Counts as reported.
    pub async fn read(&mut self) -> Option<Bytes> {
        let group = self.group.clone();
        let now = tokio::task::spawn_blocking(move || measure(&group)).await;
        let now = now.ok().flatten()?;
        self.peak = self.peak.max(now);
        self.reported = now;
        Some(now)
    }

    /// The same, when it differs from what was reported by more than 1 MiB.
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

fn measure(group: &Group) -> Option<Bytes> {
    let held = group.members().into_iter().filter_map(own_pages);
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
}
