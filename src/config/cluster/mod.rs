//! The section `cluster`: the software that provides nodes, with the keys of each kind.

mod batch;
mod budget;
mod command;
mod kubernetes;
mod pbs;
mod ray;
pub(crate) mod section;
mod shape;
mod slurm;
mod text;

pub use budget::BudgetSection;
pub use command::CommandSection;
pub use kubernetes::{KubernetesSection, PodSet, PodSetKind};
pub use pbs::PbsSection;
pub use ray::{RaySection, ray_address};
pub use section::{ClusterKind, ClusterSection};
pub use shape::ShapeSection;
pub use slurm::SlurmSection;
