//! The driver of any program that speaks OpenAI HTTP: fills in the templates of the recipe's command line. Never runs a shell:
//! every element of the recipe stays one argument, whatever it renders to.

use std::collections::BTreeMap;

use minijinja::{Environment, UndefinedBehavior, Value};

use catalog::GangMember;

use super::driver::{EngineDriver, PreparedCommand};
use super::report::{CommandProgram, Launch, Program};
use crate::connection::Endpoint;
use crate::failures::EngineError;
use crate::health::probe as health;

pub(crate) struct CommandDriver;

impl EngineDriver for CommandDriver {
    fn prepare(
        &self,
        launch: &Launch,
        endpoint: &Endpoint,
    ) -> Result<PreparedCommand, EngineError> {
        let model = &launch.model_name;
        let Program::Command(program) = &launch.program else {
            // Drivers are chosen by the program, so this cannot happen.
            return Err(EngineError::WrongEndpoint {
                model: model.clone(),
                endpoint: endpoint.clone(),
            });
        };
        check_ready_path(model, &program.ready_path)?;
        let renderer = Renderer::new(model, values(launch, program, endpoint)?);
        let mut argv = Vec::with_capacity(program.argv.len());
        for (position, word) in program.argv.iter().enumerate() {
            let word = renderer.render(word, || format!("command[{position}]"))?;
            argv.push(word.into());
        }
        if argv.first().is_none_or(|program| *program == *"") {
            return Err(EngineError::EmptyCommand {
                model: model.clone(),
            });
        }
        let mut env = BTreeMap::new();
        for (name, value) in &program.env {
            let value = renderer.render(value, || format!("env.{name}"))?;
            env.insert(name.clone(), value);
        }
        Ok(PreparedCommand {
            argv,
            env,
            working_dir: program.working_dir.clone(),
            ready_path: program.ready_path.clone(),
            lifeline: false,
            cleanup: None,
            install: None,
        })
    }

    /// The embedded engine's form, or llama-server's `{"error":{"message":"Loading model"}}`; most other
    /// engines report nothing.
    fn progress(&self, body: &[u8]) -> Option<(String, Option<u8>)> {
        stage_or_message(body)
    }
}

/// The stage in a health body of either form.
pub(super) fn stage_or_message(body: &[u8]) -> Option<(String, Option<u8>)> {
    health::stage_of(body).or_else(|| {
        let body: serde_json::Value = serde_json::from_slice(body).ok()?;
        let message = body.get("error")?.get("message")?.as_str()?;
        Some((health::brief(message), None))
    })
}

/// The path becomes part of a request line.
fn check_ready_path(model: &str, path: &str) -> Result<(), EngineError> {
    let is_plain = path.chars().all(|c| c.is_ascii_graphic());
    if path.starts_with('/') && is_plain {
        Ok(())
    } else {
        Err(EngineError::ReadyPath {
            model: model.to_owned(),
            path: path.to_owned(),
        })
    }
}

/// The template names that have a value in this launch.
fn values(
    launch: &Launch,
    program: &CommandProgram,
    endpoint: &Endpoint,
) -> Result<BTreeMap<String, Value>, EngineError> {
    let text = |path: &std::path::Path| match path.to_str() {
        Some(text) => Ok(Value::from(text)),
        None => Err(EngineError::PathNotText {
            model: launch.model_name.clone(),
            path: path.to_owned(),
        }),
    };
    let indices: Vec<String> = launch
        .devices
        .iter()
        .filter(|device| device.kind.is_gpu())
        .map(|device| device.index.to_string())
        .collect();
    let model_name = program.served_model_name.as_ref();
    let mut values = BTreeMap::new();
    let mut set = |name: &str, value: Value| values.insert(name.to_owned(), value);
    match endpoint {
        Endpoint::Tcp(address) => set("port", u64::from(address.port()).into()),
        Endpoint::Unix(path) => set("socket", text(path)?),
        Endpoint::Remote(_) | Endpoint::Node(_) => None,
    };
    if let Some(path) = &program.model_path {
        set("model_path", text(path)?);
    }
    if let Some(context) = program.context {
        set("context", (context as u64).into());
    }
    set(
        "model_name",
        model_name.unwrap_or(&launch.model_name).as_str().into(),
    );
    set("devices", indices.join(",").into());
    set("device_count", (launch.devices.len() as u64).into());
    set("memory_bytes", launch.bytes_per_device.0.into());
    for (name, value) in GangMember::names(launch.member.as_ref()) {
        set(name, value);
    }
    Ok(values)
}

struct Renderer<'a> {
    model: &'a str,
    environment: Environment<'static>,
    values: BTreeMap<String, Value>,
}

impl<'a> Renderer<'a> {
    fn new(model: &'a str, values: BTreeMap<String, Value>) -> Renderer<'a> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        Renderer {
            model,
            environment,
            values,
        }
    }

