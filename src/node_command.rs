//! `model-pool node`: reads the command line and the configuration, and starts the node.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use config::{Config, Provider};
use engine::Fingerprint;
use inventory::Inventory;
use node::{Node, NodeEnd, Settings, Target, WeightsSettings};
use node_link::check_node_name;

use crate::cli::NodeArgs;
use crate::serve::takeover::{self, InheritedSocket, Role, Successor, TakeoverSocket};
use crate::serve::{lock::StateLock, log, notify};
use crate::stop_signal::StopSignals;
use crate::{cuda, devices, fetch_settings, job_gpus};

/// Time limit for a process that takes over to reach the controller, before it reports that it serves.
const JOINS_WITHIN: Duration = Duration::from_secs(15);
/// Generous: a token has 46 characters.
const TOKEN_BYTES_MAX: u64 = 4096;

/// Runs until the node ends.
///
/// # Errors
/// One line for the user.
pub fn run(args: &NodeArgs) -> Result<(), String> {
    let environment: BTreeMap<String, String> = std::env::vars().collect();
    let file = args.config.config.as_deref();
    let config = Config::load(file, &environment).map_err(|error| error.to_string())?;
    if let Some(file) = &args.ca_file {
        engine::trust_authorities(file)?;
    }
    let controllers = targets(&args.controller, &args.fingerprint)?;
    let name = args.name.clone().unwrap_or_else(host_name);
    check_node_name(&name).map_err(|error| format!("--name: {error}"))?;
    let token = read_token(&args.token_file)?;
    let data = args
        .data
        .clone()
        .unwrap_or_else(|| config.state.dir.join("node"));
    let data =
        std::path::absolute(&data).map_err(|error| format!("{}: {error}", data.display()))?;
    let _level = log::start(&config);
    for controller in &controllers {
        if !controller.is_plain() || controller.is_loopback() {
            continue;
        }
        tracing::warn!(
            "{controller} is plain HTTP: the token, and the secrets in models' environments, can be read on the network between; server.tls encrypts it"
        );
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start the runtime: {error}"))?;
    let may_remove = args.remove_data && is_for_node(&data);
    let mut held = None;
    let ended = runtime.block_on(async {
        if !args.takeover {
            held = Some(StateLock::take(&data, false).await?);
        }
        let mut settings = devices::settings(&config);
        let reads_gpus = matches!(settings.provider, Provider::Auto | Provider::Nvml);
        let is_limited = settings
            .environment
            .contains_key(inventory::VISIBLE_DEVICES);
        if !is_limited && reads_gpus && settings.choices.is_empty() {
            let of_job = job_gpus::visible(&environment)?;
            let named = of_job.map(|gpus| (inventory::VISIBLE_DEVICES.to_owned(), gpus));
            settings.environment.extend(named);
        }
        let inventory = tokio::task::spawn_blocking(move || Inventory::open(&settings))
            .await
            .map_err(|error| format!("looking for devices panicked: {error}"))?
            .map_err(|error| error.to_string())?;
        let cuda_program = cuda::find(&config).await?;
        cuda::log_found(&cuda_program);
        let settings = Settings {
            controllers,
            name,
            token,
            listen: args.listen.or(config.node.listen.map(|listen| listen.0)),
            plain: config.node.plain,
            data: data.clone(),
            executable: std::env::current_exe()
                .map_err(|error| format!("cannot find the program's own binary: {error}"))?,
            cuda: cuda_program,
            inventory: Arc::new(inventory),
            weights: WeightsSettings {
                sources: fetch_settings::settings(&config),
                cache: catalog::cache_dir(&config),
                peers_at_once: config.node.peers_at_once,
                copy_shared: config.node.copy_shared,
            },
            orphan_after: Duration::from_millis(config.node.orphan_after.0.0),
            demand: args.demand,
            version: env!("CARGO_PKG_VERSION"),
        };
        live(Arc::new(settings), args.takeover, &mut held).await
    });
    // Does not wait for tasks that hang in a system call.
    runtime.shutdown_timeout(Duration::from_secs(1));
    // Only a node that holds the folder's lock may remove it.
    if may_remove
        && held.is_some()
        && let Err(error) = std::fs::remove_dir_all(&data)
    {
        tracing::warn!("{} cannot be removed: {error}", data.display());
    } else if args.remove_data && !may_remove {
        tracing::warn!(
            "{} stays: it held other files before this node; name a new folder in --data",
            data.display()
        );
    }
    ended
}

/// Runs the node. Continues it if a takeover fails. `held` is the lock of the data folder, or `None` after a takeover.
async fn live(
    settings: Arc<Settings>,
    is_takeover: bool,
    held: &mut Option<StateLock>,
) -> Result<(), String> {
    let runtime_dir = settings.runtime_dir();
    let mut inherited = None;
    if is_takeover {
        if StateLock::holder(&settings.data).is_some() {
            node::check_takeover(&settings)?;
        }
        inherited = takeover::ask(&runtime_dir, Role::Node).await?;
        if inherited.is_none() {
            tracing::info!("found no node to take over from; starting normally");
        }
        *held = Some(StateLock::take(&settings.data, inherited.is_some()).await?);
    }
    let line = |error: std::io::Error| error.to_string();
    let mut listening = inherited.as_ref().map(InheritedSocket::descriptor);
    // Requests that began before a failed takeover pass through these.
    let mut earlier: Vec<Node> = Vec::new();
    let signals = StopSignals::new().map_err(line)?;
    loop {
        let socket = listening.take().transpose().map_err(line)?;
        let exchange = private_files::make_private(&runtime_dir)
            .and_then(|()| TakeoverSocket::open(&runtime_dir, Role::Node))
            .map_err(|error| {
                format!(
                    "cannot open the socket for takeovers in {}: {error}",
                    runtime_dir.display()
                )
            })?;
        // From here on, an error would end the adopted engines.
        let (node, own) = Node::open(Arc::clone(&settings), socket, is_takeover).await?;
        notify::ready();
        let successor = async {
            let successor = exchange.successor(&own).await;
            (successor, exchange)
        };
        let lock = &mut *held;
        let free = move |(successor, exchange): (Successor, TakeoverSocket)| async move {
            tracing::info!(
                "process {} takes over; requests that have begun continue here",
                successor.pid
            );
            drop((exchange, lock.take()));
            let pid = successor.pid;
            let served = successor.free().await;
            served.map_err(|_| format!("process {pid} took over and ended before it served"))
        };
        let announced = async {
            if let Some(old) = inherited.take() {
                let _ = tokio::time::timeout(JOINS_WITHIN, node.has_joined()).await;
                old.serving();
            }
        };
        let ended = {
            let mut living = std::pin::pin!(node.live(|| signals.next(), successor, free));
            tokio::select! {
                ended = &mut living => ended,
                () = announced => living.await,
            }
        };
        let outcome = match ended? {
            NodeEnd::Ended => return Ok(()),
            NodeEnd::Replaced => Ok(()),
            NodeEnd::NotReplaced(why) => match StateLock::take(&settings.data, true).await {
                Ok(lock) => {
                    tracing::warn!("{why}; this node continues");
                    *held = Some(lock);
                    listening = Some(Ok(own));
                    earlier.push(node);
                    continue;
                }
                Err(problem) => {
                    tracing::warn!("{why}; this process ends after its last request");
                    Err(problem)
                }
            },
        };
        drop(own);
        earlier.push(node);
        // Closes every listener before it waits for requests.
        let finishing: Vec<_> = earlier.into_iter().map(Node::finish).collect();
        let finished = async {
            for requests in finishing {
                requests.await;
            }
        };
        tokio::select! {
            () = finished => {}
            () = signals.next() => tracing::warn!("ending immediately"),
        }
        return outcome;
    }
}

/// Returns true if the folder is absent or empty, or belonged to a node before. Nothing else is removed with its content.
fn is_for_node(data: &Path) -> bool {
    let is_free = match std::fs::read_dir(data) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    };
    is_free || data.join("lock").is_file()
}

