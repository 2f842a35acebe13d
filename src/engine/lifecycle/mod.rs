//! Engines from launch to exit, and the adoption of engines of an earlier controller.

mod adoption;
mod application;
mod application_adoption;
mod application_end;
mod engine;
mod exit;
mod pending;
mod queries;
mod remote;
mod run;

pub use adoption::{AdoptedEngine, AdoptionResult, resolve, resolve_each};
pub use application::run_application;
pub use application_adoption::{AdoptedApplication, resolve_applications};
pub use application_end::GONE_MAX as APPLICATION_GONE_WITHIN;
pub use queries::PendingQueries;
pub use run::{run, run_adopted};
