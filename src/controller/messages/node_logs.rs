//! Routes the log lines of engines on one node. Shared by the node's connection and the loop: the loop adds a replica before it
//! orders the start, since the first line may arrive before the published snapshot shows the replica.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use engine::{LogLine, ReplicaLog};
use pool::ReplicaId;

/// Limits of the lines kept until the loop has read the list of engines on the node. A node sends that list before its first line,
/// so lines wait for as long as the loop lags behind.
const EARLY_LINES_MAX: usize = 1_000;
const EARLY_BYTES_MAX: usize = 256 << 10;

#[derive(Debug, Default)]
pub(crate) struct NodeLogs(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    known: BTreeMap<ReplicaId, Weak<ReplicaLog>>,
    /// Lines of replicas that may still be adopted.
    early: Vec<(ReplicaId, LogLine)>,
    early_bytes: usize,
    /// The loop has read the list: replicas it does not know are not the pool's.
    is_listed: bool,
}

impl NodeLogs {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a replica of the pool on this node.
    pub fn know(&self, replica: ReplicaId, log: &Arc<ReplicaLog>) {
        let mut inner = self.lock();
        inner.known.retain(|_, log| log.strong_count() > 0);
        inner.known.insert(replica, Arc::downgrade(log));
        let early = std::mem::take(&mut inner.early);
        let (own, others): (Vec<_>, Vec<_>) = early.into_iter().partition(|(of, _)| *of == replica);
        inner.early = others;
        for (_, line) in own {
            inner.early_bytes = inner.early_bytes.saturating_sub(line.text.len());
            log.relay(line);
        }
    }

    /// Marks all replicas on the node's list as known.
    pub fn listed(&self) {
        let mut inner = self.lock();
        inner.is_listed = true;
        inner.early = Vec::new();
        inner.early_bytes = 0;
    }

    /// Passes on log lines that the node has sent. Drops lines of replicas on other nodes.
    pub fn relay(&self, replica: ReplicaId, lines: impl IntoIterator<Item = LogLine>) {
        let mut inner = self.lock();
        match inner.known.get(&replica).cloned() {
            Some(log) => {
                // A reader may still follow the log of a replica that has just ended.
                if let Some(log) = log.upgrade() {
                    lines.into_iter().for_each(|line| log.relay(line));
                }
            }
            None if inner.is_listed => {}
            None => {
                lines.into_iter().for_each(|line| inner.keep(replica, line));
            }
        }
    }
}

impl Inner {
    /// Keeps the first lines: a gap in the numbers shows that later ones are missing.
    fn keep(&mut self, replica: ReplicaId, line: LogLine) {
        let bytes = self.early_bytes + line.text.len();
        if self.early.len() < EARLY_LINES_MAX && bytes <= EARLY_BYTES_MAX {
            self.early_bytes = bytes;
            self.early.push((replica, line));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use engine::LogStream;

    use super::*;

    const ONE: ReplicaId = ReplicaId(1);
    const OTHER: ReplicaId = ReplicaId(2);

    fn line(sequence: u64, text: &str) -> LogLine {
        LogLine {
            sequence,
            at: SystemTime::UNIX_EPOCH,
            stream: LogStream::Stdout,
            text: text.into(),
        }
    }

    fn texts(log: &ReplicaLog) -> Vec<String> {
        let lines = log.tail(usize::MAX).into_iter();
        lines.map(|line| line.text.to_string()).collect()
    }

    #[test]
    fn the_first_log_line_of_a_launch_is_kept_before_a_snapshot_lists_the_replica() {
        let logs = NodeLogs::default();
        logs.listed();
        let log = Arc::new(ReplicaLog::in_memory());
        logs.know(ONE, &log);
        logs.relay(ONE, [line(0, "starts")]);
        logs.relay(OTHER, [line(0, "of another node")]);
        assert_eq!(texts(&log), ["starts"]);
    }

    #[test]
    fn lines_received_before_the_replica_list_wait_for_their_replica_until_it_is_read() {
        let logs = NodeLogs::default();
        logs.relay(ONE, [line(7, "a"), line(8, "b")]);
        logs.relay(OTHER, [line(0, "c")]);
        let (one, other) = (ReplicaLog::in_memory(), ReplicaLog::in_memory());
        let (one, other) = (Arc::new(one), Arc::new(other));
        logs.know(ONE, &one);
        logs.relay(ONE, [line(9, "d")]);
        assert_eq!(texts(&one), ["a", "b", "d"]);
        logs.listed();
        logs.know(OTHER, &other);
        assert!(texts(&other).is_empty(), "it was not in the list");
    }

    #[test]
    fn early_lines_are_bounded_and_a_log_without_readers_is_dropped() {
        let logs = NodeLogs::default();
        let many = (0..2 * EARLY_LINES_MAX as u64).map(|nth| line(nth, "x"));
        logs.relay(ONE, many);
        logs.relay(ONE, [line(9_999, &"y".repeat(EARLY_BYTES_MAX + 1))]);
        assert_eq!(logs.lock().early.len(), EARLY_LINES_MAX);
        assert_eq!(logs.lock().early_bytes, EARLY_LINES_MAX);
        let log = Arc::new(ReplicaLog::in_memory());
        logs.know(ONE, &log);
        assert_eq!(texts(&log).len(), EARLY_LINES_MAX);
        assert_eq!(logs.lock().early_bytes, 0);
        drop(log);
        logs.relay(ONE, [line(10_000, "late")]);
        logs.know(OTHER, &Arc::new(ReplicaLog::in_memory()));
        assert!(!logs.lock().known.contains_key(&ONE));
    }
}
