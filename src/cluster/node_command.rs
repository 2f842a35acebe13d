//! The command line of a node in a job's script. Every word is quoted for the shell.

use std::borrow::Cow;
use std::fmt::Display;
use std::path::Path;

use config::ClusterSection;

/// The site's own lines of a script, such as `module load cuda`. A line that fails ends the script, with a message in the job's log.
/// `key` names the section of the lines. Empty without lines.
pub(super) fn setup(text: &str, key: &str) -> String {
    match text.trim() {
        "" => String::new(),
        text => format!(
            "trap 'echo \"model-pool: a command of {key}.setup failed with status $?, so the job ends\" >&2' EXIT
set -e
{text}
set +e
trap - EXIT
"
        ),
    }
}

/// `name`, `data` and `demand` are already quoted for the shell.
pub(super) fn node_command(
    section: &ClusterSection,
    name: &str,
    data: &str,
    demand: Option<impl Display>,
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
    if is_of_lease(section) {
        words.push("--remove-data".into());
    }
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

/// Returns true if each lease has its own folder.
fn is_of_lease(section: &ClusterSection) -> bool {
    let folder = section.node_data.as_deref();
    folder.is_none_or(|folder| folder.contains("%j"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_setup_ends_the_job_before_its_node_starts() {
        for shell in ["bash", "sh"] {
            for (lines, starts) in [
                ("false\nexport A=1", false),
                ("no-such-module load cuda", false),
                ("load() { return 3; }\nload", false),
                (
                    "export A=1\n[ -f /nonexistent ] && . /nonexistent\ntrue",
                    true,
                ),
                ("false || true", true),
                ("", true),
            ] {
                // A command that fails after the setup is not the setup's.
                let script = format!("{}false\necho the node starts", setup(lines, "cluster.x"));
                let run = std::process::Command::new(shell)
                    .args(["-c", &script])
                    .output()
                    .expect("a shell");
                let (out, errors) = (
                    String::from_utf8_lossy(&run.stdout).into_owned(),
                    String::from_utf8_lossy(&run.stderr).into_owned(),
                );
                assert_eq!(run.status.success(), starts, "{shell}: {lines}");
                assert_eq!(out.contains("the node starts"), starts, "{shell}: {lines}");
                let is_reported = errors.contains("a command of cluster.x.setup failed");
                assert_eq!(is_reported, !starts, "{shell}: {lines}: {errors}");
            }
        }
    }
}
