//! `model-pool check`: reads configuration, catalogue, reference and the headers of weights as `serve` and a load do, and prints
//! problems, the way models would run, and the keys that differ from the built-in defaults. Starts nothing and writes nothing.

mod cluster_state;
mod command;
mod devices;
mod findings;
mod kubernetes;
mod model;
mod pbs;
mod ray;
mod report;
mod slurm;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::cli::CheckArgs;
use crate::cuda;
use crate::serve::evening;
use catalog::{Catalog, Warning};
use config::Config;
use engine::CudaProgram;
use pool::Priority;

use devices::Devices;
use report::Report;

/// Fails if the service would not start, or if a model could not be loaded.
pub fn run(args: &CheckArgs) -> Result<(), String> {
    let environment: BTreeMap<String, String> = std::env::vars().collect();
    let file = args.config.config.as_deref();
    let config = Config::load(file, &environment).map_err(|error| error.to_string())?;
    if args.slurm {
        return slurm::run(&config);
    }
    if args.pbs {
        return pbs::run(&config);
    }
    if args.kubernetes {
        return kubernetes::run(&config);
    }
    if let Some(address) = &args.ray {
        return ray::run(&config, address);
    }
    let mut report = Report::default();
    let is_whole = args.models.is_empty();
    if is_whole {
        let file = config.file.as_ref().map(|file| file.display().to_string());
        let file = file.unwrap_or_else(|| "no file, so the built-in settings".to_owned());
        let changed = config.changed_json();
        println!("configuration: {file}, with {changed}; --show-config prints every key in force");
        for notice in config.notices() {
            println!("notice: {notice}");
        }
        println!("{}", evening::outlook(&config));
        for (nth, line) in config::groups::tree(&config.groups).iter().enumerate() {
            let label = if nth == 0 { "groups:" } else { "       " };
            println!("{label} {line}");
        }
        check_service(&config, &mut report);
    } else if let Some(path) = args.models.iter().find(|path| !path.exists()) {
        return Err(format!("{} does not exist", path.display()));
    }
    let devices = Devices::open(&config);
    match &devices {
        Ok(devices) => {
            println!("devices: {}", devices.describe());
            if let Some(notice) = &devices.notice {
                println!("notice: {notice}");
            }
        }
        Err(error) => report.error(format!("inventory: {error}")),
    }
    if is_whole {
        for text in cluster_state::notices(&config) {
            println!("notice: {text}");
        }
    }
    let folder = [config.catalog.models_dir.clone()];
    let paths: &[PathBuf] = if is_whole { &folder } else { &args.models };
    let read = Catalog::load_from(paths, &config);
    let (catalog, mut warnings, errors) = read.map_err(|error| error.to_string())?;
    if is_whole {
        warnings.extend(unused_targets(&config, &catalog));
        warnings.extend(virtual_models_of(&config, &catalog));
    }
    for error in errors.iter().map(ToString::to_string) {
        error.lines().for_each(|line| report.error(line.to_owned()));
    }
    if is_whole && catalog.entries().is_empty() && errors.is_empty() {
        println!(
            "notice: there is no model yet; put a model file into {} (docs/guides/models.md, docs/examples), or register one with `admin-client register`",
            config.catalog.models_dir.display()
        );
    }
    let cuda_program = find_cuda(&config)?;
    let is_needed = catalog.entries().values().any(cuda::is_needed);
    if is_needed || !matches!(cuda_program, CudaProgram::Absent { .. }) {
        println!("embedded engine on GPUs: {cuda_program}");
    }
    let checked: Vec<_> = catalog
        .entries()
        .values()
        .map(|entry| model::check(entry, devices.as_ref().ok(), &cuda_program, &config))
        .collect();
    report.warnings(warnings, &checked);
    for model in checked {
        report.model(model);
    }
    if args.show_config {
        let effective = serde_json::to_string_pretty(&config.effective_json())
            .map_err(|error| error.to_string())?;
        println!("keys in force: {effective}");
    }
    report.end()
}

fn find_cuda(config: &Config) -> Result<CudaProgram, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start the runtime: {error}"))?;
    runtime.block_on(cuda::find(config))
}

/// Targets of priorities that no model has.
fn unused_targets(config: &Config, catalog: &Catalog) -> Vec<Warning> {
    let entries = catalog.entries().values();
    let used: BTreeSet<Priority> = entries.map(|entry| entry.priority).collect();
    let targets = config.pool.targets().into_keys();
    let unused = targets.filter(|priority| !used.contains(priority));
    let warning = |priority: Priority| Warning {
        origin: config.file.as_ref().map_or_else(
            || "configuration".to_owned(),
            |file| file.display().to_string(),
        ),
        line: None,
        key: Some(format!("pool.targets.{priority}")),
        message: format!(
            "no model has priority {priority}, so the target has no effect until an administrator sets that priority"
        ),
    };
    unused.map(warning).collect()
}

/// Virtual models whose members have no file, or whose name a model has. Registered models are not read here.
fn virtual_models_of(config: &Config, catalog: &Catalog) -> Vec<Warning> {
    let warning = |key: String, message: String| Warning {
        origin: config.file.as_ref().map_or_else(
            || "configuration".to_owned(),
            |file| file.display().to_string(),
        ),
        line: None,
        key: Some(key),
        message,
    };
    let mut warnings = Vec::new();
    for (name, model) in &config.virtual_models {
        if let Some(entry) = catalog.get(name) {
            let message = format!(
                "the model {} has this name, so the virtual model has no effect; rename one of them",
                entry.name
            );
            warnings.push(warning(format!("virtual_models.{name}"), message));
        }
        for (key, member) in model.members() {
            if catalog.get(member).is_none() {
                let message = format!(
                    "no model file describes `{member}`, so it serves no request unless it is registered; correct the name, or add its file"
                );
                warnings.push(warning(format!("virtual_models.{name}.{key}"), message));
            }
        }
    }
    warnings
}

/// Checks the parts that `serve` needs in addition to models.
fn check_service(config: &Config, report: &mut Report) {
    if let Some(tls) = &config.server.tls
        && let Err(error) = http::check_tls(tls)
    {
        report.error(format!(
            "{error}; write a certificate and its key in PEM, or remove server.tls"
        ));
    }
    let dir = &config.state.dir;
    if dir.exists() && !dir.is_dir() {
        report.error(format!(
            "state.dir {} is a file; name a folder",
            dir.display()
        ));
    }
    if let Some(problem) = engine::socket_path_problem(&dir.join("run")) {
        report.error(format!("state.dir: {problem}"));
    }
    let bucket = config.batch.bucket.as_ref();
    if let Some(error) = bucket.and_then(|folder| source::bucket_not_built(&folder.0)) {
        report.error(format!("batch.bucket: {error}"));
    }
}
