//! The settings of a load.

use clap::Args;

use super::values::{duration, gpus, priority, replicas};

/// The names of the settings in [`LoadSettings`].
pub(super) const WISH: [&str; 6] = ["priority", "keep_hot", "lease", "gpus", "replicas", "force"];

/// Settings of a load. Absent ones come from the model.
#[derive(Clone, Debug, Default, Args)]
pub struct LoadSettings {
    /// Load with this priority; 0 is lowest, 2 and above is always-hot
    #[arg(long, value_name = "N", value_parser = priority, allow_negative_numbers = true)]
    pub priority: Option<u32>,
    /// Time that the model stays loaded after its last request, such as 10m
    #[arg(long, value_name = "TIME", value_parser = duration, allow_hyphen_values = true)]
    pub keep_hot: Option<String>,
    /// Duration of this priority and keep-hot time, during which the model stays loaded, such as 2h
    #[arg(long, value_name = "TIME", value_parser = duration, allow_hyphen_values = true)]
    pub lease: Option<String>,
    /// GPUs per replica
    #[arg(long, value_name = "N", value_parser = gpus, allow_negative_numbers = true)]
    pub gpus: Option<u32>,
    /// Number of replicas
    #[arg(long, value_name = "N", value_parser = replicas, allow_negative_numbers = true)]
    pub replicas: Option<u32>,
    /// Also evict what only an administrator may evict, including always-hot models
    #[arg(long)]
    pub force: bool,
}
