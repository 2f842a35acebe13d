//! The access log record of a request. Any code in the request's task can add facts to it. Keys are never recorded, and prompts
//! only if the key allows it.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use axum::body::Bytes;
use axum::http::HeaderValue;

use super::bodies::Held;
use super::client::ClientAddress;
use crate::shares::Caller;
use crate::trace::request::RequestTrace;
use pool::{KeyId, Time};

/// Largest part of a prompt that is recorded.
const PROMPT_BYTES_MAX: usize = 16 << 10;

tokio::task_local! {
    static CURRENT: Arc<Record>;
}

/// Facts recorded by handlers.
#[derive(Debug, Default)]
pub struct Facts {
    pub key: Option<(KeyId, String)>,
    /// The catalogue's name.
    pub model: Option<Arc<str>>,
    /// The virtual model that the request names.
    pub virtual_model: Option<Arc<str>>,
    /// The operation of its route.
    pub operation: Option<&'static str>,
    /// The code of its last error, until the error is counted.
    pub error: Option<&'static str>,
    pub waited_ms: Option<u64>,
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    /// The status that was counted. It differs from the response's if a stream ends with an error.
    pub result_status: Option<u16>,
    /// The key's owner has chosen that its prompts are recorded.
    pub log_prompts: bool,
    pub prompt: Option<String>,
    /// The request is an administrator's order.
    pub is_admin: bool,
}

impl Facts {
    pub fn is_for(&mut self, model: &str) {
        if self.model.as_deref() != Some(model) {
            self.model = Some(model.into());
        }
    }
}

/// A request, from its head to the last byte of its response.
#[derive(Debug)]
pub struct Record {
    id: HeaderValue,
    /// The origin of the request.
    client: Option<ClientAddress>,
    pub begun: Time,
    /// Number of body bytes read.
    pub bytes_in: AtomicU64,
    facts: Mutex<Facts>,
    pub trace: Option<Box<RequestTrace>>,
    /// The memory of the body, until the last copy is dropped.
    held: Mutex<Weak<Held>>,
}

/// A share of the body memory, for data that replaces a body.
#[derive(Clone, Debug, Default)]
pub struct Share(Option<Arc<Held>>);

impl Share {
    /// A share that is held apart from that of the current request.
    pub(super) fn apart(held: Held) -> Share {
        Share(Some(Arc::new(held)))
    }

    /// Wraps the bytes with the share, held until the last copy is dropped.
    pub fn charge<B>(&self, bytes: B) -> Bytes
    where
        B: AsRef<[u8]> + Into<Bytes> + Send + 'static,
    {
        match &self.0 {
            None => bytes.into(),
            Some(held) => Held::with(held, bytes),
        }
    }
}

/// The share of the body of the current task's request.
#[inline]
pub fn share() -> Share {
    Share(held())
}

/// The memory held by the body of the current task's request.
pub(super) fn held() -> Option<Arc<Held>> {
    CURRENT.try_with(|record| record.held()).ok().flatten()
}

/// Makes the current request hold this memory until the last share is dropped.
pub(super) fn hold(held: Arc<Held>) -> Share {
    let _ = CURRENT.try_with(|record| record.holds(&held));
    Share(Some(held))
}

impl Record {
    pub fn new(
        id: HeaderValue,
        client: Option<ClientAddress>,
        begun: Time,
        trace: Option<Box<RequestTrace>>,
    ) -> Record {
        Record {
            id,
            client,
            begun,
            trace,
            bytes_in: AtomicU64::new(0),
            facts: Mutex::default(),
            held: Mutex::default(),
        }
    }

    #[inline]
    pub fn id(&self) -> &str {
        self.id.to_str().unwrap_or_default()
    }

    pub fn with<T>(&self, read: impl FnOnce(&mut Facts) -> T) -> T {
        read(&mut self.facts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn holds(&self, held: &Arc<Held>) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(held);
    }

    fn held(&self) -> Option<Arc<Held>> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.upgrade()
    }

    /// The caller whose shares the request uses, and whether the request is an administrator's order.
    pub fn caller(&self) -> (Caller, bool) {
        let address = || {
            self.client
                .map_or(Caller::Pool, |client| Caller::at(client.address))
        };
        self.with(|facts| match &facts.key {
            Some((id, _)) => (Caller::Key(*id), facts.is_admin),
            None => (address(), false),
        })
    }

