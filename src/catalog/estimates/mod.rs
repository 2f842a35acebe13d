//! Memory that a replica needs, before it is measured.

mod candle_activations;
mod candle_need;
mod estimate;
mod layouts;
mod need;
mod need_source;

pub use estimate::EstimateError;
pub use layouts::{Demand, DeviceShare, Layout};
pub use need_source::{MeasuredNeed, NeedSource};
