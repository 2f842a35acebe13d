//! The driver of the engines in the catalogue's table: passes the placement to the recipe, which builds the command line, and
//! recognises the stages that the engine's row defines. Contains no engine's name.

use std::borrow::Cow;

use super::command::stage_or_message;
use super::driver::{EngineDriver, PreparedCommand};
use super::report::{Launch, Program, ServerProgram};
use crate::connection::short_paths::short_path;
use crate::connection::{Endpoint, LONGEST_NAME};
use crate::failures::{EngineError, Failure};
use catalog::{EngineAddress, FailureClass, LaunchContext, PlacedDevice};

pub(crate) struct ServerDriver;

impl EngineDriver for ServerDriver {
    fn prepare(
        &self,
        launch: &Launch,
        endpoint: &Endpoint,
    ) -> Result<PreparedCommand, EngineError> {
        let Some(program) = program_of(launch) else {
            // Drivers are chosen by the program, so this cannot happen.
            return Err(EngineError::WrongEndpoint {
                model: launch.model_name.clone(),
                endpoint: endpoint.clone(),
            });
        };
        let recipe = &program.recipe;
        let devices: Vec<PlacedDevice> = launch
            .devices
            .iter()
            .map(|device| PlacedDevice {
                index: device.index,
                uuid: device.uuid.clone(),
                is_gpu: device.kind.is_gpu(),
                total: device.total,
            })
            .collect();
        // Includes the controller's process number, because each controller counts replicas from the beginning.
        let container = format!("model-pool-{}-{}", std::process::id(), launch.replica.0);
        let sockets = sockets_of(launch, &container, !recipe.prefix.is_empty());
        let place = LaunchContext {
            model_name: &launch.model_name,
            at: match endpoint {
                Endpoint::Tcp(address) => EngineAddress::Port(address.port()),
                Endpoint::Unix(path) => EngineAddress::Socket(path),
                Endpoint::Remote(_) | Endpoint::Node(_) => {
                    return Err(EngineError::WrongEndpoint {
                        model: launch.model_name.clone(),
                        endpoint: endpoint.clone(),
                    });
                }
            },
            devices: &devices,
            reserved: launch.bytes_per_device,
            weights: program.weights_per_device,
            container: &container,
            sockets: &sockets,
            template: recipe.template_forms(),
            member: launch.member.as_ref(),
        };
        let command = recipe
            .command(&place)
            .map_err(|problem| EngineError::Placement {
                model: launch.model_name.clone(),
                engine: recipe.engine.name(),
                problem,
            })?;
        let output = |output: Vec<String>| output.into_iter().map(Into::into).collect();
        Ok(PreparedCommand {
            argv: output(command.argv),
            env: command
                .env
                .into_iter()
                .map(|(name, value)| (name, value.0))
                .collect(),
            working_dir: recipe.working_dir.clone(),
            ready_path: recipe.engine.ready_path.to_owned(),
            lifeline: false,
            cleanup: command.cleanup.map(output),
            // With a prefix, the prefix is the program that may be missing.
            install: recipe.prefix.is_empty().then_some(recipe.engine.install),
        })
    }

    fn progress(&self, body: &[u8]) -> Option<(String, Option<u8>)> {
        stage_or_message(body)
    }

    fn progress_of_line(&self, launch: &Launch, line: &str) -> Option<(String, Option<u8>)> {
        let stage = (program_of(launch)?.recipe.engine.stage)(line)?;
        Some((stage.name.to_owned(), stage.percent))
    }

    fn advice(&self, launch: &Launch, output: &str) -> Option<(Failure, Cow<'static, str>)> {
        let recipe = &program_of(launch)?.recipe;
        let known = recipe.engine.failure(output)?;
        let version = Some(known).filter(|known| known.is_unknown_flag());
        let advice: Cow<'static, str> = match version.and_then(|_| recipe.version_notice()) {
            Some(notice) => format!("{}; {notice}", known.advice).into(),
            None => known.advice.into(),
        };
        Some((failure_of(known.class), advice))
    }
}

/// Suffix after the replica's number in the names of sockets between an engine's own processes.
pub(crate) const OWN_SOCKETS: &str = "-own";

