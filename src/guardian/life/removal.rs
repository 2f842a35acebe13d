//! The end of an engine: its remains are swept, its end is reported, and the guardian ends when the report is delivered or expires.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::{FAREWELL_MAX, Life, now};
use crate::cgroup;
use crate::child::{self, Pipes};
use crate::protocol::{End, News};

/// Time limit for killed processes to disappear after the leader.
const SWEEP_MAX: Duration = Duration::from_secs(2);
/// Time limit for the pipes to close after all known processes have ended.
const PIPES_MAX: Duration = Duration::from_millis(200);
/// Time limit for the removal of a container.
const CLEAN_UP_MAX: Duration = Duration::from_secs(10);

/// The leader is gone, and its remains are being removed.
pub(super) struct Removal {
    pub status: String,
    pub since: Instant,
    /// Time at which nothing was left, or the sweep was given up.
    pub swept: Option<Instant>,
    pub left: Vec<u32>,
}

impl Life {
    pub(super) fn check_engine(&mut self) {
        if let Some(engine) = &self.engine
            && !engine.has_ended()
        {
            return child::reap_others(self.engine.as_ref());
        }
        if let Some(engine) = self.engine.take() {
            self.kill_at = None;
            self.ending = Some(Removal {
                status: engine.reap(),
                since: now(),
                swept: None,
                left: Vec::new(),
            });
        }
        let Some(ending) = &mut self.ending else {
            return;
        };
        let at = now();
        if ending.swept.is_none() {
            if child::sweep(self.group.as_deref()) {
                ending.swept = Some(at);
            } else if at.saturating_duration_since(ending.since) >= SWEEP_MAX {
                ending.left = child::children();
                ending.swept = Some(at);
            }
        }
        let Some(swept) = ending.swept else {
            return;
        };
        let open = self.pipes.stdout.is_some() || self.pipes.stderr.is_some();
        if open && at.saturating_duration_since(swept) < PIPES_MAX {
            return;
        }
        let Some(ending) = self.ending.take() else {
            return;
        };
        self.pipes = Pipes {
            stdout: None,
            stderr: None,
        };
        let rest = self.output.finish();
        self.send_lines(rest);
        let end = End {
            status: ending.status,
            last_words: self.output.last_words(),
            left: ending.left,
        };
        self.send(News::Exited(end.clone()));
        self.end = Some((end, at));
    }

    pub(super) fn check_timers(&mut self) {
        let at = now();
        if self.kill_at.is_some_and(|kill_at| kill_at <= at) {
            self.kill_at = None;
            if let Some(engine) = &self.engine {
                engine.signal(Signal::SIGKILL);
            }
        }
        let sent_at = self.end.as_ref().map(|(_, sent_at)| *sent_at);
        match (self.alone, sent_at) {
            // The result of a crash without a connected controller is kept for a while. The result of an ordered stop is not.
            (Some((since, _)), Some(_)) => {
                self.over |= self.stopping || since + self.rules.within <= at;
            }
            (Some((since, _)), None) => {
                if !self.stopping && since + self.rules.within <= at {
                    self.stop(self.rules.grace);
                }
            }
            (None, Some(sent_at)) => self.over |= sent_at + FAREWELL_MAX <= at,
            (None, None) => {}
        }
    }

    /// Removes the files that name this guardian, since no controller is left to do it.
    pub(super) fn remove_files(&mut self) {
        if self.launch.is_none() {
            self.leave_group();
        }
        if let Some(folder) = &self.group {
            cgroup::remove(folder);
        }
        let Some(launch) = &self.launch else {
            return;
        };
        let _ = std::fs::remove_file(&launch.socket);
        if self.alone.is_some() {
            child::run_to_its_end(&launch.clean_up, CLEAN_UP_MAX);
            for path in &launch.remove_at_end {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}
