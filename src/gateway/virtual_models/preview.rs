//! The virtual models for administrators: the member that a request would get now, and problems with the catalogue.

use std::sync::Arc;

use super::request_facts::RequestFacts;
use super::selection::select;
use crate::auth::sight::Sight;
use crate::state::App;
use crate::virtual_table::table::{Rule, Table, VirtualModel};
use api_types::dto::{VirtualChoice, VirtualMember, VirtualModelList, VirtualModelView};
use api_types::error::{ErrorKind, Failure};
use config::VirtualModelsSection;
use controller::{Handle, Route};

/// The member that a request without images and tools would get now, from a caller who may use all models.
pub fn next(app: &App, model: &VirtualModel) -> Result<(Arc<Route>, VirtualChoice), Failure> {
    let (facts, sight) = (RequestFacts::default(), Sight::default());
    let selected = select(&app.handle, &sight, model, (&facts, 0), |_| false);
    let selected = selected.map_err(|error| {
        let hidden = || Failure::unknown_model(&model.name, &[]);
        error.failure(&model.name).unwrap_or_else(hidden)
    })?;
    let choice = VirtualChoice {
        name: model.name.to_string(),
        kind: model.kind(),
        member: selected.name(model).to_string(),
        reason: selected.reason.to_string(),
    };
    Ok((selected.route, choice))
}

/// The virtual model of this name with its next member. `None` if a model has the name, or none does.
pub fn named(app: &App, name: &str) -> Option<Result<(Arc<Route>, VirtualChoice), Failure>> {
    if app.handle.route(name).is_some() {
        return None;
    }
    let model = app.virtual_models.named(&app.config(), name)?;
    Some(next(app, &model))
}

/// All virtual models, by name.
pub fn list(app: &App) -> VirtualModelList {
    let table = app.virtual_models.table(&app.config());
    let kept = app.virtual_models.kept();
    let views = table.models.iter().map(|(name, model)| {
        let source = if kept.get(name) == table.section.get(name) {
            "api"
        } else {
            "configuration"
        };
        view(app, model, source)
    });
    VirtualModelList {
        virtual_models: views.collect(),
    }
}

/// One virtual model.
pub fn view(app: &App, model: &VirtualModel, source: &'static str) -> VirtualModelView {
    let snapshot = app.handle.snapshot();
    let members = model.members.iter().enumerate().map(|(nth, member)| {
        let route = app.handle.route(&member.name);
        let state = route.as_ref().and_then(|route| {
            let mut models = snapshot.pool.models.iter();
            models.find(|known| known.model == route.model)
        });
        VirtualMember {
            model: member.name.to_string(),
            state: state.map(|known| known.state.name().to_owned()),
            weight: match &model.rule {
                Rule::Split(weights) => Some(weights[nth]),
                Rule::AnyOf | Rule::Fallback { .. } | Rule::By(_) => None,
            },
        }
    });
    let section = app.virtual_models.table(&app.config());
    let section = section.section.get(&*model.name);
    VirtualModelView {
        name: model.name.to_string(),
        kind: model.kind(),
        members: members.collect(),
        rule: section.and_then(|section| serde_json::to_value(section).ok()),
        source,
        next: next(app, model).ok().map(|(_, choice)| choice),
        warnings: catalogue_warnings_of(&app.handle, &model.name, model),
    }
}

/// Warnings about virtual models of a configuration that do not fit the catalogue.
pub fn catalogue_warnings(section: &VirtualModelsSection, handle: &Handle) -> Vec<String> {
    let (table, _) = Table::new(section, &VirtualModelsSection::new());
    let models = table.models.iter();
    let warnings = models.flat_map(|(name, model)| catalogue_warnings_of(handle, name, model));
    warnings.collect()
}

fn catalogue_warnings_of(handle: &Handle, name: &str, model: &VirtualModel) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(route) = handle.route(name) {
        warnings.push(format!(
            "virtual_models.{name} has no effect: the model {} has this name; rename one of them",
            route.entry.name
        ));
    }
    let members = model.members.iter();
    let missing = members.filter(|member| handle.route(&member.name).is_none());
    warnings.extend(missing.map(|member| {
        let closest = handle.closest(&member.name);
        let hint = match closest.first() {
            Some(closest) => format!("; the closest is {closest}"),
            None => String::new(),
        };
        format!(
            "virtual_models.{name} names {}, and no such model is served{hint}; requests go to its other members",
            member.name
        )
    }));
    warnings
}

/// The warning about a model that takes the name of a virtual model.
pub fn hidden_by(app: &App, model: &str) -> Option<String> {
    app.virtual_models.named(&app.config(), model)?;
    Some(format!(
        "the virtual model {model} has no effect while a model has this name; rename one of them"
    ))
}

/// Refuses the name of a model for a virtual model.
pub(crate) fn check_name(handle: &Handle, name: &str) -> Result<(), Failure> {
    let Some(route) = handle.route(name) else {
        return Ok(());
    };
    let message = format!(
        "the model {} has the name {name}; choose another name for the virtual model",
        route.entry.name
    );
    Err(Failure::conflict("name_taken", message))
}

/// Refuses members that are not in the catalogue.
pub(crate) fn check_members(
    handle: &Handle,
    model: &config::VirtualModelSection,
) -> Result<(), Failure> {
    for (key, member) in model.members() {
        if handle.route(member).is_none() {
            let hint = match handle.closest(member).as_slice() {
                [] => "GET /admin/models lists all models".to_owned(),
                names => format!("the closest: {}", names.join(", ")),
            };
            let message = format!("{key}: no model is called `{member}`; {hint}");
            return Err(Failure::invalid(key, message));
        }
    }
    Ok(())
}

/// The error for an administrator who uses the name of a virtual model where a model is needed.
pub(crate) fn needs_model(model: &VirtualModel) -> Failure {
    let names: Vec<&str> = model.members.iter().map(|member| &*member.name).collect();
    let message = format!(
        "{} is a virtual model; name one of its members: {}",
        model.name,
        names.join(", ")
    );
    Failure::new(ErrorKind::NotFound, "model_not_found", message)
}