/// The controllers, with the fingerprints of their certificates: one for all of them, or one for each.
fn targets(controllers: &[String], fingerprints: &[String]) -> Result<Vec<Target>, String> {
    let read = fingerprints.iter().map(|text| text.parse::<Fingerprint>());
    let read: Vec<Fingerprint> = read
        .collect::<Result<_, _>>()
        .map_err(|error| format!("--fingerprint: {error}"))?;
    if read.len() > 1 && read.len() != controllers.len() {
        return Err(format!(
            "there are {} --fingerprint and {} --controller; give one fingerprint for all of them, or one for each, in the same order",
            read.len(),
            controllers.len()
        ));
    }
    let all = controllers.iter().enumerate();
    all.map(|(nth, address)| {
        let own = read.get(nth).or(read.first().filter(|_| read.len() == 1));
        Target::parse(address, own.copied())
    })
    .collect()
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// Returns true if other accounts can read a file with this mode and owner. Kubernetes gives a Secret to a pod as files of root's
/// that the pod's own group can read: this account could not get them otherwise, nor change their mode.
fn is_for_others(mode: u32, owner: u32, account: u32) -> bool {
    let of_root = owner == 0 && account != 0 && mode & 0o020 == 0;
    let others = if of_root { 0o007 } else { 0o077 };
    mode & others != 0
}

/// Reads the token. The file must be readable only by this account: anyone who reads it may join machines.
fn read_token(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let how = "make one on the controller with `admin-client nodes token`";
    let failed = |error: std::io::Error| format!("--token-file {shown}: {error}; {how}");
    let data = std::fs::metadata(path).map_err(failed)?;
    if is_for_others(data.mode(), data.uid(), rustix::process::geteuid().as_raw()) {
        return Err(format!(
            "--token-file {shown} can be read by others (mode {:04o}): run `chmod 600 {shown}`",
            data.mode() & 0o7777
        ));
    }
    if data.len() > TOKEN_BYTES_MAX {
        return Err(format!(
            "--token-file {shown} is too long for a token; {how}"
        ));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    match text.trim() {
        "" => Err(format!("--token-file {shown} is empty; {how}")),
        token => Ok(token.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    fn file(text: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        std::fs::write(&path, text).expect("written");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("set");
        (folder, path)
    }

    #[test]
    fn several_controllers_share_one_fingerprint_or_have_one_each() {
        let words =
            |all: &[&str]| -> Vec<String> { all.iter().map(|word| (*word).to_owned()).collect() };
        let [one, two] = ["1", "2"].map(|digit| format!("sha256:{}", digit.repeat(64)));
        let both = words(&["https://a", "https://b"]);
        for fingerprints in [vec![], vec![one.clone()], vec![one.clone(), two.clone()]] {
            let targets = targets(&both, &fingerprints).expect("two controllers");
            assert_eq!(targets.len(), 2);
        }
        let three = [both, words(&["https://c"])].concat();
        let error = targets(&three, &[one, two]).expect_err("one is missing");
        assert!(error.contains("in the same order"), "{error}");
    }

    #[test]
    fn a_file_of_root_may_be_readable_by_the_accounts_group() {
        let (root, own) = (0, 10_001);
        assert!(!is_for_others(0o440, root, own));
        assert!(!is_for_others(0o400, own, own));
        for (mode, owner, account) in [
            (0o444, root, own),
            (0o460, root, own),
            (0o440, root, root),
            (0o440, own, own),
        ] {
            assert!(is_for_others(mode, owner, account), "{mode:o} of {owner}");
        }
    }

    #[test]
    fn a_token_is_read_only_from_a_private_file() {
        let (_folder, path) = file("mp-secret\n", 0o600);
        assert_eq!(read_token(&path), Ok("mp-secret".to_owned()));
        let (_folder, path) = file("mp-secret\n", 0o644);
        let error = read_token(&path).expect_err("others can read it");
        assert!(
            error.contains("chmod 600") && !error.contains("mp-secret"),
            "{error}"
        );
        let (_folder, path) = file("\n", 0o600);
        assert!(
            read_token(&path)
                .expect_err("empty")
                .contains("nodes token")
        );
    }

    #[test]
    fn only_a_folder_of_a_node_is_removed_with_its_content() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(is_for_node(&folder.path().join("absent")));
        assert!(is_for_node(folder.path()));
        std::fs::write(folder.path().join("thesis.tex"), "x").expect("written");
        assert!(!is_for_node(folder.path()), "a person's files");
        std::fs::write(folder.path().join("lock"), "").expect("written");
        assert!(is_for_node(folder.path()), "left by a node");
    }
}
