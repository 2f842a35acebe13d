//! `model-pool admin-key new`: creates an admin key for an account that may write to the data folder, also while the service runs.

use std::path::Path;

use chrono::Utc;

use crate::cli::{AdminKeyCommand, NewAdminKeyArgs};
use crate::file_owner::check_owner;
use crate::serve::lock::StateLock;
use config::Config;
use pool::{KeyId, Time};
use private_files::{NotPublished, PrivateFile};
use store::{KeyHash, KeyUse, NEW_ADMIN_KEY, NewKey, RevokedKey, Role, Store, StoreError};

const COMMAND: &str = "model-pool admin-key new";

pub fn run(command: &AdminKeyCommand) -> Result<(), String> {
    let AdminKeyCommand::New(args) = command;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start the runtime: {error}"))?;
    runtime.block_on(new(args))
}

async fn new(args: &NewAdminKeyArgs) -> Result<(), String> {
    let config = args.config.load()?;
    let folder = &config.state.dir;
    check_owner(folder, COMMAND)?;
    let file = config.admin_key_file();
    let text = store::generate_key().map_err(line)?;
    // The file comes first: a stored key that cannot be read would be useless. The file gets its name at the end, which keeps the
    // former key readable if the store fails.
    let line_of_key = format!("{}\n", text.reveal());
    let written = PrivateFile::write(&file, line_of_key.as_bytes()).map_err(|error| {
        format!(
            "cannot write the key file {}: {error}; make its folder writable for this account, or set auth.admin_key_file",
            file.display()
        )
    })?;
    let former: Vec<KeyHash> = key_in(&file).into_iter().collect();
    let key = NewKey {
        name: NEW_ADMIN_KEY.to_owned(),
        role: Role::Admin,
        allowed: KeyUse::default(),
        prefix: text.prefix(),
        hash: store::hash_key(text.reveal()),
        created: Time(u64::try_from(Utc::now().timestamp_millis()).unwrap_or(0)),
        expires: None,
    };
    let (store, holder) = open(&config).await?;
    let former = (!args.keep_old).then_some(&former[..]);
    let client = client();
    let replaced = store.replace_generated_keys(key, former, &client);
    let (id, revoked) = replaced.await.map_err(line)?;
    store.close().await;
    let published = written.publish();
    published.map_err(|problem| unpublished_line(id, &file, problem))?;
    eprintln!("{id} ({NEW_ADMIN_KEY}) is in {}, mode 0600", file.display());
    eprintln!("{}", revoked_keys_line(&revoked, args.keep_old));
    eprintln!(
        "{}",
        match holder {
            Some(holder) => format!("the running service ({holder}) follows within 2 seconds"),
            None => "no service is running here; the next start will use the key".to_owned(),
        }
    );
    if args.print {
        println!("{}", text.reveal());
    }
    Ok(())
}

/// Opens the store. Also returns the process of the service that uses it, if there is one.
async fn open(config: &Config) -> Result<(Store, Option<String>), String> {
    let url = config.database_url().reveal();
    if let Some(holder) = StateLock::holder(&config.state.dir) {
        let store = Store::open_beside(&url).await.map_err(line)?;
        return Ok((store, Some(holder)));
    }
    match Store::open(&url).await {
        Ok(store) => Ok((store, None)),
        Err(StoreError::InUse { .. } | StoreError::DatabaseInUse { .. }) => {
            // A service with another data folder uses the same database.
            let store = Store::open_beside(&url).await.map_err(line)?;
            Ok((store, None))
        }
        Err(error) => Err(line(error)),
    }
}

/// The hash of the key that the file holds so far.
fn key_in(file: &Path) -> Option<KeyHash> {
    let text = std::fs::read_to_string(file).ok()?;
    Some(store::hash_key(text.trim()))
}

fn unpublished_line(id: KeyId, file: &Path, problem: NotPublished) -> String {
    let file = file.display();
    match problem {
        NotPublished::Name { path, error } => format!(
            "the key {id} is stored and valid, but its file cannot be renamed to {file}: {error}; it is in {}: move it there yourself",
            path.display()
        ),
        NotPublished::Durability { error } => format!(
            "the key {id} is stored, valid and in {file}, but its folder cannot be synced to the disk: {error}; keep a copy of the file, which may be gone after a power failure"
        ),
    }
}

fn revoked_keys_line(revoked: &[RevokedKey], keep_old: bool) -> String {
    let names: Vec<String> = revoked
        .iter()
        .map(|key| format!("{} ({})", key.id, key.name))
        .collect();
    match (names.is_empty(), keep_old) {
        (_, true) => "all other keys stay valid".to_owned(),
        (true, false) => {
            "there was no generated key to revoke; all other keys stay valid".to_owned()
        }
        (false, false) => format!(
            "revoked: {}; keys that people created stay valid",
            names.join(", ")
        ),
    }
}

/// The caller, for the audit log.
fn client() -> String {
    let uid = rustix::process::getuid().as_raw();
    match std::env::var("USER") {
        Ok(name) if !name.is_empty() => format!("this machine, account {name} ({uid})"),
        _ => format!("this machine, account {uid}"),
    }
}

fn line(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_about_an_unpublished_key_names_the_file_that_holds_it() {
        let file = Path::new("data/admin.key");
        let error = || std::io::Error::other("no response");
        let path = Path::new("data/admin.key.new").to_owned();
        let unnamed = NotPublished::Name {
            path,
            error: error(),
        };
        let line = unpublished_line(KeyId(7), file, unnamed);
        assert!(line.contains("it is in data/admin.key.new"), "{line}");
        let named = NotPublished::Durability { error: error() };
        let line = unpublished_line(KeyId(7), file, named);
        assert!(line.contains("valid and in data/admin.key,"), "{line}");
        assert!(!line.contains(".new"), "{line}");
    }
}
