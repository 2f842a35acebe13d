//! Shows progress on standard error: a bar on a terminal, otherwise a line at intervals.

use std::io::IsTerminal;
use std::sync::atomic::Ordering;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::client::now;
use super::drive::Drive;
use super::plan::StopCondition;

const LOOK_EVERY: Duration = Duration::from_millis(200);
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Never returns; drop it to end it.
pub async fn show(drive: &Drive, what: &str) -> std::convert::Infallible {
    let began = now();
    let shown = BarGuard(std::io::stderr().is_terminal().then(|| bar(drive.until())));
    let (mut before, mut printed_at) = (0, Duration::ZERO);
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let passed = now() - began;
        let ended = drive.ended.load(Ordering::Relaxed);
        let failed = {
            let tally = crate::locking::locked(&drive.tally);
            tally.failures()
        };
        match &shown.0 {
            Some(bar) => {
                let rate = (ended - before) as f64 / LOOK_EVERY.as_secs_f64();
                bar.set_position(match drive.until() {
                    StopCondition::Requests(_) => ended,
                    _ => passed.as_millis() as u64,
                });
                let failed = match failed {
                    0 => String::new(),
                    failed => format!(", {failed} failed"),
                };
                bar.set_message(format!("{what}: {ended} requests, {rate:.0}/s{failed}"));
            }
            None if passed - printed_at >= LINE_EVERY => {
                printed_at = passed;
                let seconds = passed.as_secs();
                eprintln!("{what}, {seconds} s: {ended} requests, {failed} failed");
            }
            None => {}
        }
        before = ended;
    }
}

fn bar(until: StopCondition) -> ProgressBar {
    let bar = match until {
        StopCondition::Requests(most) => ProgressBar::new(most),
        StopCondition::Passed(time) => ProgressBar::new(time.as_millis() as u64),
        StopCondition::Interrupted => ProgressBar::no_length(),
    };
    let template = "  {spinner} {bar:30} {percent:>3} %  {msg} ({elapsed})";
    // The template is fixed text; if it were wrong, the default bar would be used.
    if let Ok(look) = ProgressStyle::with_template(template) {
        bar.set_style(look.progress_chars("━━─"));
    }
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

struct BarGuard(Option<ProgressBar>);

impl Drop for BarGuard {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
