//! Explains why a template cannot be rendered, with the names in it that have no value.

use std::collections::BTreeSet;

use minijinja::{Environment, Error, ErrorKind, Value};

/// The problem, such as ``it uses `prot`, which has no value``.
pub(crate) fn problem(error: &Error, template: &str, names: &Value) -> String {
    let unknown: Vec<String> = match error.kind() {
        ErrorKind::UndefinedError => without_value(template, names)
            .iter()
            .map(|name| format!("`{name}`"))
            .collect(),
        _ => Vec::new(),
    };
    match unknown.as_slice() {
        [] => (error.detail()).map_or_else(|| error.kind().to_string(), str::to_owned),
        [name] => format!("it uses {name}, which has no value"),
        all => format!("it uses {}, which have no value", all.join(", ")),
    }
}

fn without_value(template: &str, names: &Value) -> BTreeSet<String> {
    let environment = Environment::new();
    let Ok(parsed) = environment.template_from_str(template) else {
        return BTreeSet::new();
    };
    let has_value = |name: &String| {
        let value = names.get_attr(name);
        value.is_ok_and(|value| !value.is_undefined())
    };
    let used = parsed.undeclared_variables(false);
    used.into_iter().filter(|name| !has_value(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use minijinja::UndefinedBehavior;

    #[test]
    fn a_misspelled_template_name_is_reported() {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        let names = Value::from_pairs([("port", Value::from(8000))]);
        let problem_of = |template: &str| {
            let error = environment.render_str(template, &names).expect_err("wrong");
            problem(&error, template, &names)
        };
        assert_eq!(
            problem_of("--port={{ prot }}"),
            "it uses `prot`, which has no value"
        );
        assert_eq!(
            problem_of("{{ hots }}:{{ port }}:{{ prot }}"),
            "it uses `hots`, `prot`, which have no value"
        );
        assert!(!problem_of("{{ port").contains("has no value"));
    }
}
