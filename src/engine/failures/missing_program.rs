//! Checks before a launch that a model's program exists on this machine, and returns the message of the launch that would fail.

use std::io;
use std::path::Path;

use super::error::EngineError;
use super::explain::explain;
use super::failure::of_error;
use catalog::{Recipe, find_program};

/// The start of a template. Words with templates are known only at the launch.
const TEMPLATE: &str = "{{";

/// Returns the reason the model's engine cannot start on this machine, if its program is missing or not executable. Returns `None`
/// for models without a program, and for programs known only at launch. Blocks on the file system.
pub fn missing_program(model: &str, recipe: &Recipe) -> Option<String> {
    let (program, folder, env, install) = match recipe {
        Recipe::Command(command) => (
            command.command.first()?.as_str(),
            command.working_dir.as_deref(),
            &command.env,
            None,
        ),
        Recipe::Server(server) => {
            let own = server.engine.program.first().copied();
            let program = server.program.as_deref().or(own)?;
            let first = server.prefix.first().map_or(program, String::as_str);
            let install = server.prefix.is_empty().then_some(server.engine.install);
            (first, server.working_dir.as_deref(), &server.env, install)
        }
        Recipe::Candle(_) | Recipe::Remote(_) | Recipe::RayServe(_) => return None,
    };
    let path = env.get("PATH").map_or("", |path| path.0.as_str());
    let is_template = program.contains(TEMPLATE) || path.contains(TEMPLATE);
    if is_template || find_program(program, folder, env).is_some() {
        return None;
    }
    let at = folder.unwrap_or(Path::new("")).join(program);
    let is_file = program.contains('/') && at.exists();
    let source = io::Error::from_raw_os_error(if is_file {
        nix::libc::EACCES
    } else {
        nix::libc::ENOENT
    });
    let error = EngineError::Start {
        model: model.to_owned(),
        program: program.to_owned(),
        install,
        source,
    };
    Some(of_error(&error).tell(&explain(&error), "not started"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt;

    use catalog::{CommandRecipe, Listen};

    use super::*;

    fn missing(program: &str) -> Option<String> {
        let recipe = CommandRecipe {
            command: vec![program.to_owned(), "--port".to_owned()],
            listen: Listen::Port,
            ready_path: "/health".to_owned(),
            env: BTreeMap::new(),
            served_model_name: None,
            working_dir: None,
            model_path: None,
            context: None,
            spans_nodes: false,
            sleep: None,
        };
        missing_program("m", &Recipe::Command(recipe))
    }

    #[test]
    fn a_program_is_missing_until_its_file_exists_and_is_executable() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("serve-it");
        let program = file.display().to_string();
        let absent = missing(&program).expect("not there");
        assert!(absent.starts_with("program missing: "), "{absent}");
        assert!(absent.contains("it is not installed"), "{absent}");
        std::fs::write(&file, "#!/bin/sh\n").expect("written");
        let forbidden = missing(&program).expect("may not be run");
        assert!(forbidden.contains("chmod +x"), "{forbidden}");
        let may_run = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&file, may_run).expect("set");
        assert_eq!(missing(&program), None);
    }

    #[test]
    fn a_program_path_resolved_only_at_launch_is_not_reported_as_missing() {
        assert_eq!(missing("/engines/{{ model_name }}"), None);
        assert_eq!(missing("sh"), None);
    }
}
