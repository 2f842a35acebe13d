//! The response to `plan` under assumptions, as plain data with the fields that are shown.

use serde::Deserialize;

use crate::responses::{Plan, Share};

/// The effect of assumptions on the pool.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct WhatIf {
    pub leaving: Vec<WhatIfReplica>,
    pub loads: Vec<WhatIfReplica>,
    pub next: Vec<Plan>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct WhatIfReplica {
    pub replica: Option<String>,
    pub model: String,
    pub priority: u32,
    pub devices: Vec<Share>,
    pub in_flight: u64,
    pub reason: String,
}