    fn render(&self, template: &str, field: impl Fn() -> String) -> Result<String, EngineError> {
        let values = Value::from_pairs(self.values.clone());
        self.environment
            .render_str(template, values)
            .map_err(|source| EngineError::Template {
                model: self.model.to_owned(),
                field: field(),
                names: self
                    .values
                    .keys()
                    .map(String::as_str)
                    .collect::<Vec<_>>()
                    .join(", "),
                source,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failures::explain::explain;
    use crate::launch::report::{DeviceAddress, DeviceKind, Listen};
    use pool::{Bytes, DeviceId, ReplicaId};

    fn launch(argv: &[&str], env: &[(&str, &str)]) -> Launch {
        let gpu = |index| DeviceAddress {
            id: DeviceId(index),
            index,
            uuid: None,
            kind: DeviceKind::Nvidia,
            variable: None,
            total: Bytes(80 * Bytes::GIB),
        };
        Launch {
            replica: ReplicaId(7),
            model_name: "org/model".to_owned(),
            program: Program::Command(CommandProgram {
                argv: argv.iter().map(|word| (*word).to_owned()).collect(),
                env: env
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                    .collect(),
                listen: Listen::Port,
                ready_path: "/health".to_owned(),
                model_path: Some("/models/a b".into()),
                served_model_name: None,
                working_dir: None,
                context: None,
            }),
            devices: vec![gpu(2), gpu(3)],
            bytes_per_device: Bytes(1 << 30),
            runtime_dir: "run".into(),
            log_dir: "log".into(),
            watch: Default::default(),
            member: None,
        }
    }

    fn prepare(argv: &[&str], env: &[(&str, &str)]) -> Result<PreparedCommand, String> {
        let endpoint = Endpoint::Tcp(([127, 0, 0, 1], 4321).into());
        CommandDriver
            .prepare(&launch(argv, env), &endpoint)
            .map_err(|error| explain(&error))
    }

    #[test]
    fn every_placeholder_is_filled_and_an_argument_stays_one_argument() {
        let prepared = prepare(
            &[
                "vllm",
                "{{ model_path }}",
                "--port={{ port }}",
                "{{ model_name }};{{ devices }};{{ device_count }};{{ memory_bytes }}",
            ],
            &[("WHERE", "gpu {{ devices }}")],
        )
        .unwrap();
        assert_eq!(
            prepared.argv,
            [
                "vllm",
                "/models/a b",
                "--port=4321",
                "org/model;2,3;2;1073741824"
            ]
        );
        assert_eq!(prepared.env["WHERE"], "gpu 2,3");
    }

    #[test]
    fn m8_a_process_of_several_nodes_receives_its_rank_and_its_leader() {
        let words = ["serve", "{{ node_rank }}/{{ nodes }}"];
        let alone = prepare(&words, &[]).unwrap();
        assert_eq!(alone.argv, ["serve", "0/1"]);
        let leader = "{{ leader_address }}:{{ leader_port }}";
        let text = prepare(&["serve", leader], &[]).unwrap_err();
        assert!(text.contains("node_rank"), "{text}");
        let mut launch = launch(&["serve", "{{ node_rank }}/{{ nodes }}", leader], &[]);
        launch.member = Some(GangMember {
            rank: 1,
            ..GangMember::example(2)
        });
        let endpoint = Endpoint::Tcp(([127, 0, 0, 1], 4321).into());
        let prepared = CommandDriver.prepare(&launch, &endpoint).unwrap();
        assert_eq!(prepared.argv, ["serve", "1/2", "10.0.0.1:29500"]);
    }

    #[test]
    fn a_placeholder_without_a_value_is_refused_with_the_field_and_the_known_names() {
        let text = prepare(&["vllm", "--len", "{{ context }}"], &[]).unwrap_err();
        assert!(text.contains("command[2]"), "{text}");
        assert!(text.contains("memory_bytes"), "{text}");
        let text = prepare(&["vllm"], &[("A", "{{ socket }}")]).unwrap_err();
        assert!(text.contains("env.A"), "{text}");
    }

    #[test]
    fn load_progress_is_the_engines_own_message() {
        let body = br#"{"error":{"code":503,"message":"Loading model"}}"#;
        assert_eq!(
            CommandDriver.progress(body),
            Some(("Loading model".to_owned(), None))
        );
        assert_eq!(CommandDriver.progress(b""), None);
    }

    #[test]
    fn an_empty_command_is_refused() {
        assert!(prepare(&[], &[]).unwrap_err().contains("org/model"));
        assert!(prepare(&[""], &[]).unwrap_err().contains("org/model"));
    }

    #[test]
    fn debug_output_hides_arguments_and_environment_values() {
        let launch = launch(&["vllm", "--api-key=abc"], &[("HF_TOKEN", "abc")]);
        let endpoint = Endpoint::Tcp(([127, 0, 0, 1], 4321).into());
        let prepared = CommandDriver.prepare(&launch, &endpoint).unwrap();
        assert!(!format!("{launch:?} {prepared:?}").contains("abc"));
    }
}
