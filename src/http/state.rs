//! What every handler shares.

use std::ops::Deref;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::auth::keys::Keys;
use crate::auth::strangers::Strangers;
use crate::edge::Edge;
use crate::inference::request::reading::Reading;
use crate::inference::upstream::proxy::Upstream;
use crate::metrics::Metrics;
use crate::request_ids::SharedIds;
use access::limits::Limits;
use access::oidc::Oidc;
use config::Config;
use controller::Handle;

/// One count to clone, several times a request: what is in it is reached as if it were the handlers' own.
#[derive(Clone)]
pub struct App(Arc<Parts>);

impl Deref for App {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

pub struct Parts {
    pub(super) handle: Handle,
    pub(super) config: Arc<Config>,
    pub(super) keys: Arc<Keys>,
    pub(super) limits: Arc<Limits>,
    pub(super) oidc: Option<Arc<Oidc>>,
    pub(super) strangers: Arc<Strangers>,
    pub(super) metrics: Metrics,
    pub(super) upstream: Arc<Upstream>,
    pub(super) edge: Arc<Edge>,
    pub(super) reading: Reading,
    pub(super) request_ids: SharedIds,
    pub(super) started_unix_seconds: u64,
    /// The process ends now: what is still answered is told so.
    pub(super) ending: CancellationToken,
}

impl App {
    pub fn new(
        handle: Handle,
        config: Arc<Config>,
        keys: Arc<Keys>,
        limits: Arc<Limits>,
        oidc: Option<Oidc>,
        metrics: Metrics,
        edge: Arc<Edge>,
    ) -> App {
        let reading = Reading::of(&config.server);
        let started_unix_seconds = handle.clock().now().0 / 1000;
        App(Arc::new(Parts {
            handle,
            config,
            keys,
            limits,
            oidc: oidc.map(Arc::new),
            strangers: Arc::default(),
            metrics,
            upstream: Arc::default(),
            edge,
            reading,
            request_ids: Arc::default(),
            started_unix_seconds,
            ending: CancellationToken::new(),
        }))
    }

    /// To be fired when answers that have begun cannot be finished.
    pub fn ending(&self) -> CancellationToken {
        self.ending.clone()
    }
}
