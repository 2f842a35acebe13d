//! Expands llama-swap's macros: `${name}`, which may be nested, and `${env.NAME}`. Limits the work of an expansion, because macros
//! can grow exponentially.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::fields::scalar;
use crate::notes::Problem;
use crate::secrets;

/// The port on which an engine listens; filled in when it starts.
pub const PORT: &str = "${PORT}";
/// A longer text is not a command line.
const EXPANDED_BYTES_MAX: usize = 64 << 10;
const EXPANSIONS_MAX: usize = 10_000;

/// The macros in scope.
#[derive(Clone, Debug, Default)]
pub struct Macros {
    values: BTreeMap<String, String>,
}

impl Macros {
    /// Adds macros to the scope; they override existing ones.
    pub fn with(&self, path: &str, section: &Map<String, Value>) -> Result<Macros, Problem> {
        let mut all = self.clone();
        for (name, value) in section {
            let key = format!("{path}.{name}");
            if matches!(name.as_str(), "PORT" | "MODEL_ID") {
                return Err(Problem::at(
                    key,
                    "is a name that llama-swap reserves; rename the macro",
                ));
            }
            let value = scalar(value).ok_or_else(|| {
                Problem::at(&key, "a text, a number, true or false is expected here")
            })?;
            all.values.insert(name.clone(), value);
        }
        Ok(all)
    }

    pub fn with_model(&self, id: &str) -> Macros {
        let mut all = self.clone();
        all.values.insert("MODEL_ID".to_owned(), id.to_owned());
        all
    }

    /// Checks that every macro terminates, wherever it is used.
    pub fn check(&self, path: &str) -> Result<(), Problem> {
        for name in self.values.keys() {
            let mut expansion = Expansion::new(self, None);
            let placeholder = format!("${{{name}}}");
            match expansion.expand(&placeholder) {
                Err(MacroError::Circle(circle)) => {
                    return Err(Problem::at(
                        format!("{path}.{name}"),
                        format!("the macros refer to themselves: {circle}"),
                    ));
                }
                Err(MacroError::TooLong) => {
                    return Err(Problem::at(format!("{path}.{name}"), too_long()));
                }
                // An unknown name may be defined by a model.
                _ => {}
            }
        }
        Ok(())
    }

    /// Expands everything except the port. Names of copied variables are added to `copied`.
    pub fn expand(
        &self,
        text: &str,
        environment: &BTreeMap<String, String>,
        copied: &mut Vec<String>,
    ) -> Result<String, String> {
        let mut expansion = Expansion::new(self, Some(environment));
        match expansion.expand(text) {
            Ok(()) => {
                copied.append(&mut expansion.copied);
                Ok(expansion.out)
            }
            Err(MacroError::Circle(circle)) => {
                Err(format!("the macros refer to themselves: {circle}"))
            }
            Err(MacroError::TooLong) => Err(too_long()),
            Err(MacroError::Other(problem)) => Err(problem),
        }
    }
}

fn too_long() -> String {
    format!(
        "is longer than {EXPANDED_BYTES_MAX} bytes, or has more than {EXPANSIONS_MAX} macros, once its macros are expanded"
    )
}

enum MacroError {
    /// The names in the cycle.
    Circle(String),
    TooLong,
    Other(String),
}

struct Expansion<'a> {
    macros: &'a Macros,
    /// `None`: variables are left unchanged.
    environment: Option<&'a BTreeMap<String, String>>,
    open: Vec<String>,
    count: usize,
    copied: Vec<String>,
    out: String,
}

