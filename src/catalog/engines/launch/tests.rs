//! Tests of `launch.rs`.

use super::super::find;
use super::super::tests_support::{gpus, place};
use super::*;

fn recipe(prefix: &[&str]) -> ServerRecipe {
    ServerRecipe {
        prefix: prefix.iter().map(|word| (*word).to_owned()).collect(),
        env: BTreeMap::from([("HF_TOKEN".to_owned(), Secret("hf_secret".to_owned()))]),
        ..ServerRecipe::new(find("EmbeddingEngine").expect("an engine"), "/models/e")
    }
}

#[test]
fn a_container_gets_its_name_and_variables_and_is_removed_by_name() {
    let recipe = recipe(&[
        "sudo",
        "docker",
        "run",
        "--name",
        "{{ container }}",
        "{{ env }}",
        "-p",
        "{{ port }}:80",
        "image",
    ]);
    recipe.check_templates().expect("a name");
    let command = recipe
        .command(&LaunchContext::example(Bytes(1)))
        .expect("a command");
    let text = command.argv.join(" ");
    assert!(
        text.starts_with("sudo docker run --name model-pool-1-1 -e "),
        "{text}"
    );
    assert!(
        text.contains("-e HF_TOKEN ") && text.contains("-p 8000:80 image text-emb"),
        "{text}"
    );
    assert!(!text.contains("hf_secret"), "{text}");
    let cleanup = command.cleanup.clone().expect("a clean-up");
    assert_eq!(cleanup.join(" "), "sudo docker rm -f model-pool-1-1");
    let mut shown = recipe.clone();
    shown.prefix.push("--env=HF_TOKEN=hf_secret".to_owned());
    let shown = shown
        .command(&LaunchContext::example(Bytes(1)))
        .expect("a command");
    assert!(!format!("{shown:?}").contains("hf_secret"), "{shown:?}");
    assert!(
        !command.masked().contains("hf_secret"),
        "{}",
        command.masked()
    );
}

#[test]
fn containers_without_a_name_and_unknown_placeholders_are_refused() {
    let problem = recipe(&["podman", "run", "image"])
        .check_templates()
        .unwrap_err();
    assert!(problem.contains("{{ container }}"), "{problem}");
    let mut with_env = recipe(&["nice"]);
    with_env
        .env
        .insert("A".to_owned(), Secret("{{ colour }}".to_owned()));
    let problem = with_env.check_templates().unwrap_err();
    assert!(problem.contains("engine_config.env.A"), "{problem}");
    let problem = recipe(&["nice", "{{ colour }}"])
        .check_templates()
        .unwrap_err();
    assert!(problem.contains("command_prefix[1]"), "{problem}");
    assert!(recipe(&["nice"]).check_templates().is_ok());
}

#[test]
fn a_custom_program_keeps_the_engines_subcommand() {
    let mut recipe = ServerRecipe::new(find("VLLMEngine").expect("an engine"), "/models/m");
    recipe.program = Some("/opt/vllm/bin/vllm".to_owned());
    let devices = gpus(1, 80);
    let command = recipe.command(&place(&devices, 40)).expect("a command");
    assert_eq!(
        command.argv[..3],
        ["/opt/vllm/bin/vllm", "serve", "/models/m"]
    );
}
