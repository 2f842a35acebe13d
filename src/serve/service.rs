//! The service once the loop turns: the application of the HTTP server, and the tasks next to it.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::opening::line;
use super::records::Access;
use super::reload::Reloader;
use super::shutdown::Serving;
use super::takeover::{Role, TakeoverSocket};
use super::tasks::start;
use super::telemetry::Telemetry;
use super::{evening, limits};
use config::{Config, LiveConfig};
use controller::Handle;
use engine::{Guardians, ServeWriters};
use http::{App, Edge, Listener, Metrics, Reload, Server, Traces};
use store::Store;

/// The running loop, and the parts that it shares with the service.
pub(super) struct Core {
    pub handle: Handle,
    /// The controller's loop.
    pub controller: JoinHandle<()>,
    pub store: Arc<Store>,
    pub guardians: Arc<Guardians>,
    pub serve_writers: Arc<ServeWriters>,
    /// The configuration at the start.
    pub config: Arc<Config>,
    pub live: LiveConfig,
    pub runtime_dir: PathBuf,
}

/// Metrics and traces, from the start of the loop on.
pub(super) struct Observation {
    telemetry: Option<Telemetry>,
    metrics: Metrics,
    traces: Option<Arc<Traces>>,
}

impl Observation {
    pub fn new(telemetry: Option<Telemetry>, handle: &Handle, config: &Config) -> Observation {
        let base = config.server.base_path.as_str();
        let gen_ai = telemetry.as_ref().and_then(Telemetry::metrics);
        let traces = telemetry.as_ref();
        Observation {
            metrics: Metrics::new(handle, gen_ai),
            traces: traces.and_then(|telemetry| telemetry.traces(handle, base)),
            telemetry,
        }
    }
}

impl Core {
    /// Accepts connections. Returns the running service, and a copy of the listening socket for a process that takes over.
    pub async fn serve(
        self,
        access: Access,
        edge: Arc<Edge>,
        observation: Observation,
        reloader: &Arc<Reloader>,
        listener: Listener,
    ) -> Result<(Serving, OwnedFd), String> {
        let (config, store, handle) = (&self.config, &self.store, &self.handle);
        let limits = &reloader.limits;
        let base = config.server.base_path.as_str();
        let app = App::new(
            handle.clone(),
            self.live.clone(),
            Arc::clone(reloader) as Arc<dyn Reload>,
            Arc::clone(&access.keys),
            Arc::clone(limits),
            access.oidc,
            access.seal,
            observation.metrics,
            observation.traces,
            edge,
        );
        let upkeep = task(limits::keep(Arc::clone(limits), Arc::clone(store)));
        let noted = task(evening::stay_noted(self.live.clone(), Arc::clone(store)));
        let follow = task(access.keys.follow_commands());
        let serve_writers = self.serve_writers;
        let cleaning = task(async move { serve_writers.keep_clean().await });
        let stop = CancellationToken::new();
        let scheme = config.server.tls.as_ref().map_or("http", |_| "https");
        let address = listener.shown(scheme).map_err(line)?;
        let takeover_socket =
            TakeoverSocket::open(&self.runtime_dir, Role::Serve).map_err(|error| {
                format!(
                    "cannot create the takeover socket in {}: {error}",
                    self.runtime_dir.display()
                )
            })?;
        let listening: OwnedFd = listener.as_fd().try_clone_to_owned().map_err(line)?;
        let ending = app.ending();
        let responses = app.responses();
        let usages = app.usages();
        let virtual_models = app.virtual_models.load(store).await;
        virtual_models.map_err(|fault| format!("cannot read the virtual models: {fault}"))?;
        for warning in http::virtual_model_warnings(&config.virtual_models, handle) {
            tracing::warn!("{warning}");
        }
        // Quotas count before the first request.
        usages.read_groups().await;
        let counting = task(Arc::clone(&usages).keep_writing());
        let storing = task(Arc::clone(&responses).keep_writing());
        if let Err(fault) = app.batches.load().await {
            tracing::warn!(%fault, "the open batches cannot be read; trying again");
        }
        let batches = http::run_batches(app.clone(), stop.clone());
        let background = http::run_background(app.clone(), stop.clone());
        let batching = task(async move {
            tokio::join!(batches, background);
        });
        let server = start(Server::new(listener, app).serve(stop.clone()));
        tracing::info!("serving {address}/v1, Swagger UI at {address}{base}/docs");
        let serving = Serving {
            server,
            batching,
            storing,
            counting,
            usages,
            responses,
            ending,
            takeover_socket,
            stop,
            cleaning,
            follow,
            noted,
            upkeep,
            schedule: Arc::clone(&reloader.schedule),
            limits: Arc::clone(limits),
            controller: self.controller,
            handle: self.handle,
            telemetry: observation.telemetry,
            guardians: self.guardians,
            store: self.store,
            config: self.config,
            live: self.live,
            runtime_dir: self.runtime_dir,
        };
        Ok((serving, listening))
    }
}

/// Starts a task that ends when its handle is dropped.
pub(super) fn task(work: impl Future<Output = ()> + Send + 'static) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(start(work))
}
