//! The small-lab benchmark: a few models on one to four devices, with loads of 30 ms to three minutes, from quiet to overloaded,
//! under several rules. `draw` draws the requests, `lab` replays them, `estimate` compares, `report`, `heat_map` and `causes` print.

mod causes;
mod draw;
mod estimate;
mod heat_map;
mod lab;
mod report;

pub use estimate::Estimate;
pub use heat_map::heat_map;
pub use lab::{Compared, Cost, Lab, PARTS, RULES, Shape, all, compare, cost};
pub use report::{ablation, run_all, table};