/// The path prefix of an engine's sockets, in the pool's folder. An engine behind a command prefix may not see that folder and gets
/// an unpredictable name in `/tmp`, which is the container's or the machine's.
fn sockets_of(launch: &Launch, container: &str, has_prefix: bool) -> String {
    if has_prefix {
        return format!("/tmp/{container}-{:016x}", rand::random::<u64>());
    }
    let name = format!("{}{OWN_SOCKETS}", launch.replica);
    let folder = &launch.runtime_dir;
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
    let short = short_path(&folder, LONGEST_NAME).unwrap_or(folder);
    short.join(name).display().to_string()
}

fn failure_of(class: FailureClass) -> Failure {
    match class {
        FailureClass::OutOfMemory => Failure::OutOfMemory,
        FailureClass::NoAccess => Failure::GatedModel,
        FailureClass::ModelMissing => Failure::ModelMissing,
        FailureClass::UnknownArchitecture => Failure::UnknownArchitecture,
        FailureClass::PortInUse => Failure::PortTaken,
        FailureClass::MissingLibrary => Failure::MissingLibrary,
        FailureClass::Quantisation => Failure::Quantisation,
        FailureClass::DiskFull => Failure::DiskFull,
        FailureClass::DriverTooOld => Failure::DriverTooOld,
        FailureClass::WrongFlags => Failure::WrongArguments,
    }
}

