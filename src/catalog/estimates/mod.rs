//! Memory that a replica needs, before it is measured.

mod candle_activations;
mod candle_need;
mod candle_vision;
mod estimate;
mod figures;
mod figures_by_place;
mod layouts;
mod llama_cpp;
mod llama_places;
mod memory_split;
mod need;
mod need_source;
mod weight_files;

pub use estimate::EstimateError;
pub use layouts::{Demand, DeviceShare, DeviceSize, Layout};
pub use memory_split::MemorySplit;
pub use need::EntryFigures;
pub use need_source::{MeasuredNeed, NeedSource};
