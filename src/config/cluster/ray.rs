//! The keys of `cluster.ray`: access to Ray's Jobs API, and the resources that each job requests.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::text::is_line;
use crate::problems::Problem;
use crate::values::Length;
use pool::Span;

const TIMEOUT: (Span, Span) = (Span::from_secs(1), Span::from_secs(600));
const GRACE: (Span, Span) = (Span::from_secs(1), Span::from_secs(3600));
const SETUP_BYTES_MAX: usize = 16 << 10;
const LIST_MAX: usize = 100;
const CPUS_MAX: u32 = 1024;
const AMOUNT_MAX: f64 = 1_000_000.0;

/// Settings for jobs in Ray.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RaySection {
    /// The address of Ray's dashboard, which provides the Jobs API, such as `http://ray-head:8265`.
    pub address: Option<String>,
    /// The local file with the token of a Ray that requires one; null: `RAY_AUTH_TOKEN`, or the file named by
    /// `RAY_AUTH_TOKEN_PATH`.
    pub token_file: Option<PathBuf>,
    /// CPUs in Ray that each node reserves, 0 to 1024.
    pub cpus: u32,
    /// Custom resources in Ray that each node reserves, such as `{"accelerator_type:H100": 0.001}`.
    pub resources: BTreeMap<String, f64>,
    /// Labels that a machine must have, such as `{pool: big}`. Requires a Ray version with label selectors for jobs.
    pub labels: BTreeMap<String, String>,
    /// Variables of the nodes' environment. Everyone with access to Ray's dashboard can read them: do not use them for secrets.
    pub env: BTreeMap<String, String>,
    /// Shell lines that run before the node starts.
    pub setup: String,
    /// Time for a node to drain when Ray stops its job, and before its time limit; 1s to 1h.
    pub grace: Length,
    /// Time limit of each call to Ray, 1s to 10m.
    pub timeout: Length,
}

impl Default for RaySection {
    fn default() -> RaySection {
        RaySection {
            address: None,
            token_file: None,
            cpus: 1,
            resources: BTreeMap::new(),
            labels: BTreeMap::new(),
            env: BTreeMap::new(),
            setup: String::new(),
            grace: Length::from_secs(120),
            timeout: Length::from_secs(30),
        }
    }
}

/// Normalises the address of Ray's dashboard: scheme and host in lower case, no default port, no trailing slash. All writes to one
/// Ray cluster go through the writer for this text.
///
/// # Errors
/// A one-line description of the problem, as a predicate that follows the key.
pub fn ray_address(text: &str) -> Result<String, String> {
    let example = "write the address of Ray's dashboard, such as http://ray-head:8265";
    let address = Url::parse(text).map_err(|error| format!("is not a URL ({error}); {example}"))?;
    if !matches!(address.scheme(), "https" | "http") || address.host_str().is_none() {
        return Err(format!("must begin with http:// or https://; {example}"));
    }
    if !address.username().is_empty() || address.password().is_some() {
        return Err(
            "contains a user or a password; set cluster.ray.token_file to a file with Ray's token"
                .to_owned(),
        );
    }
    if address.query().is_some() || address.fragment().is_some() {
        return Err(format!("contains `?` or `#`; {example}"));
    }
    Ok(address.as_str().trim_end_matches('/').to_owned())
}

/// The problem with an amount of a custom resource.
pub(super) fn resource_problem(name: &str, amount: f64) -> Option<String> {
    if !is_line(name) || matches!(name, "CPU" | "GPU" | "memory" | "object_store_memory") {
        return Some(format!(
            "has `{name}`, which is not a custom resource; GPUs are set with the shape's `gpus`, and CPUs are cluster.ray.cpus"
        ));
    }
    let is_amount = amount > 0.0 && amount <= AMOUNT_MAX;
    let is_count = amount <= 1.0 || amount.fract() == 0.0;
    (!is_amount || !is_count).then(|| {
        format!("has `{name}: {amount}`; allowed: more than 0, and only whole numbers above 1")
    })
}

/// The problem with a label. Ray checks other forms of values, such as `in(a, b)` and `!c`.
pub(super) fn label_problem(name: &str, value: &str) -> Option<String> {
    let is_wrong = !is_line(name) || name.contains(char::is_whitespace) || !is_line(value);
    is_wrong.then(|| {
        format!("has `{name}: {value}`; write a label that machines have, such as pool: big")
    })
}

pub(crate) fn problems(section: &RaySection) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut wrong = |key: &str, message: String| {
        problems.push(Problem::new(format!("cluster.ray.{key}"), message));
    };
    if let Some(Err(message)) = section.address.as_deref().map(ray_address) {
        wrong("address", message);
    }
    if let Some(file) = &section.token_file
        && !is_line(&file.to_string_lossy())
    {
        wrong(
            "token_file",
            "is empty, or has more than one line".to_owned(),
        );
    }
    if section.cpus > CPUS_MAX {
        wrong(
            "cpus",
            format!("is {}; allowed: 0 to {CPUS_MAX}", section.cpus),
        );
    }
    for (name, amount) in &section.resources {
        if let Some(message) = resource_problem(name, *amount) {
            wrong("resources", message);
        }
    }
    for (name, value) in &section.labels {
        if let Some(message) = label_problem(name, value) {
            wrong("labels", message);
        }
    }
    for name in section.env.keys() {
        let allowed = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        if name.is_empty() || !name.chars().all(allowed) || name.starts_with("RAY_") {
            let message = "write names of variables such as HF_HOME; names that begin with RAY_ are reserved for Ray";
            wrong("env", format!("has `{name}`; {message}"));
        }
    }
    for (key, count) in [
        ("resources", section.resources.len()),
        ("labels", section.labels.len()),
        ("env", section.env.len()),
    ] {
        if count > LIST_MAX {
            wrong(key, format!("lists {count}; allowed: {LIST_MAX}"));
        }
    }
    if section.setup.len() > SETUP_BYTES_MAX || section.setup.contains('\0') {
        let message =
            format!("is longer than {SETUP_BYTES_MAX} bytes; move the lines to a file and call it");
        wrong("setup", message);
    }
    for (key, length, (least, most), allowed) in [
        ("grace", section.grace, GRACE, "1s to 1h"),
        ("timeout", section.timeout, TIMEOUT, "1s to 10m"),
    ] {
        if !(least..=most).contains(&length.0) {
            wrong(key, format!("is {length}; allowed: {allowed}"));
        }
    }
    problems
}
