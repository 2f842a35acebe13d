//! Parses and formats the pool's stream comments about a request that waits for its model.

use std::time::Duration;

use super::control_chars;
use super::quantity::seconds;

/// A recognised comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    Waiting(QueueStatus),
    /// The request has reached its model, after this wait.
    Seated {
        waited: Duration,
    },
}

/// The queue position of a request, and the progress of its model's load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueStatus {
    pub position: u64,
    pub stage: String,
    pub percent: Option<u8>,
    pub expected: Option<Duration>,
    /// The range of the expected time, if it is uncertain.
    pub least: Option<Duration>,
    pub most: Option<Duration>,
}

/// Parses a comment such as `waiting position=1 stage=loading percent=40 expected_seconds=3`. Returns `None` for other comments.
pub fn read(comment: &str) -> Option<Notice> {
    let mut words = comment.split_whitespace();
    let kind = words.next()?;
    let mut waiting = QueueStatus::default();
    let mut waited = Duration::ZERO;
    for (name, value) in words.filter_map(|word| word.split_once('=')) {
        let number = value.parse::<u64>().ok();
        match name {
            "position" => waiting.position = number.unwrap_or(0),
            "stage" => waiting.stage = value.chars().take(40).collect(),
            "percent" => waiting.percent = value.parse().ok().filter(|percent| *percent <= 100),
            "expected_seconds" => waiting.expected = whole(number),
            "expected_seconds_min" => waiting.least = number.map(Duration::from_secs),
            "expected_seconds_max" => waiting.most = whole(number),
            "waited_ms" => waited = Duration::from_millis(number.unwrap_or(0)),
            _ => {}
        }
    }
    match kind {
        "waiting" => Some(Notice::Waiting(waiting)),
        "seated" => Some(Notice::Seated { waited }),
        _ => None,
    }
}

fn whole(number: Option<u64>) -> Option<Duration> {
    number
        .filter(|seconds| *seconds > 0)
        .map(Duration::from_secs)
}

impl QueueStatus {
    /// Formats one line with the most important part first, because narrow terminals show only its beginning.
    pub fn line(&self, so_far: Duration) -> String {
        let stage = match self.stage.as_str() {
            "queued" | "" => "waiting".to_owned(),
            "making-room" => "making room".to_owned(),
            "busy" => "all seats are taken".to_owned(),
            other => control_chars::line(&other.replace('-', " ")),
        };
        let percent = self
            .percent
            .map(|percent| format!(" {percent} %"))
            .unwrap_or_default();
        let position = match self.position {
            0 | 1 => String::new(),
            position => format!(", number {position} in the queue"),
        };
        let expected = match (self.least, self.most, self.expected) {
            (Some(least), Some(most), _) => {
                format!(", {} to {} left", seconds(least), seconds(most))
            }
            (_, _, Some(time)) => format!(", about {} left", seconds(time)),
            _ => String::new(),
        };
        format!(
            "{stage}{percent}{expected}{position}, {} so far",
            seconds(so_far)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(comment: &str) -> String {
        match read(comment) {
            Some(Notice::Waiting(waiting)) => waiting.line(Duration::from_secs(12)),
            other => panic!("{comment}: {other:?}"),
        }
    }

    #[test]
    fn a_wait_is_shown_with_its_stage_percentage_and_time_left() {
        assert_eq!(
            line(" waiting position=1 stage=loading percent=40 expected_seconds=3"),
            "loading 40 %, about 3.0 s left, 12 s so far"
        );
        assert_eq!(
            line("waiting position=3 stage=queued expected_seconds=80"),
            "waiting, about 1 min 20 s left, number 3 in the queue, 12 s so far"
        );
        assert_eq!(
            line(
                "waiting position=1 stage=queued expected_seconds=80 expected_seconds_min=40 expected_seconds_max=160"
            ),
            "waiting, 40 s to 2 min 40 s left, 12 s so far"
        );
        assert_eq!(
            line("waiting position=0 stage=making-room expected_seconds=0"),
            "making room, 12 s so far"
        );
    }

    #[test]
    fn invalid_numbers_and_unknown_fields_are_left_out() {
        assert_eq!(
            line("waiting position=x stage=\u{1b}[2J percent=900 mood=good"),
            "␛[2J, 12 s so far"
        );
        assert_eq!(read(""), None);
        assert_eq!(read("ping"), None);
        assert_eq!(
            read("seated replica=r3 waited_ms=1200"),
            Some(Notice::Seated {
                waited: Duration::from_millis(1200)
            })
        );
    }
}
