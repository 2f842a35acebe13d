//! The output of `check`: warnings by file and line, errors, and each model with its command.

use std::collections::{BTreeMap, BTreeSet};

use catalog::Warning;

use super::model::ModelFindings;

/// A warning shared by at least this many files is printed once.
const ALIKE_MIN: usize = 4;

/// Prints results and counts failures.
#[derive(Debug, Default)]
pub(super) struct Report {
    errors: usize,
    /// Models that cannot be loaded.
    unloadable: usize,
}

impl Report {
    /// Reports a problem that makes `serve` refuse to start, or skip a model.
    pub fn error(&mut self, message: String) {
        self.errors += 1;
        eprintln!("error: {message}");
    }

    /// Prints warnings by file and line. A warning shared by many files takes one line; warnings repeated in a model's error are
    /// skipped.
    pub fn warnings(&self, warnings: Vec<Warning>, checked: &[ModelFindings]) {
        let fatal: BTreeSet<(&str, &str)> = checked
            .iter()
            .flat_map(|model| &model.problems)
            .filter_map(|problem| Some((problem.origin.as_str(), problem.key.as_deref()?)))
            .collect();
        let is_repeated = |warning: &Warning| {
            let key = warning.key.as_deref();
            key.is_some_and(|key| fatal.contains(&(warning.origin.as_str(), key)))
        };
        let mut all = warnings;
        all.retain(|warning| !is_repeated(warning));
        all.extend(checked.iter().flat_map(|model| model.warnings.clone()));
        let mut alike: BTreeMap<(&Option<String>, &str), Vec<&Warning>> = BTreeMap::new();
        for warning in &all {
            let same = alike.entry((&warning.key, &warning.message)).or_default();
            same.push(warning);
        }
        let (many, few): (Vec<_>, Vec<_>) = alike
            .into_values()
            .partition(|same| same.len() >= ALIKE_MIN);
        let mut few: Vec<&Warning> = few.into_iter().flatten().collect();
        few.sort_by_key(|warning| (&warning.origin, warning.line));
        for warning in few {
            println!("warning: {warning}");
        }
        for same in many {
            println!("warning: {} times, for example {}", same.len(), same[0]);
        }
    }

    /// Prints the results for a model, in several lines.
    pub fn model(&mut self, model: ModelFindings) {
        for line in model.lines {
            println!("model {}: {line}", model.name);
        }
        if model.problems.is_empty() {
            if let Some(line) = model.command {
                println!("model {}: would run: {line}", model.name);
            }
            return;
        }
        self.unloadable += 1;
        if let Some(line) = model.command {
            println!("model {}: its command line: {line}", model.name);
        }
        for problem in &model.problems {
            let (name, message) = (&model.name, &problem.message);
            println!(
                "model {name}: cannot be started: {message} ({})",
                problem.place()
            );
        }
    }

    /// Fails if there was any error.
    pub fn end(self) -> Result<(), String> {
        let models = match self.unloadable {
            0 => None,
            1 => Some("1 model cannot be started".to_owned()),
            count => Some(format!("{count} models cannot be started")),
        };
        let errors = match self.errors {
            0 => None,
            1 => Some("1 error".to_owned()),
            count => Some(format!("{count} errors")),
        };
        let parts: Vec<String> = errors.into_iter().chain(models).collect();
        if parts.is_empty() {
            Ok(())
        } else {
            Err(parts.join(", and "))
        }
    }
}
