//! The list of applications that the pool writes to Ray Serve. A write replaces the complete list, so applications of other
//! programs are written back, byte for byte as Ray showed them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::applications::{Application, Listing};
use super::shared_state::KeptApplications;

/// The pool's own applications, by name.
pub(super) type WantedApplications = BTreeMap<String, Box<RawValue>>;

#[derive(Serialize)]
struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    proxy_location: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    http_options: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grpc_options: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_capacity: Option<&'a RawValue>,
    applications: Vec<&'a RawValue>,
}

/// The facts that decide the owner of an application.
pub(super) struct Ownership<'a> {
    pub prefix: &'a str,
    /// The applications that this writer wants.
    pub wanted: &'a WantedApplications,
    /// The applications that all writers of this process keep. An application of another writer is not left over.
    pub kept: KeptApplications,
}

impl Ownership<'_> {
    /// Returns true for a former application that is not kept for the time being.
    pub fn is_left_over(&self, name: &str) -> bool {
        let all_but = self.kept.all_but.as_ref();
        let is_spared =
            self.kept.spared.contains(name) || all_but.is_some_and(|names| !names.contains(name));
        self.is_former(name) && !is_spared
    }

    /// Returns true if the application has a name of the pool's and no replica of this process.
    pub fn is_former(&self, name: &str) -> bool {
        let is_alive = self.wanted.contains_key(name) || self.kept.alive.contains(name);
        is_own(name, self.prefix) && !is_alive
    }
}

/// Returns true if the name is the prefix followed by a replica's number.
pub(super) fn is_own(name: &str, prefix: &str) -> bool {
    let number = name
        .strip_prefix(prefix)
        .filter(|number| !number.is_empty());
    number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The body of the write: Serve's own options and the applications of others, unchanged, followed by the wanted applications.
/// Leaves out applications that are left over from an earlier run.
///
/// # Errors
/// None in practice: all parts are JSON.
pub(super) fn body(listing: &Listing, own: &Ownership<'_>) -> Result<String, serde_json::Error> {
    let others = others(listing, own).map(|(_, config)| config);
    let wanted = own.wanted.values().map(|config| &**config);
    serde_json::to_string(&Body {
        proxy_location: listing.proxy_location.as_deref(),
        http_options: listing.http_options.as_deref(),
        grpc_options: listing.grpc_options.as_deref(),
        target_capacity: listing.target_capacity.as_deref(),
        applications: others.chain(wanted).collect(),
    })
}

/// The pool's own applications in that body.
pub(super) fn written(listing: &Listing, own: &Ownership<'_>) -> BTreeSet<String> {
    let others = others(listing, own).map(|(name, _)| name);
    let of_pool = others.filter(|name| is_own(name, own.prefix));
    own.wanted.keys().chain(of_pool).cloned().collect()
}

/// The applications that others have deployed over the REST API and that are not being removed, including other writers'
/// applications.
fn others<'a>(
    listing: &'a Listing,
    own: &'a Ownership<'_>,
) -> impl Iterator<Item = (&'a String, &'a RawValue)> {
    let is_others = move |name: &str| !own.wanted.contains_key(name) && !own.is_left_over(name);
    let others = listing
        .applications
        .iter()
        .filter(move |(name, application)| is_others(name) && !application.is_leaving());
    others
        .filter_map(|(name, application)| Some((name, application.deployed_app_config.as_deref()?)))
}

/// Returns true if the list has applications of the pool without a replica, including ones that are being removed or kept for the
/// time being.
pub(super) fn has_former(listing: &Listing, own: &Ownership<'_>) -> bool {
    listing.applications.keys().any(|name| own.is_former(name))
}

/// Returns true if two lists have the same options and the same configurations. Statuses may differ.
pub(super) fn is_same(one: &Listing, other: &Listing) -> bool {
    let text = |value: &Option<Box<RawValue>>| value.as_ref().map(|value| value.get().to_owned());
    let options = |listing: &Listing| {
        [
            text(&listing.proxy_location),
            text(&listing.http_options),
            text(&listing.target_capacity),
        ]
    };
    let config = |(name, application): (&String, &Application)| {
        let config = text(&application.deployed_app_config);
        (name.clone(), config, application.is_leaving())
    };
    let all = |listing: &Listing| listing.applications.iter().map(config).collect::<Vec<_>>();
    options(one) == options(other) && all(one) == all(other)
}

/// Returns true if all wanted applications are present and no application is left over.
pub(super) fn is_carried_out(listing: &Listing, own: &Ownership<'_>) -> bool {
    let is_there = |name: &String, config: &RawValue| {
        let found = listing.applications.get(name);
        let found = found.filter(|application| !application.is_leaving());
        let found = found.and_then(|application| application.deployed_app_config.as_ref());
        found.is_some_and(|found| variables(found) == variables(config))
    };
    let mut wanted = own.wanted.iter();
    let mut all = listing.applications.iter();
    wanted.all(|(name, config)| is_there(name, config))
        && all.all(|(name, application)| !own.is_left_over(name) || application.is_leaving())
}

/// The variables by which the pool recognizes its applications. Ray shows numbers in the rest of a configuration in another form.
fn variables(config: &RawValue) -> Option<Value> {
    let config: Value = serde_json::from_str(config.get()).ok()?;
    Some(config["runtime_env"]["env_vars"].clone())
}

#[cfg(test)]
mod tests;
