//! `model-pool backup FILE` and `model-pool backup restore FILE`: copies the state, and restores it.

use std::path::Path;

use crate::cli::{BackupArgs, BackupCommand, RestoreArgs};
use crate::file_owner::check_owner;
use crate::serve::lock::StateLock;
use config::Config;
use store::{Backup, BackupContents, BackupError, StoreError};

pub fn run(args: &BackupArgs) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start the runtime: {error}"))?;
    match (&args.command, &args.file) {
        (Some(BackupCommand::Restore(args)), _) => runtime.block_on(restore(args)),
        (None, Some(file)) => runtime.block_on(back_up(args, file)),
        (None, None) => Err("name the file to write: model-pool backup FILE".to_owned()),
    }
}

async fn back_up(args: &BackupArgs, file: &Path) -> Result<(), String> {
    let config = args.config.load()?;
    let url = config.database_url().reveal();
    let backup = store::back_up(&url, file, args.force).await.map_err(line)?;
    println!(
        "wrote {}: {}, checked, readable by this account only",
        file.display(),
        size(&backup)
    );
    println!("in it: {}", contents_text(backup.contents));
    println!("not in it:");
    for what in not_in_it(&config) {
        println!("  {what}");
    }
    println!(
        "to restore it, stop the service: model-pool backup restore {}",
        file.display()
    );
    Ok(())
}

async fn restore(args: &RestoreArgs) -> Result<(), String> {
    let config = args.config.load()?;
    let folder = &config.state.dir;
    check_owner(folder, "model-pool backup restore FILE")?;
    let _lock = StateLock::take_for("restore", folder)?;
    let url = config.database_url().reveal();
    let key = std::fs::read_to_string(config.admin_key_file()).ok();
    let hash = key.as_deref().map(|text| store::hash_key(text.trim()));
    let restored = store::restore(&url, &args.file, hash)
        .await
        .map_err(|error| match error {
            BackupError::Store(StoreError::NotADatabase { path }) if path == args.file => format!(
                "{} is not a backup; name a file that `model-pool backup FILE` has written",
                path.display()
            ),
            error => line(error),
        })?;
    let database = restored.database.display();
    println!(
        "restored {database} from {}: {}, checked",
        args.file.display(),
        size(&restored.backup)
    );
    println!("in it: {}", contents_text(restored.backup.contents));
    if let Some(former) = &restored.former {
        println!(
            "the former database is {}; delete it when you no longer need it",
            former.display()
        );
    }
    let of_key = key_text(&config, key.is_some(), restored.knows_key);
    println!("{of_key}");
    println!("start the service now");
    Ok(())
}

/// Describes whether the key file works with the restored database.
fn key_text(config: &Config, has_file: bool, is_valid: bool) -> String {
    let file = config.admin_key_file();
    let new = "use an admin key that you have, or make one with `model-pool admin-key new`";
    match (has_file, is_valid) {
        (false, _) => format!("there is no key file {}: {new}", file.display()),
        (true, true) => format!("the key in {} is valid", file.display()),
        (true, false) => format!(
            "the key in {} is not valid in this state: {new}",
            file.display()
        ),
    }
}

fn size(backup: &Backup) -> String {
    format!("{} ({} bytes)", backup.bytes, backup.bytes.0)
}

fn contents_text(contents: BackupContents) -> String {
    let counted = |count: u64, one: &str, many: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    };
    [
        counted(contents.keys, "key", "keys"),
        counted(
            contents.overrides,
            "overridden priority or keep-hot time",
            "overridden priorities or keep-hot times",
        ),
        counted(contents.loads, "load that stays", "loads that stay"),
        counted(
            contents.registrations,
            "registered model",
            "registered models",
        ),
        counted(
            contents.history,
            "record of the history",
            "records of the history",
        ),
        counted(contents.responses, "stored response", "stored responses"),
    ]
    .join(", ")
}

/// Files needed in addition to the backup to serve on another machine.
fn not_in_it(config: &Config) -> Vec<String> {
    let shown = |path: &Path| match std::path::absolute(path) {
        Ok(path) => path.display().to_string(),
        Err(_) => path.display().to_string(),
    };
    let file = match &config.file {
        Some(file) => shown(file),
        None => "there is no file".to_owned(),
    };
    vec![
        format!("the configuration ({file})"),
        format!(
            "model files and the model reference ({}, {})",
            shown(&config.catalog.models_dir),
            shown(&config.catalog.model_reference)
        ),
        format!(
            "the key file ({}): the copy has hashes of keys only",
            shown(&config.admin_key_file())
        ),
        "weights, which are fetched again or copied by you".to_owned(),
        format!(
            "the engines' logs and whatever else is in {}",
            shown(&config.state.dir)
        ),
    ]
}

fn line(error: impl std::fmt::Display) -> String {
    error.to_string()
}
