//! The virtual models in force: their members and rules, from the configuration and from administrators. Knows neither callers nor
//! requests; `crate::virtual_models` chooses a member.

pub mod kept;
pub mod table;
