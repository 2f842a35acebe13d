//! Shows the progress of a fetch: one updated line at a terminal, otherwise a line for each tenth.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use source::Progress;
use terminal::{StatusLine, bytes, seconds};

/// The rate covers the last few seconds.
const SAMPLES_MAX: usize = 20;

pub(super) struct Display {
    name: String,
    progress: Arc<Progress>,
    line: StatusLine,
    began: Instant,
    /// Times with the number of bytes present.
    samples: VecDeque<(Instant, u64)>,
    /// Tenths printed so far.
    tenths: u8,
}

impl Display {
    pub fn new(name: &str, progress: Arc<Progress>) -> Display {
        Display {
            name: name.to_owned(),
            progress,
            line: StatusLine::of_stderr(),
            began: now(),
            samples: VecDeque::new(),
            tenths: 0,
        }
    }

    pub fn tick(&mut self) {
        self.samples.push_back((now(), self.progress.done()));
        if self.samples.len() > SAMPLES_MAX {
            self.samples.pop_front();
        }
        let percent = self.progress.percent();
        if self.line.is_enabled() {
            let text = self.text();
            return self.line.show(&text);
        }
        let tenths = percent.unwrap_or(0) / 10;
        if tenths > self.tenths {
            self.tenths = tenths;
            eprintln!("{}: {}", self.name, self.text());
        }
    }

    /// Per cent, bytes, rate and time left; before the size is known, the current activity.
    fn text(&self) -> String {
        let (done, total) = (self.progress.done(), self.progress.total());
        let Some(percent) = self.progress.percent().filter(|_| total > 0) else {
            return terminal::clean(&self.progress.stage());
        };
        let size = format!("{percent} %, {} of {}", bytes(done), bytes(total));
        match self.rate() {
            Some(rate) => {
                let left = Duration::from_secs_f64(total.saturating_sub(done) as f64 / rate);
                format!("{size}, {}/s, {} left", bytes(rate as u64), seconds(left))
            }
            None => size,
        }
    }

    /// Bytes per second.
    fn rate(&self) -> Option<f64> {
        let ((first, had), (last, has)) = (self.samples.front()?, self.samples.back()?);
        let took = last.duration_since(*first).as_secs_f64();
        let rate = has.saturating_sub(*had) as f64 / took;
        // A rate below one byte per second is useless for an estimate.
        (took > 0.5 && rate >= 1.0).then_some(rate)
    }

    /// Erases the line and returns a summary of the fetch.
    pub fn end(mut self) -> String {
        self.line.erase();
        let (came, total) = (self.progress.came(), self.progress.total());
        let took = now().duration_since(self.began);
        match came {
            0 => format!(
                "{} is on this machine already: {}.",
                self.name,
                bytes(total)
            ),
            _ if came < total => format!(
                "Fetched the rest of {}: {} of {} in {}.",
                self.name,
                bytes(came),
                bytes(total),
                seconds(took)
            ),
            _ => format!(
                "Fetched {}: {} in {}.",
                self.name,
                bytes(total),
                seconds(took)
            ),
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the edge: the rate of a download is measured here alone"
)]
fn now() -> Instant {
    Instant::now()
}