    /// Records a complete body. Its prompt is kept only if the key allows it.
    pub fn arrived(&self, body: &[u8]) {
        let bytes = u64::try_from(body.len()).unwrap_or(u64::MAX);
        self.bytes_in.store(bytes, Ordering::Relaxed);
        self.with(|facts| {
            if facts.log_prompts {
                let kept = &body[..body.len().min(PROMPT_BYTES_MAX)];
                facts.prompt = Some(String::from_utf8_lossy(kept).into_owned());
            }
        });
    }
}

/// Adds facts to the request of the current task, if there is one.
pub fn note(what: impl FnOnce(&mut Facts)) {
    let _ = CURRENT.try_with(|record| record.with(what));
}

/// The caller of the current task's request, and whether it is an administrator's order.
#[inline]
pub fn caller() -> (Caller, bool) {
    let caller = CURRENT.try_with(|record| record.caller());
    caller.unwrap_or((Caller::Pool, false))
}

/// The origin of the current task's request.
#[inline]
pub fn client() -> Option<ClientAddress> {
    let client = CURRENT.try_with(|record| record.client);
    client.ok().flatten()
}

/// Returns true if the client itself is on this machine and is not a proxy.
pub fn from_loopback() -> bool {
    client().is_some_and(|client| client.is_loopback())
}

/// The trace of the current task's request, if it has one.
pub fn trace<T>(mark: impl FnOnce(&RequestTrace) -> T) -> Option<T> {
    let marked = CURRENT.try_with(|record| record.trace.as_deref().map(mark));
    marked.ok().flatten()
}

/// Runs `work` in the span of the current task's request, which names it in the log. The span is created here, because most
/// requests log nothing.
pub fn in_request_span<T>(work: impl FnOnce() -> T) -> T {
    let id = CURRENT.try_with(|record| record.id.clone());
    match id {
        Ok(id) => {
            let id = id.to_str().unwrap_or_default();
            tracing::info_span!("request", id).in_scope(work)
        }
        Err(_) => work(),
    }
}

/// Records the key of the request, and whether its owner has chosen that prompts are recorded. Must be called before the body is
/// read.
#[inline]
pub fn note_key(id: KeyId, name: &str, log_prompts: bool) {
    note(|facts| {
        facts.key = Some((id, name.to_owned()));
        facts.log_prompts = log_prompts;
    });
}

/// Runs `work` with `record` as the current request.
pub async fn within<T>(record: Arc<Record>, work: impl Future<Output = T>) -> T {
    CURRENT.scope(record, work).await
}

/// The record of the current task's request, for another task that works on it.
pub fn current() -> Option<Arc<Record>> {
    CURRENT.try_with(Arc::clone).ok()
}

/// Makes a new task continue with the current request's record.
pub fn carried(
    work: impl Future<Output = ()> + Send + 'static,
) -> impl Future<Output = ()> + Send + 'static {
    let current = CURRENT.try_with(Arc::clone).ok();
    async move {
        match current {
            Some(record) => CURRENT.scope(record, work).await,
            None => work.await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn notes_are_recorded_for_the_request_of_the_task_and_of_tasks_it_spawns() {
        let record = Arc::new(Record::new(
            HeaderValue::from_static("a"),
            None,
            Time(0),
            None,
        ));
        note(|facts| facts.model = Some("nobody's".into()));
        let mut later = None;
        within(Arc::clone(&record), async {
            note(|facts| facts.model = Some("m".into()));
            later = Some(carried(async {
                note(|facts| facts.completion_tokens = 7);
            }));
        })
        .await;
        later.unwrap().await;
        let model = record.with(|facts| facts.model.clone());
        assert_eq!(model.as_deref(), Some("m"));
        assert_eq!(record.with(|facts| facts.completion_tokens), 7);
    }

    #[test]
    fn a_prompt_is_recorded_only_if_configured_and_truncated() {
        let record = Arc::new(Record::new(
            HeaderValue::from_static("a"),
            None,
            Time(0),
            None,
        ));
        record.arrived(b"secret");
        assert_eq!(record.with(|facts| facts.prompt.clone()), None);
        CURRENT.sync_scope(Arc::clone(&record), || note_key(KeyId(1), "k", true));
        record.arrived(&vec![b'x'; PROMPT_BYTES_MAX + 1]);
        let prompt = record.with(|facts| facts.prompt.clone()).unwrap();
        assert_eq!(prompt.len(), PROMPT_BYTES_MAX);
        assert_eq!(record.bytes_in.load(Ordering::Relaxed), 16_385);
    }
}
