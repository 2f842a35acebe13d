//! Messages for the controller that survive a broken connection: numbered reports until they are acknowledged, the newest log
//! lines, and the newest reading of the devices.

use std::collections::VecDeque;

use node_link::{EngineReport, LogLineForm, NodeReadings, NodeReport};

/// Maximum number of unacknowledged reports. Hard to reach, since only some reports of each engine are kept during a break.
const REPORTS_MAX: usize = 16 * 1024;
/// While more reports than this wait, figures that the next report replaces are dropped.
const REPORTS_BUSY: usize = 1024;
const LOG_LINES_MAX: usize = 4096;
const LOG_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// The number of the last report, or 0.
    last: u64,
    reports: VecDeque<(u64, NodeReport)>,
    logs: VecDeque<(u64, LogLineForm)>,
    log_bytes: usize,
    pub readings: Option<NodeReadings>,
    /// The numbering continues that of an earlier process of this node.
    is_continued: bool,
}

impl Outbox {
    /// Queues a report. Without a connection, figures that the next report replaces are dropped.
    pub fn push(&mut self, report: NodeReport, is_connected: bool) {
        let is_passing = matches!(
            &report,
            NodeReport::Engine {
                report: EngineReport::Memory { .. }
                    | EngineReport::Load(_)
                    | EngineReport::Progress { .. },
                ..
            }
        );
        if is_passing && (!is_connected || self.reports.len() >= REPORTS_BUSY) {
            return;
        }
        self.last += 1;
        self.reports.push_back((self.last, report));
        if self.reports.len() > REPORTS_MAX {
            // The list of running engines will show the controller the effect of dropped reports.
            self.reports.pop_front();
        }
    }

    pub fn push_line(&mut self, replica: u64, line: LogLineForm) {
        self.log_bytes += line.text.len();
        self.logs.push_back((replica, line));
        while self.logs.len() > LOG_LINES_MAX || self.log_bytes > LOG_BYTES_MAX {
            let Some((_, oldest)) = self.logs.pop_front() else {
                break;
            };
            self.log_bytes -= oldest.text.len();
        }
    }

    /// The first report after this number.
    pub fn after(&self, number: u64) -> Option<(u64, NodeReport)> {
        let next = self.reports.partition_point(|(nth, _)| *nth <= number);
        self.reports.get(next).cloned()
    }

    /// Numbers the reports after `received`, the last report of an earlier process of this node. Only the first call has an effect.
    pub fn continue_after(&mut self, received: u64) {
        if std::mem::replace(&mut self.is_continued, true) {
            return;
        }
        self.last = received;
        for (number, _) in &mut self.reports {
            self.last += 1;
            *number = self.last;
        }
    }

    /// Removes reports up to this number, which have arrived.
    pub fn acknowledged(&mut self, number: u64) {
        while self.reports.front().is_some_and(|(nth, _)| *nth <= number) {
            self.reports.pop_front();
        }
    }

    /// Drops all reports: a new controller learns the state from the list of running engines.
    pub fn forget_reports(&mut self) {
        self.reports.clear();
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.reports.is_empty()
    }

    /// Takes lines of the replica that has the oldest one.
    pub fn take_lines(&mut self, most: usize) -> Option<(u64, Vec<LogLineForm>)> {
        let replica = self.logs.front()?.0;
        let mut lines = Vec::new();
        while lines.len() < most
            && self.logs.front().is_some_and(|(of, _)| *of == replica)
            && let Some((_, line)) = self.logs.pop_front()
        {
            self.log_bytes -= line.text.len();
            lines.push(line);
        }
        Some((replica, lines))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(replica: u64) -> NodeReport {
        NodeReport::Engine {
            replica,
            report: EngineReport::Ready { took_ms: 1 },
        }
    }

    fn memory() -> NodeReport {
        NodeReport::Engine {
            replica: 1,
            report: EngineReport::Memory { now: 1, peak: 1 },
        }
    }

    #[test]
    fn a_report_is_kept_and_resent_with_its_number_until_it_is_acknowledged() {
        let mut outbox = Outbox::default();
        outbox.push(ready(1), true);
        outbox.push(ready(2), false);
        assert_eq!(outbox.after(0).map(|(number, _)| number), Some(1));
        assert_eq!(outbox.after(1).map(|(number, _)| number), Some(2));
        outbox.acknowledged(1);
        assert_eq!(outbox.after(0).map(|(number, _)| number), Some(2));
        outbox.acknowledged(2);
        assert!(outbox.is_empty() && outbox.after(0).is_none());
    }

    #[test]
    fn reports_of_a_process_that_continues_are_numbered_after_those_of_the_earlier_one() {
        let mut outbox = Outbox::default();
        outbox.push(ready(1), false);
        outbox.push(ready(2), false);
        outbox.continue_after(7);
        let numbers = |outbox: &Outbox| -> Vec<u64> {
            outbox.reports.iter().map(|(number, _)| *number).collect()
        };
        assert_eq!(numbers(&outbox), [8, 9]);
        outbox.push(ready(3), false);
        assert_eq!(numbers(&outbox), [8, 9, 10]);
        // The same process connects again.
        outbox.continue_after(20);
        assert_eq!(numbers(&outbox), [8, 9, 10]);
        let mut later = Outbox::default();
        (1..=3).for_each(|replica| later.push(ready(replica), false));
        later.continue_after(2);
        assert_eq!(numbers(&later), [3, 4, 5], "none counts as received");
    }

    #[test]
    fn memory_figures_are_not_queued_for_an_absent_controller() {
        let mut outbox = Outbox::default();
        outbox.push(memory(), false);
        assert!(outbox.is_empty());
        outbox.push(memory(), true);
        assert!(!outbox.is_empty());
    }

    #[test]
    fn the_newest_log_lines_are_kept() {
        let mut outbox = Outbox::default();
        for sequence in 0..2 * LOG_LINES_MAX as u64 {
            outbox.push_line(
                sequence % 2,
                LogLineForm {
                    sequence,
                    at_ms: 0,
                    is_stderr: false,
                    text: "x".repeat(500),
                },
            );
        }
        assert!(outbox.log_bytes <= LOG_BYTES_MAX);
        let mut newest = 0;
        while let Some((_, lines)) = outbox.take_lines(7) {
            newest = lines.last().map_or(newest, |line| line.sequence);
        }
        assert_eq!(newest, 2 * LOG_LINES_MAX as u64 - 1);
        assert_eq!(outbox.log_bytes, 0);
    }
}
