//! Engines of replicas: launches, adoption, sleep, and weights that are fetched or read ahead.

pub(crate) mod adoption;
mod application_adoption;
pub(crate) mod earlier_applications;
mod fetch_tasks;
mod launches;
mod parking;

pub use adoption::refusal;
pub use application_adoption::{ray_places, recipe_of_application};
pub(crate) use earlier_applications::EarlierApplications;
