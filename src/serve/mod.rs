//! The composition root: starts store, catalogue, inventory, controller, HTTP server and schedule from the configuration, and
//! connects them. The order of the start reads from top to bottom; `shutdown` contains the end.

pub(crate) mod evening;
mod files;
mod limits;
pub(crate) mod lock;
pub(crate) mod log;
mod memory;
mod notify;
mod opening;
mod reload;
mod seats;
mod shutdown;
mod standby;
mod starting;
pub mod stop_time;
mod takeover;
mod tasks;
mod telemetry;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::cli::ServeArgs;
use crate::stop_signal::stop_signal;
use crate::{cuda, fetch_settings};
use config::{Config, LiveConfig, OnRestart};
use controller::{Clock, EarlierSeats, Parts};
use engine::{GuardianSettings, Guardians};
use http::{App, Edge, Keys, LastLines, Listener, Metrics, Reload, Seal, Server, SocketFile};
use pool::Span;
use source::Sources;
use store::Store;

use lock::StateLock;
use log::LevelSwitch;
use opening::{absolute, describe, line, open_catalog, open_inventory, open_sign_on, take_over};
use reload::Reloader;
use seats::OtherProcesses;
use shutdown::Serving;
use standby::{LeaderStore, StandbyResult};
use starting::{
    FIGURES_WITHIN, LeaderStart, LeaveOnFailure, OPEN_WITHIN, Progress, RAY_WITHIN, deposed,
};
use takeover::TakeoverSocket;
use tasks::start;

/// Time that a leader on another machine may still stream after it has lost the lead, before it ends on its own.
const LOST_LEADER_WITHIN: Span = Span::from_secs(10);

