//! What every handler shares.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::audit::Strangers;
use super::auth::Keys;
use super::edge::Edge;
use super::metrics::Metrics;
use super::proxy::Upstream;
use super::server::SharedIds;
use crate::config::Config;
use crate::controller::{Handle, Oidc};
use crate::limits::Limits;

/// Cheap to clone; one per connection and request.
#[derive(Clone)]
pub struct App {
    pub(super) handle: Handle,
    pub(super) config: Arc<Config>,
    pub(super) keys: Arc<Keys>,
    pub(super) limits: Arc<Limits>,
    pub(super) oidc: Option<Arc<Oidc>>,
    pub(super) strangers: Arc<Strangers>,
    pub(super) metrics: Metrics,
    pub(super) upstream: Arc<Upstream>,
    pub(super) edge: Arc<Edge>,
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
        metrics: Metrics,
        edge: Arc<Edge>,
    ) -> App {
        let started_unix_seconds = handle.clock().now().0 / 1000;
        App {
            handle,
            config,
            keys,
            limits,
            oidc: None,
            strangers: Arc::default(),
            metrics,
            upstream: Arc::default(),
            edge,
            request_ids: Arc::default(),
            started_unix_seconds,
            ending: CancellationToken::new(),
        }
    }

    /// With tokens of this issuer beside the keys.
    pub fn with_sign_on(self, oidc: Option<Oidc>) -> App {
        App {
            oidc: oidc.map(Arc::new),
            ..self
        }
    }

    /// To be fired when answers that have begun cannot be finished.
    pub fn ending(&self) -> CancellationToken {
        self.ending.clone()
    }
}
