//! Reads the configuration: the file, the environment over it, and the checks of the whole.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::environment;
use super::error::ConfigError;
use super::origins::KeyOrigins;
use super::positions::Positions;
use super::problem::Origins;
use super::validate;
use super::whole::Config;
use super::zone::LocalZone;

/// The file to read when none is named, if it exists.
pub const DEFAULT_FILE: &str = "config/model-pool.yaml";

impl Config {
    /// Reads `file`, or else `config/model-pool.yaml` if that exists, and applies the environment. Unknown keys
    /// and unknown `MODEL_POOL__` variables are refused.
    pub fn load(
        file: Option<&Path>,
        environment: &BTreeMap<String, String>,
    ) -> Result<Config, ConfigError> {
        let path = file.unwrap_or(Path::new(DEFAULT_FILE));
        let mut origins = Origins::default();
        let config = match std::fs::read_to_string(path) {
            Ok(text) => {
                origins.positions = Positions::of(&text);
                origins.file = Some(path.to_owned());
                Config::read(path, &text)?
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
        let (mut config, variables) = environment::overlay(config, environment)?;
        origins.variables = variables;
        let in_variables = config
            .telemetry
            .take_variables(environment, &mut origins.variables);
        let config = Config {
            file: origins.file.clone(),
            local_zone: LocalZone::of(environment),
            ..config
        };
        let config = Config {
            origins: KeyOrigins::of(&config.effective_json(), &origins),
            ..config
        };
        let mut problems = validate::problems(&config);
        problems.extend(in_variables);
        if problems.is_empty() {
            return Ok(config);
        }
        let placed = problems.into_iter().map(|it| origins.place(it));
        Err(ConfigError::Invalid {
            problems: placed.collect(),
        })
    }

    fn read(path: &Path, text: &str) -> Result<Config, ConfigError> {
        // A file with only comments sets nothing, and a YAML parser finds no mapping in it.
        let is_blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
        if text.lines().all(is_blank) {
            return Ok(Config::default());
        }
        reading::yaml_with_path(text).map_err(|flaw| ConfigError::Parse {
            path: path.to_owned(),
            flaw,
        })
    }

    /// Settings that work but have less effect than expected. For the log at start.
    pub fn notices(&self) -> Vec<String> {
        validate::notices(self)
    }
}
