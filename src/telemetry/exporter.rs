//! The queue of finished spans and the task that empties it. Requests never wait for it: spans beyond the queue's limit are dropped
//! and counted. While the collector cannot be reached, the log has a line a minute.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use reqwest::Url;
use reqwest::header::HeaderMap;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::batch::{Batch, Resource};
use crate::failure_log::FailureLog;
use crate::sender::{ClientError, Encoding, Payload, SendResult, Sender};
use crate::span::Span;

/// Limit of spans that wait or are being sent.
const QUEUE_MAX: usize = 4_096;
const BATCH_MAX: usize = 512;
/// Time for which the first span of a batch waits for others.
const GATHERED_FOR: Duration = Duration::from_secs(1);
/// Pause between attempts to send a batch. Doubles each time.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
const TRIES_MAX: u32 = 5;
/// Time limit for sending the last spans at the end.
pub const ENDS_WITHIN: Duration = Duration::from_secs(3);

#[derive(Clone, Debug)]
pub struct ExporterSettings {
    /// The endpoint, including its path.
    pub url: Url,
    /// Contains secrets.
    pub headers: HeaderMap,
    pub encoding: Encoding,
    pub service_name: String,
}

/// Counts of spans since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExporterCounts {
    pub exported: u64,
    /// Dropped for lack of room, or because the collector did not accept them in time.
    pub dropped: u64,
    /// Refused by the collector.
    pub rejected: u64,
}

#[derive(Debug, Default)]
struct ExporterState {
    waiting: AtomicUsize,
    exported: AtomicU64,
    dropped: AtomicU64,
    rejected: AtomicU64,
    ending: CancellationToken,
    ended: CancellationToken,
}

/// The sending end of the queue. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Exporter {
    spans: mpsc::UnboundedSender<Vec<Span>>,
    shared: Arc<ExporterState>,
}

impl Exporter {
    /// Returns the exporter and the sending task, which ends after [`Exporter::finish`].
    pub fn new(
        settings: ExporterSettings,
    ) -> Result<(Exporter, impl Future<Output = ()> + Send + 'static), ClientError> {
        let sender = Sender::new(settings.url, settings.headers, settings.encoding)?;
        let (spans, received) = mpsc::unbounded_channel();
        let shared = Arc::<ExporterState>::default();
        let task = Task {
            sender,
            resource: Resource::new(&settings.service_name),
            received,
            shared: Arc::clone(&shared),
            trouble: FailureLog::default(),
            reported: 0,
        };
        Ok((Exporter { spans, shared }, task.run()))
    }

    /// Queues the spans of one request, or drops them if the queue is full.
    pub fn send(&self, spans: Vec<Span>) {
        let count = spans.len();
        let before = self.shared.waiting.fetch_add(count, Ordering::Relaxed);
        // The channel itself is unbounded: the limit counts spans, not requests.
        if before + count > QUEUE_MAX || self.spans.send(spans).is_err() {
            self.shared.waiting.fetch_sub(count, Ordering::Relaxed);
            self.shared
                .dropped
                .fetch_add(count as u64, Ordering::Relaxed);
        }
    }

    pub fn counts(&self) -> ExporterCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ExporterCounts {
            exported: of(&self.shared.exported),
            dropped: of(&self.shared.dropped),
            rejected: of(&self.shared.rejected),
        }
    }

    /// Sends the queued spans once, and ends the task. Drops the rest after 3 seconds.
    pub async fn finish(&self) {
        self.shared.ending.cancel();
        let _ = tokio::time::timeout(ENDS_WITHIN, self.shared.ended.cancelled()).await;
    }
}

struct Task {
    sender: Sender,
    resource: Resource,
    received: mpsc::UnboundedReceiver<Vec<Span>>,
    shared: Arc<ExporterState>,
    trouble: FailureLog,
    /// The number of dropped spans as of the last line of the log.
    reported: u64,
}

impl Task {
    async fn run(mut self) {
        let _ended = self.shared.ended.clone().drop_guard();
        while let Some(spans) = self.gather().await {
            self.deliver(spans).await;
        }
    }

