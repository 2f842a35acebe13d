//! Runs a cluster's program with a deadline, bounded output, and few variables, which keeps secrets of this process's environment
//! out of jobs. Kills a program that takes too long, with everything that it started.

use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use super::ClusterError;

const STDERR_BYTES_MAX: usize = 64 << 10;
const MESSAGE_CHARACTERS: usize = 600;
/// Variables that a cluster's programs need. `sbatch` passes its environment on to the job, as does `qsub` if a site wants it.
const VARIABLES: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "KRB5CCNAME",
    "LD_LIBRARY_PATH",
    "SLURM_CONF",
    "SLURM_CLUSTERS",
    "PBS_CONF_FILE",
    "PBS_SERVER",
];

/// One call of a program.
pub(super) struct Call<'a> {
    /// The program's name in messages.
    pub name: &'a str,
    /// A path, or a name to be found on the PATH.
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// Text for standard input.
    pub input: &'a str,
    pub deadline: Duration,
    pub output_bytes_max: usize,
    /// Variables in addition to `VARIABLES`.
    pub variables: &'a [(&'a str, &'a str)],
    /// The configuration key of the deadline.
    pub deadline_key: &'static str,
    /// Advice for a missing program.
    pub advice: &'static str,
}

/// The result of a program that ended.
#[derive(Debug)]
pub(super) struct ProgramResult {
    pub status: ExitStatus,
    pub stdout: String,
    /// The complete standard error.
    pub errors: String,
    /// The end of standard error, on one line.
    pub message: String,
}

/// A program and all processes that it started. Killed if dropped before the program's end.
struct Group {
    child: Child,
    /// The process group's number, kept here because an ended child no longer has it and its descendants may still run.
    pid: Option<Pid>,
    is_running: bool,
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(pid) = self.pid.filter(|_| self.is_running) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

/// # Errors
/// If the program is missing, takes too long, or prints too much. An exit status other than 0 is not an error.
pub(super) async fn run(call: Call<'_>) -> Result<ProgramResult, ClusterError> {
    let mut command = Command::new(&call.program);
    command
        .args(&call.arguments)
        .env_clear()
        .envs(
            std::env::vars_os().filter(|(name, _)| VARIABLES.iter().any(|allowed| name == allowed)),
        )
        .envs(call.variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    let child = command.spawn().map_err(|error| ClusterError::Missing {
        program: call.program.display().to_string(),
        error: error.to_string(),
        advice: call.advice,
    })?;
    let pid = child.id().and_then(|id| i32::try_from(id).ok());
    let mut group = Group {
        child,
        pid: pid.and_then(Pid::from_raw),
        is_running: true,
    };
    let ended = tokio::time::timeout(call.deadline, exchange(&mut group.child, &call)).await;
    match ended {
        Ok(Ok(ended)) => {
            group.is_running = false;
            Ok(ended)
        }
        Ok(Err(error)) => Err(ClusterError::Output {
            program: call.name.to_owned(),
            message: error.to_string(),
        }),
        Err(_) => Err(ClusterError::Timeout {
            program: call.name.to_owned(),
            after: call.deadline,
            note: "",
            key: call.deadline_key,
        }),
    }
}

async fn exchange(child: &mut Child, call: &Call<'_>) -> io::Result<ProgramResult> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // A program may ignore its input.
            let _ = stdin.write_all(call.input.as_bytes()).await;
        }
        Ok(())
    };
    let ((), stdout, stderr, status) = tokio::try_join!(
        write,
        bounded(stdout, call.output_bytes_max, "standard output"),
        bounded(stderr, STDERR_BYTES_MAX, "standard error"),
        child.wait(),
    )?;
    let errors = String::from_utf8_lossy(&stderr).into_owned();
    Ok(ProgramResult {
        status,
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        message: one_line(&errors),
        errors,
    })
}

async fn bounded(
    stream: Option<impl AsyncRead + Unpin>,
    bytes_max: usize,
    name: &str,
) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        let most = u64::try_from(bytes_max).unwrap_or(u64::MAX);
        stream
            .take(most.saturating_add(1))
            .read_to_end(&mut bytes)
            .await?;
    }
    if bytes.len() > bytes_max {
        Err(io::Error::other(format!(
            "its {name} has more than {bytes_max} bytes"
        )))
    } else {
        Ok(bytes)
    }
}

/// The text on one line without control characters; only its end if it is long.
pub(super) fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let lines: Vec<&str> = lines.into_iter().filter(|line| !line.is_empty()).collect();
    let joined: Vec<char> = lines
        .join("; ")
        .chars()
        .filter(|letter| !letter.is_control())
        .collect();
    let skipped = joined.len().saturating_sub(MESSAGE_CHARACTERS);
    joined[skipped..].iter().collect()
}

impl ProgramResult {
    /// The message, or the exit status if the program printed nothing.
    pub fn reason(&self) -> String {
        if self.message.is_empty() {
            format!("it printed nothing ({})", self.status)
        } else {
            self.message.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, deadline: Duration) -> Call<'_> {
        Call {
            name: "sh",
            program: "/bin/sh".into(),
            arguments: vec!["-c".to_owned(), script.to_owned()],
            input: "in",
            deadline,
            output_bytes_max: 1000,
            variables: &[("EXTRA", "yes")],
            deadline_key: "cluster.command.timeout",
            advice: "install it",
        }
    }

    const LONG: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn stdin_output_and_status_are_passed_and_the_environment_is_not_inherited() {
        let script =
            "cat; echo \" $EXTRA $CARGO_MANIFEST_DIR.\"; printf 'one\\n\\033two\\n' >&2; exit 3";
        let ended = run(shell(script, LONG)).await.expect("run");
        assert_eq!(ended.stdout, "in yes .\n");
        assert_eq!(
            (ended.status.code(), ended.reason()),
            (Some(3), "one; two".to_owned())
        );
    }

    #[tokio::test]
    async fn a_program_that_hangs_is_killed_with_its_children_even_if_it_has_ended_before_them() {
        for end in ["wait", "exit 0"] {
            let folder = tempfile::tempdir().expect("a folder");
            let file = folder.path().join("pid");
            let script = format!("sleep 600 & echo $! > {}; {end}", file.display());
            let error = run(shell(&script, Duration::from_millis(500))).await;
            let error = error.expect_err("too long");
            assert!(error.is_unknown() && error.to_string().contains("cluster.command.timeout"));
            let child = std::fs::read_to_string(&file).expect("its child");
            let process = format!("/proc/{}/stat", child.trim());
            // A killed process stays a zombie until its new parent reaps it.
            while std::fs::read_to_string(&process).is_ok_and(|stat| !stat.contains(") Z ")) {
                tokio::task::yield_now().await;
            }
        }
    }

    #[tokio::test]
    async fn too_much_output_and_a_missing_program_are_errors() {
        let error = run(shell("yes", LONG)).await.expect_err("too much");
        assert!(
            error.to_string().contains("more than 1000 bytes"),
            "{error}"
        );
        let missing = Call {
            program: "/nonexistent/sbatch".into(),
            ..shell("", LONG)
        };
        let error = run(missing).await.expect_err("missing");
        assert!(
            !error.is_unknown() && error.to_string().contains("install it"),
            "{error}"
        );
    }
}
