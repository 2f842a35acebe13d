//! The list of applications that is written to Ray Serve. A write replaces everything, so that what others have deployed
//! is written back, byte for byte as Ray showed it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::applications::{Application, Listing};
use super::shared::Kept;

/// The pool's own applications, by their names.
pub(super) type Wanted = BTreeMap<String, Box<RawValue>>;

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

/// What tells whose an application is.
pub(super) struct Own<'a> {
    pub prefix: &'a str,
    /// Those of this writer.
    pub wanted: &'a Wanted,
    /// By all writers of this process: what another one wants is not left over here.
    pub kept: Kept,
}

impl Own<'_> {
    /// It has a name of the pool's, no replica of this process is it, and nothing keeps it for now.
    pub fn is_left_over(&self, name: &str) -> bool {
        let all_but = self.kept.all_but.as_ref();
        let is_spared =
            self.kept.spared.contains(name) || all_but.is_some_and(|it| !it.contains(name));
        self.is_former(name) && !is_spared
    }

    /// It has a name of the pool's, and no replica of this process is it.
    pub fn is_former(&self, name: &str) -> bool {
        let is_alive = self.wanted.contains_key(name) || self.kept.alive.contains(name);
        is_own(name, self.prefix) && !is_alive
    }
}

/// Whether the name is one of the pool's own: the prefix, and the number of a replica.
pub(super) fn is_own(name: &str, prefix: &str) -> bool {
    let number = name.strip_prefix(prefix).filter(|it| !it.is_empty());
    number.is_some_and(|it| it.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The body of the write: Serve's own options and the applications of others as they are, and those that are wanted. What
/// is left over from an earlier run is not in it.
///
/// # Errors
/// None in practice: all parts are JSON.
pub(super) fn body(listing: &Listing, own: &Own<'_>) -> Result<String, serde_json::Error> {
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
pub(super) fn written(listing: &Listing, own: &Own<'_>) -> BTreeSet<String> {
    let others = others(listing, own).map(|(name, _)| name);
    let of_pool = others.filter(|name| is_own(name, own.prefix));
    own.wanted.keys().chain(of_pool).cloned().collect()
}

/// What others have deployed over the REST API and have not taken away. Another writer of this process is one of them.
fn others<'a>(
    listing: &'a Listing,
    own: &'a Own<'_>,
) -> impl Iterator<Item = (&'a String, &'a RawValue)> {
    let is_others = move |name: &str| !own.wanted.contains_key(name) && !own.is_left_over(name);
    let others = listing
        .applications
        .iter()
        .filter(move |(name, it)| is_others(name) && !it.is_leaving());
    others.filter_map(|(name, it)| Some((name, it.deployed_app_config.as_deref()?)))
}

/// Whether applications of the pool are there that no replica owns, also such as are being removed, or stay for now.
pub(super) fn has_former(listing: &Listing, own: &Own<'_>) -> bool {
    listing.applications.keys().any(|it| own.is_former(it))
}

/// Whether two looks show the same: the options of Serve, and who has deployed what. Statuses may differ.
pub(super) fn is_same(one: &Listing, other: &Listing) -> bool {
    let text = |it: &Option<Box<RawValue>>| it.as_ref().map(|it| it.get().to_owned());
    let options = |it: &Listing| {
        [
            text(&it.proxy_location),
            text(&it.http_options),
            text(&it.target_capacity),
        ]
    };
    let config = |(name, it): (&String, &Application)| {
        let config = text(&it.deployed_app_config);
        (name.clone(), config, it.is_leaving())
    };
    let all = |it: &Listing| it.applications.iter().map(config).collect::<Vec<_>>();
    options(one) == options(other) && all(one) == all(other)
}

/// Whether the pool's applications are there as they are wanted, and none is left over.
pub(super) fn is_carried_out(listing: &Listing, own: &Own<'_>) -> bool {
    let is_there = |name: &String, config: &RawValue| {
        let found = listing.applications.get(name);
        let found = found.filter(|it| !it.is_leaving());
        let found = found.and_then(|it| it.deployed_app_config.as_ref());
        found.is_some_and(|it| variables(it) == variables(config))
    };
    let mut wanted = own.wanted.iter();
    let mut all = listing.applications.iter();
    wanted.all(|(name, config)| is_there(name, config))
        && all.all(|(name, it)| !own.is_left_over(name) || it.is_leaving())
}

/// What the pool knows its applications by. The rest of a configuration Ray shows with numbers of another form.
fn variables(config: &RawValue) -> Option<Value> {
    let config: Value = serde_json::from_str(config.get()).ok()?;
    Some(config["runtime_env"]["env_vars"].clone())
}

#[cfg(test)]
mod tests;