    /// The next batch, or `None` after the last one.
    async fn gather(&mut self) -> Option<Vec<Span>> {
        let ending = self.shared.ending.clone();
        let mut batch = tokio::select! {
            biased;
            spans = self.received.recv() => spans?,
            () = ending.cancelled() => return None,
        };
        let deadline = tokio::time::sleep(GATHERED_FOR);
        tokio::pin!(deadline);
        while batch.len() < BATCH_MAX {
            tokio::select! {
                biased;
                spans = self.received.recv() => match spans {
                    Some(spans) => batch.extend(spans),
                    None => break,
                },
                () = ending.cancelled() => break,
                () = &mut deadline => break,
            }
        }
        Some(batch)
    }

    async fn deliver(&mut self, spans: Vec<Span>) {
        let count = spans.len() as u64;
        let batch = Batch {
            resource: &self.resource,
            spans: &spans,
        };
        let mut pause = PAUSE;
        let mut tries = 0;
        let sent = loop {
            tries += 1;
            let sent = self.sender.send(&Payload::Spans(&batch)).await;
            let SendResult::Later { why, retry_after } = &sent else {
                break sent;
            };
            report(&mut self.trouble, &mut self.reported, why, &self.shared);
            if tries >= TRIES_MAX || self.shared.ending.is_cancelled() {
                break sent;
            }
            let wait = retry_after.unwrap_or(pause).min(PAUSE_MAX);
            pause = (pause * 2).min(PAUSE_MAX);
            tokio::select! {
                () = self.shared.ending.cancelled() => {}
                () = tokio::time::sleep(wait) => {}
            }
        };
        let add = |counter: &AtomicU64, count| counter.fetch_add(count, Ordering::Relaxed);
        match sent {
            SendResult::Accepted { rejected, message } => {
                let rejected = rejected.min(count);
                add(&self.shared.exported, count - rejected);
                add(&self.shared.rejected, rejected);
                if rejected > 0 {
                    let why = format!("it refused {rejected} of {count} spans: {message}");
                    report(&mut self.trouble, &mut self.reported, &why, &self.shared);
                } else if self.trouble.is_over() {
                    tracing::info!("the collector accepts traces again");
                }
            }
            SendResult::Later { .. } => {
                add(&self.shared.dropped, count);
            }
            SendResult::Refused { why } => {
                add(&self.shared.rejected, count);
                report(&mut self.trouble, &mut self.reported, &why, &self.shared);
            }
        }
        self.shared
            .waiting
            .fetch_sub(spans.len(), Ordering::Relaxed);
    }
}

/// Writes a line to the log, at most one a minute.
fn report(trouble: &mut FailureLog, reported: &mut u64, why: &str, state: &ExporterState) {
    if !trouble.takes_line() {
        return;
    }
    let dropped = state.dropped.load(Ordering::Relaxed);
    let lost = dropped - *reported;
    *reported = dropped;
    tracing::warn!(
        "traces do not reach the collector (telemetry.endpoint): {why}; {lost} spans were dropped since the last such line; requests are not affected"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Ids;
    use crate::span::SpanKind;

    fn spans(ids: &Ids, count: usize) -> Vec<Span> {
        let span = |_| Span {
            trace: ids.trace(),
            id: ids.span(),
            parent: None,
            has_remote_parent: false,
            state: None,
            name: "a".into(),
            kind: SpanKind::Internal,
            start_unix_nanos: 1,
            end_unix_nanos: 2,
            attributes: Vec::new(),
            events: Vec::new(),
            error: None,
        };
        (0..count).map(span).collect()
    }

    #[test]
    fn spans_beyond_the_limit_are_dropped_and_counted() {
        let settings = ExporterSettings {
            url: "http://127.0.0.1:1/v1/traces".parse().unwrap(),
            headers: HeaderMap::new(),
            encoding: Encoding::Protobuf,
            service_name: "test".to_owned(),
        };
        // The task does not run, as if the collector never responded.
        let (exporter, task) = Exporter::new(settings).unwrap();
        let ids = Ids::default();
        for _ in 0..1_000 {
            exporter.send(spans(&ids, 8));
        }
        let dropped = 8_000 - QUEUE_MAX as u64;
        assert_eq!(exporter.counts().dropped, dropped);
        // Without the task, spans are not accepted.
        drop(task);
        exporter.send(spans(&ids, 8));
        assert_eq!(exporter.counts().dropped, dropped + 8);
        assert_eq!(exporter.counts().exported, 0);
    }
}