/// Serves until a signal stops it. An error is one line for the user.
pub fn run(args: &ServeArgs) -> Result<(), String> {
    memory::return_what_is_freed();
    let environment: BTreeMap<String, String> = std::env::vars().collect();
    let file = args.config.config.as_deref();
    let config = Config::load(file, &environment).map_err(|error| error.to_string())?;
    let level = log::start(&config);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start the runtime: {error}"))?;
    let ended = runtime.block_on(serve(config, args, level));
    // Do not wait for tasks that hang in a system call.
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

async fn serve(config: Config, args: &ServeArgs, level: LevelSwitch) -> Result<(), String> {
    let takeover = args.takeover;
    for notice in config.notices() {
        tracing::warn!("{notice}");
    }
    let live = LiveConfig::new(config);
    let config = live.get();
    let clock = Clock::start();
    // Must be the same after a restart, because guardians are found there.
    let state_dir = absolute(&config.state.dir)?;
    let runtime_dir = state_dir.join("run");
    // Steps that can fail come first, while an old process still serves.
    let inventory = open_inventory(&config).await?;
    let cuda_program = cuda::find(&config).await?;
    let evening = evening::from_config(&config)?;
    let edge = Arc::new(Edge::open(&config, clock, files::allow_many()).map_err(line)?);
    let _log = LastLines(Arc::clone(&edge));
    let telemetry = telemetry::open(&config)?;
    let mut inherited = if takeover {
        take_over(&config, &runtime_dir, args.strict).await?
    } else {
        None
    };
    // The manager may be inherited from the process that this one replaces.
    let progress = Progress::begin(clock, notify::heartbeat());
    let lock = StateLock::take(&config.state.dir, takeover).await?;
    let old = inherited.as_ref();
    let listen = &config.server.listen;
    let inherits = old.map(|old| old.listener(listen)).transpose();
    let listener = match inherits.map_err(line)?.flatten() {
        Some(listener) => listener,
        None => Listener::bind(&config.server).await.map_err(line)?,
    };
    let socket_file = SocketFile::new(listen);
    let led = match &config.state.standby {
        None => {
            progress.step("opening the database", OPEN_WITHIN);
            let url = config.database_url().reveal();
            LeaderStore::alone(Store::open(&url).await.map_err(line)?)
        }
        Some(section) => {
            let waiting = standby::until_leader(
                &config,
                section,
                &listener,
                &edge,
                clock,
                &progress,
                &mut inherited,
            );
            match waiting.await? {
                StandbyResult::Leads(led) => led,
                StandbyResult::Stopped => return Ok(()),
            }
        }
    };
    let LeaderStore {
        store,
        stopped,
        left: _left,
        has_followed,
    } = led;
    let executable = std::env::current_exe()
        .map_err(|error| format!("cannot find the program's own binary: {error}"))?;
    let guardians = Arc::new(Guardians::new(GuardianSettings {
        executable: executable.clone(),
        runtime_dir: runtime_dir.clone(),
        journal_dir: state_dir.join("engines"),
        keep: config.pool.on_restart == OnRestart::Adopt,
        adopt_within: Duration::from_millis(config.pool.adopt_within.0.0),
    }));
    let leader = LeaderStart {
        progress: &progress,
        store: &store,
        guardians: &guardians,
    };
    let first = config.auth.first_admin_key_file.as_deref();
    let key_file = config.admin_key_file();
    let keys = Keys::open(Arc::clone(&store), clock, &key_file, first);
    let keys = leader.step("reading the keys", keys).await?;
    let keys = Arc::new(keys.map_err(line)?);
    let seal = Seal::open(&config.state.dir.join("reasoning.key")).map_err(line)?;
    let oidc = open_sign_on(&config);
    let oidc = leader.step("preparing the single sign-on", oidc).await??;
    let catalog = open_catalog(&config, &store, args.strict);
    let catalog = leader.step("reading the catalogue", catalog).await??;
    describe(&catalog, &inventory);
    cuda::log(&cuda_program, &catalog);

    let due = evening::due(evening, &store);
    let mut due = leader.step("reading the schedule", due).await??;
    let closed_since = due.begin(Utc::now());
    let wishes = leader.step("reading the wishes", store.wishes()).await?;
    let mut wishes = wishes.map_err(line)?;
    if let Some(cleanup) = closed_since {
        evening::forget_loads_before(cleanup, &mut wishes);
    }
    tracing::info!("{}", evening::outlook(&config));
    let numbers = leader.step("reading the last numbers", store.last_numbers());
    let (last_replica, last_order) = numbers.await?.map_err(line)?;
    // We hold the lock, so no other controller owns the engines of an earlier one. Nothing is loaded before adoption has been
    // decided.
    let refuse = |record: &engine::Record| controller::refusal(record, &catalog, &inventory);
    let found = engine::resolve(&guardians, refuse);
    let mut found = leader.step("finding engines", found).await?;
    // Declared after the engines to be dropped before them.
    let failing = LeaveOnFailure::new(&guardians);
    let other_processes = OtherProcesses::find(&runtime_dir);
    let other_processes = leader.step("finding other processes", other_processes);
    let other_processes = other_processes.await?;
    let now = clock.now();
    let unseen_until = if has_followed {
        now + LOST_LEADER_WITHIN
    } else {
        now
    };
    let streams_until = now + config.unload_drain();
    let earlier_seats = EarlierSeats::new(other_processes.taken(), streams_until, unseen_until);
    let former_file = state_dir.join("ray-serve.json");
    let serve_writers = controller::open_serve_writers(&store, &former_file);
    let serve_writers = leader.step("reading the Rays", serve_writers).await?;
    let serve_writers = Arc::new(serve_writers.map_err(line)?);
    let recipe_of = |model: &str, arguments: &str| {
        controller::recipe_of_application(model, arguments, &catalog)
    };
    let remembered_places = serve_writers.remembered(&config.cluster.name);
    let places = controller::ray_places(&catalog, &config, remembered_places);
    let within = Span(RAY_WITHIN.0 * places.len().max(1) as u64);
    let applications = engine::resolve_applications(
        &serve_writers,
        &places,
        config.pool.on_restart == OnRestart::Adopt,
        recipe_of,
        |replica| earlier_seats.may_stream(replica, clock.now()),
        &mut found,
    );
    let name = "finding applications in Ray";
    leader.step_within(name, within, applications).await?;
    let spare = guardians.prepare();
    leader.step("starting a guardian", spare).await?;
    // With a new data folder, applications of an older one may be adopted, and their numbers are taken.
    let taken = found
        .applications
        .iter()
        .map(|application| application.replica.0);
    let last_replica = taken.fold(last_replica, u64::max);
    let measurements = leader.step("reading measurements", store.measurements());
    let measurements = measurements.await?.map_err(line)?;
    let remembered = leader.step("reading what models need", store.remembered());
    let remembered = remembered.await?.map_err(line)?;
    let cordons = leader.step("reading cordons", store.cordons()).await?;
    let cordons = cordons.map_err(line)?;
    let nodes = store.nodes_with_credentials(controller::NODES_MAX);
    let nodes = leader.step("reading nodes", nodes).await?.map_err(line)?;
    // The last step before the loop, whose decisions require the lead.
    let done = progress.part_done();
    let figures = controller::first_figures(&catalog, &config, &measurements, &inventory, done);
    let name = "computing what the models need";
    let figures = leader.step_within(name, FIGURES_WITHIN, figures);
    let figures = figures.await??;
    let parts = Parts {
        last_replica,
        last_order,
        measurements,
        remembered,
        catalog,
        figures,
        wishes,
        cordons,
        nodes,
        inventory,
        night: closed_since.is_some(),
        executable,
        cuda: cuda_program,
        runtime_dir: runtime_dir.clone(),
        sources: Arc::new(Sources::new(fetch_settings::settings(&config))),
        guardians: Arc::clone(&guardians),
        serve_writers: Arc::clone(&serve_writers),
        found,
        seats: earlier_seats,
        heartbeat: notify::heartbeat(),
        log_dir: state_dir.join("logs"),
        clock,
        config: live.clone(),
        store: Arc::clone(&store),
    };
    let (handle, controller) = controller::spawn(parts);
    progress.loop_turns();
    other_processes.follow(&handle);
    let metrics = Metrics::new(&handle);
    let base = config.server.base_path.as_str();
    let traces = telemetry
        .as_ref()
        .map(|telemetry| telemetry.traces(&handle, base));
    let limits = limits::open(&config, &store, clock);
    let limits = leader.step("reading the limits", limits).await??;
    let schedule = evening::start(due, &handle, &live, &store);
    let schedule = leader.step("starting the schedule", schedule).await??;
    let schedule = Arc::new(schedule);
    let reloader = Arc::new(Reloader {
        file: args.config.config.clone(),
        config: live.clone(),
        handle: handle.clone(),
        edge: Arc::clone(&edge),
        limits: Arc::clone(&limits),
        schedule: Arc::clone(&schedule),
        level,
        turn: tokio::sync::Mutex::default(),
    });
    let app = App::new(
        handle.clone(),
        live.clone(),
        Arc::clone(&reloader) as Arc<dyn Reload>,
        Arc::clone(&keys),
        Arc::clone(&limits),
        oidc,
        seal,
        metrics,
        traces,
        edge,
    );
    let upkeep =
        AbortOnDropHandle::new(start(limits::keep(Arc::clone(&limits), Arc::clone(&store))));
    let noted =
        AbortOnDropHandle::new(start(evening::stay_noted(live.clone(), Arc::clone(&store))));
    let follow = AbortOnDropHandle::new(start(keys.follow_commands()));
    let cleaning = async move { serve_writers.keep_clean().await };
    let cleaning = AbortOnDropHandle::new(start(cleaning));
    let stop = CancellationToken::new();
    let scheme = config.server.tls.as_ref().map_or("http", |_| "https");
    let address = listener.shown(scheme).map_err(line)?;
    let takeover_socket = TakeoverSocket::open(&runtime_dir).map_err(|error| {
        format!(
            "cannot create the takeover socket in {}: {error}",
            runtime_dir.display()
        )
    })?;
    let listening: OwnedFd = listener.as_fd().try_clone_to_owned().map_err(line)?;
    let ending = app.ending();
    let responses = app.responses();
    let usages = app.usages();
    let counting = AbortOnDropHandle::new(start(Arc::clone(&usages).keep_writing()));
    let storing = AbortOnDropHandle::new(start(Arc::clone(&responses).keep_writing()));
    let server = start(Server::new(listener, app).serve(stop.clone()));
    tracing::info!("serving {address}/v1, Swagger UI at {address}{base}/docs");
    failing.started();
    drop(progress);
    notify::ready();
    let _forgetting = AbortOnDropHandle::new(start(memory::forget_the_start()));
    if let Some(inherited) = inherited {
        inherited.serving();
    }
    let mut serving = Serving {
        server,
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
        schedule,
        limits,
        controller,
        handle,
        telemetry,
        guardians: Arc::clone(&guardians),
        store: Arc::clone(&store),
        config,
        live,
        runtime_dir,
    };
    let successor = tokio::select! {
        () = stop_signal() => None,
        () = stopped.cancelled() => None,
        () = reload::at_hangups(&reloader) => None,
        successor = serving.takeover_socket.successor(&listening) => Some(successor),
        why = store.deposed() => return Err(deposed(&guardians, &why)),
        ended = &mut serving.controller => return Err(format!("the controller ended unexpectedly: {ended:?}")),
    };
    drop(listening);
    match successor {
        Some(successor) => {
            if let Some(file) = socket_file {
                file.leave();
            }
            serving.hand_over(successor, lock).await
        }
        None => serving.stop(lock).await,
    }
}
