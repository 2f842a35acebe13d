//! State shared by all handlers.

use std::ops::Deref;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::credentials::failures::{Failures, WRONG_LOGINS, WRONG_SIGN_ONS};
use crate::credentials::keys::Keys;
use crate::credentials::node_connections::NodeConnections;
use crate::credentials::sessions::Sessions;
use crate::credentials::strangers::Strangers;
use crate::groups_view::LastGroups;
use crate::key_usage::KeyUsages;
use crate::live::Hub;
use crate::metrics::Metrics;
use crate::model_cards::Cards;
use crate::open_background::Backgrounds;
use crate::open_batches::Batches;
use crate::plan_turns::PlanTurns;
use crate::reading::Reading;
use crate::recordings::Recordings;
use crate::request_ids::SharedIds;
use crate::upstream::proxy::Upstream;
use crate::virtual_table::kept::VirtualModels;
use access::limits::Limits;
use access::oidc::Oidc;
use api_types::reload::Reload;
use config::{Config, LiveConfig};
use controller::{FirstTokens, Handle};
use dialect::Seal;
use dialect::stored::StoredResponses;
use edge::Edge;
use edge::trace::Traces;
use pool::Span;

/// A single reference count, because it is cloned several times per request. Derefs to the parts.
#[derive(Clone)]
pub struct App(Arc<Parts>);

impl Deref for App {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

pub struct Parts {
    pub handle: Handle,
    config: LiveConfig,
    /// `server.base_path`, which only changes at a restart.
    base: String,
    pub reload: Arc<dyn Reload>,
    pub keys: Arc<Keys>,
    pub limits: Arc<Limits>,
    pub oidc: Option<Arc<Oidc>>,
    /// Seals the reasoning that clients keep between turns.
    pub seal: Arc<Seal>,
    pub strangers: Arc<Strangers>,
    pub nodes: NodeConnections,
    pub sessions: Sessions,
    pub wrong_logins: Failures,
    /// Counted separately: wrong codes of an issuer cannot lock out keys.
    pub wrong_sign_ons: Failures,
    /// Clients of the live view.
    pub live: Hub,
    /// Requests in flight and usage per key.
    pub usages: Arc<KeyUsages>,
    pub(crate) last_groups: LastGroups,
    /// Stored responses for later turns.
    pub responses: Arc<StoredResponses>,
    /// Background responses that have not ended.
    pub backgrounds: Arc<Backgrounds>,
    /// Files and batches.
    pub batches: Arc<Batches>,
    pub metrics: Metrics,
    /// `None` if tracing is disabled.
    pub traces: Option<Arc<Traces>>,
    pub upstream: Arc<Upstream>,
    pub edge: Arc<Edge>,
    pub reading: Reading,
    pub cards: Arc<Cards>,
    pub plan_turns: PlanTurns,
    /// The recordings in engines.
    pub recordings: Recordings,
    /// Names that stand for several models.
    pub virtual_models: VirtualModels,
    pub request_ids: SharedIds,
    pub started_unix_seconds: u64,
    /// Fires when the process ends: responses still in progress end with an error.
    pub ending: CancellationToken,
}

/// Resolves when the process ends. Cloning the token itself would take a lock that all requests share.
#[derive(Clone)]
pub(crate) struct Ending(App);

impl Deref for Ending {
    type Target = CancellationToken;

    fn deref(&self) -> &CancellationToken {
        &self.0.ending
    }
}

impl Parts {
    /// The current configuration.
    pub fn config(&self) -> Arc<Config> {
        self.config.get()
    }

    /// The target of a model's requests for the time to their first token, and the place where these are counted. `None` without
    /// a target for the model's present priority.
    pub(crate) fn target(&self, model: &str) -> Option<(Arc<FirstTokens>, Span)> {
        let config = self.config();
        if config.pool.targets.is_empty() {
            return None;
        }
        let priority = self.handle.snapshot().model(model)?.priority;
        let target = *config.pool.targets().get(&priority)?;
        let route = self.handle.route(model)?;
        Some((Arc::clone(&route.first_tokens), target))
    }

    /// Counts a request that was refused after it had waited.
    pub(crate) fn refused_after_waiting(&self, model: &str) {
        if let Some((first_tokens, target)) = self.target(model) {
            first_tokens.count(None, target);
        }
    }

    /// The path below which all routes are.
    pub fn base(&self) -> &str {
        &self.base
    }
}

impl App {
    #[expect(clippy::too_many_arguments, reason = "each is an independent part")]
    pub fn new(
        handle: Handle,
        config: LiveConfig,
        reload: Arc<dyn Reload>,
        keys: Arc<Keys>,
        limits: Arc<Limits>,
        oidc: Option<Oidc>,
        seal: Seal,
        metrics: Metrics,
        traces: Option<Arc<Traces>>,
        edge: Arc<Edge>,
    ) -> App {
        let now = config.get();
        for warning in keys.groups().set(&now.groups, &keys.all(), &handle) {
            tracing::warn!("{warning}");
        }
        let reading = Reading::from_config(&now.server);
        let started_unix_seconds = handle.clock().now().0 / 1000;
        let (store, clock) = (Arc::clone(handle.store()), handle.clock());
        let spending = Arc::clone(keys.groups().spending());
        let usages = KeyUsages::new(
            Arc::clone(&store),
            Arc::clone(&limits),
            spending,
            (metrics.clone(), clock),
        );
        let batches = Batches::new(&now.state.dir, Arc::clone(&store), config.clone(), clock);
        let responses = StoredResponses::new(store, config.clone(), clock);
        App(Arc::new(Parts {
            handle,
            base: now.server.base_path.as_str().to_owned(),
            config,
            reload,
            keys,
            limits,
            oidc: oidc.map(Arc::new),
            seal: Arc::new(seal),
            strangers: Arc::default(),
            nodes: NodeConnections::default(),
            sessions: Sessions::default(),
            wrong_logins: Failures::new(WRONG_LOGINS),
            wrong_sign_ons: Failures::new(WRONG_SIGN_ONS),
            live: Hub::default(),
            usages: Arc::new(usages),
            last_groups: LastGroups::default(),
            responses: Arc::new(responses),
            backgrounds: Arc::new(Backgrounds::new(&now.state.dir)),
            batches: Arc::new(batches),
            metrics,
            traces,
            upstream: Arc::default(),
            edge,
            reading,
            cards: Arc::default(),
            plan_turns: PlanTurns::default(),
            recordings: Recordings::new(now.server.recordings_max.0),
            virtual_models: VirtualModels::default(),
            request_ids: Arc::default(),
            started_unix_seconds,
            ending: CancellationToken::new(),
        }))
    }

    /// For the task that writes them.
    pub fn responses(&self) -> Arc<StoredResponses> {
        Arc::clone(&self.responses)
    }

    /// For the task that writes them.
    pub fn usages(&self) -> Arc<KeyUsages> {
        Arc::clone(&self.usages)
    }

    /// A signal for requests, whose responses end when it fires.
    pub(crate) fn ending_signal(&self) -> Ending {
        Ending(self.clone())
    }

    /// To be fired when responses in progress cannot be completed.
    pub fn ending(&self) -> CancellationToken {
        self.ending.clone()
    }
}
