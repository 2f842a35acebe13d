//! The command line of a node in a job's script. Every word is quoted for the shell.

use std::borrow::Cow;
use std::path::Path;

use config::ClusterSection;

/// `name` and `data` are already quoted for the shell.
pub(super) fn node_command(
    section: &ClusterSection,
    name: &str,
    data: &str,
    demand: Option<u64>,
) -> String {
    let mut words = vec![quoted(&section.program), "node".into()];
    let mut option = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            words.push(format!("--{name} {value}").into());
        }
    };
    for address in section
        .controller
        .iter()
        .flat_map(|addresses| addresses.iter())
    {
        option("controller", Some(plain(address)));
    }
    option("name", Some(name.to_owned()));
    let token_file = section.token_file.as_deref().map(Path::to_string_lossy);
    option("token-file", token_file.as_deref().map(plain));
    option("fingerprint", section.fingerprint.as_deref().map(plain));
    option("demand", demand.map(|demand| demand.to_string()));
    option("data", Some(data.to_owned()));
    words.extend(section.node_options.iter().map(|option| quoted(option)));
    words.join(" ")
}

/// The folder for a node's state as a word of the shell. `id` is the shell's expression for the lease's id, and `default` the
/// folder's name in `TMPDIR`, which keeps two jobs on one machine apart.
pub(super) fn data(section: &ClusterSection, id: &str, default: &str) -> String {
    match &section.node_data {
        None => format!("\"${{TMPDIR:-/tmp}}/{default}\""),
        Some(folder) => {
            let parts: Vec<String> = folder.split("%j").map(plain).collect();
            parts.join(&format!("\"{id}\""))
        }
    }
}

pub(super) fn plain(text: &str) -> String {
    match text {
        "" => String::new(),
        text => quoted(text).into_owned(),
    }
}

pub(super) fn quoted(text: &str) -> Cow<'_, str> {
    // Only a zero byte cannot be quoted, and the configuration refuses it.
    shlex::try_quote(text).unwrap_or(Cow::Borrowed("''"))
}
