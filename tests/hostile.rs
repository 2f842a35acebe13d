//! Engines that do what no engine should, each beside two models that must not notice: the real
//! program on a machine of pretended GPUs, real processes, and at the end no process and no memory
//! left behind. How a scene is set stands in `hostile/scene.rs`.

#[path = "hostile/bad_input.rs"]
mod bad_input;
#[path = "hostile/cost.rs"]
mod cost;
#[path = "hostile/dying.rs"]
mod dying;
#[path = "hostile/leaving.rs"]
mod leaving;
#[path = "hostile/loading.rs"]
mod loading;
#[path = "support/machine.rs"]
mod machine;
#[path = "hostile/scene.rs"]
mod scene;
#[path = "hostile/silent.rs"]
mod silent;
#[path = "support/stub.rs"]
mod stub;
#[path = "support/whole.rs"]
mod whole;