impl<'a> Expansion<'a> {
    fn new(macros: &'a Macros, environment: Option<&'a BTreeMap<String, String>>) -> Expansion<'a> {
        Expansion {
            macros,
            environment,
            open: Vec::new(),
            count: 0,
            copied: Vec::new(),
            out: String::new(),
        }
    }

    fn expand(&mut self, text: &str) -> Result<(), MacroError> {
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            self.push(&rest[..start])?;
            let Some(end) = rest[start..].find('}') else {
                rest = &rest[start..];
                break;
            };
            let name = &rest[start + 2..start + end];
            self.one(name)?;
            rest = &rest[start + end + 1..];
        }
        self.push(rest)
    }

    fn one(&mut self, name: &str) -> Result<(), MacroError> {
        self.count += 1;
        if self.count > EXPANSIONS_MAX {
            return Err(MacroError::TooLong);
        }
        if name == "PORT" || name == "PID" {
            return self.push(&format!("${{{name}}}"));
        }
        if let Some(variable) = name.strip_prefix("env.") {
            return self.variable(variable);
        }
        if self.open.iter().any(|open| open == name) {
            let mut circle: Vec<&str> = self.open.iter().map(String::as_str).collect();
            circle.push(name);
            return Err(MacroError::Circle(circle.join(" → ")));
        }
        let macros = self.macros;
        let Some(value) = macros.values.get(name) else {
            let known = macros.values.keys().map(String::as_str);
            let hint = match reading::nearest(name, known) {
                Some(near) => format!("; did you mean ${{{near}}}?"),
                None => String::new(),
            };
            return Err(MacroError::Other(format!(
                "the macro ${{{name}}} does not exist{hint}"
            )));
        };
        self.open.push(name.to_owned());
        self.expand(value)?;
        self.open.pop();
        Ok(())
    }

    fn variable(&mut self, name: &str) -> Result<(), MacroError> {
        let Some(environment) = self.environment else {
            return Ok(());
        };
        if secrets::is_secret_name(name) {
            return Err(MacroError::Other(format!(
                "uses ${{env.{name}}}, which looks like a secret, and secrets are not copied into files; \
                 pass it in `env` as \"{name}=${{env.{name}}}\""
            )));
        }
        match environment.get(name) {
            Some(value) => {
                self.copied.push(name.to_owned());
                self.push(value)
            }
            None => Err(MacroError::Other(format!(
                "uses ${{env.{name}}}, and {name} is not set here; set it for this command: {name}=… model-pool import …"
            ))),
        }
    }

    fn push(&mut self, text: &str) -> Result<(), MacroError> {
        if self.out.len() + text.len() > EXPANDED_BYTES_MAX {
            return Err(MacroError::TooLong);
        }
        self.out.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn macros(section: Value) -> Result<Macros, Problem> {
        let macros = Macros::default().with("macros", section.as_object().expect("a mapping"))?;
        macros.check("macros")?;
        Ok(macros)
    }

    fn expand(section: Value, text: &str) -> Result<String, String> {
        let environment = BTreeMap::from([("HOME".to_owned(), "/home/a".to_owned())]);
        let macros = macros(section).map_err(|problem| problem.message)?;
        macros.expand(text, &environment, &mut Vec::new())
    }

    #[test]
    fn macros_may_contain_macros_variables_and_numbers() {
        let section =
            json!({"ctx": 4096, "args": "--ctx-size ${ctx}", "models": "${env.HOME}/models"});
        assert_eq!(
            expand(
                section,
                "x ${args} -m ${models}/a.gguf --port ${PORT} $5 ${open"
            )
            .as_deref(),
            Ok("x --ctx-size 4096 -m /home/a/models/a.gguf --port ${PORT} $5 ${open")
        );
    }

    #[test]
    fn a_macro_cycle_is_reported_with_its_path() {
        let problem = macros(json!({"b": "x ${c}", "c": "y ${b}", "d": 1})).expect_err("a circle");
        assert_eq!(problem.key, "macros.b");
        assert!(
            problem.message.ends_with("b → c → b"),
            "{}",
            problem.message
        );
        let problem = macros(json!({"own": "${own}"})).expect_err("a circle");
        assert!(
            problem.message.ends_with("own → own"),
            "{}",
            problem.message
        );
    }

    #[test]
    fn exponentially_growing_macros_are_refused_before_they_exhaust_memory() {
        let mut section = Map::new();
        section.insert("m0".to_owned(), json!(""));
        for nth in 1..60 {
            let before = nth - 1;
            section.insert(
                format!("m{nth}"),
                json!(format!("${{m{before}}}${{m{before}}}")),
            );
        }
        let problem = macros(Value::Object(section)).expect_err("too many");
        assert!(
            problem.message.contains("10000 macros"),
            "{}",
            problem.message
        );
    }

    #[test]
    fn an_unknown_macro_gets_a_suggestion_and_secrets_are_not_copied() {
        let section = || json!({"default_ctx": 1});
        let problem = expand(section(), "${defaut_ctx}").expect_err("unknown");
        assert!(
            problem.contains("did you mean ${default_ctx}?"),
            "{problem}"
        );
        let problem = expand(section(), "${env.API_KEY_1}").expect_err("a secret");
        assert!(problem.contains("secrets are not copied"), "{problem}");
        let problem = expand(section(), "${env.NOWHERE}").expect_err("not set");
        assert!(problem.contains("NOWHERE is not set here"), "{problem}");
    }
}
