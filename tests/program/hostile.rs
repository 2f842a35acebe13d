//! Misbehaving engines, each with two models that must be unaffected: the real program on a fake GPU machine, real processes, and
//! no process or memory left at the end. `hostile/scene.rs` sets the scene.

mod bad_input;
mod cost;
mod crashes;
mod loading;
mod scene;
mod shutdown;
mod silence;
mod sizes;
mod usage;
