//! The progress of a batch: its state as the server describes it, its speed, and one line about both. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use serde::Deserialize;

use crate::control_chars::line;
use crate::quantity::seconds;

/// The time over which the speed is measured.
const SPEED_OVER: Duration = Duration::from_secs(60);

/// A batch as the server describes it. Absent fields are not errors.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Batch {
    pub id: String,
    pub status: String,
    pub request_counts: RequestCounts,
    pub output_file_id: Option<String>,
    pub error_file_id: Option<String>,
    pub errors: Option<Errors>,
    pub model_pool: Figures,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RequestCounts {
    pub total: u64,
    pub completed: u64,
    pub failed: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Errors {
    pub data: Vec<BatchProblem>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct BatchProblem {
    pub message: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Figures {
    pub paused: bool,
    pub in_flight: u64,
    pub expected_seconds: Option<u64>,
    pub will_hold: Option<bool>,
    pub warning: Option<String>,
}

impl Batch {
    /// Returns true once the batch has all its results.
    pub fn has_ended(&self) -> bool {
        ["completed", "failed", "expired", "cancelled"].contains(&self.status.as_str())
    }

    /// Returns true if every request completed.
    pub fn is_complete(&self) -> bool {
        let counts = &self.request_counts;
        self.status == "completed" && counts.failed == 0 && counts.completed == counts.total
    }

    /// Requests with a result.
    pub fn done(&self) -> u64 {
        let counts = &self.request_counts;
        counts.completed.saturating_add(counts.failed)
    }

    /// The message of the error that ended the batch.
    pub fn problem(&self) -> Option<String> {
        let problem = self.errors.as_ref()?.data.first()?;
        Some(line(&problem.message))
    }

    /// Such as `252/1000 done, 2 failed, 4.2 requests/s, 3 min left`.
    pub fn progress(&self, speed: &Speed) -> String {
        let (counts, figures) = (&self.request_counts, &self.model_pool);
        let mut text = format!(
            "{}/{} done, {} failed",
            self.done(),
            counts.total,
            counts.failed
        );
        let rate = speed.per_second();
        let left = counts.total.saturating_sub(self.done());
        if self.status != "in_progress" {
            return format!("{text}, {}", line(&self.status));
        }
        if figures.paused {
            text.push_str(", paused by an administrator");
            return text;
        }
        match rate {
            Some(rate) => text.push_str(&format!(", {rate:.1} requests/s")),
            None if figures.in_flight == 0 => text.push_str(", waits for free seats"),
            None => {}
        }
        let own = rate.map(|rate| (left as f64 / rate) as u64);
        if let Some(left) = figures.expected_seconds.or(own) {
            let left = seconds(Duration::from_secs(left));
            text.push_str(&format!(", {left} left"));
        }
        match (figures.will_hold, &figures.warning) {
            (Some(false), Some(_)) => text.push_str(", longer than its window"),
            (Some(false), None) => text.push_str(", perhaps longer than its window"),
            _ => {}
        }
        text
    }

    /// The server's forecast of a new batch, such as `, which is expected to take 40 min`.
    pub fn forecast(&self) -> String {
        let figures = &self.model_pool;
        let takes = figures.expected_seconds.map(Duration::from_secs);
        let takes = takes.map(|takes| format!(", which is expected to take {}", seconds(takes)));
        let window = match figures.will_hold {
            Some(false) => ", perhaps longer than its window",
            _ => "",
        };
        format!("{}{window}", takes.unwrap_or_default())
    }

    /// The warning that a miss of the window is expected.
    pub fn warning(&self) -> Option<String> {
        self.model_pool.warning.as_deref().map(line)
    }
}

/// Requests per second in the last minute.
#[derive(Debug, Default)]
pub struct Speed {
    samples: VecDeque<(Duration, u64)>,
}

impl Speed {
    /// `done` requests have results at this time since the start.
    pub fn add(&mut self, at: Duration, done: u64) {
        self.samples.push_back((at, done));
        // One older sample stays as the beginning of the measurement.
        while let Some((second, _)) = self.samples.get(1)
            && at.saturating_sub(*second) >= SPEED_OVER
        {
            self.samples.pop_front();
        }
    }

    /// `None` while no request ends.
    pub fn per_second(&self) -> Option<f64> {
        let ((from, before), (to, after)) = (self.samples.front()?, self.samples.back()?);
        let ended = after.saturating_sub(*before);
        let passed = to.saturating_sub(*from).as_secs_f64();
        (ended > 0 && passed > 0.0).then(|| ended as f64 / passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn batch(changes: serde_json::Value) -> Batch {
        let mut value = json!({"id": "b", "status": "in_progress",
            "request_counts": {"total": 1000, "completed": 250, "failed": 2}, "output_file_id": null});
        let fields = value.as_object_mut().expect("an object");
        fields.extend(changes.as_object().cloned().unwrap_or_default());
        serde_json::from_value(value).expect("a batch")
    }

    #[test]
    fn the_speed_is_measured_over_the_last_minute() {
        let mut speed = Speed::default();
        assert_eq!(speed.per_second(), None);
        for second in 0..200 {
            speed.add(Duration::from_secs(second), second.min(100));
            if second == 90 {
                assert_eq!(speed.per_second(), Some(1.0));
            }
        }
        assert_eq!(speed.per_second(), None, "nothing has ended for a minute");
        assert!(speed.samples.len() < 70);
    }

    #[test]
    fn the_line_says_what_the_batch_waits_for() {
        let mut speed = Speed::default();
        let waiting = batch(json!({})).progress(&speed);
        assert_eq!(waiting, "252/1000 done, 2 failed, waits for free seats");
        let paused = batch(json!({"model_pool": {"paused": true}}));
        assert!(
            paused
                .progress(&speed)
                .ends_with("paused by an administrator")
        );
        speed.add(Duration::ZERO, 152);
        speed.add(Duration::from_secs(50), 252);
        let own = batch(json!({})).progress(&speed);
        assert_eq!(
            own,
            "252/1000 done, 2 failed, 2.0 requests/s, 6 min 14 s left"
        );
        let known = json!({"model_pool": {"expected_seconds": 7200, "will_hold": false}});
        let known = batch(known).progress(&speed);
        let expected = "2 h left, perhaps longer than its window";
        assert!(known.ends_with(expected), "{known}");
        let new = batch(json!({"model_pool": {"expected_seconds": 7200, "will_hold": false}}));
        let forecast = ", which is expected to take 2 h, perhaps longer than its window";
        assert_eq!(new.forecast(), forecast);
        assert_eq!(batch(json!({})).forecast(), "");
        let warned = json!({"model_pool": {"will_hold": false, "warning": "9 are\nleft"}});
        let warned = batch(warned);
        let shown = warned.progress(&speed);
        assert!(shown.ends_with("left, longer than its window"), "{shown}");
        assert_eq!(warned.warning().as_deref(), Some("9 are left"));
        let ending = batch(json!({"status": "cancel\u{1b}ling"})).progress(&speed);
        assert!(ending.ends_with("cancel␛ling"), "{ending}");
    }

    #[test]
    fn only_a_batch_without_failures_is_complete() {
        let ended = json!({"status": "completed"});
        assert!(batch(ended.clone()).has_ended() && !batch(ended).is_complete());
        let all = json!({"status": "completed", "request_counts": {"total": 3, "completed": 3}});
        assert!(batch(all).is_complete());
        let problem = json!({"status": "failed", "errors": {"data": [{"message": "a\nb"}]}});
        assert_eq!(batch(problem).problem().as_deref(), Some("a b"));
    }
}
