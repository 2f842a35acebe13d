//! The task that sends metrics at an interval. Metrics are cumulative: a failed request to the collector is not repeated, because
//! the next one has everything, and nothing waits in memory.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::batch::Resource;
use crate::exporter::{ENDS_WITHIN, ExporterSettings};
use crate::failure_log::FailureLog;
use crate::gen_ai::GenAiMetrics;
use crate::metric::MetricBatch;
use crate::sender::{ClientError, Payload, SendResult, Sender};

/// Longest pause that a collector can order.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);

/// Ends the task of the export.
#[derive(Debug)]
pub struct MetricExporter {
    ending: CancellationToken,
    ended: CancellationToken,
}

impl MetricExporter {
    /// Returns the exporter and the sending task, which ends after [`MetricExporter::finish`]. `now` is the Unix time in
    /// nanoseconds.
    pub fn new(
        settings: ExporterSettings,
        interval: Duration,
        metrics: Arc<GenAiMetrics>,
        now: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Result<(MetricExporter, impl Future<Output = ()> + Send + 'static), ClientError> {
        let sender = Sender::new(settings.url, settings.headers, settings.encoding)?;
        let exporter = MetricExporter {
            ending: CancellationToken::new(),
            ended: CancellationToken::new(),
        };
        let task = Task {
            sender,
            resource: Resource::new(&settings.service_name),
            interval,
            metrics,
            ending: exporter.ending.clone(),
            trouble: FailureLog::default(),
        };
        let ended = exporter.ended.clone().drop_guard();
        let work = async move {
            let _ended = ended;
            task.run(now).await;
        };
        Ok((exporter, work))
    }

    /// Sends the metrics a last time, and ends the task. Returns after 3 seconds at the latest.
    pub async fn finish(&self) {
        self.ending.cancel();
        let _ = tokio::time::timeout(ENDS_WITHIN, self.ended.cancelled()).await;
    }
}

struct Task {
    sender: Sender,
    resource: Resource,
    interval: Duration,
    metrics: Arc<GenAiMetrics>,
    ending: CancellationToken,
    trouble: FailureLog,
}

impl Task {
    async fn run(mut self, now: impl Fn() -> u64) {
        let mut pause = self.interval;
        let ending = self.ending.clone();
        loop {
            let _ = tokio::time::timeout(pause, ending.cancelled()).await;
            let is_last = ending.is_cancelled();
            let ordered = self.send(now(), is_last).await;
            if is_last {
                return;
            }
            pause = self.interval.max(ordered);
        }
    }

    /// Sends the present metrics. Returns the pause that the collector orders.
    async fn send(&mut self, at_unix_nanos: u64, is_last: bool) -> Duration {
        let metrics = self.metrics.collect();
        if metrics.is_empty() {
            return Duration::ZERO;
        }
        let batch = MetricBatch {
            resource: &self.resource,
            metrics: &metrics,
            start_unix_nanos: self.metrics.start_unix_nanos(),
            at_unix_nanos,
        };
        let payload = Payload::Metrics(&batch);
        let ending = self.ending.clone();
        let sent = tokio::select! {
            biased;
            sent = self.sender.send(&payload) => sent,
            // The last request has newer counts.
            () = ending.cancelled(), if !is_last => return Duration::ZERO,
        };
        match sent {
            SendResult::Accepted { rejected: 0, .. } => {
                if self.trouble.is_over() {
                    tracing::info!("the collector accepts metrics again");
                }
                Duration::ZERO
            }
            SendResult::Accepted { rejected, message } => {
                self.report(&format!("it refused {rejected} points: {message}"));
                Duration::ZERO
            }
            SendResult::Refused { why } => {
                self.report(&why);
                Duration::ZERO
            }
            SendResult::Later { why, retry_after } => {
                self.report(&why);
                retry_after.unwrap_or_default().min(RETRY_AFTER_MAX)
            }
        }
    }

