//! Changes of virtual models by administrators: stored before they take effect (D1), and checked together with the configuration
//! and the catalogue.

use super::preview::{check_members, check_name};
use crate::state::App;
use crate::to_its_end::to_its_end;
use api_types::error::{ErrorKind, Failure};
use api_types::paths::without_folders;
use config::{VirtualModelSection, VirtualModelsSection, virtual_models};

/// Sets the virtual model of this name, which replaces that of the configuration. `None` removes what was set. Continues if the
/// client leaves, because a stored change must be in force.
///
/// # Errors
/// A virtual model that cannot be used, a name that was not set, or a store that cannot be written. Nothing changes.
pub async fn change(
    app: &App,
    name: &str,
    model: Option<VirtualModelSection>,
) -> Result<(), Failure> {
    let (app, name) = (app.clone(), name.to_owned());
    let work = async move { change_to_its_end(&app, &name, model).await };
    to_its_end("the change of a virtual model", work).await
}

async fn change_to_its_end(
    app: &App,
    name: &str,
    model: Option<VirtualModelSection>,
) -> Result<(), Failure> {
    let _turn = app.virtual_models.changes().lock().await;
    let config = app.config();
    let before = app.virtual_models.kept();
    let text = model.as_ref().map(serde_json::to_string).transpose();
    let text = text.map_err(|error| Failure::internal(format!("{name}: {error}")))?;
    let mut kept = before.clone();
    match model {
        Some(model) => {
            check_name(&app.handle, name)?;
            check(&config.virtual_models, &before, (name, &model))?;
            check_members(&app.handle, &model)?;
            kept.insert(name.to_owned(), model);
        }
        None if kept.remove(name).is_none() => {
            return Err(not_kept(name, config.virtual_models.contains_key(name)));
        }
        None => {}
    }
    let saved = app.handle.store().save_virtual_model(name, text.as_deref());
    saved.await.map_err(|fault| {
        tracing::error!(%fault, "the virtual models could not be changed");
        let message = without_folders(&format!(
            "the change could not be stored, so nothing was changed: {fault}"
        ));
        Failure::new(ErrorKind::Unavailable, "not_saved", message)
    })?;
    app.virtual_models.set_kept(kept);
    Ok(())
}

/// Refuses a virtual model that cannot be used, or that makes another one unusable.
fn check(
    configured: &VirtualModelsSection,
    before: &VirtualModelsSection,
    (name, model): (&str, &VirtualModelSection),
) -> Result<(), Failure> {
    let (mut all, _) = virtual_models::merged(configured, before);
    all.insert(name.to_owned(), model.clone());
    match virtual_models::problems(&all).first() {
        None => Ok(()),
        Some(problem) => Err(Failure::invalid(
            Some(problem.key.clone()),
            problem.to_string(),
        )),
    }
}

fn not_kept(name: &str, is_configured: bool) -> Failure {
    let shown: String = name.chars().take(64).collect();
    if is_configured {
        return Failure::conflict(
            "virtual_model_in_configuration",
            format!(
                "{shown} is a virtual model of the configuration file; remove virtual_models.{shown} there and reload, or set another one of this name"
            ),
        );
    }
    Failure::not_found(format!(
        "there is no virtual model {shown:?}; GET /admin/virtual_models lists them"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(text: &str) -> VirtualModelsSection {
        reading::yaml(text).expect("virtual models")
    }

    fn one(text: &str) -> VirtualModelSection {
        reading::yaml(text).expect("a virtual model")
    }

    #[test]
    fn a_change_may_replace_a_configured_virtual_model_but_not_break_another() {
        let configured = section("a: {any_of: [m]}\nb: {any_of: [m, n]}");
        let before = section("c: {any_of: [x]}");
        let check = |name: &str, text: &str| check(&configured, &before, (name, &one(text)));
        check("a", "split: {m: 1, n: 3}").unwrap();
        check("d", "fallback: [m, n]").unwrap();
        let error = check("d", "any_of: [c]").expect_err("nested").body.error;
        assert_eq!(error.param.as_deref(), Some("virtual_models.d.any_of[0]"));
        // The members x of c would become virtual.
        let error = check("x", "any_of: [m]").expect_err("nested").body.error;
        assert!(error.message.contains("virtual_models.c"), "{error:?}");
    }

    #[test]
    fn only_virtual_models_that_were_set_can_be_removed() {
        let failure = not_kept("a", true);
        assert_eq!(failure.kind, ErrorKind::Conflict);
        let failure = not_kept(&"x".repeat(1_000), false);
        assert_eq!(failure.kind, ErrorKind::NotFound);
        assert!(failure.body.error.message.len() < 200);
    }
}
