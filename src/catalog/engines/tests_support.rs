//! Recipes and placements shared by the engines' tests. Not compiled into the binary.

use serde_json::Value;

use super::{Engine, EngineAddress, LaunchContext, PlacedDevice, ServerRecipe, TemplateForms};
use pool::Bytes;

pub fn gpus(count: u32, gib: u64) -> Vec<PlacedDevice> {
    let gpu = |index| PlacedDevice {
        index,
        uuid: Some(format!("GPU-{index}")),
        is_gpu: true,
        total: Bytes(gib * Bytes::GIB),
    };
    (0..count).map(gpu).collect()
}

pub fn place(devices: &[PlacedDevice], reserved_gib: u64) -> LaunchContext<'_> {
    LaunchContext {
        model_name: "org/model",
        at: EngineAddress::Port(4321),
        devices,
        reserved: Bytes(reserved_gib * Bytes::GIB),
        weights: Some(Bytes(8 * Bytes::GIB)),
        container: "model-pool-1-7",
        sockets: "/run/r7-own",
        template: TemplateForms::default(),
        member: None,
    }
}

/// A recipe for a local model with these `engine_kwargs`.
pub fn recipe(engine: &'static Engine, kwargs: &str) -> ServerRecipe {
    let kwargs: Value = serde_json::from_str(kwargs).expect("JSON");
    let words = engine.flags.check(kwargs.as_object().expect("an object"));
    ServerRecipe {
        flags: words.expect("right kwargs"),
        ..ServerRecipe::new(engine, "/models/m")
    }
}

/// The error for these `engine_kwargs`.
pub fn refusal(engine: &'static Engine, kwargs: &str) -> String {
    let kwargs: Value = serde_json::from_str(kwargs).expect("JSON");
    let flaw = engine.flags.check(kwargs.as_object().expect("an object"));
    let flaw = flaw.expect_err("wrong kwargs");
    format!("{} {}", flaw.key, flaw.problem)
}
