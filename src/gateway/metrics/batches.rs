//! The batches of requests, for `/metrics`.

use super::text::{Kind, Text};
use crate::open_batches::{BatchFigures, OpenState, Outcome};

pub(super) fn write(figures: &BatchFigures, text: &mut Text) {
    let help = "Batches that have not ended, by state: running, waiting (no request runs), paused, or ending.";
    text.family("batch_open", Kind::Gauge, help);
    for (state, count) in OpenState::ALL.into_iter().zip(figures.open) {
        text.sample(&[("state", state.name())], count as f64);
    }
    let help = "Requests of batches that run.";
    text.family("batch_requests_running", Kind::Gauge, help);
    text.sample(&[], figures.requests_running as f64);
    let help = "Requests of batches that have not ended, without a result.";
    text.family("batch_requests_left", Kind::Gauge, help);
    text.sample(&[], figures.requests_left as f64);
    let help = "Requests of batches that have ended since the start, by result: completed, failed, expired or cancelled.";
    text.family("batch_requests_total", Kind::Counter, help);
    for (outcome, count) in Outcome::ALL.into_iter().zip(figures.ended) {
        text.sample(&[("result", outcome.name())], count as f64);
    }
    let help =
        "Requests of batches per second that ran to their end, as the mean of the last minute.";
    text.family("batch_requests_per_second", Kind::Gauge, help);
    text.sample(&[], figures.requests_per_second);
    let help = "Bytes of results of batches written since the start.";
    text.family("batch_result_bytes_total", Kind::Counter, help);
    text.sample(&[], figures.result_bytes as f64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_counted_by_state_and_requests_by_result() {
        let figures = BatchFigures {
            open: [1, 2, 0, 0],
            ended: [250, 2, 0, 7],
            requests_per_second: 1.5,
            result_bytes: 4_096,
            ..BatchFigures::default()
        };
        let mut text = Text::default();
        write(&figures, &mut text);
        let text = text.finish();
        for line in [
            "model_pool_batch_open{state=\"running\"} 1",
            "model_pool_batch_open{state=\"waiting\"} 2",
            "model_pool_batch_open{state=\"paused\"} 0",
            "model_pool_batch_requests_total{result=\"completed\"} 250",
            "model_pool_batch_requests_total{result=\"cancelled\"} 7",
            "model_pool_batch_requests_per_second 1.5",
            "model_pool_batch_result_bytes_total 4096",
        ] {
            let mut lines = text.lines();
            assert!(lines.any(|known| known == line), "{line} is not in\n{text}");
        }
    }
}
