//! Loads the configuration: reads the file, applies the environment and checks the result.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::origins::KeyOrigins;
use super::root::Config;
use super::{environment, validate};
use crate::problems::{ConfigError, Origins, PlacedProblem, Positions};
use crate::values::LocalZone;
use reading::{Format, Salvaged, WrongValue};

/// The default file, which may be absent.
pub const DEFAULT_FILE: &str = "config/model-pool.yaml";

impl Config {
    /// Reads `file`, or else `config/model-pool.yaml` if it exists, and applies the environment. Refuses unknown keys and unknown
    /// `MODEL_POOL__` variables.
    pub fn load(
        file: Option<&Path>,
        environment: &BTreeMap<String, String>,
    ) -> Result<Config, ConfigError> {
        let path = file.unwrap_or(Path::new(DEFAULT_FILE));
        let mut origins = Origins::default();
        let mut left_out = Vec::new();
        let mut problems = Vec::new();
        let config = match std::fs::read(path) {
            Ok(bytes) => {
                let text = reading::utf8(bytes).map_err(|flaw| ConfigError::Invalid {
                    problems: vec![PlacedProblem::Text {
                        path: path.to_owned(),
                        flaw,
                    }],
                })?;
                origins.positions = Positions::parse(&text);
                origins.file = Some(path.to_owned());
                let read = read(&text);
                let flaws = read.wrong.iter().map(|wrong| PlacedProblem::Text {
                    path: path.to_owned(),
                    flaw: with_section(wrong).error,
                });
                problems.extend(flaws);
                left_out.extend(read.wrong.into_iter().map(|wrong| wrong.path));
                match read.value {
                    Some(config) => config,
                    None => return Err(ConfigError::Invalid { problems }),
                }
            }
            Err(error) if file.is_none() && error.kind() == io::ErrorKind::NotFound => {
                Config::default()
            }
            Err(source) => {
                return Err(ConfigError::Read {
                    path: path.to_owned(),
                    source,
                });
            }
        };
        let overlaid = environment::overlay(config, environment);
        let mut config = overlaid.config;
        problems.extend(overlaid.problems);
        origins.variables = overlaid.variables;
        let in_variables = config
            .telemetry
            .take_variables(environment, &mut origins.variables);
        let in_paths = config.expand_paths(|name| environment.get(name).cloned());
        let config = Config {
            file: origins.file.clone(),
            local_zone: LocalZone::from_environment(environment),
            ..config
        };
        let config = Config {
            origins: KeyOrigins::new(&config.effective_json(), &origins),
            ..config
        };
        let of_values = validate::problems(&config)
            .into_iter()
            .chain(in_variables)
            .chain(in_paths);
        // Values that were left out are replaced by defaults.
        let of_values =
            of_values.filter(|problem| !left_out.iter().any(|key| problem.is_about(key)));
        problems.extend(of_values.map(|problem| origins.place(problem)));
        if problems.is_empty() {
            return Ok(config);
        }
        Err(ConfigError::Invalid { problems })
    }

    /// Settings that work but have less effect than expected, for the log at start.
    pub fn notices(&self) -> Vec<String> {
        validate::notices(self)
    }
}

/// Parses the file and reports every wrong value.
fn read(text: &str) -> Salvaged<Config> {
    // A file with only comments sets nothing, and a YAML parser finds no mapping in it.
    let is_blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    if text.lines().all(is_blank) {
        return Salvaged {
            value: Some(Config::default()),
            wrong: Vec::new(),
        };
    }
    reading::salvage(text, Format::Yaml)
}

/// Returns the same error; for an unknown key, it names the section that the key belongs to.
fn with_section(wrong: &WrongValue) -> WrongValue {
    let document = Config::default().document();
    let sections = document.iter();
    let sections = sections.filter_map(|(section, keys)| Some((section, keys.as_object()?)));
    let mut having = sections.filter(|(_, keys)| {
        wrong
            .unknown_key()
            .is_some_and(|key| keys.contains_key(key))
    });
    match (having.next(), having.next()) {
        (Some((section, _)), None) => wrong.belonging_to(section),
        _ => wrong.clone(),
    }
}
