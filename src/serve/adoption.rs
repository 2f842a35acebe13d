//! Engines, applications of Ray Serve and streams of earlier processes.

use std::sync::Arc;

use super::machine::Machine;
use super::opening::line;
use super::seats::OtherProcesses;
use super::starting::{LeaderStart, LeaveOnFailure, RAY_WITHIN};
use catalog::Catalog;
use config::{Config, OnRestart};
use controller::{Clock, EarlierSeats};
use engine::{AdoptionResult, Guardians, ServeWriters};
use pool::Span;

/// Time that a leader on another machine may still stream after it has lost the lead, before it ends on its own.
const LOST_LEADER_WITHIN: Span = Span::from_secs(10);

pub(super) struct Adoption<'a> {
    /// Dropped before the engines.
    pub failing: LeaveOnFailure<'a>,
    pub found: AdoptionResult,
    pub other_processes: OtherProcesses,
    pub seats: EarlierSeats,
    /// Writers of the models in Ray Serve.
    pub serve_writers: Arc<ServeWriters>,
}

impl<'a> Adoption<'a> {
    /// Finds them. This process holds the lock, so no other controller owns the engines of an earlier one. Nothing is loaded before
    /// adoption has been decided.
    pub async fn find(
        leader: &LeaderStart<'_>,
        guardians: &'a Arc<Guardians>,
        config: &Config,
        clock: Clock,
        machine: &Machine,
        catalog: &Catalog,
        has_followed: bool,
    ) -> Result<Adoption<'a>, String> {
        let refuse =
            |record: &engine::Record| controller::refusal(record, catalog, &machine.inventory);
        let found = engine::resolve(guardians, refuse);
        let mut found = leader.step("finding engines", found).await?;
        // Declared after the engines to be dropped before them.
        let failing = LeaveOnFailure::new(guardians);
        let other_processes = OtherProcesses::find(&machine.runtime_dir);
        let other_processes = leader.step("finding other processes", other_processes);
        let other_processes = other_processes.await?;
        let seats = earlier_seats(&other_processes, config, clock, has_followed);
        let former_file = machine.state_dir.join("ray-serve.json");
        let serve_writers = controller::open_serve_writers(leader.store, &former_file);
        let serve_writers = leader.step("reading the Rays", serve_writers).await?;
        let serve_writers = Arc::new(serve_writers.map_err(line)?);
        let recipe_of = |model: &str, arguments: &str| {
            controller::recipe_of_application(model, arguments, catalog)
        };
        let remembered_places = serve_writers.remembered(&config.cluster.name);
        let places = controller::ray_places(catalog, config, remembered_places);
        let within = Span(RAY_WITHIN.0 * places.len().max(1) as u64);
        let applications = engine::resolve_applications(
            &serve_writers,
            &places,
            config.pool.on_restart == OnRestart::Adopt,
            recipe_of,
            |replica| seats.may_stream(replica, clock.now()),
            &mut found,
        );
        let name = "finding applications in Ray";
        leader.step_within(name, within, applications).await?;
        Ok(Adoption {
            failing,
            found,
            other_processes,
            seats,
            serve_writers,
        })
    }

    /// The largest number of a replica. With a new data folder, applications of an older one may be adopted, and their numbers are
    /// taken.
    pub fn last_replica(&self, stored: u64) -> u64 {
        let applications = self.found.applications.iter();
        let taken = applications.map(|application| application.replica.0);
        taken.fold(stored, u64::max)
    }
}

fn earlier_seats(
    other_processes: &OtherProcesses,
    config: &Config,
    clock: Clock,
    has_followed: bool,
) -> EarlierSeats {
    let now = clock.now();
    let unseen_until = if has_followed {
        now + LOST_LEADER_WITHIN
    } else {
        now
    };
    let streams_until = now + config.unload_drain();
    EarlierSeats::new(other_processes.taken(), streams_until, unseen_until)
}
