//! The access log's record of one request. The code that handles the request notes what it learns, from wherever it is
//! in its task. No key is noted, and a prompt only if its key says so.

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

/// So much of a prompt is kept, where prompts are kept at all.
const PROMPT_BYTES_MAX: usize = 16 << 10;

tokio::task_local! {
    static CURRENT: Arc<Record>;
}

/// What the handlers learn.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub key: Option<(KeyId, String)>,
    /// As the catalogue calls it.
    pub model: Option<Arc<str>>,
    pub waited_ms: Option<u64>,
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    /// The status that was counted: of a stream that ends with an error it is not that of its response.
    pub result_status: Option<u16>,
    /// The key's owner chose that its prompts are written down.
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

/// One request, from its head to the last byte of its answer.
#[derive(Debug)]
pub(crate) struct Record {
    id: HeaderValue,
    /// Where the request comes from.
    client: Option<ClientAddress>,
    pub begun: Time,
    /// Of the request's body, as far as it was read.
    pub bytes_in: AtomicU64,
    facts: Mutex<Facts>,
    pub trace: Option<Box<RequestTrace>>,
    /// The memory of the body, until the last copy is dropped.
    held: Mutex<Weak<Held>>,
}

/// A share of the memory for bodies, for what takes a body's place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Share(Option<Arc<Held>>);

impl Share {
    /// The same bytes, which keep the share until their last copy is gone.
    pub fn of<B>(&self, bytes: B) -> Bytes
    where
        B: AsRef<[u8]> + Into<Bytes> + Send + 'static,
    {
        match &self.0 {
            None => bytes.into(),
            Some(held) => Held::with(held, bytes),
        }
    }
}

/// The share of the body of the request that the current task works for.
pub(crate) fn share() -> Share {
    Share(held())
}

/// The memory of the body of the request that the current task works for.
pub(super) fn held() -> Option<Arc<Held>> {
    CURRENT.try_with(|record| record.held()).ok().flatten()
}

/// The current request holds this memory from now on, until the last share is dropped.
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

    /// The caller whose shares the request uses, and whether it is an administrator's order.
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

    /// The whole body is there. It is kept only if its key says so.
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

/// Notes something of the request that the current task works for; nothing without one.
pub(crate) fn note(what: impl FnOnce(&mut Facts)) {
    let _ = CURRENT.try_with(|record| record.with(what));
}

/// The caller of the request that the current task works for, and whether it is an administrator's order.
pub(crate) fn caller() -> (Caller, bool) {
    let caller = CURRENT.try_with(|record| record.caller());
    caller.unwrap_or((Caller::Pool, false))
}

/// Where the request comes from that the current task works for.
pub(crate) fn client() -> Option<ClientAddress> {
    let client = CURRENT.try_with(|record| record.client);
    client.ok().flatten()
}

/// The trace of the request that the current task works for, if it has one.
pub(crate) fn trace<T>(mark: impl FnOnce(&RequestTrace) -> T) -> Option<T> {
    let marked = CURRENT.try_with(|record| record.trace.as_deref().map(mark));
    marked.ok().flatten()
}

/// Runs this in the span of the request that the current task works for, which names it in the log. The span is made where a
/// line is written, because most requests write none.
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

/// Whose key the request bears, and whether that key's owner chose that its prompts are written down. To
/// called before the body is read.
pub(crate) fn note_key(id: KeyId, name: &str, log_prompts: bool) {
    note(|facts| {
        facts.key = Some((id, name.to_owned()));
        facts.log_prompts = log_prompts;
    });
}

/// What is noted inside `work` is noted of this request.
pub(crate) async fn within<T>(record: Arc<Record>, work: impl Future<Output = T>) -> T {
    CURRENT.scope(record, work).await
}

/// The same for a task that goes on with the current request.
pub(crate) fn carried(
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
    async fn notes_go_to_the_request_of_the_task_also_from_one_that_goes_on_with_it() {
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
    fn a_prompt_is_kept_only_by_choice_and_bounded() {
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
