//! The engines that the pool knows by name, as plain data and pure functions: one file per engine, and a table of all. Other
//! modules reach everything about an engine (flags, command line, routes, sleep modes, meaning of its output) through its
//! [`Engine`]. This module starts nothing and reads no files.
//!
//! To add an engine, add a file that describes it as an [`Engine`] and a row in [`ENGINES`].

mod engine;
mod flags;
mod gang_member;
mod installed_version;
mod kind;
mod launch;
mod launch_context;
mod lines;
mod llama_cpp;
mod lora;
mod name_serde;
mod parser_choice;
mod parser_names;
mod parsers;
mod program_search;
mod reasoning;
mod routes;
mod sglang;
mod tei;
mod template_forms;
#[cfg(test)]
mod tests_support;
mod tgi;
mod trtllm;
mod vllm;
mod vllm_flags;

pub(super) use engine::post;
pub use engine::{
    ArgumentContext, Call, Engine, Metrics, NeedsWeightSize, Parking, PythonPackage, RerankApi,
};
use flags::FlagReason;
pub use flags::{CheckedFlags, FlagError, Flags, OptionFate};
pub use gang_member::GangMember;
pub use kind::{CANDLE_CPU_OVERHEAD, EngineKind, GPU_OVERHEAD, LLAMA_CPU_OVERHEAD};
pub use launch::ServerRecipe;
pub use launch_context::{EngineAddress, LaunchContext, PlacedDevice, ServerCommand};
pub use lines::{Failure, FailureClass, Stage};
pub use lora::{ADAPTER_ROUTES, AdapterRoutes};
pub use parsers::{ChosenParser, TemplateForms, ThinkForm, ToolForm};
pub use program_search::find_program;
pub use reasoning::{
    Effort, EffortField, ReasoningFields, ReasoningSwitch, ReasoningWish, WishPart,
};
pub use routes::{ExtraRoute, TokenApi};

/// All engines.
pub const ENGINES: [&Engine; 6] = [
    &vllm::VLLM,
    &llama_cpp::LLAMA_CPP,
    &tgi::TGI,
    &sglang::SGLANG,
    &tei::TEI,
    &trtllm::TRTLLM,
];

/// Variables that the placement sets, for every engine.
const PLACED_ENV: &[FlagReason] = &[FlagReason {
    names: "CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES GPU_DEVICE_ORDINAL ZE_AFFINITY_MASK ZE_FLAT_DEVICE_HIERARCHY ZE_ENABLE_PCI_ID_DEVICE_ORDER MODEL_POOL_ENGINE",
    why: "is set by the pool from the placement; remove it (pool_config.devices says which GPUs the model may use)",
}];

/// The reason why the user must not set this variable.
pub fn barred_variable(engine: Option<&Engine>, name: &str) -> Option<&'static str> {
    let own = engine.map_or(&[] as &[FlagReason], |engine| engine.barred_env);
    let mut all = own.iter().chain(PLACED_ENV);
    let found = all.find(|reason| {
        reason
            .names
            .split_ascii_whitespace()
            .any(|known| known == name)
    });
    found.map(|reason| reason.why)
}

/// The engine with this `engine_config.type`.
pub fn find(name: &str) -> Option<&'static Engine> {
    ENGINES
        .into_iter()
        .find(|engine| engine.names.contains(&name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use pool::Bytes;

    #[test]
    fn every_engine_has_a_unique_name_and_unique_keys() {
        let mut names = BTreeSet::new();
        for engine in ENGINES {
            assert!(
                engine
                    .names
                    .iter()
                    .chain([&engine.word])
                    .all(|name| names.insert(*name))
            );
            let barred = engine.flags.barred.iter();
            let barred = barred.flat_map(|reason| reason.names.split_ascii_whitespace());
            let mut keys = BTreeSet::new();
            for key in engine.flags.keys().chain(barred) {
                assert!(keys.insert(key), "{engine:?} has {key} twice");
                assert!(!key.contains('-'), "{engine:?}: {key}");
            }
            for reason in engine.flags.warned {
                for name in reason.names.split_ascii_whitespace() {
                    assert!(
                        keys.contains(name),
                        "{engine:?} warns of {name}, which it does not take"
                    );
                }
            }
            assert!(
                engine.share_key.is_none_or(|key| !keys.contains(key)),
                "{engine:?}"
            );
        }
    }

    #[test]
    fn a_memory_share_is_rounded_down_and_never_exceeds_the_reservation() {
        let device = |gib| PlacedDevice {
            index: 0,
            uuid: None,
            is_gpu: true,
            total: Bytes(gib * Bytes::GIB),
        };
        let share = |reserved, beside, devices: &[PlacedDevice]| {
            let recipe = ServerRecipe::new(&vllm::VLLM, "/models/m");
            let place = LaunchContext {
                devices,
                ..LaunchContext::example(Bytes(reserved))
            };
            ArgumentContext {
                recipe: &recipe,
                place: &place,
            }
            .share(Bytes(beside))
        };
        let gib = Bytes::GIB;
        assert_eq!(share(40 * gib, 0, &[device(80)]).unwrap(), "0.5000");
        assert_eq!(share(40 * gib - 1, 0, &[device(80)]).unwrap(), "0.4999");
        assert_eq!(share(80 * gib, 0, &[device(80)]).unwrap(), "1.0000");
        assert_eq!(
            share(40 * gib, gib, &[device(80), device(40)]).unwrap(),
            "0.4875"
        );
        let problem = share(gib, gib, &[device(80)]).unwrap_err();
        assert!(problem.contains("memory_gib"), "{problem}");
        let problem = share(81 * gib, 0, &[device(80)]).unwrap_err();
        assert!(
            problem.contains("81") && problem.contains("80"),
            "{problem}"
        );
        assert!(share(gib, 0, &[device(0)]).is_err());
    }
}