fn program_of(launch: &Launch) -> Option<&ServerProgram> {
    match &launch.program {
        Program::Server(program) => Some(program),
        Program::Candle(_) | Program::Command(_) | Program::Remote(_) | Program::RayServe(_) => {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failures::explain::explain;
    use crate::health::Watch;
    use crate::launch::report::{DeviceAddress, DeviceKind};
    use catalog::{ServerRecipe, find_engine};
    use pool::{Bytes, DeviceId, ReplicaId};

    fn launch(prefix: &[&str]) -> Launch {
        let engine = find_engine("VLLMEngine").expect("an engine");
        let mut recipe = ServerRecipe::new(engine, "/models/m");
        recipe.prefix = prefix.iter().map(|word| (*word).to_owned()).collect();
        Launch {
            replica: ReplicaId(7),
            model_name: "org/model".to_owned(),
            program: Program::Server(ServerProgram {
                recipe: Box::new(recipe),
                weights_per_device: None,
            }),
            devices: vec![DeviceAddress {
                id: DeviceId(0),
                index: 0,
                uuid: Some("GPU-a".to_owned()),
                kind: DeviceKind::Nvidia,
                variable: None,
                total: Bytes(80 * Bytes::GIB),
            }],
            bytes_per_device: Bytes(40 * Bytes::GIB),
            runtime_dir: "run".into(),
            log_dir: "log".into(),
            watch: Watch::default(),
            member: None,
        }
    }

    fn prepare(launch: &Launch) -> Result<PreparedCommand, EngineError> {
        ServerDriver.prepare(launch, &Endpoint::Tcp(([127, 0, 0, 1], 4321).into()))
    }

    #[test]
    fn internal_sockets_of_engines_are_in_a_private_folder() {
        let words = |name: &str, prefix: &[&str]| {
            let engine = find_engine(name).expect("an engine");
            let mut launch = launch(prefix);
            launch.runtime_dir = "/data/run".into();
            if let Program::Server(program) = &mut launch.program {
                program.weights_per_device = Some(Bytes(Bytes::GIB));
                *program.recipe = ServerRecipe {
                    prefix: program.recipe.prefix.clone(),
                    ..ServerRecipe::new(engine, "/models/m")
                };
            }
            let prepared = prepare(&launch).expect("prepared");
            let words = prepared.argv.iter();
            words
                .map(|word| word.to_string_lossy().into_owned())
                .collect::<Vec<_>>()
        };
        let mut found = 0;
        for engine in catalog::ENGINES.iter().map(|engine| engine.name()) {
            let plain = words(engine, &[]);
            assert!(!plain.iter().any(|word| word.contains("/tmp")), "{plain:?}");
            found += usize::from(plain.iter().any(|word| word == "/data/run/r7-own"));
            let contained = words(engine, &["apptainer", "exec", "image.sif"]);
            let again = words(engine, &["apptainer", "exec", "image.sif"]);
            let in_tmp =
                |words: &[String]| words.iter().find(|word| word.contains("/tmp/")).cloned();
            if let (Some(one), Some(other)) = (in_tmp(&contained), in_tmp(&again)) {
                assert_ne!(one, other, "{engine}");
            }
        }
        assert_eq!(found, 2, "TGI and TEI");
    }

    #[test]
    fn the_command_line_contains_the_placement_and_the_install_command_is_the_engines() {
        let prepared = prepare(&launch(&[])).expect("prepared");
        let output = |output: &[std::ffi::OsString]| {
            let output: Vec<_> = output.iter().map(|word| word.to_string_lossy()).collect();
            output.join(" ")
        };
        let line = output(&prepared.argv);
        assert!(
            line.starts_with("vllm serve /models/m --host 127.0.0.1 --port 4321"),
            "{line}"
        );
        assert!(
            prepared
                .install
                .is_some_and(|line| line.contains("pip install vllm"))
        );
        assert!(prepared.cleanup.is_none());
        let contained = prepare(&launch(&[
            "docker",
            "run",
            "--name",
            "{{ container }}",
            "image",
        ]));
        let contained = contained.expect("prepared");
        let cleanup = output(&contained.cleanup.expect("a clean-up"));
        assert_eq!(
            cleanup,
            format!("docker rm -f model-pool-{}-7", std::process::id())
        );
        assert!(contained.install.is_none());
    }

    #[test]
    fn m8_a_process_of_several_nodes_joins_its_leader() {
        let words = |engine: &str, rank: u32| {
            let mut launch = launch(&[]);
            if let Program::Server(program) = &mut launch.program {
                let engine = find_engine(engine).expect("an engine");
                *program.recipe = ServerRecipe::new(engine, "/models/m");
            }
            launch.member = Some(catalog::GangMember {
                rank,
                ..catalog::GangMember::example(2)
            });
            let prepared = prepare(&launch).expect("prepared");
            let words: Vec<_> = prepared
                .argv
                .iter()
                .map(|word| word.to_string_lossy())
                .collect();
            (words.join(" "), prepared.env)
        };
        let vllm = "--pipeline-parallel-size 2 --nnodes 2 --node-rank";
        let (leader, env) = words("VLLMEngine", 0);
        let expected = format!("{vllm} 0 --master-addr 10.0.0.1 --master-port 29500");
        assert!(
            leader.contains(&expected) && !leader.contains("--headless"),
            "{leader}"
        );
        assert_eq!(env["VLLM_HOST_IP"], "10.0.0.1");
        let (follower, _) = words("VLLMEngine", 1);
        let expected = format!("{vllm} 1 --master-addr 10.0.0.1 --master-port 29500 --headless");
        assert!(follower.contains(&expected), "{follower}");
        let (follower, _) = words("SGLangEngine", 1);
        let expected = "--tp-size 2 --nnodes 2 --node-rank 1 --dist-init-addr 10.0.0.1:29500";
        assert!(follower.contains(expected), "{follower}");
    }

    #[test]
    fn an_impossible_placement_is_refused_with_its_numbers() {
        let mut launch = launch(&[]);
        launch.bytes_per_device = Bytes(Bytes::MIB);
        let text = explain(&prepare(&launch).expect_err("too little"));
        assert!(
            text.contains("org/model") && text.contains("memory_gib"),
            "{text}"
        );
    }

    #[test]
    fn stages_and_advice_come_from_the_engine() {
        let launch = launch(&[]);
        let line = "Loading safetensors checkpoint shards:  50% Completed | 1/2";
        let stage = ServerDriver.progress_of_line(&launch, line);
        assert_eq!(stage, Some(("reading weights".to_owned(), Some(50))));
        let output = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.";
        let (class, advice) = ServerDriver.advice(&launch, output).expect("known");
        assert_eq!(class, Failure::OutOfMemory);
        assert!(advice.contains("max_total_tokens"));
    }
}