    /// Writes a line when a failure begins. A collector of traces alone would cause a line at each interval.
    fn report(&mut self, why: &str) {
        if !self.trouble.is_failing() && self.trouble.takes_line() {
            tracing::warn!(
                "metrics do not reach the collector: {why}; requests are not affected, and the next export has the counts of this one; telemetry.metrics: false, or OTEL_METRICS_EXPORTER=none, sends none"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderMap;
    use serde_json::Value;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::gen_ai::GenAiLabels;
    use crate::sender::Encoding;

    const ACCEPTED: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    const BUSY: &str =
        "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\nretry-after: 0\r\nconnection: close\r\n\r\n";

    fn settings(listener: &TcpListener, encoding: Encoding) -> ExporterSettings {
        let address = listener.local_addr().expect("an address");
        ExporterSettings {
            url: format!("http://{address}/v1/metrics")
                .parse()
                .expect("a URL"),
            headers: HeaderMap::new(),
            encoding,
            service_name: "test".to_owned(),
        }
    }

    fn labels() -> GenAiLabels {
        GenAiLabels {
            operation: "chat",
            request_model: "coder".into(),
            response_model: "org/a".into(),
        }
    }

    /// Takes one request. Returns its body.
    async fn take(listener: &TcpListener, response: &str) -> Vec<u8> {
        let (mut socket, _) = listener.accept().await.expect("a connection");
        let mut received = Vec::new();
        loop {
            let mut piece = [0; 4096];
            let count = socket.read(&mut piece).await.expect("a request");
            assert!(count > 0, "the request ended early");
            received.extend_from_slice(&piece[..count]);
            let end = received.windows(4).position(|four| four == b"\r\n\r\n");
            let Some(end) = end else { continue };
            let head = String::from_utf8_lossy(&received[..end]).to_lowercase();
            let length = head.lines().find_map(|line| {
                let length = line.strip_prefix("content-length: ")?;
                length.parse::<usize>().ok()
            });
            let body = &received[end + 4..];
            if body.len() == length.expect("a length") {
                let body = body.to_vec();
                socket.write_all(response.as_bytes()).await.expect("sent");
                return body;
            }
        }
    }

    #[tokio::test]
    async fn the_export_after_a_failure_has_the_counts_of_both() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let metrics = Arc::new(GenAiMetrics::new(1));
        let (_exporter, task) = MetricExporter::new(
            settings(&listener, Encoding::Json),
            Duration::from_millis(5),
            Arc::clone(&metrics),
            || 2,
        )
        .expect("a client");
        let count = |body: &[u8]| {
            let body: Value = serde_json::from_slice(body).expect("JSON");
            let metric = &body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0];
            metric["histogram"]["dataPoints"][0]["count"].clone()
        };
        let script = async {
            metrics.ended(&labels(), 0.5, None);
            let first = take(&listener, BUSY).await;
            metrics.ended(&labels(), 0.5, None);
            let second = take(&listener, ACCEPTED).await;
            assert_eq!([count(&first), count(&second)], ["1", "2"]);
        };
        tokio::select! {
            () = script => {}
            () = task => panic!("the export has ended"),
        }
    }

    #[tokio::test]
    async fn the_end_sends_the_last_counts() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let metrics = Arc::new(GenAiMetrics::new(1));
        let (exporter, task) = MetricExporter::new(
            settings(&listener, Encoding::Protobuf),
            Duration::from_secs(3600),
            Arc::clone(&metrics),
            || 2,
        )
        .expect("a client");
        metrics.ended(&labels(), 0.5, None);
        metrics.generated(&labels(), 0.1, Some(0.02));
        metrics.used(&labels(), 7, 3);
        let ((), (), body) = tokio::join!(task, exporter.finish(), take(&listener, ACCEPTED));
        for name in ["gen_ai.server.time_per_output_token", "org/a"] {
            let mut parts = body.windows(name.len());
            assert!(parts.any(|part| part == name.as_bytes()), "{name}");
        }
    }

    #[tokio::test]
    async fn without_requests_nothing_is_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let metrics = Arc::new(GenAiMetrics::new(1));
        let (exporter, task) = MetricExporter::new(
            settings(&listener, Encoding::Json),
            Duration::from_secs(3600),
            metrics,
            || 2,
        )
        .expect("a client");
        tokio::join!(task, exporter.finish());
        tokio::select! {
            biased;
            _ = listener.accept() => panic!("a request"),
            () = std::future::ready(()) => {}
        }
    }
}
