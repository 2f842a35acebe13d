//! The report of an engine's end: its last output, the kind of failure, and a lack of memory.

use std::borrow::Cow;

use super::engine::{End, Engine, Kind};
use crate::failures::{Failure, failure};
use crate::guardians::{GuardianEnd, LogStream, ReplicaLog, container};
use crate::launch::ExitReport;
use crate::memory::{OutOfMemory, oom};

/// Number of last lines searched for a known failure.
const ADVICE_LINES: usize = 20;
/// Number of last lines searched for the kind of failure, if the last words do not show it.
const LAST_LINES: usize = 5;

impl Engine {
    /// The report of the end, without a lack of memory, which only the kernel's counter may show.
    pub(super) fn exit_report(
        &self,
        kind: Option<Kind<'_>>,
        log: &ReplicaLog,
        end: &End,
    ) -> ExitReport {
        let (last_output, status) = self.last_words(log, &end.how);
        let failure = self.failure_kind(log, end, &last_output);
        let mut exit = ExitReport {
            requested: end.requested,
            status,
            last_output,
            oom: None,
            failure,
        };
        if !end.requested && !end.was_ready {
            if let Some((of_kind, advice)) =
                kind.and_then(|kind| advice(kind, log, &exit.last_output))
            {
                exit.failure = of_kind;
                exit.last_output = format!("{}\n{advice}", exit.last_output);
            }
            self.find_taken_port(log, &mut exit);
        }
        if let Some(reason) = &end.dead {
            exit.status = "killed by the pool".to_owned();
            exit.last_output = match exit.last_output.as_str() {
                "" => reason.clone(),
                output => format!("{reason}; its last words: {output}"),
            };
        }
        exit
    }

    /// The last output and the exit status.
    fn last_words(&self, log: &ReplicaLog, how: &GuardianEnd) -> (String, String) {
        match how {
            GuardianEnd::Reported(notice) => (notice.last_words.clone(), notice.status.clone()),
            GuardianEnd::Lost => {
                let pid = self.guard.record.guardian.pid;
                let output =
                    format!("its guardian (process {pid}) was killed, and the engine with it");
                log.push(LogStream::Stderr, &output);
                (output, "lost with its guardian".to_owned())
            }
        }
    }

    fn failure_kind(&self, log: &ReplicaLog, end: &End, last_output: &str) -> Failure {
        match (end.requested, end.was_ready, self.responds) {
            _ if end.dead.is_some() => Failure::Unresponsive,
            (_, true, _) => Failure::Crashed,
            (true, false, false) => Failure::TimedOut,
            (true, false, true) => Failure::NeverReady,
            (false, false, _) => match failure::classify(last_output) {
                Failure::Crashed => failure::classify(&log.tail_text(LAST_LINES)),
                known => known,
            },
        }
    }

    /// Explains the end of a load by another program on the engine's port.
    fn find_taken_port(&self, log: &ReplicaLog, exit: &mut ExitReport) {
        if !self.guard.reserved.is_taken() {
            return;
        }
        let taken = format!(
            "{} was taken by another program while the engine started; load the model again",
            self.guard.reserved.endpoint
        );
        log.push(LogStream::Stderr, &taken);
        exit.last_output = with_line(&exit.last_output, &taken);
        exit.failure = Failure::PortTaken;
    }

    /// Ends the processes that are left, and removes the container.
    pub(super) async fn remove_remains(&mut self, log: &ReplicaLog, how: &GuardianEnd) {
        let leader = self.guard.group.leader.pid;
        let cleanup = std::mem::take(&mut self.guard.record.cleanup);
        let left = self.guard.left(how).await;
        if !left.is_empty() {
            tracing::error!(
                leader,
                processes = ?left,
                "cannot kill processes of an engine; their memory is not freed"
            );
        }
        container::remove(&cleanup, log).await;
    }
}

/// The driver's advice for the end of a load. Some engines print more lines after the line that shows the cause.
fn advice(
    kind: Kind<'_>,
    log: &ReplicaLog,
    last_output: &str,
) -> Option<(Failure, Cow<'static, str>)> {
    kind.driver.advice(kind.launch, last_output).or_else(|| {
        kind.driver
            .advice(kind.launch, &log.tail_text(ADVICE_LINES))
    })
}

/// Sets the failure to a lack of memory if the output says so, or if the kernel killed some process for memory while the engine
/// ran.
pub(super) fn find_lack_of_memory(
    exit: &mut ExitReport,
    log: &ReplicaLog,
    kernel_has_killed: bool,
) {
    exit.oom = oom::find(&exit.last_output).or_else(|| oom::find(&log.tail_text(LAST_LINES)));
    if exit.failure == Failure::OutOfMemory {
        exit.oom = exit.oom.or(Some(OutOfMemory {
            needed: None,
            of_host: false,
        }));
    }
    if !exit.requested && exit.status == "signal 9" && kernel_has_killed {
        exit.oom = Some(OutOfMemory {
            needed: None,
            of_host: true,
        });
        let killed = "the kernel killed it because the host's memory was full";
        log.push(LogStream::Stderr, killed);
        exit.last_output = with_line(&exit.last_output, killed);
    }
    // An engine that was found dead may have printed this long ago, for another reason.
    if exit.oom.is_some() && !exit.requested && exit.failure != Failure::Unresponsive {
        exit.failure = Failure::OutOfMemory;
    }
}

fn with_line(output: &str, line: &str) -> String {
    format!("{output}\n{line}").trim_start().to_owned()
}
