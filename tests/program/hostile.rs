//! Engines that do what no engine should, each beside two models that must not notice: the real
//! program on a machine of pretended GPUs, real processes, and at the end no process and no memory
//! left behind. How a scene is set stands in `hostile/scene.rs`.

mod bad_input;
mod cost;
mod dying;
mod leaving;
mod loading;
mod scene;
mod silent;
mod sizes;
mod usage;
