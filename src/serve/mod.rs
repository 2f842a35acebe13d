//! The composition root: starts store, catalogue, inventory, controller, HTTP server and schedule from the configuration, and
//! connects them. The order of the start reads from top to bottom; `shutdown` contains the end.

mod adoption;
pub(crate) mod evening;
mod files;
mod limits;
pub(crate) mod lock;
pub(crate) mod log;
mod machine;
mod memory;
pub(crate) mod notify;
mod opening;
mod records;
mod reload;
mod seats;
mod service;
mod shutdown;
mod standby;
mod starting;
pub mod stop_time;
pub(crate) mod takeover;
mod tasks;
mod telemetry;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::cli::ServeArgs;
use crate::stop_signal::stop_signal;
use crate::{cuda, fetch_settings};
use config::{Config, LiveConfig};
use controller::{Clock, Parts};
use http::{LastLines, Listener, SocketFile};
use source::Sources;
use store::Store;

use adoption::Adoption;
use lock::StateLock;
use log::LevelSwitch;
use machine::Machine;
use opening::{check_bucket, describe, line, open_catalog, take_over};
use records::{Access, PoolRecords, Records};
use reload::Reloader;
use service::{Core, Observation, task};
use standby::{LeaderStore, StandbyResult};
use starting::{FIGURES_WITHIN, LeaderStart, OPEN_WITHIN, Progress, deposed};
use takeover::InheritedSocket;

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
    for notice in config.notices() {
        tracing::warn!("{notice}");
    }
    let live = LiveConfig::new(config);
    let config = live.get();
    let clock = Clock::start();
    // Steps that can fail come first, while an old process still serves.
    check_bucket(&config)?;
    let machine = Machine::open(&config, clock).await?;
    let _log = LastLines(Arc::clone(&machine.edge));
    let telemetry = telemetry::open(&config, clock)?;
    let mut inherited = if args.takeover {
        take_over(&config, &machine.runtime_dir, args.strict).await?
    } else {
        None
    };
    // The manager may be inherited from the process that this one replaces.
    let progress = Progress::begin(clock, notify::heartbeat());
    let lock = StateLock::take(&config.state.dir, args.takeover).await?;
    let listener = machine::open_listener(&config, inherited.as_ref()).await?;
    let socket_file = SocketFile::new(&config.server.listen);
    let led = lead(
        &config,
        &listener,
        &machine,
        clock,
        &progress,
        &mut inherited,
    );
    let Some(led) = led.await? else {
        return Ok(());
    };
    let LeaderStore {
        store,
        stopped,
        left: _left,
        has_followed,
    } = led;
    let executable = machine::executable()?;
    let guardians = Arc::new(machine.guardians(executable.clone(), &config));
    let leader = LeaderStart {
        progress: &progress,
        store: &store,
        guardians: &guardians,
    };
    let access = Access::open(&leader, &config, clock).await?;
    let catalog = open_catalog(&config, &store, args.strict);
    let catalog = leader.step("reading the catalogue", catalog).await??;
    describe(&catalog, &machine.inventory);
    cuda::log(&machine.cuda, &catalog);
    let records = Records::read(&leader, machine.evening.clone(), &config).await?;
    let adoption = Adoption::find(
        &leader,
        &guardians,
        &config,
        clock,
        &machine,
        &catalog,
        has_followed,
    );
    let adoption = adoption.await?;
    let spare = guardians.prepare();
    leader.step("starting a guardian", spare).await?;
    let last_replica = adoption.last_replica(records.last_replica);
    let known = PoolRecords::read(&leader).await?;
    // The last step before the loop, whose decisions require the lead.
    let done = progress.part_done();
    let figures = controller::first_figures(
        &catalog,
        &config,
        &known.measurements,
        &machine.inventory,
        done,
    );
    let name = "computing what the models need";
    let figures = leader.step_within(name, FIGURES_WITHIN, figures);
    let figures = figures.await??;
    let (handle, controller) = controller::spawn(Parts {
        last_replica,
        last_order: records.last_order,
        measurements: known.measurements,
        ledger_seen: known.ledger_seen,
        remembered: known.remembered,
        catalog,
        figures,
        wishes: records.wishes,
        cordons: known.cordons,
        nodes: known.nodes,
        inventory: machine.inventory,
        night: records.closed_since.is_some(),
        executable,
        cuda: machine.cuda,
        runtime_dir: machine.runtime_dir.clone(),
        sources: Arc::new(Sources::new(fetch_settings::settings(&config))),
        guardians: Arc::clone(&guardians),
        serve_writers: Arc::clone(&adoption.serve_writers),
        found: adoption.found,
        seats: adoption.seats,
        heartbeat: notify::heartbeat(),
        log_dir: machine.state_dir.join("logs"),
        clock,
        config: live.clone(),
        store: Arc::clone(&store),
    });
    progress.loop_turns();
    adoption.other_processes.follow(&handle);
    let observation = Observation::new(telemetry, &handle, &config);
    let limits = limits::open(&config, &store, clock);
    let limits = leader.step("reading the limits", limits).await??;
    let schedule = evening::start(records.due, &handle, &live, &store);
    let schedule = leader.step("starting the schedule", schedule).await??;
    let reloader = Arc::new(Reloader {
        file: args.config.config.clone(),
        config: live.clone(),
        handle: handle.clone(),
        edge: Arc::clone(&machine.edge),
        limits,
        keys: Arc::clone(&access.keys),
        schedule: Arc::new(schedule),
        level,
        turn: tokio::sync::Mutex::default(),
    });
    let core = Core {
        handle,
        controller,
        store: Arc::clone(&store),
        guardians: Arc::clone(&guardians),
        serve_writers: adoption.serve_writers,
        config,
        live,
        runtime_dir: machine.runtime_dir,
    };
    let (mut serving, listening) = core
        .serve(access, machine.edge, observation, &reloader, listener)
        .await?;
    adoption.failing.started();
    drop(progress);
    notify::ready();
    let _forgetting = task(memory::forget_the_start());
    if let Some(inherited) = inherited {
        inherited.serving();
    }
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

/// Opens the store as the only controller, with a standby once this process leads. `None` if a signal came first.
async fn lead(
    config: &Arc<Config>,
    listener: &Listener,
    machine: &Machine,
    clock: Clock,
    progress: &Progress,
    inherited: &mut Option<InheritedSocket>,
) -> Result<Option<LeaderStore>, String> {
    let Some(section) = &config.state.standby else {
        progress.step("opening the database", OPEN_WITHIN);
        let url = config.database_url().reveal();
        return Ok(Some(LeaderStore::alone(
            Store::open(&url).await.map_err(line)?,
        )));
    };
    let edge = &machine.edge;
    let waiting =
        standby::until_leader(config, section, listener, edge, clock, progress, inherited);
    Ok(match waiting.await? {
        StandbyResult::Leads(led) => Some(led),
        StandbyResult::Stopped => None,
    })
}
